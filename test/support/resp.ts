import { createHash } from "node:crypto";
import { scriptSource, VERBS } from "../../src/store/scripts.ts";

/** One command on its way to Redis. */
export interface Command {
  /** A script's verb (`admit`, `bind`, ...), else Redis's own name in small letters. */
  label: string;
  bytes: Buffer;
}

const sha1 = (text: string): string => createHash("sha1").update(text).digest("hex");
const verbs = new Map<string, string>(VERBS.map((verb) => [sha1(scriptSource(verb)), verb]));

/** Cuts the stream of one client into its commands; what is not whole yet waits for the next chunk. */
export function createCommandReader(): (chunk: Buffer) => Command[] {
  let pending: Buffer = Buffer.alloc(0);
  return (chunk) => {
    pending = Buffer.concat([pending, chunk]);
    const commands: Command[] = [];
    for (let found = readCommand(pending); found; found = readCommand(pending)) {
      commands.push({ label: labelOf(found.words), bytes: pending.subarray(0, found.end) });
      pending = pending.subarray(found.end);
    }
    return commands;
  };
}

function labelOf([name = "", script = ""]: string[]): string {
  const word = name.toLowerCase();
  if (word === "evalsha") return verbs.get(script) ?? word;
  return word === "eval" ? (verbs.get(sha1(script)) ?? word) : word;
}

/** The command at the beginning, an array of bulk strings; undefined until all of it is there. */
function readCommand(buffer: Buffer): { words: string[]; end: number } | undefined {
  const head = readCount(buffer, 0, "*");
  if (!head) return undefined;
  const words: string[] = [];
  let { end } = head;
  for (let left = head.count; left > 0; left--) {
    const bulk = readCount(buffer, end, "$");
    if (!bulk || buffer.length < bulk.end + bulk.count + 2) return undefined;
    words.push(buffer.toString("utf8", bulk.end, bulk.end + bulk.count));
    end = bulk.end + bulk.count + 2;
  }
  return { words, end };
}

function readCount(buffer: Buffer, at: number, mark: string): { count: number; end: number } | undefined {
  const end = buffer.indexOf("\r\n", at);
  if (end < 0) return undefined;
  const line = buffer.toString("latin1", at, end);
  if (!line.startsWith(mark)) throw new Error(`not a Redis command: ${JSON.stringify(line.slice(0, 40))}`);
  return { count: Number(line.slice(1)), end: end + 2 };
}
