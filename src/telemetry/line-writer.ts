import fs from "node:fs";

const STDOUT = 1;
/** POSIX: a pipe takes a write of up to this size as a whole or not at all. PIPE_BUF on Linux. */
const ATOMIC_BYTES = 4096;
/** A process that has its output to itself completes partial writes. */
const ALONE_BYTES = 64 * 1024;
/** Lines waiting for a slow reader or a full disk; beyond it new ones are dropped. */
const WAITING_BYTES_MAX = 1024 * 1024;
const RETRY_MS = 25;
/** How long the end of the process waits for a slow reader. */
const LAST_FLUSH_MS = 500;
/** Characters of a long line in each of its parts. */
const PART_CHARS = 800;
const NEWLINE = 0x0a;
/** UTF-8 of one UTF-16 code unit. */
const BYTES_PER_CHAR_MAX = 3;

/** Lines that could not be written since the start: a full disk, a reader that has gone. */
export const dropped = { lines: 0 };

/**
 * Writes lines to standard output without blocking on its reader. The lines of one callback of the event loop are written
 * together at its end. What cannot be written waits, up to a bound, and is written later, in order. Lines beyond the bound,
 * and all that wait when the reader has gone, are dropped and counted. Decision 0016.
 */
export class LineWriter {
  readonly #shared: boolean;
  readonly #chunkBytesMax: number;
  #text = "";
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #retry: NodeJS.Timeout | undefined;

  /**
   * @param shared several processes write to it: no write is longer than what a pipe takes as a whole, and a longer line is
   *   written in parts
   */
  constructor(shared: boolean) {
    unblockStdout();
    this.#shared = shared;
    this.#chunkBytesMax = shared ? ATOMIC_BYTES : ALONE_BYTES;
  }

  write(line: string): void {
    if (this.#text === "") queueMicrotask(this.#flush);
    this.#text += line;
  }

  /** At the end of the process: writes what the reader takes within `LAST_FLUSH_MS`. */
  flushLast(): void {
    const untilMs = performance.now() + LAST_FLUSH_MS;
    this.#flush();
    while (this.#writeWaiting() === "EAGAIN" && performance.now() < untilMs) pause(RETRY_MS);
  }

  readonly #flush = (): void => {
    const text = this.#text;
    this.#text = "";
    if (this.#waiting.length === 0 && text.length * BYTES_PER_CHAR_MAX <= this.#chunkBytesMax) {
      this.#writeText(text);
      return;
    }
    const nothingWaits = this.#waiting.length === 0;
    for (const chunk of chunksOf(Buffer.from(text), this.#chunkBytesMax, this.#shared)) this.#enqueue(chunk);
    if (nothingWaits) this.#writeOrWait();
  };

  /** Writes lines that fit into one write; what the reader does not take waits. */
  #writeText(text: string): void {
    let bytes = 0;
    try {
      bytes = fs.writeSync(STDOUT, text);
      if (bytes >= text.length && bytes === Buffer.byteLength(text)) return;
    } catch {
      // The next try finds the same error.
    }
    this.#enqueue(Buffer.from(text).subarray(bytes));
    this.#writeOrWait();
  }

  #enqueue(chunk: Buffer): void {
    if (this.#waitingBytes + chunk.length > WAITING_BYTES_MAX) dropped.lines += linesIn(chunk);
    else {
      this.#waiting.push(chunk);
      this.#waitingBytes += chunk.length;
    }
  }

  readonly #writeOrWait = (): void => {
    this.#retry = undefined;
    this.#writeWaiting();
    if (this.#waiting.length > 0) this.#retry ??= setTimeout(this.#writeOrWait, RETRY_MS).unref();
  };

  /** @returns the code of the error that stopped it, undefined when nothing waits any more */
  #writeWaiting(): string | undefined {
    try {
      for (let chunk = this.#waiting[0]; chunk; chunk = this.#waiting[0]) {
        const bytes = fs.writeSync(STDOUT, chunk);
        this.#waitingBytes -= bytes;
        if (bytes < chunk.length) this.#waiting[0] = chunk.subarray(bytes);
        else this.#waiting.shift();
      }
      return undefined;
    } catch (error) {
      const { code = "unknown" } = error as NodeJS.ErrnoException;
      // The reader has gone. A named pipe may be opened again, so later lines are tried.
      if (code === "EPIPE") this.#dropWaiting();
      return code;
    }
  }

  #dropWaiting(): void {
    for (const chunk of this.#waiting) dropped.lines += linesIn(chunk);
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
  }
}

let isUnblocked = false;

/** Makes a pipe or socket at standard output non-blocking, as Node does with its stream. Files and terminals stay as they are. */
function unblockStdout(): void {
  if (isUnblocked) return;
  isUnblocked = true;
  const stdout = fs.fstatSync(STDOUT);
  if (stdout.isFIFO() || stdout.isSocket()) process.stdout.on("error", () => undefined);
}

/** Cuts lines into chunks of whole lines. A line longer than a chunk is one of its own, or is written in parts. */
function* chunksOf(lines: Buffer, bytesMax: number, inParts: boolean): Generator<Buffer> {
  for (let at = 0; at < lines.length; ) {
    const fits =
      lines.length - at <= bytesMax ? lines.length : lines.lastIndexOf(NEWLINE, at + bytesMax - 1) + 1;
    if (fits > at) {
      yield lines.subarray(at, fits);
      at = fits;
      continue;
    }
    const end = lines.indexOf(NEWLINE, at) + 1;
    if (inParts) yield* partsOf(lines.toString("utf8", at, end - 1));
    else yield lines.subarray(at, end);
    at = end;
  }
}

let longLines = 0;

/** The parts of a line that is too long for one write, as lines of their own: their `text`s together are the line. */
function* partsOf(line: string): Generator<Buffer> {
  const chars = [...line];
  const parts = Math.ceil(chars.length / PART_CHARS);
  const { level, time, service, msg, audit } = JSON.parse(line) as Record<string, unknown>;
  const long_line = `${process.pid}-${++longLines}`;
  for (let part = 1; part <= parts; part++) {
    const text = chars.slice((part - 1) * PART_CHARS, part * PART_CHARS).join("");
    const head = { level, time, service, audit, long_line, part, parts };
    const named = typeof msg === "string" ? { ...head, of_msg: msg.slice(0, 100) } : head;
    yield Buffer.from(`${JSON.stringify({ ...named, text })}\n`);
  }
}

function linesIn(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}

const pause = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
