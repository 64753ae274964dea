import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ScriptFile } from "./script.ts";

const FOLDER = join(import.meta.dirname, "../../lua");
const INCLUDE = /^--@include (\w+)\n/gm;

/**
 * The text of a script as the store runs it: its `#!lua` line, what it includes from `lua/include`, its body. A batched
 * script's body becomes a function, which batch.lua calls for each item.
 * @param folder where the Lua files are; tests give mutants
 */
export function scriptSource({ name, isBatched }: ScriptFile, folder: string = FOLDER): string {
  const read = (file: string): string => readFileSync(join(folder, `${file}.lua`), "utf8");
  const text = read(name);
  const end = text.indexOf("\n") + 1;
  const body = text.slice(end);
  const included = [...includedBy(body, (file) => read(`include/${file}`)).values()].join("");
  const start = text.slice(0, end) + included;
  if (!isBatched) return start + withoutIncludes(body);
  return `${start}local function run(KEYS, ARGV)\n${withoutIncludes(body)}end\n${read("batch")}`;
}

/** The included files by name, each once and after those that it includes itself. */
function includedBy(
  text: string,
  read: (file: string) => string,
  found: Map<string, string> = new Map(),
): Map<string, string> {
  for (const [, file = ""] of text.matchAll(INCLUDE)) {
    if (found.has(file)) continue;
    const included = read(file);
    includedBy(included, read, found);
    found.set(file, withoutIncludes(included));
  }
  return found;
}

const withoutIncludes = (text: string): string => text.replaceAll(INCLUDE, "");
