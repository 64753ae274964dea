import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };

/** Set by tools/bundle.ts. */
declare const BUNDLED_REVISION: string | undefined;

export const VERSION = packageJson.version;

/** The commit, 12 digits; `unknown` without a Git folder. */
export const REVISION = (
  typeof BUNDLED_REVISION === "string" ? BUNDLED_REVISION : checkedOutRevision()
).slice(0, 12);

/** In a worktree of its own `.git` is a file that names the folder; after `git gc` a branch stands in `packed-refs` only. */
function checkedOutRevision(): string {
  const read = (...path: string[]): string => readFileSync(join(...path), "utf8").trim();
  const git = join(import.meta.dirname, "../../.git");
  try {
    const own = statSync(git).isFile() ? read(git).replace("gitdir: ", "") : git;
    const head = read(own, "HEAD");
    if (!head.startsWith("ref: ")) return head;
    const branch = head.slice("ref: ".length);
    const shared = existsSync(join(own, "commondir")) ? join(own, read(own, "commondir")) : own;
    if (existsSync(join(shared, branch))) return read(shared, branch);
    const packed = read(shared, "packed-refs").split("\n");
    return packed.find((line) => line.endsWith(` ${branch}`)) ?? "unknown";
  } catch {
    return "unknown";
  }
}
