import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";

/** The commit that every cost is compared with, for ever. */
const COMMIT = "6b787620";
/** As tables name it. */
export const YARDSTICK = `yardstick ${COMMIT}`;
const ROOT = resolve(import.meta.dirname, "..");
const FOLDER = join(ROOT, ".tollgate", `yardstick-${COMMIT}`);

/**
 * The checkout of the yardstick, out of git's history, with our `node_modules`. It is kept for the next run.
 * @returns its folder
 * @throws Error where the history is not there, as in a shallow clone
 */
export function yardstickTree(): string {
  if (existsSync(FOLDER)) return FOLDER;
  const unfinished = `${FOLDER}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  let tar: Buffer;
  try {
    const parts = ["src", "lua", "config", "package.json"];
    tar = execFileSync("git", ["archive", COMMIT, ...parts], {
      cwd: ROOT,
      maxBuffer: 2 ** 28,
      stdio: "pipe",
    });
  } catch (cause) {
    throw new Error(`git has no commit ${COMMIT}; after a shallow clone: git fetch --unshallow`, { cause });
  }
  execFileSync("tar", ["-x", "-C", unfinished], { input: tar });
  symlinkSync(join(ROOT, "node_modules"), join(unfinished, "node_modules"));
  renameSync(unfinished, FOLDER);
  return FOLDER;
}
