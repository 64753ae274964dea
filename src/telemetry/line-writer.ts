import fs from "node:fs";

const STDOUT = 1;
/** A write to a pipe of up to so many bytes is done as a whole or not at all. POSIX, PIPE_BUF on Linux. */
const ATOMIC_BYTES = 4096;
/** A process that is alone on its output completes itself what was written in part. */
const ALONE_BYTES = 64 * 1024;
/** Lines that wait for a reader that is slow or a disk that is full; beyond it new ones are dropped. */
const WAITING_BYTES_MAX = 1024 * 1024;
const RETRY_MS = 25;
/** How long the end of the process waits for a slow reader. */
const LAST_FLUSH_MS = 500;
/** Of a line that is too long to be written as a whole, in each of its parts. */
const PART_CHARS = 800;
const NEWLINE = 0x0a;

/** Lines that could not be written since the start: a full disk, a reader that has gone. */
export const dropped = { lines: 0 };

/**
 * Writes lines to standard output, and never waits for its reader. The lines of one callback of the event loop are
 * written together at its end. What cannot be written now waits, up to a bound, and is written later, in order; what
 * is beyond the bound, and all that waits when the reader has gone, is dropped and counted. Decision 0033.
 * @param shared several processes write to it: then no write is longer than what a pipe takes as a whole, and a longer
 * line goes out in parts
 */
export const createLineWriter = (shared: boolean): LineWriter => new LineWriter(shared);

class LineWriter {
  readonly #shared: boolean;
  readonly #chunkBytesMax: number;
  /** Lines of the present callback. */
  #text = "";
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #retry: NodeJS.Timeout | undefined;

  constructor(shared: boolean) {
    stopWaiting();
    this.#shared = shared;
    this.#chunkBytesMax = shared ? ATOMIC_BYTES : ALONE_BYTES;
  }

  write(line: string): void {
    if (this.#text === "") queueMicrotask(this.#flush);
    this.#text += line;
  }

  /** At the end of the process: what a reader takes within `LAST_FLUSH_MS` is written. */
  flushLast(): void {
    const untilMs = performance.now() + LAST_FLUSH_MS;
    this.#flush();
    while (this.#writeWaiting() === "EAGAIN" && performance.now() < untilMs) pause(RETRY_MS);
  }

  #flush = (): void => {
    const lines = this.#text;
    this.#text = "";
    if (lines === "") return;
    const nothingWaits = this.#waiting.length === 0;
    if (nothingWaits && Buffer.byteLength(lines) <= this.#chunkBytesMax) this.#writeNow(lines);
    else {
      // Whole lines go behind those that wait, in chunks that are written at once.
      for (const chunk of chunksOf(Buffer.from(lines), this.#chunkBytesMax, this.#shared))
        this.#enqueue(chunk);
      if (nothingWaits) this.#writeOrWait();
    }
  };

  /** The usual way: all lines of a callback in one write. */
  #writeNow(lines: string): void {
    let written = 0;
    try {
      written = output(lines);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EPIPE") {
        dropped.lines += linesIn(Buffer.from(lines));
        return;
      }
    }
    if (written === Buffer.byteLength(lines)) return;
    this.#enqueue(Buffer.from(lines).subarray(written));
    this.#wait();
  }

  #enqueue(chunk: Buffer): void {
    if (this.#waitingBytes + chunk.length > WAITING_BYTES_MAX) dropped.lines += linesIn(chunk);
    else {
      this.#waiting.push(chunk);
      this.#waitingBytes += chunk.length;
    }
  }

  #writeOrWait(): void {
    this.#retry = undefined;
    if (this.#writeWaiting() !== undefined) this.#wait();
  }

  #wait(): void {
    if (this.#waiting.length > 0) this.#retry ??= setTimeout(() => this.#writeOrWait(), RETRY_MS).unref();
  }

  /** Writes what waits. @returns the code of the error that stopped it, undefined when nothing waits any more */
  #writeWaiting(): string | undefined {
    try {
      for (let chunk = this.#waiting[0]; chunk; chunk = this.#waiting[0]) {
        const bytes = output(chunk);
        this.#waitingBytes -= bytes;
        if (bytes < chunk.length) this.#waiting[0] = chunk.subarray(bytes);
        else this.#waiting.shift();
      }
      return undefined;
    } catch (error) {
      const { code = "unknown" } = error as NodeJS.ErrnoException;
      // Nobody will ever read it. A named pipe may be opened again: later lines are tried anew.
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

let neverWaits = false;

/**
 * Makes standard output one that never waits for its reader: Node makes a pipe or socket non-blocking with its stream.
 * Files and terminals stay as they are.
 */
function stopWaiting(): void {
  if (neverWaits) return;
  neverWaits = true;
  const to = fs.fstatSync(STDOUT);
  if (to.isFIFO() || to.isSocket()) process.stdout.on("error", () => undefined);
}

/** @returns the bytes written @throws EAGAIN where nothing can be written now */
const output = (bytes: Buffer | string): number =>
  typeof bytes === "string" ? fs.writeSync(STDOUT, bytes) : fs.writeSync(STDOUT, bytes);

/** Cuts whole lines into pieces of whole lines; a line that is longer than a piece is cut, or goes out in parts. */
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

/** Numbers the lines that went out in parts. */
let longLines = 0;

/** A line too long to be written as a whole, as several that are: their `text`s in a row are the line. */
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
