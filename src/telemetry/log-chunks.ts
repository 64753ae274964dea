// Lines that cannot be written at once.

/** Characters of a long line in each of its parts. */
const PART_CHARS = 800;
const NEWLINE = 0x0a;

/** Cuts lines into chunks of whole lines. A line longer than a chunk is one of its own, or is written in parts. */
export function* chunksOf(lines: Buffer, bytesMax: number, inParts: boolean): Generator<Buffer> {
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

export function linesIn(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}
