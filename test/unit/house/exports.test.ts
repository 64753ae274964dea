import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");
/** Where what is exported may be used. */
const USERS = ["src", "test", "tools", "bench"];
const DECLARED =
  /^export (?:declare )?(?:async )?(?:const|let|function\*?|class|interface|type|enum) ([A-Za-z_$][\w$]*)/gm;
/** `import { one, type two as three } from "./file.ts"`; without braces all of the file is used, as by `import("./file.ts")`. */
const IMPORTED =
  /(?:\b(?:import|export)\b[^;{}"']*(?:\{([^}]*)\})?\s*from\s*|\bimport\(\s*)["'](\.[^"']+)["']/g;

/** Exported names that no other file imports. */
function unusedIn(texts: ReadonlyMap<string, string>): string[] {
  const used = new Set<string>();
  for (const [file, text] of texts)
    for (const [, names = "*", from = ""] of text.matchAll(IMPORTED))
      for (const name of names.split(","))
        used.add(
          `${join(dirname(file), from)}: ${
            name
              .trim()
              .replace(/^type /, "")
              .split(" as ")[0]
          }`,
        );
  return [...texts]
    .filter(([file]) => /^src\/.*(?<!\.d)\.(ts|js)$/.test(file) && !used.has(`${file}: *`))
    .flatMap(([file, text]) => [...text.matchAll(DECLARED)].map(([, name]) => `${file}: ${name}`))
    .filter((one) => !used.has(one));
}

const all = new Map(
  USERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((file) => /\.(ts|js|mjs)$/.test(file) && !file.includes("node_modules"))
      .map((file) => [`${folder}/${file}`, readFileSync(join(ROOT, folder, file), "utf8")] as const),
  ),
);

test("what is exported is imported by another file", () => {
  expect(unusedIn(all)).toEqual([]);
});

test("an export that nobody imports is found, also where another file has the same name", () => {
  const texts = new Map([
    ...all,
    ["src/domain/lonely.ts", "export const lonely = 1;\n"],
    ["src/domain/other.ts", "const lonely = 2;\nexport const used = lonely;\n"],
    ["src/domain/user.ts", 'import { used } from "./other.ts";\n'],
  ] as const);
  expect(unusedIn(texts)).toEqual(["src/domain/lonely.ts: lonely"]);
});
