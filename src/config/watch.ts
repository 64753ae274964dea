import { readFile, stat } from "node:fs/promises";
import { FILE_BYTES_MAX } from "./yaml-file.ts";

export type Contents = ReadonlyMap<string, Buffer | undefined>;

/** How soon changed files are read again. */
const SETTLE_MS = 300;
/** A file that was changed this recently may change again without another time of change. */
const RECENT_MS = 3000;
/** Network file systems may show an old time of change for a while, so a file is read at least this often. */
const READ_EVERY_MS = 10_000;

/** Polling sees edits in place, renames, links and network file systems. Contents must be equal twice in a row. Decision 0015. @param options.nowMs for tests */
export function watchFiles(options: {
  everyMs: number;
  nowMs?: () => number;
  known(): Contents;
  changed(contents: Contents): void;
}): { stop(): void } {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let before: Contents | undefined;
  const readAll = createReader(options.nowMs ?? Date.now);

  /** @returns in how many milliseconds to look again */
  async function look(): Promise<number> {
    const now = await readAll([...options.known().keys()]);
    if (stopped) return 0;
    if (holds(options.known(), now)) {
      before = undefined;
      return options.everyMs;
    }
    if (before !== undefined && holds(before, now) && before.size === now.size) {
      before = undefined;
      options.changed(now);
    } else {
      before = now;
    }
    return Math.min(SETTLE_MS, options.everyMs);
  }

  const schedule = (inMs: number): void => {
    if (stopped) return;
    timer = setTimeout(() => void look().then(schedule), inMs).unref();
  };
  schedule(options.everyMs);
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** Reads a file again only if its status tells of a change, or cannot tell of one. */
function createReader(nowMs: () => number) {
  const known = new Map<string, { status: string; readAtMs: number; bytes: Buffer | undefined }>();

  /** Regular files only: a pipe might never end. */
  async function bytesOf(file: string): Promise<Buffer | undefined> {
    const last = known.get(file);
    known.delete(file);
    try {
      const stats = await stat(file, { bigint: true });
      if (!stats.isFile() || stats.size > FILE_BYTES_MAX) return undefined;
      const status = [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join();
      const atMs = nowMs();
      const isKnown = last !== undefined && last.status === status && atMs - last.readAtMs < READ_EVERY_MS;
      const next = isKnown ? last : { status, readAtMs: atMs, bytes: await readFile(file) };
      const changedMs = Math.max(Number(stats.mtimeMs), Number(stats.ctimeMs));
      if (next.readAtMs - changedMs > RECENT_MS) known.set(file, next);
      return next.bytes;
    } catch {
      return undefined;
    }
  }

  return async (files: readonly string[]): Promise<Contents> =>
    new Map(await Promise.all(files.map(async (file) => [file, await bytesOf(file)] as const)));
}

export function holds(whole: Contents, part: Contents): boolean {
  return [...part].every(([file, bytes]) => {
    const other = whole.get(file);
    return whole.has(file) && (bytes === undefined ? other === undefined : other?.equals(bytes) === true);
  });
}
