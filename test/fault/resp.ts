/** One command of a client: its words, and the bytes that carried it. */
export interface RawCommand {
  words: string[];
  bytes: Buffer;
}

/** Cuts what a client sends into commands; what is not whole yet waits for the next chunk. */
export function createCommandReader(): (chunk: Buffer) => RawCommand[] {
  return createReader((pending, at) => {
    const head = readCount(pending, at);
    if (!head) return undefined;
    const words: string[] = [];
    let { end } = head;
    for (let left = head.count; left > 0; left--) {
      const bulk = readCount(pending, end);
      if (!bulk || pending.length < bulk.end + bulk.count + 2) return undefined;
      words.push(pending.toString("latin1", bulk.end, bulk.end + bulk.count));
      end = bulk.end + bulk.count + 2;
    }
    return { value: { words, bytes: pending.subarray(at, end) }, end };
  });
}

/** One reply of Redis: its first word, such as a script's outcome or `-NOSCRIPT`, and its bytes. */
export interface RawReply {
  outcome: string;
  bytes: Buffer;
}

/** Cuts what Redis sends into replies (RESP 2 and 3). */
export function createReplyReader(): (chunk: Buffer) => RawReply[] {
  return createReader((pending, at) => {
    const end = replyEnd(pending, at);
    if (end < 0) return undefined;
    return { value: { outcome: firstWord(pending, at), bytes: pending.subarray(at, end) }, end };
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
