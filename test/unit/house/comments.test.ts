import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");

/** A comment that begins so has to be read together with another one, or hides its subject. */
const OPENINGS = /^\s*(?:\/\*\*|\/\/|--|\*|#)\s+(?:What|Whether|The same|Those|One that)\b/;

/** All code and configuration but for pages and what is installed or made. */
const SOURCES = [
  "{src,lua,test,tools,bench,examples}/**/*.{ts,js,lua}",
  "{config,deploy,.github}/**/*.{yaml,cfg,conf,sh}",
  ".ci/run",
  "deploy/systemd/tollgate",
];

const findOpenings = (source: string): string[] => source.split("\n").filter((line) => OPENINGS.test(line));

test("every comment names its subject", () => {
  const found = globSync(SOURCES, {
    cwd: ROOT,
    exclude: ["**/node_modules/**", "test/unit/house/comments.test.ts"],
  }).flatMap((file) =>
    findOpenings(readFileSync(join(ROOT, file), "utf8")).map((line) => `${file}: ${line.trim()}`),
  );
  expect(found).toEqual([]);
});

test.each(["/** What it takes. */", " * Whether it is.", "// The same for keys.", "-- Those of a key."])(
  "a comment that hides its subject is found: %s",
  (comment) => {
    expect(findOpenings(`const a = 1;\n${comment}\nconst b = 2;`)).toEqual([comment]);
  },
);

test("a comment with a subject is not found", () => {
  expect(findOpenings("/** True if it is. */\n-- Sums what was sold.")).toEqual([]);
});
