import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { surfacesOfOperation, surfacesWithoutLimit } from "./recipes/surfaces.ts";

const ROOT = join(import.meta.dirname, "../../..");
const RECIPES = "test/unit/house/recipes";
const run = promisify(execFile);

// A limit of keys, tiers and accounts, `hourly_limit`, which test/lua/new-limit.test.ts shows to refuse; and an operation, `renameAccount`.
const RECIPE_FILES_MAX = { "limit.patch": 3, "operation.patch": 8 } as const;
type Recipe = keyof typeof RECIPE_FILES_MAX;
/** Files that the patches change, and files that the surfaces are read with. */
const COPIED = [
  "src",
  "lua",
  "package.json",
  "tsconfig.json",
  "CHANGELOG.md",
  "test/gateway/cli-operators.test.ts",
  `${RECIPES}/surfaces.ts`,
];
const PRINT_SURFACES = `
  import { surfacesOfOperation, surfacesWithoutLimit } from "./${RECIPES}/surfaces.ts";
  const lacking = await surfacesWithoutLimit("hourly_limit");
  console.log(JSON.stringify({ lacking, operation: surfacesOfOperation("renameAccount", "accounts rename") }));
`;

let folder: string;
/** @returns all that a program prints in the copy */
const inCopy = (file: string, ...args: string[]): Promise<string> =>
  run(file, args, { cwd: folder }).then(
    ({ stdout }) => stdout,
    (error: { stdout: string; stderr: string }) => error.stdout + error.stderr,
  );
const changedFiles = async (recipe: Recipe): Promise<string[]> =>
  (await inCopy("git", "apply", "--numstat", join(ROOT, RECIPES, recipe))).trim().split("\n");

describe("recipes", { timeout: 180_000 }, () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tollgate-recipes-"));
    for (const name of COPIED) await cp(join(ROOT, name), join(folder, name), { recursive: true });
    await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
    await writeFile(
      join(folder, "tsconfig.src.json"),
      '{ "extends": "./tsconfig.json", "include": ["src"] }',
    );
    return () => rm(folder, { recursive: true });
  });

  test.each(["limit.patch", "operation.patch"] as const)("%s changes few files", async (recipe) => {
    const files = await changedFiles(recipe);
    expect(files.length, files.join("\n")).toBeLessThanOrEqual(RECIPE_FILES_MAX[recipe]);
  });

  test("what they add is nowhere before", async () => {
    expect(await surfacesWithoutLimit("hourly_limit")).toHaveLength(12);
    const nowhere = { scope: undefined, isDescribed: false, required: undefined, hasActor: undefined };
    expect(surfacesOfOperation("renameAccount", "accounts rename")).toEqual(nowhere);
  });

  test("each surface has the limit and the operation, and all types are right", async () => {
    for (const recipe of Object.keys(RECIPE_FILES_MAX))
      expect(await inCopy("git", "apply", join(ROOT, RECIPES, recipe))).toBe("");
    const printed = await inCopy(process.execPath, "--input-type=module", "--eval", PRINT_SURFACES);
    expect(JSON.parse(printed)).toEqual({
      lacking: [],
      operation: { scope: "accounts:write", isDescribed: true, required: ["--label"], hasActor: true },
    });
    const tsc = join(ROOT, "node_modules/.bin/tsc");
    expect(await inCopy(tsc, "--noEmit", "--singleThreaded", "-p", "tsconfig.src.json")).toBe("");
  });
});
