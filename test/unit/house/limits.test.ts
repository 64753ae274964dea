import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { LIMITS } from "../../../src/domain/limits.ts";

const ROOT = join(import.meta.dirname, "../../..");
const run = promisify(execFile);

/** Files that may name a limit. */
const NAMING = [
  "src/domain/limits.ts",
  // Command lines that the guide shows, each of which is run.
  "src/commands/examples.ts",
];

/** A limit as configuration and API, a property in camel case, or the command line name it. */
function namesIn(text: string, limits: readonly { name: string }[] = LIMITS): string[] {
  const spellings = limits.flatMap(({ name }) => [
    `\\b${name}\\b`,
    `\\b${name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase())}\\b`,
    `--${name.replaceAll("_", "-")}\\b`,
  ]);
  return text.match(new RegExp(spellings.join("|"), "g")) ?? [];
}

describe("limits are declared once", () => {
  test("no other file of src names one", async () => {
    const found: string[] = [];
    for (const file of readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })) {
      if (!/\.(ts|js|sql|html)$/.test(file)) continue;
      const names = namesIn(await readFile(join(ROOT, "src", file), "utf8"));
      if (names.length > 0 && !NAMING.includes(`src/${file}`)) found.push(`src/${file}: ${names.join(", ")}`);
    }
    expect(found).toEqual([]);
  });

  test("each spelling is found", () => {
    expect(namesIn("rate_limit rateLimit --rate-limit rate_limited rate-limit")).toEqual([
      "rate_limit",
      "rateLimit",
      "--rate-limit",
    ]);
  });
});

/** A new limit of keys, tiers and accounts, `hourly_limit`, as far as it is written in TypeScript. */
const RECIPE = join(import.meta.dirname, "recipes/limit.patch");
const FILES_MAX = 3;

/** Prints which surfaces name the limit of the recipe. */
const SURFACES = `
  import { openApiText } from "./src/api/document.ts";
  import { accountRoutes } from "./src/admin/api/routes/accounts.ts";
  import { keyRoutes } from "./src/admin/api/routes/keys.ts";
  import { catalogRoutes } from "./src/admin/api/routes/catalog.ts";
  import { todayRoutes } from "./src/admin/api/routes/today.ts";
  import { managementOpenApi } from "./src/admin/api/openapi.ts";
  import { pageFile } from "./src/admin/console/files.ts";
  import { accountsCommand } from "./src/commands/accounts.ts";
  import { keysCommand } from "./src/commands/keys.ts";
  import { tiersSchema } from "./src/config/sections/tiers.ts";
  import { ACCOUNT_FIELDS, KEY_FIELDS } from "./src/records/records.ts";
  import { packTiers } from "./src/scripts/include/limits.ts";
  const options = (command) => [command, ...command.commands].flatMap((one) => one.options.map(({ long }) => long));
  const texts = {
    settings: tiersSchema,
    customers: openApiText(),
    accounts: managementOpenApi(accountRoutes({})),
    keys: managementOpenApi(keyRoutes({})),
    tiers: managementOpenApi(catalogRoutes({})),
    use: managementOpenApi(todayRoutes({})),
    console: String((await pageFile("limits.js")).body),
    "account options": options(accountsCommand()).join().replaceAll("-", "_"),
    "key options": options(keysCommand()).join().replaceAll("-", "_"),
    "account record": [ACCOUNT_FIELDS],
    "key record": [KEY_FIELDS],
    scripts: packTiers({ standard: { hourly_limit: 271 } }).replace("271", "hourly_limit"),
  };
  const lacking = Object.entries(texts).filter(([, text]) => !JSON.stringify(text).includes("hourly_limit"));
  console.log(JSON.stringify(lacking.map(([name]) => name)));
`;

describe("a new limit", { timeout: 180_000 }, () => {
  let folder: string;
  const inFolder = (file: string, ...args: string[]): Promise<string> =>
    run(file, args, { cwd: folder }).then(
      ({ stdout }) => stdout,
      (error: { stdout: string; stderr: string }) => error.stdout + error.stderr,
    );
  const lacking = () => inFolder(process.execPath, "--input-type=module", "--eval", SURFACES);

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tollgate-limit-"));
    for (const name of ["src", "package.json", "tsconfig.json"])
      await cp(join(ROOT, name), join(folder, name), { recursive: true });
    await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
    await writeFile(
      join(folder, "tsconfig.src.json"),
      '{ "extends": "./tsconfig.json", "include": ["src"] }',
    );
    return () => rm(folder, { recursive: true });
  });

  test("is nowhere before it is declared", async () => {
    expect(JSON.parse(await lacking())).toHaveLength(12);
  });

  test(`takes at most ${FILES_MAX} files of src, and each surface then has it`, async () => {
    const patched = (await inFolder("git", "apply", "--numstat", RECIPE)).trim().split("\n");
    expect(patched.length, patched.join("\n")).toBeLessThanOrEqual(FILES_MAX);
    expect(await inFolder("git", "apply", RECIPE)).toBe("");
    expect(JSON.parse(await lacking())).toEqual([]);
    expect(await inFolder(join(ROOT, "node_modules/.bin/tsc"), "--noEmit", "-p", "tsconfig.src.json")).toBe(
      "",
    );
  });
});
