import { readdirSync } from "node:fs";
import { join } from "node:path";
import { readScript } from "../../src/redis/script-source.ts";

export const LUA_FOLDER = join(import.meta.dirname, "../../lua");

const INCLUDES = readdirSync(join(LUA_FOLDER, "include")).map((name) => name.replace(".lua", ""));

/** The promises in the header of one script. */
export interface Header {
  /** Names of records, and of other arguments; the last one may be `name...`. */
  keys: string[];
  args: string[];
  outcomes: string[];
  /** All below the header. */
  body: string;
}

/**
 * The number behind `-- BOUND` in a script's header: commands, and values that they answer, of one call, or of one item of a batched
 * script. However large an account is, a call takes no more of them.
 */
export function boundOf(text: string): number {
  const bound = /^-- BOUND {2}(\d+|none)(?: {2}|: )\S/m.exec(text)?.[1];
  if (bound === undefined) throw new Error("no BOUND in the header");
  return bound === "none" ? Number.POSITIVE_INFINITY : Number(bound);
}

/** Reads the header of a script. */
export const readHeader = (name: string): Header => parseHeader(readScript(name));

/** The header is the comment between the `#!lua` line and the first code, with the directives behind it. */
function parseHeader(text: string): Header {
  const [, ...lines] = text.split("\n");
  const length = lines.findIndex((line) => !line.startsWith("-- ") && line !== "--");
  const header = lines.slice(0, length);
  const begin = header.findIndex((line) => line.startsWith("-- RETURNS "));
  if (begin === -1) throw new Error("no RETURNS in the header");
  const named = (word: string): string[] =>
    [...text.matchAll(new RegExp(`^--@${word} (.+)$`, "gm"))].flatMap(([, names = ""]) => names.split(" "));
  return {
    keys: named("keys"),
    args: named("args"),
    outcomes: header.slice(begin).flatMap((line) => /^-- {3}(\w+)(?: {2,}|$)/.exec(line)?.[1] ?? []),
    body: lines
      .slice(length)
      .filter((line) => !/^--@(keys|args|include) /.test(line))
      .join("\n"),
  };
}

/**
 * Every outcome that a body can answer: the literals where a reply names its outcome, or sets the variable for it; those of the
 * limits, and of a repeat, where it answers theirs.
 */
function outcomesOf(own: string): string[] {
  const answering = { "refusal_of(": "limits", "refuse_repeat(": "references" };
  const included = Object.entries(answering).filter(([call]) => own.includes(call));
  const body = own + included.map(([, file]) => readScript(`include/${file}`)).join("");
  const places = [
    ...body.matchAll(/\breturn ("\w+_limited"), /g),
    ...body.matchAll(/\b(?:reply|reply_with|answer|refuse)\(([^,)]*)/g),
    ...body.matchAll(/\breturn \{ ([^,}]*)/g),
    ...body.matchAll(/\boutcome = ([^\n]*)/g),
  ].map(([, expression]) => expression ?? "");
  const literals = places.flatMap((expression) => [...expression.matchAll(/(==|~=)? ?"(\w+)"/g)]);
  return [...new Set(literals.flatMap(([, compared, literal]) => (compared ? [] : (literal ?? []))))].sort();
}

/** Promises in a script's header that its body does not keep. */
export function liesOf(text: string): string[] {
  const { keys, args, outcomes, body } = parseHeader(text);
  const unused = (names: readonly string[]): string[] =>
    names.map((name) => name.replace(/\W+$/, "")).filter((name) => !isUsed(name, withoutTexts(body)));
  const lies = [
    ...unused(keys).map((name) => `KEYS: ${name}`),
    // The loader makes a number of `now` in every script.
    ...unused(args.slice(1)).map((name) => `ARGV: ${name}`),
    ...(args[0] === "now" ? [] : ["ARGV: now"]),
    ...(/\b(KEYS|ARGV)\b/.test(withoutComments(body)) ? ["BODY: KEYS or ARGV"] : []),
  ];
  const [stated, done] = [JSON.stringify([...outcomes].sort()), JSON.stringify(outcomesOf(body))];
  return stated === done ? lies : [...lies, `RETURNS: ${stated}, ${done}`];
}

/** Second values of the replies in a text, each once: of a call its name, but `int(now)` is now, as a text. */
export const secondValuesOf = (text: string): string[] => [
  ...new Set(
    [...text.matchAll(/\breturn (?:\{ |reply(?:_with)?\()[^,]*, (?:int\((now)\)|([\w".]+))/g)].map(
      ([, now, value]) => now ?? value!,
    ),
  ),
];

/** The names after `--@include`. */
export const includesOf = (text: string): string[] =>
  [...text.matchAll(/^--@include (.+)$/gm)].flatMap(([, names]) => names!.split(" "));

/** Functions and constants that a file defines for whoever includes it. */
const definedIn = (text: string): string[] =>
  [...text.matchAll(/^local (?:function )?(\w+)/gm)].map(([, name]) => name!);

const isUsed = (name: string, text: string): boolean => new RegExp(`\\b${name}\\b`).test(text);
const withoutComments = (text: string): string => text.replaceAll(/--(?!@).*$/gm, "");
/** Code alone: neither comments nor what stands in quotation marks. */
const withoutTexts = (text: string): string => withoutComments(text).replaceAll(/"[^"\n]*"|'[^'\n]*'/g, '""');

/** Functions that a file uses without including their file, and files that it includes and does not use. */
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
