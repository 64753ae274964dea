import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { adminOpenApi } from "../../../tools/management-openapi.ts";

const ROOT = join(import.meta.dirname, "../../..");

// Guarantee: a client's types, made from the description of the management API with default options, compile, and the shop with them.

const run = promisify(execFile);
const SHOP = join(ROOT, "examples/shop");
const MODULES = join(SHOP, "node_modules");

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-shop-"));
  for (const file of ["shop.ts", "tollgate.ts", "tsconfig.json", "package.json"])
    await cp(join(SHOP, file), join(folder, file));
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
  await writeFile(join(folder, "openapi.json"), adminOpenApi.text());
  const generator = join(MODULES, "openapi-typescript/bin/cli.js");
  await run(process.execPath, [generator, "openapi.json", "--output", "management.d.ts"], { cwd: folder });
  return () => rm(folder, { recursive: true });
});

/** The compiler's output, a line a problem. */
const compile = (): Promise<string[]> =>
  run(process.execPath, [join(MODULES, "typescript/bin/tsc")], { cwd: folder }).then(
    () => [],
    (error: { stdout: string }) => error.stdout.trimEnd().split("\n"),
  );

test("the shop compiles with generated types, and would not with a field that there is not", async () => {
  const text = await readFile(join(SHOP, "shop.ts"), "utf8");
  // Beside the other, so that the compiler reads all types once.
  await writeFile(
    join(folder, "wrong-shop.ts"),
    text.replace("{ label, status, balance }", "{ label, state, balance }"),
  );
  const problems = await compile();
  expect(problems.filter((line) => !/^(wrong-shop\.ts\(| )/.test(line))).toEqual([]);
  expect(problems.join("\n")).toContain("Property 'state' does not exist");
});
