/** Events of a splitter, in the order of the bytes. */
interface SplitEvents {
  /** Bytes that belong to no delimiter, at least one. */
  between(bytes: Buffer): void;
  delimiter(): void;
}

/** Takes bytes in chunks. The result does not depend on where the chunks are cut. */
export interface Splitter {
  push(chunk: Buffer): void;
  /** Reports the bytes that were held back because they could have become a delimiter. */
  end(): void;
}

const CR = 0x0d;

/**
 * Finds a delimiter with Node's own search, and reports parts of the chunks themselves. If the end of a chunk could be the
 * beginning of a delimiter, those bytes are held back, and the next chunk is copied behind them.
 * @param delimiter begins with its only CR: matches cannot overlap, and only a last CR can begin one that is cut
 * @param before bytes in front of the first chunk
 */
export function splitAt(delimiter: Buffer, before: Buffer, on: SplitEvents): Splitter {
  let held = before;
  const push = (chunk: Buffer) => {
    const bytes = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let begin = 0;
    for (let at = bytes.indexOf(delimiter); at !== -1; at = bytes.indexOf(delimiter, begin)) {
      if (at > begin) on.between(bytes.subarray(begin, at));
      on.delimiter();
      begin = at + delimiter.length;
    }
    const end = bytes.length - cutBytes(bytes.subarray(begin), delimiter);
    held = Buffer.from(bytes.subarray(end));
    if (end > begin) on.between(bytes.subarray(begin, end));
  };
  const end = () => {
    if (held.length > 0) on.between(held);
  };
  return { push, end };
}

/** The number of bytes at the end of `bytes` that are the beginning of a cut delimiter. */
export function cutBytes(bytes: Buffer, delimiter: Buffer): number {
  const last = bytes.subarray(Math.max(0, bytes.length - delimiter.length + 1));
  const at = last.lastIndexOf(CR);
  if (at === -1) return 0;
  const cut = last.subarray(at);
  return delimiter.subarray(0, cut.length).equals(cut) ? cut.length : 0;
}
