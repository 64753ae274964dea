import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const LUA_FOLDER = join(import.meta.dirname, "../../lua");

const INCLUDES = readdirSync(join(LUA_FOLDER, "include")).map((name) => name.replace(".lua", ""));

/** What the header of one script promises. */
export interface Header {
  keys: number[];
  args: number[];
  /** The ARGV list goes on without end (`7..`). */
  open: boolean;
  outcomes: string[];
  /** All below the header. */
  body: string;
}

/**
 * What `-- BOUND` in a script's header says: commands, and values that they answer, of one call, or of one item of a batched
 * script. However large an account is, a call takes no more of them.
 */
export function boundOf(text: string): number {
  const bound = /^-- BOUND {2}(\d+|none)(?: {2}|: )\S/m.exec(text)?.[1];
  if (bound === undefined) throw new Error("no BOUND in the header");
  return bound === "none" ? Number.POSITIVE_INFINITY : Number(bound);
}

/** Reads the header of `lua/<name>.lua`. */
export const readHeader = (name: string): Header => parseHeader(readScript(name));

export const readScript = (name: string): string => readFileSync(join(LUA_FOLDER, `${name}.lua`), "utf8");

/** The header is the comment between the `#!lua` line and the first code. */
function parseHeader(text: string): Header {
  const [, ...lines] = text.split("\n");
  const length = lines.findIndex((line) => !line.startsWith("-- ") && line !== "--");
  const header = lines.slice(0, length);
  const section = (name: string): string[] => {
    const begin = header.findIndex((line) => line.startsWith(`-- ${name} `));
    if (begin === -1) throw new Error(`no ${name} in the header`);
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
    outcomes: section("RETURNS").flatMap((line) => /^-- {3}(\w+)(?: {2,}|$)/.exec(line)?.[1] ?? []),
    body: lines.slice(length).join("\n"),
  };
}

const sorted = (numbers: Iterable<number>): number[] => [...new Set(numbers)].sort((a, b) => a - b);

/** Every `name[n]` of a text. */
export const numbersIn = (text: string, name: string): number[] =>
  sorted([...text.matchAll(new RegExp(`\\b${name}\\[(\\d+)\\]`, "g"))].map(([, number]) => Number(number)));

/** Every outcome that a body can answer: the literals where a reply names its outcome, or sets the variable for it. */
function outcomesOf(body: string): string[] {
  const places = [
    ...body.matchAll(/\b(?:reply|reply_with|answer)\(([^,)]*)/g),
    ...body.matchAll(/\breturn \{ ([^,}]*)/g),
    ...body.matchAll(/\boutcome = ([^\n]*)/g),
  ].map(([, expression]) => expression ?? "");
  const literals = places.flatMap((expression) => [...expression.matchAll(/(==|~=)? ?"(\w+)"/g)]);
  return [...new Set(literals.flatMap(([, compared, literal]) => (compared ? [] : (literal ?? []))))].sort();
}

/** What a script's header says otherwise than its body does. */
export function liesOf(text: string): string[] {
  const { keys, args, open, outcomes, body } = parseHeader(text);
  const rest = /unpack\(ARGV, (\d+)\)/.exec(body)?.[1];
  const used = sorted([...numbersIn(body, "ARGV"), ...(rest ? [Number(rest)] : [])]);
  const pairs: [string, unknown, unknown][] = [
    ["KEYS", keys, numbersIn(body, "KEYS")],
    ["ARGV", args, used],
    ["ARGV without end", open, rest !== undefined],
    ["RETURNS", [...outcomes].sort(), outcomesOf(body)],
  ];
  return pairs.flatMap(([what, said, done]) =>
    JSON.stringify(said) === JSON.stringify(done)
      ? []
      : `${what}: ${JSON.stringify(said)}, ${JSON.stringify(done)}`,
  );
}

/** What the replies in a text have as their second value, each once; of a call its name. */
export const secondValuesOf = (text: string): string[] => [
  ...new Set(
    [...text.matchAll(/\breturn (?:\{ |reply(?:_with)?\()[^,]*, ([\w".]+)/g)].map(([, value]) => value!),
  ),
];

/** The names after `--@include`. */
export const includesOf = (text: string): string[] =>
  [...text.matchAll(/^--@include (\w+)$/gm)].map(([, name]) => name!);

/** Functions and constants that a file defines for whoever includes it. */
const definedIn = (text: string): string[] =>
  [...text.matchAll(/^local (?:function )?(\w+)/gm)].map(([, name]) => name!);

const isUsed = (name: string, text: string): boolean => new RegExp(`\\b${name}\\b`).test(text);
const withoutComments = (text: string): string => text.replaceAll(/--.*$/gm, "");

/** What a file uses of others without including them itself, and what it includes and does not use. */
export function undeclared(file: string): { missing: string[]; unused: string[] } {
  const text = readScript(file);
  const code = withoutComments(text);
  const included = includesOf(text);
  const others = INCLUDES.filter((name) => `include/${name}` !== file);
  const uses = (name: string): boolean =>
    definedIn(readScript(`include/${name}`)).some((one) => isUsed(one, code));
  return {
    missing: others.filter((name) => uses(name) && !included.includes(name)),
    unused: included.filter((name) => !uses(name)),
  };
}
