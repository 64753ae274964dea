import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { LIMITS } from "../../../src/domain/limits.ts";

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
