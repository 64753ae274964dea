import { readFile, stat } from "node:fs/promises";
import { FILE_BYTES_MAX } from "./yaml-file.ts";

export type Contents = ReadonlyMap<string, Buffer | undefined>;

/** How soon changed files are read again. */
const SETTLE_MS = 300;

/** Polling sees edits in place, renames, links and network file systems. Contents must be equal twice in a row. Decision 0015. */
export function watchFiles(options: {
  everyMs: number;
  known(): Contents;
  changed(contents: Contents): void;
}): { stop(): void } {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let before: Contents | undefined;

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

async function readAll(files: readonly string[]): Promise<Contents> {
  const read = files.map(async (file) => [file, await bytesOf(file)] as const);
  return new Map(await Promise.all(read));
}

/** Regular files only: a pipe might never end. */
async function bytesOf(file: string): Promise<Buffer | undefined> {
  try {
    const stats = await stat(file);
    return stats.isFile() && stats.size <= FILE_BYTES_MAX ? await readFile(file) : undefined;
  } catch {
    return undefined;
  }
}

export function holds(whole: Contents, part: Contents): boolean {
  return [...part].every(([file, bytes]) => {
    const other = whole.get(file);
    return whole.has(file) && (bytes === undefined ? other === undefined : other?.equals(bytes) === true);
  });
}
