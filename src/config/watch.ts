import { readFile, stat } from "node:fs/promises";
import { FILE_BYTES_MAX } from "./document.ts";

/** Absolute path to what the file holds; undefined where it cannot be read. */
export type Contents = ReadonlyMap<string, Buffer | undefined>;

/**
 * Reads files again and again, and tells when they hold something new. Reading, not waiting to be notified, sees every
 * way of change: in place, by a rename, by a symbolic link on the way there, on a network's file system.
 * New contents must be the same twice in a row: what is just being written is not taken for whole.
 * @param options.known what the files held when they were last used
 * @param options.changed told of new contents once; its files are those of `known` at the time
 */
export function watchFiles(options: {
  everyMs: number;
  known(): Contents;
  changed(contents: Contents): void;
}): { stop(): void } {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let before: Contents | undefined;

  async function look(): Promise<void> {
    const now = await readAll([...options.known().keys()]);
    if (stopped) return;
    if (holds(options.known(), now)) {
      before = undefined;
    } else if (before !== undefined && holds(before, now) && before.size === now.size) {
      before = undefined;
      options.changed(now);
    } else {
      before = now;
    }
  }

  const schedule = (): void => {
    if (stopped) return;
    timer = setTimeout(() => void look().finally(schedule), options.everyMs).unref();
  };
  schedule();
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

/** What cannot be a config file is not read: a pipe would never end, and a huge file is refused anyway. */
async function bytesOf(file: string): Promise<Buffer | undefined> {
  try {
    const stats = await stat(file);
    return stats.isFile() && stats.size <= FILE_BYTES_MAX ? await readFile(file) : undefined;
  } catch {
    return undefined;
  }
}

/** True when `part` names no other files than `whole`, with the same bytes. */
export function holds(whole: Contents, part: Contents): boolean {
  return [...part].every(([file, bytes]) => {
    const other = whole.get(file);
    return whole.has(file) && (bytes === undefined ? other === undefined : other?.equals(bytes) === true);
  });
}
