import { mkdirSync, rmSync } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { newFile, openHere } from "./journal-files.ts";

/** A line to write, or undefined to forget all that came before. */
interface Job {
  text: string | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

/** One file of a journal. It has one writer, and holds what is owed to one store. */
export interface JournalFile {
  /** Makes the file now, not at its first line. @throws when the folder cannot be written */
  open(): Promise<void>;
  /** Resolves once the line is on disk. Lines that come together share one flush to disk. */
  append(line: string): Promise<void>;
  /** Forgets all lines so far. */
  clear(): Promise<void>;
  /** True when no line has come since the last `clear`. */
  isEmpty(): boolean;
  /**
   * Touches the file. A gateway that was paused for long finds that another has taken it: then it begins a new one.
   * @returns true if its lines are gone and have to be appended again
   */
  signOfLife(): Promise<boolean>;
  close(): Promise<void>;
}

/** A file of this process, made when it is first needed. */
export function createJournalFile(folder: string): JournalFile {
  let path = "";
  let handle: FileHandle | undefined;
  let jobs: Job[] = [];
  let writing = false;
  let empty = true;
  /** A write that failed may have left half a line, which must not take the next one with it. */
  let torn = false;

  async function make(): Promise<FileHandle> {
    mkdirSync(folder, { recursive: true });
    const next = newFile(folder);
    const made = await open(next, "ax", 0o600);
    openHere.add(next);
    openHere.delete(path);
    path = next;
    return made;
  }

  async function opened(): Promise<FileHandle> {
    handle ??= await make();
    return handle;
  }

  /** Does what waits, in order: a line that comes after a `clear` is written after it. */
  async function write(): Promise<void> {
    writing = true;
    while (jobs.length > 0) {
      const batch = jobs;
      jobs = [];
      const lastClear = batch.findLastIndex(({ text }) => text === undefined);
      const lines = batch.slice(lastClear + 1).map(({ text }) => text);
      try {
        const file = await opened();
        if (lastClear >= 0) await file.truncate(0);
        await file.appendFile((torn ? "\n" : "") + lines.join(""));
        await file.datasync();
        torn = false;
        for (const { resolve } of batch) resolve();
      } catch (error) {
        torn = true;
        for (const { reject } of batch) reject(error);
      }
    }
    writing = false;
  }

  const enqueue = (text: string | undefined): Promise<void> =>
    new Promise((resolve, reject) => {
      empty = text === undefined;
      jobs.push({ text, resolve, reject });
      if (!writing) void write();
    });

  return {
    async open() {
      await opened();
    },
    append: enqueue,
    clear: () => enqueue(undefined),
    isEmpty: () => empty,
    async signOfLife() {
      if (!handle) return false;
      const now = new Date();
      await handle.utimes(now, now);
      const [mine, there] = [await handle.stat(), await stat(path).catch(() => undefined)];
      if (there?.ino === mine.ino) return false;
      const lost = handle;
      handle = await make();
      await lost.close();
      return true;
    },
    async close() {
      openHere.delete(path);
      if (!handle) return;
      const { size } = await handle.stat();
      await handle.close();
      if (size === 0) rmSync(path, { force: true });
    },
  };
}
