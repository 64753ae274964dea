import type { Redis } from "ioredis";
import { SCRIPTS } from "../scripts/all.ts";
import { packTiers } from "../scripts/include/limits.ts";
import {
  type Argument,
  type Item,
  ItemError,
  type Reply,
  type Run,
  type Script,
  type ScriptFile,
} from "../scripts/script-definition.ts";
import { type Counts, countsOf, readScript, scriptSource } from "./script-source.ts";

export type ScriptRunner = ReturnType<typeof createScriptRunner>;

/** How the scripts are sent to a server; see `scriptSource`. On a cluster they check for frozen partitions. */
export interface ScriptForm {
  checksFrozen: boolean;
  /** One call has items of several slots; only where the server allows it. */
  crossesSlots: boolean;
}

/** What `defineCommand` adds to a client. @param words the number of KEYS, KEYS, ARGV */
type Command = (...words: Argument[]) => Promise<unknown>;

/**
 * Defines the scripts as commands of a client. ioredis sends EVALSHA, and on NOSCRIPT alone the same script once more by EVAL.
 * @param options.folder where the Lua files are; tests give mutants
 * @param options.within limits the time of each call; without it the client's own command timeout does
 * @param options.form may change until the first call
 */
export function createScriptRunner(
  redis: Redis,
  options: {
    folder?: string;
    within?: <T>(work: Promise<T>) => Promise<T>;
    form?: Readonly<ScriptForm>;
  } = {},
) {
  const { folder, within = (work) => work, form = { checksFrozen: false, crossesSlots: false } } = options;
  const client = redis as unknown as Record<string, Command>;
  let defined: ScriptForm = { ...form };
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
    if (form.checksFrozen === defined.checksFrozen && form.crossesSlots === defined.crossesSlots) return;
    defined = { ...form };
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
const commandName = ({ name }: ScriptFile, { checksFrozen, crossesSlots }: ScriptForm): string =>
  `tollgate:${name}${checksFrozen ? ":checked" : ""}${crossesSlots ? ":crossing" : ""}`;

/** For any store, also a cluster whose partitions may be frozen. */
export const CHECKS_FROZEN: ScriptForm = { checksFrozen: true, crossesSlots: false };

const known = new WeakMap<Redis, ScriptRunner>();

/** The scripts of an operator's client, defined once. They look for frozen partitions in any store. */
export function scriptsOf(redis: Redis): ScriptRunner {
  let runner = known.get(redis);
  if (!runner) {
    runner = createScriptRunner(redis, { form: CHECKS_FROZEN });
    known.set(redis, runner);
  }
  return runner;
}

/** @param now Unix ms; empty for the store's own clock, as always but in tests */
export function itemOf<Call>(script: Script<Call, unknown>, call: Call, now = ""): Item {
  const shared = script.tiers ? [now, packTiers(script.tiers(call))] : [now];
  return { keys: script.keys(call), shared, args: script.args(call) };
}

/** The items of one call in one string, as lua/batch.lua reads them. */
function packed(items: readonly Item[], counts: Counts): string {
  let text = "";
  for (const item of items) text += packedItem(item, counts);
  return text;
}

/** Each argument with a zero byte behind it. @throws Error for an argument with one, which would end it early; JSON escapes it */
function packedItem({ keys, args }: Item, { keyCount, argCount }: Counts): string {
  if (args.length !== argCount) throw new Error(`a script takes ${argCount} arguments, not ${args.length}`);
  let text = "";
  for (const name of keys) text += `${name}\0`;
  for (let at = keys.length; at < keyCount; at++) text += "\0";
  for (const arg of args) text += `${arg}\0`;
  if (hasZeroByte(keys) || hasZeroByte(args)) throw new Error("an argument of a script has a zero byte");
  return text;
}

const hasZeroByte = (words: readonly Argument[]): boolean =>
  words.some((word) => typeof word === "string" && word.includes("\0"));

/** The replies of one call, as lua/batch.lua writes them. */
function repliesOf(text: unknown): (Reply | Error)[] {
  const replies = JSON.parse(text as string) as (Reply | { err: string })[];
  return replies.map((reply) => (Array.isArray(reply) ? reply : new ItemError(reply.err)));
}
