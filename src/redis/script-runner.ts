import { hash } from "node:crypto";
import { Command, type Redis } from "ioredis";
import { packTiers } from "../scripts/holds.ts";
import {
  type Argument,
  type Item,
  ItemError,
  type Reply,
  type Run,
  type Script,
  type ScriptFile,
} from "../scripts/script-definition.ts";
import {
  type Counts,
  countsOf,
  createScriptReader,
  readScript,
  type ScriptReader,
  scriptSource,
} from "./script-source.ts";

export type ScriptRunner = ReturnType<typeof createScriptRunner>;

/** How the scripts are sent to a server; see `scriptSource`. On a cluster they check for frozen partitions. */
export interface ScriptForm {
  checksFrozen: boolean;
  /** One call has items of several slots; only where the server allows it. */
  crossesSlots: boolean;
}

const PLAIN: ScriptForm = { checksFrozen: false, crossesSlots: false };

interface Source {
  lua: string;
  sha: string;
  counts: Counts;
}

/** Each script is put together at its first use in a form. */
function createSources(read: ScriptReader = readScript, edit: Edit = (lua) => lua) {
  const sources = new Map<string, Source>();
  return (script: ScriptFile, form: ScriptForm): Source => {
    const name = nameOf(script, form);
    const known = sources.get(name);
    if (known) return known;
    const lua = edit(scriptSource(script, { read, ...form }), script.name);
    const source = { lua, sha: hash("sha1", lua), counts: countsOf(read(script.name)) };
    sources.set(name, source);
    return source;
  };
}

type Edit = (lua: string, name: string) => string;

const unchangedSource = createSources();

/** A script as a store of one server has it. */
export const plainSource = (script: ScriptFile): Readonly<Pick<Source, "lua" | "sha">> =>
  unchangedSource(script, PLAIN);

/**
 * Runs the scripts on a client: by EVALSHA, and on NOSCRIPT alone once more by EVAL.
 * @param options.folder where the Lua files are; tests give mutants
 * @param options.within limits the time of each call; without it the client's own command timeout does
 * @param options.edit changes the text of a script; for tests
 */
export function createScriptRunner(
  redis: Redis,
  options: {
    folder?: string;
    within?: <T>(work: Promise<T>) => Promise<T>;
    form?: Readonly<ScriptForm>;
    edit?: Edit;
  } = {},
) {
  const { folder, edit, within = (work) => work, form = PLAIN } = options;
  const sourceOf =
    folder === undefined && edit === undefined
      ? unchangedSource
      : createSources(folder === undefined ? readScript : createScriptReader(folder), edit);

  /**
   * Runs a script for some items in one call, one after the other, each all or nothing.
   * @param items only one unless the script is batched; they have the same `shared`, on Redis Cluster also the partition
   *   unless `crossesSlots`
   * @returns a reply or an error for each; rejects when none of them can have one
   */
  async function send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]> {
    const source = sourceOf(script, form);
    const [{ keys, shared, args }] = items as [Item];
    if (script.isBatched) {
      const text = packed(items, source.counts);
      return repliesOf(await within(evaluate(redis, source, [1, keys[0]!, ...shared, text])));
    }
    const words = [keys.length, ...keys, ...shared, ...args];
    return [(await within(evaluate(redis, source, words))) as Reply];
  }

  const run: Run = async (script, call) => {
    const [reply] = await send(script, [itemOf(script, call)]);
    if (reply instanceof Error) throw reply;
    return script.read(reply!, call);
  };
  return { run, send };
}

/** @param words the number of KEYS, KEYS, ARGV */
async function evaluate(redis: Redis, { lua, sha }: Source, words: readonly Argument[]): Promise<unknown> {
  try {
    return await sent(redis, new Command("evalsha", [sha, ...words], UTF8));
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith("NOSCRIPT"))) throw error;
    return sent(redis, new Command("eval", [lua, ...words], UTF8));
  }
}

const UTF8 = { replyEncoding: "utf8" } as const;

/**
 * V8's young collector keeps commands alive long after their replies, and moves them to the old heap. Without arguments and promise
 * they are small: else this is a kilobyte for each generation, and half of the collector's time.
 */
async function sent(redis: Redis, command: Command): Promise<unknown> {
  try {
    return await redis.sendCommand(command);
  } finally {
    command.args = [];
    command.promise = SETTLED;
  }
}

const SETTLED = Promise.resolve();

const nameOf = ({ name }: ScriptFile, { checksFrozen, crossesSlots }: ScriptForm): string =>
  `${name}${checksFrozen ? ":checked" : ""}${crossesSlots ? ":crossing" : ""}`;

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

function packed(items: readonly Item[], counts: Counts): string {
  let text = "";
  for (const item of items) text += packedItem(item, counts);
  return text;
}

function packedItem({ keys, args }: Item, { keyCount, argCount }: Counts): string {
  if (args.length !== argCount) throw new Error(`a script takes ${argCount} arguments, not ${args.length}`);
  let text = "";
  for (const name of keys) text += ended(name);
  for (let at = keys.length; at < keyCount; at++) text += "\0";
  for (const arg of args) text += ended(arg);
  return text;
}

/** An argument with a zero byte behind it. @throws Error for one with a zero byte, which would end it early; JSON escapes it */
function ended(arg: Argument): string {
  if (typeof arg === "string" && arg.includes("\0"))
    throw new Error("an argument of a script has a zero byte");
  return `${arg}\0`;
}

function repliesOf(text: unknown): (Reply | Error)[] {
  const replies = JSON.parse(text as string) as (Reply | { err: string })[];
  return replies.map((reply) => (Array.isArray(reply) ? reply : new ItemError(reply.err)));
}
