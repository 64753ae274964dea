import { execFile } from "node:child_process";
import { cp, mkdtemp, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const ROOT = join(import.meta.dirname, "../..");
const RECIPES = join(ROOT, "test/unit/house/recipes");
const run = promisify(execFile);

/** A copy of the sources in a folder of its own, to which a patch of test/unit/house/recipes can be applied. */
export async function givenCopy(recipe: string, more: readonly string[] = []) {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-recipe-"));
  for (const name of ["src", "package.json", "tsconfig.json", ...more])
    await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
  await writeFile(join(folder, "tsconfig.src.json"), '{ "extends": "./tsconfig.json", "include": ["src"] }');

  /** @returns all that a program prints */
  const inFolder = (file: string, ...args: string[]): Promise<string> =>
    run(file, args, { cwd: folder }).then(
      ({ stdout }) => stdout,
      (error: { stdout: string; stderr: string }) => error.stdout + error.stderr,
    );
  const patch = join(RECIPES, recipe);
  return {
    folder,
    /** Files that the patch changes, by `git apply --numstat`. */
    files: async (): Promise<string[]> =>
      (await inFolder("git", "apply", "--numstat", patch)).trim().split("\n"),
    apply: (): Promise<string> => inFolder("git", "apply", patch),
    /** What a program of the copy prints. */
    evaluate: (text: string): Promise<string> =>
      inFolder(process.execPath, "--input-type=module", "--eval", text),
    /** Empty if all types are right. */
    types: (): Promise<string> =>
      inFolder(join(ROOT, "node_modules/.bin/tsc"), "--noEmit", "-p", "tsconfig.src.json"),
  };
}
