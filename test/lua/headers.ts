import { readFileSync } from "node:fs";
import { join } from "node:path";

export const LUA_FOLDER = join(import.meta.dirname, "../../lua");

/** What the header of one verb promises. */
export interface Header {
  keys: number[];
  args: number[];
  /** The ARGV list goes on without end (`7..`). */
  open: boolean;
  /** ARGV numbers that are said to be unused. */
  unused: number[];
  outcomes: string[];
  /** All below the header. */
  body: string;
}

/** Reads the header of `lua/<verb>.lua`: the comment between the `#!lua` line and the first code. */
export function readHeader(verb: string): Header {
  const [, ...lines] = readFileSync(join(LUA_FOLDER, `${verb}.lua`), "utf8").split("\n");
  const length = lines.findIndex((line) => !line.startsWith("--"));
  const header = lines.slice(0, length);
  const section = (name: string): string[] => {
    const begin = header.findIndex((line) => line.startsWith(`-- ${name} `));
    if (begin === -1) throw new Error(`${verb}: no ${name} in the header`);
    const after = header.slice(begin + 1).findIndex((line) => /^-- [A-Z]{4,} /.test(line));
    return header.slice(begin, after === -1 ? undefined : begin + 1 + after);
  };
  const numbers = (name: string) => {
    const text = section(name)
      .map((line) => line.replace(/^-- +[A-Z]*/, ""))
      .join("  ");
    return [...text.matchAll(/ {2,}(\d+)(\.\.)? (.*?)(?= {2,}\d|$)/g)];
  };
  const args = numbers("ARGV");
  return {
    keys: numbers("KEYS").map(([, number]) => Number(number)),
    args: args.map(([, number]) => Number(number)),
    open: args.some(([, , more]) => more === ".."),
    unused: args.filter(([, , , what]) => what?.includes("(unused)")).map(([, number]) => Number(number)),
    outcomes: section("RETURNS").flatMap((line) => /^-- {3}(\w+)(?: {2,}|$)/.exec(line)?.[1] ?? []),
    body: lines.slice(length).join("\n"),
  };
}
