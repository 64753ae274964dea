import { createHash } from "node:crypto";
import { countsOf, createScriptReader, readScript, scriptSource } from "../../src/redis/script-source.ts";
import { SCRIPTS } from "../../src/scripts/all.ts";
import type { ScriptFile } from "../../src/scripts/script-definition.ts";

/** KEYS and ARGV of one run of a script, but for now and the tiers. */
export interface SentItem {
  keys: string[];
  args: string[];
}

/** One command of a client on its way to Redis. */
export interface Command {
  /** A script's name (`admit`, `bind`, ...), else Redis's own name in small letters. */
  label: string;
  /** Items of a batched script in their order; empty for other commands. */
  items: SentItem[];
  bytes: Buffer;
}

/** One reply of Redis. */
export interface Reply {
  /** Its first word, such as a script's outcome or `-NOSCRIPT`. */
  outcome: string;
  /** Its parts as texts; empty when it is no list. */
  parts: string[];
  bytes: Buffer;
}

const sha1 = (text: string): string => createHash("sha1").update(text).digest("hex");

/** As scripts are sent to one server, and to nodes of clusters. */
const VARIANTS = [{}, { checksFrozen: true }, { checksFrozen: true, crossesSlots: true }];

/** By folder: the texts of all scripts take a tenth of a second. */
const known = new Map<string | undefined, ReadonlyMap<string, ScriptFile>>();

/** The scripts by SHA-1, read once. @param folder where the Lua files are; a mutant's in some trees */
export function scriptsBySha(folder?: string): ReadonlyMap<string, ScriptFile> {
  const scripts = known.get(folder) ?? readScripts(folder);
  known.set(folder, scripts);
  return scripts;
}

function readScripts(folder?: string): ReadonlyMap<string, ScriptFile> {
  const read = folder === undefined ? readScript : createScriptReader(folder);
  return new Map(
    SCRIPTS.flatMap((script) =>
      VARIANTS.map((variant) => [sha1(scriptSource(script, { read, ...variant })), script] as const),
    ),
  );
}

/** Cuts what a client sends into commands; what is not whole yet waits for the next chunk. */
export function createCommandReader(scripts = scriptsBySha()): (chunk: Buffer) => Command[] {
  return createReader((pending, at) => {
    const head = readCount(pending, at);
    if (!head) return undefined;
    if (pending[at] !== "*".charCodeAt(0)) {
      const sent = JSON.stringify(pending.toString("latin1", at, at + 60));
      throw new Error(`what a client sent is no command: ${sent}`);
    }
    const words: string[] = [];
    let { end } = head;
    for (let left = head.count; left > 0; left--) {
      const bulk = readCount(pending, end);
      if (!bulk || pending.length < bulk.end + bulk.count + 2) return undefined;
      words.push(pending.toString("latin1", bulk.end, bulk.end + bulk.count));
      end = bulk.end + bulk.count + 2;
    }
    return { value: { ...meaningOf(words, scripts), bytes: pending.subarray(at, end) }, end };
  });
}

function meaningOf(
  words: string[],
  scripts: ReadonlyMap<string, ScriptFile>,
): Pick<Command, "label" | "items"> {
  const [name = "", text = "", keyCount = "0", ...rest] = words;
  const label = name.toLowerCase();
  if (label !== "evalsha" && label !== "eval") return { label, items: [] };
  const sha = label === "evalsha" ? text : createHash("sha1").update(text, "latin1").digest("hex");
  const script = scripts.get(sha);
  if (!script) return { label, items: [] };
  const keys = rest.slice(0, Number(keyCount));
  const args = rest.slice(Number(keyCount));
  return {
    label: script.name,
    items: script.isBatched ? itemsOf(script.name, args.at(-1) ?? "") : [{ keys, args }],
  };
}

const countsByScript = new Map(
  SCRIPTS.filter(({ isBatched }) => isBatched).map(({ name }) => [name, countsOf(readScript(name))]),
);

/** As lua/batch.lua reads them; they were read byte by byte, and are UTF-8. */
function itemsOf(script: string, text: string): SentItem[] {
  const { keyCount, argCount } = countsByScript.get(script)!;
  const words = Buffer.from(text, "latin1").toString().split("\0");
  const items: SentItem[] = [];
  for (let at = 0; at < words.length - 1; at += keyCount + argCount) {
    // A key that is left out is empty.
    const keys = words.slice(at, at + keyCount).filter((key) => key !== "");
    items.push({ keys, args: words.slice(at + keyCount, at + keyCount + argCount) });
  }
  return items;
}

/** Cuts what Redis sends into replies (RESP 2 and 3). */
export function createReplyReader(): (chunk: Buffer) => Reply[] {
  return createReader((pending, at) => {
    const end = replyEnd(pending, at);
    if (end < 0) return undefined;
    const outcome = firstWord(pending, at);
    return { value: { outcome, parts: firstWords(pending, at), bytes: pending.subarray(at, end) }, end };
  });
}

type ReadOne<T> = (pending: Buffer, at: number) => { value: T; end: number } | undefined;

function createReader<T>(readOne: ReadOne<T>): (chunk: Buffer) => T[] {
  let pending: Buffer = Buffer.alloc(0);
  return (chunk) => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    const values: T[] = [];
    let at = 0;
    while (at < pending.length) {
      const found = readOne(pending, at);
      if (!found) break;
      values.push(found.value);
      at = found.end;
    }
    pending = pending.subarray(at);
    return values;
  };
}

function readCount(buffer: Buffer, at: number): { count: number; end: number } | undefined {
  const end = buffer.indexOf("\r\n", at, "latin1");
  if (end < 0) return undefined;
  return { count: Number(buffer.toString("latin1", at + 1, end)), end: end + 2 };
}

/** Where the reply that begins at `at` ends; -1 while it is not whole. */
function replyEnd(buffer: Buffer, at: number): number {
  const head = readCount(buffer, at);
  if (!head) return -1;
  const type = String.fromCharCode(buffer[at]!);
  if ("$=!".includes(type)) {
    const end = head.count < 0 ? head.end : head.end + head.count + 2;
    return end <= buffer.length ? end : -1;
  }
  if (!"*~>%".includes(type)) return head.end;
  let { end } = head;
  for (let left = type === "%" ? 2 * head.count : head.count; left > 0; left--) {
    end = end < buffer.length ? replyEnd(buffer, end) : -1;
    if (end < 0) return -1;
  }
  return end;
}

function firstWord(buffer: Buffer, at: number): string {
  const [first = ""] = batchedOutcomes(buffer, at) ?? [];
  if (first) return first;
  const head = readCount(buffer, at);
  if (!head) return "";
  switch (String.fromCharCode(buffer[at]!)) {
    case "*":
      return head.count > 0 ? firstWord(buffer, head.end) : "";
    case "$":
      return head.count < 0 ? "" : buffer.toString("latin1", head.end, head.end + head.count);
    case "-":
      return buffer.toString("latin1", at, head.end - 2).split(" ", 1)[0] ?? "";
    default:
      return buffer.toString("latin1", at + 1, head.end - 2);
  }
}

/** The outcomes of a reply that lua/batch.lua wrote; undefined for any other. */
function batchedOutcomes(buffer: Buffer, at: number): string[] | undefined {
  const head = readCount(buffer, at);
  if (!head || buffer[at] !== "$".charCodeAt(0) || head.count < 0) return undefined;
  const text = buffer.toString("utf8", head.end, head.end + head.count);
  if (!/^\[[[{]/.test(text)) return undefined;
  const replies = JSON.parse(text) as (unknown[] | { err: string })[];
  return replies.map((reply) =>
    Array.isArray(reply) ? String(reply[0]) : (reply.err.split(" ", 1)[0] ?? ""),
  );
}

function firstWords(buffer: Buffer, at: number): string[] {
  const batched = batchedOutcomes(buffer, at);
  if (batched) return batched;
  const head = readCount(buffer, at);
  if (!head || buffer[at] !== "*".charCodeAt(0)) return [];
  const words: string[] = [];
  let { end } = head;
  for (let left = head.count; left > 0; left--) {
    words.push(firstWord(buffer, end));
    end = replyEnd(buffer, end);
  }
  return words;
}
