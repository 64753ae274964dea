import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { ScriptCall } from "./script-call.ts";

/** The verbs, each `lua/<verb>.lua`. Their headers say what KEYS, ARGV and replies are. */
export const VERBS = [
  "admit",
  "own",
  "dispute",
  "free",
  "bind",
  "void",
  "unclear",
  "inspect",
  "observe",
  "credits",
  "issue",
  "recharge",
  "claim",
  "collect",
  "probe",
  "snapshot",
  "survey",
] as const;

export type Verb = (typeof VERBS)[number];

/** The verbs that serve requests: one call of theirs carries any number of items. See lua/batch.lua. */
export const BATCHED: ReadonlySet<Verb> = new Set(["admit", "bind", "void", "inspect", "observe"]);

/** A script's reply: first the outcome (of `claim` and `survey`: the store's clock), then what its header says. */
export type Reply = ReplyValue[];
type ReplyValue = string | number | ReplyValue[];

/** KEYS and ARGV of one run of a verb, as the header of its file counts them. */
export interface Item {
  keys: readonly string[];
  args: readonly (string | number)[];
}

export type Scripts = Record<
  Verb,
  (keys: readonly string[], args: readonly (string | number)[]) => Promise<Reply>
> & {
  /**
   * Runs a batched verb for several items in one call, one after the other, each all or nothing.
   * @param items share `now` and the tiers, their first two ARGV; on Redis Cluster also the partition
   * @returns a reply or an error for each; rejects when none of them can have one
   */
  batch(verb: Verb, items: readonly Item[]): Promise<(Reply | Error)[]>;
};

/** What one item of a call met in its script, as lua/batch.lua says it; any other error is about the whole call. */
export class ItemError extends Error {
  override readonly name = "ReplyError";
}

const FOLDER = join(import.meta.dirname, "../../lua");

/** The text of one verb as the store runs it: its `#!lua` line, the prelude, its body, which batch.lua may repeat. */
export function scriptSource(verb: Verb, folder: string = FOLDER): string {
  const read = (file: string): string => readFileSync(join(folder, `${file}.lua`), "utf8");
  const body = read(verb);
  const end = body.indexOf("\n") + 1;
  const start = body.slice(0, end) + read("prelude");
  if (!BATCHED.has(verb)) return start + body.slice(end);
  return `${start}local function run(KEYS, ARGV)\n${body.slice(end)}end\n${read("batch")}`;
}

/** Limits the time of a call. */
type Within = <T>(work: Promise<T>) => Promise<T>;

/**
 * Teaches a client the verbs. It sends EVALSHA and, on NOSCRIPT alone, EVAL once more.
 * @param options.folder where the Lua files are; tests give mutants
 * @param options.within limits the time of each call; without it the client's own command timeout does
 */
export function defineScripts(redis: Redis, options: { folder?: string; within?: Within } = {}): Scripts {
  const { folder = FOLDER, within = (work) => work } = options;
  const commands = {} as Record<Verb, Run>;
  const scripts = {} as Scripts;
  for (const verb of VERBS) {
    commands[verb] = runnerOf(redis, scriptSource(verb, folder), within);
    scripts[verb] = BATCHED.has(verb)
      ? async (keys, args) => {
          const [reply] = await scripts.batch(verb, [{ keys, args }]);
          if (reply instanceof Error) throw reply;
          return reply!;
        }
      : (keys, args) => commands[verb]([keys.length, ...keys, ...args]) as Promise<Reply>;
  }
  scripts.batch = (verb, items) => commands[verb](wordsOf(items)).then(repliesOf);
  return scripts;
}

/** Sends one script. @param words the number of names, then KEYS, then ARGV */
type Run = (words: (string | number)[]) => Promise<unknown>;

function runnerOf(redis: Redis, source: string, within: Within): Run {
  const sha = hash("sha1", source);
  const send = (call: ScriptCall) => within(redis.sendCommand(call) as Promise<unknown>);
  return (words) =>
    send(new ScriptCall("evalsha", [sha, ...words])).catch((error: Error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return send(new ScriptCall("eval", [source, ...words]));
    });
}

const taught = new WeakMap<Redis, Scripts>();

/** The verbs of a client, taught once. */
export function scriptsOf(redis: Redis): Scripts {
  let scripts = taught.get(redis);
  if (!scripts) {
    scripts = defineScripts(redis);
    taught.set(redis, scripts);
  }
  return scripts;
}

/** The words of one call, as lua/batch.lua reads them: one name, and one word for all that the items say. */
function wordsOf(items: readonly Item[]): (string | number)[] {
  const [{ keys, args }] = items as [Item];
  const [now = "", tiers = ""] = args;
  let text = "";
  for (const item of items) text += textOf(item);
  return [1, keys[0]!, now, tiers, text];
}

/** @throws Error for a word with a zero byte, which would end it early; no id has one, and JSON escapes it */
function textOf({ keys, args }: Item): string {
  let text = String.fromCharCode(keys.length, args.length - SHARED);
  for (const name of keys) text += ended(name);
  for (let at = SHARED; at < args.length; at++) text += ended(args[at]!);
  return text;
}

function ended(word: string | number): string {
  if (typeof word === "string" && word.includes("\0"))
    throw new Error("a word for the store has a zero byte");
  return `${word}\0`;
}

/** ARGV that all items of a call have in common: now and the tiers. */
const SHARED = 2;

/** The replies of one call, as lua/batch.lua writes them. */
function repliesOf(text: unknown): (Reply | Error)[] {
  const replies = JSON.parse(text as string) as (Reply | { err: string })[];
  return replies.map((reply) => (Array.isArray(reply) ? reply : new ItemError(reply.err)));
}
