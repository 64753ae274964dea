import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { SCRIPTS } from "../scripts/all.ts";
import {
  type Argument,
  type Item,
  ItemError,
  itemOf,
  type Reply,
  type Run,
  type ScriptFile,
} from "../scripts/script-definition.ts";

const FOLDER = join(import.meta.dirname, "../../lua");
const INCLUDE = /^--@include (\w+)\n/gm;
/** The first line of each script, with its flags. */
const FIRST_LINE = /^#!lua(?: flags=(\S+))?/;
/** In scripts that write: where they stop if the partition of this name is frozen. */
const UNLESS_FROZEN = /^--@unless_frozen (\w+)\n/m;

export type ScriptRunner = ReturnType<typeof createScriptRunner>;

/** How a script is sent; see `scriptSource`. */
interface Form {
  checksFrozen: boolean;
  crossesSlots: boolean;
}

/** What `defineCommand` adds to a client. @param words the number of KEYS, KEYS, ARGV */
type Command = (...words: Argument[]) => Promise<unknown>;

/**
 * Defines the scripts as commands of a client. ioredis sends EVALSHA, and on NOSCRIPT alone the same script once more by EVAL.
 * @param options.folder where the Lua files are; tests give mutants
 * @param options.within limits the time of each call; without it the client's own command timeout does
 * @param options.canFreeze whether partitions of this store can be frozen; it may change until the first call
 * @param options.crossesSlots whether one call has items of several slots; only where the server allows it
 */
export function createScriptRunner(
  redis: Redis,
  options: {
    folder?: string;
    within?: <T>(work: Promise<T>) => Promise<T>;
    canFreeze?: () => boolean;
    crossesSlots?: () => boolean;
  } = {},
) {
  const { folder, within = (work) => work, canFreeze = () => false, crossesSlots = () => false } = options;
  const client = redis as unknown as Record<string, Command>;
  let defined: Form = { checksFrozen: canFreeze(), crossesSlots: crossesSlots() };
  const counts = new Map<string, Counts>();

  function define(): void {
    for (const script of SCRIPTS) {
      const lua = scriptSource(script, { folder, ...defined });
      redis.defineCommand(commandName(script, defined), { lua });
      if (script.isBatched) counts.set(script.name, countsOf(readScript(script.name, folder)));
    }
  }
  define();

  function defineAgainIfChanged(): void {
    if (canFreeze() === defined.checksFrozen && crossesSlots() === defined.crossesSlots) return;
    defined = { checksFrozen: canFreeze(), crossesSlots: crossesSlots() };
    define();
  }

  /**
   * Runs a script for some items in one call, one after the other, each all or nothing.
   * @param items only one unless the script is batched; they have the same `shared`, on Redis Cluster also the partition
   *   unless `crossesSlots`
   * @returns a reply or an error for each; rejects when none of them can have one
   */
  async function send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]> {
    defineAgainIfChanged();
    const command = commandName(script, defined);
    const [{ keys, shared, args }] = items as [Item];
    if (script.isBatched) {
      return repliesOf(
        await within(client[command]!(1, keys[0]!, ...shared, packed(items, counts.get(script.name)!))),
      );
    }
    return [(await within(client[command]!(keys.length, ...keys, ...shared, ...args))) as Reply];
  }

  /** Runs one script by itself. */
  const run: Run = async (script, call) => {
    const [reply] = await send(script, [itemOf(script, call)]);
    if (reply instanceof Error) throw reply;
    return script.read(reply!, call);
  };
  return { run, send };
}

/** The forms of one script have names of their own: a client may have several runners. */
const commandName = ({ name }: ScriptFile, { checksFrozen, crossesSlots }: Form): string =>
  `tollgate:${name}${checksFrozen ? ":checked" : ""}${crossesSlots ? ":crossing" : ""}`;

const known = new WeakMap<Redis, ScriptRunner>();

/** The scripts of an operator's client, defined once. They look for frozen partitions in any store. */
export function scriptsOf(redis: Redis): ScriptRunner {
  let runner = known.get(redis);
  if (!runner) {
    runner = createScriptRunner(redis, { canFreeze: () => true });
    known.set(redis, runner);
  }
  return runner;
}

/** How many names and arguments an item of a batched script has; optional names at the end may be left out. */
interface Counts {
  keyCount: number;
  argCount: number;
}

/** The items of one call in one string, as lua/batch.lua reads them. */
function packed(items: readonly Item[], { keyCount, argCount }: Counts): string {
  let text = "";
  for (const { keys, args } of items) {
    if (args.length !== argCount) throw new Error(`a script takes ${argCount} arguments, not ${args.length}`);
    for (const name of keys) text += ended(name);
    for (let at = keys.length; at < keyCount; at++) text += "\0";
    for (const arg of args) text += ended(arg);
  }
  return text;
}

/** @throws Error for an argument with a zero byte, which would end it early; no id has one, and JSON escapes it */
function ended(argument: Argument): string {
  if (typeof argument === "string" && argument.includes("\0"))
    throw new Error("an argument of a script has a zero byte");
  return `${argument}\0`;
}

/** The replies of one call, as lua/batch.lua writes them. */
function repliesOf(text: unknown): (Reply | Error)[] {
  const replies = JSON.parse(text as string) as (Reply | { err: string })[];
  return replies.map((reply) => (Array.isArray(reply) ? reply : new ItemError(reply.err)));
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

/** How many keys and arguments an item of a batched script has. @param text of its file */
export function countsOf(text: string): Counts {
  const { keys, args } = argumentNames(text);
  return {
    keyCount: keys.length,
    argCount: args.filter((name) => name !== "now" && name !== "tiers").length,
  };
}

export const readScript = (file: string, folder = FOLDER): string =>
  readFileSync(join(folder, `${file}.lua`), "utf8");

const OPTIONAL = /\?$/;
const REST = /\.\.\.$/;

/**
 * The text of a script as the store runs it: its `#!lua` line, what it includes from `lua/include`, its arguments as locals, its
 * body. A batched script's body becomes a function of them, which batch.lua calls for each item; an optional name that is empty is nil.
 * @param options.folder where the Lua files are; tests give mutants
 * @param options.checksFrozen whether it stops if the partition is frozen
 * @param options.crossesSlots whether a batched one may use names of several slots of a cluster's node:
 *   https://redis.io/docs/latest/develop/programmability/lua-api/#script-flags
 */
export function scriptSource(
  { name, isBatched }: ScriptFile,
  options: { folder?: string | undefined; checksFrozen?: boolean; crossesSlots?: boolean } = {},
): string {
  const { folder = FOLDER, checksFrozen = false, crossesSlots = false } = options;
  const read = (file: string): string => readScript(file, folder);
  const check = checksFrozen ? "--@include frozen\nrequire_not_frozen($1)\n" : "";
  const checked = read(name).replace(UNLESS_FROZEN, check);
  const text = crossesSlots && isBatched ? checked.replace(FIRST_LINE, withCrossSlots) : checked;
  const end = text.indexOf("\n") + 1;
  const body = text.slice(end);
  const included = includedBy(`--@include clock\n${body}`, (file) => read(`include/${file}`));
  const start = `${text.slice(0, end)}local call = redis.call\n${[...included.values()].join("")}`;
  const { keys, args } = argumentNames(text);
  const code = withoutDirectives(body);
  return start + (isBatched ? asFunction(code, keys, args) + read("batch") : asLocals(keys, args) + code);
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
  for (const [, file = ""] of text.matchAll(INCLUDE)) {
    if (found.has(file)) continue;
    const included = read(file);
    includedBy(included, read, found);
    found.set(file, withoutDirectives(included));
  }
  return found;
}

const withoutDirectives = (text: string): string => text.replaceAll(/^--@.*\n/gm, "");
