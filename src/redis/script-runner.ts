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
const UNLESS_FROZEN = /^--@unless_frozen (KEYS\[\d+\])\n/m;

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

  function define(): void {
    for (const script of SCRIPTS)
      redis.defineCommand(commandName(script, defined), {
        lua: scriptSource(script, { folder, ...defined }),
      });
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
      return repliesOf(await within(client[command]!(1, keys[0]!, ...shared, packed(items))));
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

/** The items of one call in one string, as lua/batch.lua reads them. */
function packed(items: readonly Item[]): string {
  let text = "";
  for (const { keys, args } of items) {
    text += String.fromCharCode(keys.length, args.length);
    for (const name of keys) text += ended(name);
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

/**
 * The text of a script as the store runs it: its `#!lua` line, what it includes from `lua/include`, its body. A batched
 * script's body becomes a function, which batch.lua calls for each item.
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
  const read = (file: string): string => readFileSync(join(folder, `${file}.lua`), "utf8");
  const check = checksFrozen ? "--@include frozen\nrequire_not_frozen($1)\n" : "";
  const checked = read(name).replace(UNLESS_FROZEN, check);
  const text = crossesSlots && isBatched ? checked.replace(FIRST_LINE, withCrossSlots) : checked;
  const end = text.indexOf("\n") + 1;
  const body = text.slice(end);
  const included = [...includedBy(body, (file) => read(`include/${file}`)).values()].join("");
  const start = text.slice(0, end) + included;
  if (!isBatched) return start + withoutIncludes(body);
  return `${start}local function run(KEYS, ARGV)\n${withoutIncludes(body)}end\n${read("batch")}`;
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
    found.set(file, withoutIncludes(included));
  }
  return found;
}

const withoutIncludes = (text: string): string => text.replaceAll(INCLUDE, "");
