import { mkdirSync, renameSync, rmSync } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { join } from "node:path";
import { SUFFIX } from "./journal-files.ts";
import { FILE_BYTES_MAX } from "./journal-lines.ts";
import { closedStem, type FileLock, holdLock } from "./journal-lock.ts";

/** One block of most file systems. Readers of every release pass over empty lines. */
const EMPTY_LINES = Buffer.alloc(4096, "\n");

/** Each time the file is gone once more. */
const TRIES_MAX = 3;

/** A line to write, or undefined to remove all lines before it. */
interface Job {
  text: string | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

/** One file of a journal, made when it is first needed. It has one writer, and holds the settlements of one store. */
export class JournalFile {
  readonly #own: ReturnType<typeof createOwnFile>;
  #jobs: Job[] = [];
  /** Resolves once no write or check is under way. Never rejects. */
  #free: Promise<unknown> = Promise.resolve();
  #isEmpty = true;
  /** The file in which a failed write may have left half a line; the next write must not continue that line. */
  #torn: FileHandle | undefined;
  /** Lines since the last `clear` that could not be written, or that vanished with their file. */
  #isIncomplete = false;

  constructor(folder: string) {
    this.#own = createOwnFile(folder);
  }

  async open(): Promise<void> {
    await this.#own.opened();
  }

  /** Resolves once the line is on disk. Lines that come together share one flush to disk. */
  append(line: string): Promise<void> {
    return this.#enqueue(line);
  }

  clear(): Promise<void> {
    return this.#enqueue(undefined);
  }

  isEmpty(): boolean {
    return this.#isEmpty;
  }

  /**
   * Touches the file and tries whether it can grow; one that is no longer under its name is replaced.
   * @returns true if lines are missing on disk, so that all that wait are appended again @throws when the file cannot be made or grow
   */
  signOfLife(): Promise<boolean> {
    const checked = this.#free.then(() => this.#check());
    this.#free = checked.catch(() => undefined);
    return checked;
  }

  async close(): Promise<void> {
    await this.#free;
    await this.#own.close();
  }

  #enqueue(text: string | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#isEmpty = text === undefined;
      this.#jobs.push({ text, resolve, reject });
      if (this.#jobs.length === 1) this.#free = this.#free.then(() => this.#write());
    });
  }

  /** Does all jobs in order: a line that comes after a `clear` is written after it. */
  async #write(): Promise<void> {
    const batch = this.#jobs;
    this.#jobs = [];
    const lastClear = batch.findLastIndex(({ text }) => text === undefined);
    const lines = batch.slice(lastClear + 1).map(({ text }) => text);
    let file: FileHandle | undefined;
    try {
      for (let tries = 1; ; tries++) {
        file = await this.#own.opened();
        if (lastClear >= 0) {
          await file.truncate(0);
          this.#isIncomplete = false;
        }
        await appendTo(file, (this.#torn === file ? "\n" : "") + lines.join(""));
        this.#torn = undefined;
        // Whoever takes a file renames it before it is read. Lines that are on disk under its name will be found.
        if (lines.length === 0 || !(await this.#own.leaveIfGone())) break;
        this.#isIncomplete = true;
        if (tries === TRIES_MAX) throw new Error("the journal's files vanish as soon as they are made");
      }
      for (const { resolve } of batch) resolve();
    } catch (error) {
      this.#torn = file;
      if (lines.length > 0) this.#isIncomplete = true;
      for (const { reject } of batch) reject(error);
    }
  }

  async #check(): Promise<boolean> {
    if (await this.#own.leaveIfGone()) this.#isIncomplete = true;
    if (!this.#own.isOpen() && !this.#isIncomplete) return false;
    const file = await this.#own.opened();
    const now = new Date();
    await file.utimes(now, now);
    await tryToGrow(file);
    const areLinesMissing = this.#isIncomplete;
    this.#isIncomplete = false;
    return areLinesMissing;
  }
}

/** @throws Error also for a file that would become too large to be read */
async function appendTo(file: FileHandle, text: string): Promise<void> {
  if ((await file.stat()).size + Buffer.byteLength(text) > FILE_BYTES_MAX)
    throw new Error("the journal file is full");
  await file.appendFile(text);
  await file.datasync();
}

/** An open file under a name of its own, which other gateways leave alone. */
function createOwnFile(folder: string) {
  let path = "";
  let handle: FileHandle | undefined;
  let lock: FileLock | undefined;

  async function make(): Promise<FileHandle> {
    mkdirSync(folder, { recursive: true });
    lock = await holdLock(folder);
    path = join(folder, lock.stem + SUFFIX);
    return open(path, "ax", 0o600).catch((error: unknown) => {
      release();
      throw error;
    });
  }

  function release(): void {
    lock?.release();
    lock = undefined;
  }

  async function leaveIfGone(): Promise<boolean> {
    if (!handle) return false;
    const [mine, there] = [await handle.stat(), await stat(path).catch(() => undefined)];
    if (there?.ino === mine.ino && there.dev === mine.dev) return false;
    const gone = handle;
    handle = undefined;
    release();
    await gone.close().catch(() => undefined);
    return true;
  }

  return {
    isOpen: () => handle !== undefined,
    async opened(): Promise<FileHandle> {
      handle ??= await make();
      return handle;
    },
    /** Closes the file if it is no longer under its name, where its lines would not be found. @returns true if it was gone */
    leaveIfGone,
    /** Removes the file if it is empty; else others may take it over at once. */
    async close(): Promise<void> {
      if (!handle || (await leaveIfGone())) return;
      const { size } = await handle.stat();
      await handle.close();
      if (size === 0) rmSync(path, { force: true });
      else renameSync(path, join(folder, closedStem() + SUFFIX));
      release();
    },
  };
}

/** Writes a block of empty lines to the disk, and removes it again. */
async function tryToGrow(file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  try {
    const { bytesWritten } = await file.write(EMPTY_LINES);
    // A second write throws the reason.
    if (bytesWritten < EMPTY_LINES.length) await file.write(EMPTY_LINES, bytesWritten);
    await file.datasync();
  } finally {
    await file.truncate(size);
  }
}
