import type { Logger } from "../../telemetry/log.ts";
import { JournalFile } from "./journal-file.ts";
import { createTakeOver } from "./journal-files.ts";
import { lineOf } from "./journal-lines.ts";
import type { Settlement } from "./outbox-queues.ts";

/** A gateway touches its files this often, so that others do not take it for ended. */
const SIGN_OF_LIFE_MS = 10_000;

export interface JournalOwner {
  take(settlements: readonly Settlement[]): void;
  waiting(): Iterable<Settlement>;
}

export interface Journal {
  /** At once and at intervals: touches its files, checks that they can grow, and takes over those of ended gateways. @returns after the first look */
  watch(owner: JournalOwner): Promise<void>;
  /** Names the present store, and looks for its settlements that ended gateways left. @returns after the look */
  attach(storeId: string): Promise<void>;
  /** Resolves once the settlement is on disk. Those that come together share one flush to disk. */
  append(settlement: Settlement): Promise<void>;
  /** Every settlement of this store was answered: removes their lines, and those without a store. */
  clear(storeId: string | undefined): Promise<void>;
  close(): Promise<void>;
}

/**
 * The settlements that wait, on disk, so that a charge survives its process. Each gateway has files of its own, one per store, in a folder that
 * several may share; another takes over those of an ended one. @param options.changed whether it can be used, at the start and at each change
 * @throws when the folder cannot be written
 */
export async function openJournal(
  folder: string,
  log: Logger,
  options: { signOfLifeMs?: number; changed?(usable: boolean): void } = {},
): Promise<Journal> {
  const files = await openFiles(folder);
  return new FolderJournal(files, {
    signOfLifeMs: options.signOfLifeMs ?? SIGN_OF_LIFE_MS,
    state: createJournalState(folder, log, options.changed ?? (() => undefined)),
    takeFiles: createTakeOver(folder, log),
    linesMissing: (entries) =>
      log.warn({ folder, entries }, "a journal file or lines of it were missing; they are written again"),
  });
}

interface JournalParts {
  signOfLifeMs: number;
  state: ReturnType<typeof createJournalState>;
  takeFiles: ReturnType<typeof createTakeOver>;
  linesMissing(entries: number): void;
}

class FolderJournal implements Journal {
  readonly #files: Awaited<ReturnType<typeof openFiles>>;
  readonly #parts: JournalParts;
  #timer: NodeJS.Timeout | undefined;
  #owner: JournalOwner | undefined;
  /** The store's id. Until it is known, files of other gateways are left alone: they may be of another store. */
  #store: string | undefined;
  /** Something has failed since the present look began, so it must not report that all is well. */
  #hasFailed = false;
  #looking: Promise<void> = Promise.resolve();

  constructor(files: Awaited<ReturnType<typeof openFiles>>, parts: JournalParts) {
    this.#files = files;
    this.#parts = parts;
  }

  watch(owner: JournalOwner): Promise<void> {
    this.#owner = owner;
    this.#timer = setInterval(() => this.#look(owner), this.#parts.signOfLifeMs).unref();
    return this.#look(owner);
  }

  async attach(storeId: string): Promise<void> {
    if (storeId === this.#store) return;
    this.#store = storeId;
    if (this.#owner) await this.#look(this.#owner);
  }

  readonly append = async (settlement: Settlement): Promise<void> => {
    try {
      await this.#files.of(settlement.storeId ?? "").append(lineOf(settlement));
    } catch (error) {
      this.#failed(error);
      throw error;
    }
  };

  async clear(storeId: string | undefined): Promise<void> {
    const ids = storeId === undefined ? [""] : ["", storeId];
    await Promise.all(ids.map((id) => this.#files.known(id)?.clear()));
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#owner = undefined;
    await this.#looking;
    await Promise.all(this.#files.all().map(([, file]) => file.close()));
  }

  readonly #failed = (error: unknown): void => {
    this.#hasFailed = true;
    this.#parts.state.unusable(error);
  };

  /** One after the other: a look that `attach` asks for must not be one that began before the store was known. */
  #look(owner: JournalOwner): Promise<void> {
    this.#looking = this.#looking.then(() => this.#lookOnce(owner));
    return this.#looking;
  }

  /** A file that fails does not keep the other files, nor those of ended gateways, from being looked at. */
  async #lookOnce(owner: JournalOwner): Promise<void> {
    this.#hasFailed = false;
    for (const [storeId, file] of this.#files.all())
      await this.#signOfLife(file, storeId, owner).catch(this.#failed);
    await this.#takeOver(owner).catch(this.#failed);
    if (!this.#hasFailed) this.#parts.state.usable();
  }

  /** Checks one file; if lines of it are missing on disk, all settlements of its store are written again. */
  async #signOfLife(file: JournalFile, storeId: string, owner: JournalOwner): Promise<void> {
    if (!(await file.signOfLife())) return;
    const waiting = [...owner.waiting()].filter((settlement) => (settlement.storeId ?? "") === storeId);
    await Promise.all(waiting.map(this.append));
    this.#parts.linesMissing(waiting.length);
  }

  async #takeOver(owner: JournalOwner): Promise<void> {
    if (this.#store === undefined) return;
    await this.#parts.takeFiles(this.#store, async (settlements, isAgain) => {
      if (isAgain) {
        const waiting = new Set([...owner.waiting()].map(({ call }) => call.requestId));
        const left = settlements.filter(({ call }) => waiting.has(call.requestId));
        await Promise.all(left.map(this.append));
        return;
      }
      const kept = Promise.all(settlements.map(this.append));
      // At once: an outbox that is found empty meanwhile would clear the journal of these lines.
      if (settlements.length > 0) owner.take(settlements);
      await kept;
    });
  }
}

/** One per store. @throws when the folder cannot be written */
async function openFiles(folder: string) {
  const files = new Map<string, JournalFile>();
  /** Made at the start, to try the folder; it becomes the file of the first store that needs one. */
  const first = new JournalFile(folder);
  await first.open();
  let unused: JournalFile | undefined = first;

  return {
    known: (storeId: string): JournalFile | undefined => files.get(storeId),
    all: (): [storeId: string, file: JournalFile][] => (unused ? [["", unused], ...files] : [...files]),
    /** The file of a store. A file whose store has nothing waiting is used again, so there are as few as can be. */
    of(storeId: string): JournalFile {
      let file = files.get(storeId) ?? unused;
      unused = undefined;
      if (!file) {
        const free = files.entries().find(([, one]) => one.isEmpty());
        if (free) files.delete(free[0]);
        file = free?.[1] ?? new JournalFile(folder);
      }
      files.set(storeId, file);
      return file;
    },
  };
}

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  EFBIG: "the limit on the size of files (ulimit -f) is reached",
  EROFS: "the disk is read-only",
  ENOENT: "the folder is gone and cannot be made",
  ENOTDIR: "a file is where the folder should be",
  EEXIST: "a file is where the folder should be",
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EIO: "the disk has errors",
  EMFILE: "the process has no file descriptors left",
};

export function diskReason(error: unknown): string {
  const { code = "", message = String(error) } = error as NodeJS.ErrnoException;
  return REASONS[code] ?? message;
}

/** Tracks if a journal can be used. Logs each change once. */
function createJournalState(
  folder: string,
  log: Logger,
  changed: (usable: boolean) => void,
): { usable(): void; unusable(error: unknown): void } {
  let reason: string | undefined;
  changed(true);
  return {
    usable() {
      if (reason === undefined) return;
      reason = undefined;
      changed(true);
      log.warn({ folder }, "the journal can be used again; all that waits is on disk");
    },
    unusable(error) {
      const now = diskReason(error);
      if (reason === now) return;
      reason = now;
      changed(false);
      log.error(
        { err: error, folder },
        `the journal cannot be kept: ${now}; while Redis is away, a crash would lose charges; it is tried again every 10 s`,
      );
    },
  };
}
