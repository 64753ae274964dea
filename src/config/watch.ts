import { readFile, stat } from "node:fs/promises";
import { FILE_BYTES_MAX } from "./yaml-file.ts";

/** Absolute path to the file's content; undefined if it cannot be read. */
export type Contents = ReadonlyMap<string, Buffer | undefined>;

/**
 * Polls files and reports new contents. Polling sees every kind of change: in place, by a rename, through a symbolic link on
 * the path, on a network file system. Contents must be the same twice in a row, so that a file that is being written is not
 * taken for complete. Decision 0015.
 * @param options.known the contents that were last used
 * @param options.changed called once for new contents, with the files of `known`
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

/** Reads regular files of an acceptable size only: a pipe might never end, and a larger file is refused anyway. */
async function bytesOf(file: string): Promise<Buffer | undefined> {
  try {
    const stats = await stat(file);
    return stats.isFile() && stats.size <= FILE_BYTES_MAX ? await readFile(file) : undefined;
  } catch {
    return undefined;
  }
}

/** True if `whole` has every file of `part`, with the same content. */
export function holds(whole: Contents, part: Contents): boolean {
  return [...part].every(([file, bytes]) => {
    const other = whole.get(file);
    return whole.has(file) && (bytes === undefined ? other === undefined : other?.equals(bytes) === true);
  });
}
