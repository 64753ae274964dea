import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ScriptFile } from "../scripts/script-definition.ts";

const FOLDER = join(import.meta.dirname, "../../lua");
const INCLUDE = /^--@include (.+)\n/gm;
const FIRST_LINE = /^#!lua(?: flags=(\S+))?/;
/** In scripts that write: where they stop if the partition of this name is frozen. */
const UNLESS_FROZEN = /^--@unless_frozen (\w+)\n/m;

/** In an included file: the one function of it that others call, on few of their runs. */
const SELDOM = /^--@seldom (\w+)\n/m;

/** How many names and arguments an item of a batched script has; optional names at the end may be left out. */
export interface Counts {
  keyCount: number;
  argCount: number;
}

/** The arguments of a script by name, in their order, as `--@keys` and `--@args` in its header list them. */
interface ArgumentNames {
  keys: string[];
  /** `now` is the first, then `tiers` where the script takes them. The last one may be `name...`: a table of the rest. */
  args: string[];
}

function argumentNames(text: string): ArgumentNames {
  const named = (word: string): string[] =>
    [...text.matchAll(new RegExp(`^--@${word} (.+)$`, "gm"))].flatMap(([, names = ""]) => names.split(" "));
  return { keys: named("keys"), args: named("args") };
}

export function countsOf(text: string): Counts {
  const { keys, args } = argumentNames(text);
  return {
    keyCount: keys.length,
    argCount: args.filter((name) => name !== "now" && name !== "tiers").length,
  };
}

export type ScriptReader = (file: string) => string;

/** The files below a folder by name: a script's has no folder in it, what is included is `include/<name>`. */
export function scriptPaths(folder: string): Map<string, string> {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) =>
    path.endsWith(".lua"),
  );
  return new Map(paths.map((path) => [path.replace(/^(?!include\b).*\/|\.lua$/g, ""), join(folder, path)]));
}

/**
 * Reads all scripts of a folder at the first use: files that an upgrade replaces under a running process never mix with its code.
 * @returns the text of a file by its name: of a script without folders, else as `include/words`
 */
export function createScriptReader(folder: string): ScriptReader {
  let texts: ReadonlyMap<string, string> | undefined;
  return (file) => {
    texts ??= new Map([...scriptPaths(folder)].map(([name, path]) => [name, readFileSync(path, "utf8")]));
    const text = texts.get(file);
    if (text === undefined) throw new Error(`there is no ${file}.lua in ${folder}`);
    return text;
  };
}

export const readScript = createScriptReader(FOLDER);

const OPTIONAL = /\?$/;
const REST = /\.\.\.$/;

/**
 * The text of a script as the store runs it: its `#!lua` line, what it includes from `lua/include`, its arguments as locals, its
 * body. A batched script's body becomes a function of them, which batch.lua calls for each item; an optional name that is empty is nil.
 * @param options.read gives the text of a file; tests give mutants
 * @param options.checksFrozen whether it stops if the partition is frozen
 * @param options.crossesSlots whether a batched one may use names of several slots of a cluster's node:
 *   https://redis.io/docs/latest/develop/programmability/lua-api/#script-flags
 */
export function scriptSource(
  { name, isBatched }: ScriptFile,
  options: { read?: ScriptReader | undefined; checksFrozen?: boolean; crossesSlots?: boolean } = {},
): string {
  const { read = readScript, checksFrozen = false, crossesSlots = false } = options;
  const check = checksFrozen ? "--@include frozen\nrequire_not_frozen($1)\n" : "";
  const checked = read(name).replace(UNLESS_FROZEN, check);
  const text = crossesSlots && isBatched ? checked.replace(FIRST_LINE, withCrossSlots) : checked;
  const end = text.indexOf("\n") + 1;
  const body = text.slice(end);
  const included = includedBy(`--@include clock\n${body}`, (file) => read(`include/${file}`));
  const { keys, args } = argumentNames(text);
  const code = withoutDirectives(body);
  const own = isBatched ? asFunction(code, keys, args) + read("batch") : asLocals(keys, args) + code;
  const start = `${text.slice(0, end)}local call = redis.call\n`;
  return start + withoutUnused(included.values(), own) + own;
}

/** A function of an included file, from the first column to its `end` there. */
const FUNCTION = /^local function (\w+)\((?!.*\bend$).*\n(?:.*\n)*?end\n/gm;

/** A function, or what stands between two of them. */
interface Piece {
  name: string | undefined;
  text: string;
  words: ReadonlySet<string>;
}

/** Of included texts, which many scripts share. */
const piecesOfTexts = new Map<string, Piece[]>();

const wordsIn = (text: string): Set<string> => new Set(text.match(/\w+/g));

function piecesOf(included: string): Piece[] {
  const known = piecesOfTexts.get(included);
  if (known) return known;
  const pieces: Piece[] = [];
  const add = (text: string, name?: string): void => {
    if (text !== "") pieces.push({ name, text, words: wordsIn(text) });
  };
  let end = 0;
  for (const { 0: text, 1: name, index } of included.matchAll(FUNCTION)) {
    add(included.slice(end, index));
    add(text, name);
    end = index + text.length;
  }
  add(included.slice(end));
  piecesOfTexts.set(included, pieces);
  return pieces;
}

/** Included texts without the functions that a script does not reach: each call would make them anew. */
function withoutUnused(included: Iterable<string>, own: string): string {
  const pieces = [...included].flatMap(piecesOf);
  const functions = new Map(pieces.map((piece) => [piece.name, piece]));
  const used = new Set<Piece>();
  const follow = (words: ReadonlySet<string>): void => {
    for (const word of words) {
      const piece = functions.get(word);
      if (piece === undefined || used.has(piece)) continue;
      used.add(piece);
      follow(piece.words);
    }
  };
  for (const { name, words } of pieces) if (name === undefined) follow(words);
  follow(wordsIn(own));
  return pieces.map((piece) => (piece.name === undefined || used.has(piece) ? piece.text : "")).join("");
}

function asLocals(keys: readonly string[], args: readonly string[]): string {
  const locals = keys.map((name, at) => `local ${name.replace(OPTIONAL, "")} = KEYS[${at + 1}]\n`);
  args.forEach((name, at) => {
    const value = REST.test(name) ? `{ unpack(ARGV, ${at + 1}) }` : `ARGV[${at + 1}]`;
    locals.push(`local ${name.replace(REST, "")} = ${at === 0 ? `store_now(${value})` : value}\n`);
  });
  return locals.join("");
}

function asFunction(body: string, keys: readonly string[], args: readonly string[]): string {
  const [now, ...others] = args;
  const own = [...keys, ...others.filter((name) => name !== "tiers")].map((name) =>
    name.replace(OPTIONAL, ""),
  );
  const optional = keys.filter((name) => OPTIONAL.test(name)).map((name) => name.slice(0, -1));
  return `local place, WORDS = 1, "${"s".repeat(own.length)}"
local function run(${[now, "tiers", ...own].join(", ")}, next_place)
place = next_place
${optional.map((name) => `if ${name} == "" then ${name} = nil end\n`).join("")}${body}end
`;
}

const withCrossSlots = (_: string, flags?: string): string =>
  `#!lua flags=${flags === undefined ? "" : `${flags},`}allow-cross-slot-keys`;

/** The included files by name, each once and after those that it includes itself. */
function includedBy(
  text: string,
  read: (file: string) => string,
  found: Map<string, string> = new Map(),
): Map<string, string> {
  for (const file of [...text.matchAll(INCLUDE)].flatMap(([, files = ""]) => files.split(" "))) {
    if (found.has(file)) continue;
    const included = read(file);
    const [, seldom] = included.match(SELDOM) ?? [];
    const inner = includedBy(included, read, seldom ? new Map() : found);
    found.set(file, seldom ? asOneFunction(seldom, included, inner.values()) : withoutDirectives(included));
  }
  return found;
}

/**
 * An included file of which scripts call one function, and seldom. Its other functions and what it includes stand inside of
 * that one, since each call of a script makes the functions of its first level anew.
 */
function asOneFunction(name: string, text: string, included: Iterable<string>): string {
  const own = withoutDirectives(text);
  const inner = (withoutUnused(included, own) + own).replaceAll(/^(?=.)/gm, "  ");
  return `local function ${name}(...)\n${inner}  return ${name}(...)\nend\n`;
}

const withoutDirectives = (text: string): string => text.replaceAll(/^--@.*\n/gm, "");
