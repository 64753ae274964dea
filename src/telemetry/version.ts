import { readFileSync } from "node:fs";
import packageJson from "../../package.json" with { type: "json" };

/** Set by tools/bundle.ts. */
declare const BUNDLED_REVISION: string | undefined;

export const VERSION = packageJson.version;

/** The commit, 12 digits; `unknown` without a Git folder. */
export const REVISION = (
  typeof BUNDLED_REVISION === "string" ? BUNDLED_REVISION : checkedOutRevision()
).slice(0, 12);

function checkedOutRevision(): string {
  const read = (name: string): string =>
    readFileSync(`${import.meta.dirname}/../../.git/${name}`, "utf8").trim();
  try {
    const head = read("HEAD");
    return head.startsWith("ref: ") ? read(head.slice("ref: ".length)) : head;
  } catch {
    return "unknown";
  }
}
