import { readdirSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { LIMITS } from "../../../src/domain/limits.ts";
import { givenCopy } from "../../support/recipe.ts";

const ROOT = join(import.meta.dirname, "../../..");

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

/** A new limit of keys, tiers and accounts, `hourly_limit`; test/lua/new-limit.test.ts shows that it refuses. */
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
    accounts: managementOpenApi(accountRoutes),
    keys: managementOpenApi(keyRoutes),
    tiers: managementOpenApi(catalogRoutes),
    use: managementOpenApi(todayRoutes),
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
  let copy: Awaited<ReturnType<typeof givenCopy>>;
  const lacking = async () => JSON.parse(await copy.evaluate(SURFACES));

  beforeAll(async () => {
    copy = await givenCopy("limit.patch", ["lua"]);
    return () => rm(copy.folder, { recursive: true });
  });

  test("is nowhere before it is declared", async () => {
    expect(await lacking()).toHaveLength(12);
  });

  test(`takes at most ${FILES_MAX} files of src and lua, and each surface then has it`, async () => {
    const patched = await copy.files();
    expect(patched.length, patched.join("\n")).toBeLessThanOrEqual(FILES_MAX);
    expect(await copy.apply()).toBe("");
    expect(await lacking()).toEqual([]);
    expect(await copy.types()).toBe("");
  });
});
