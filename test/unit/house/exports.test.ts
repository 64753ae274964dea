import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");
/** Where what is exported may be used. */
const USERS = ["src", "test", "tools", "bench"];
/** Not cleared yet. */
const LATER = /^src\/(upstream\/|gateway\/uploads|settlement\/)/;
const DECLARED =
  /^export (?:declare )?(?:async )?(?:const|let|function\*?|class|interface|type|enum) ([A-Za-z_$][\w$]*)/gm;

/** Exported names that no other file has. */
function unusedIn(texts: ReadonlyMap<string, string>): string[] {
  const users = new Map<string, number>();
  for (const text of texts.values())
    for (const word of new Set(text.match(/[A-Za-z_$][\w$]*/g))) users.set(word, (users.get(word) ?? 0) + 1);
  return [...texts]
    .filter(([file]) => file.startsWith("src/") && !LATER.test(file))
    .flatMap(([file, text]) =>
      [...text.matchAll(DECLARED)].flatMap(([, name]) =>
        users.get(name!) === 1 ? [`${file}: ${name}`] : [],
      ),
    );
}

const all = new Map(
  USERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((file) => /\.(ts|js|mjs)$/.test(file))
      .map((file) => [`${folder}/${file}`, readFileSync(join(ROOT, folder, file), "utf8")] as const),
  ),
);

test("what is exported is used in another file", () => {
  expect(unusedIn(all)).toEqual([]);
});

test("an export that nobody uses is found", () => {
  // This file is read, too, so the name may not stand in it.
  const [own, name] = ["src/domain/lonely.ts", ["lone", "liest"].join("")];
  const texts = new Map([...all, [own, `export const ${name} = 1;\n`]] as const);
  expect(unusedIn(texts)).toEqual([`${own}: ${name}`]);
});
