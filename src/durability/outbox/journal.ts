import type { Logger } from "../../telemetry/log.ts";
import { createJournalFile, type JournalFile } from "./journal-file.ts";
import { createTakeOver } from "./journal-files.ts";
import { lineOf } from "./journal-lines.ts";
import { createJournalState } from "./journal-state.ts";
import type { Settlement } from "./pending-settlement.ts";

/** A gateway touches its files this often, so that others do not take it for ended. */
const SIGN_OF_LIFE_MS = 10_000;

/** The outbox that a journal belongs to. */
export interface JournalOwner {
  /** Takes over settlements of an ended gateway. */
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

/** A journal without a disk, for tools that settle nothing, and for tests: its settlements are lost with the process. */
export const memoryJournal: Journal = {
  watch: async () => undefined,
  attach: async () => undefined,
  append: async () => undefined,
  clear: async () => undefined,
  close: async () => undefined,
};

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
  const state = createJournalState(folder, log, options.changed ?? (() => undefined));
  const takeFiles = createTakeOver(folder, log);
  let timer: NodeJS.Timeout | undefined;
  /** The store's id. Until it is known, files of other gateways are left alone: they may be of another store. */
  let store: string | undefined;
  /** Something has failed since the present look began, so it must not report that all is well. */
  let hasFailed = false;
  function onFailure(error: unknown): void {
    hasFailed = true;
    state.unusable(error);
  }

  async function append(settlement: Settlement): Promise<void> {
    try {
      await files.of(settlement.storeId ?? "").append(lineOf(settlement));
    } catch (error) {
      onFailure(error);
      throw error;
    }
  }

  /** Takes over the files of ended gateways that are of this store. */
  async function takeOver(owner: JournalOwner): Promise<void> {
    if (store === undefined) return;
    await takeFiles(store, async (settlements) => {
      const kept = Promise.all(settlements.map(append));
      // At once: an outbox that is found empty meanwhile would clear the journal of these lines.
      if (settlements.length > 0) owner.take(settlements);
      await kept;
    });
  }

  /** Checks one file; if lines of it are missing on disk, all settlements of its store are written again. */
  async function signOfLife(file: JournalFile, storeId: string, owner: JournalOwner): Promise<void> {
    if (!(await file.signOfLife())) return;
    const waiting = [...owner.waiting()].filter((settlement) => (settlement.storeId ?? "") === storeId);
    await Promise.all(waiting.map(append));
    log.warn(
      { folder, entries: waiting.length },
      "a journal file or lines of it were missing; they are written again",
    );
  }

  /** A file that fails does not keep the other files, nor those of ended gateways, from being looked at. */
  async function lookOnce(owner: JournalOwner): Promise<void> {
    hasFailed = false;
    for (const [storeId, file] of files.all()) await signOfLife(file, storeId, owner).catch(onFailure);
    await takeOver(owner).catch(onFailure);
    if (!hasFailed) state.usable();
  }

  let looking: Promise<void> = Promise.resolve();
  /** One after the other: a look that `attach` asks for must not be one that began before the store was known. */
  const look = (owner: JournalOwner): Promise<void> => {
    looking = looking.then(() => lookOnce(owner));
    return looking;
  };
  let watching: JournalOwner | undefined;

  return {
    watch(owner) {
      watching = owner;
      timer = setInterval(look, options.signOfLifeMs ?? SIGN_OF_LIFE_MS, owner).unref();
      return look(owner);
    },
    async attach(storeId) {
      if (storeId === store) return;
      store = storeId;
      if (watching) await look(watching);
    },
    append,
    async clear(storeId) {
      const ids = storeId === undefined ? [""] : ["", storeId];
      await Promise.all(ids.map((id) => files.known(id)?.clear()));
    },
    async close() {
      clearInterval(timer);
      watching = undefined;
      await looking;
      await Promise.all(files.all().map(([, file]) => file.close()));
    },
  };
}

/** One per store. @throws when the folder cannot be written */
async function openFiles(folder: string) {
  const files = new Map<string, JournalFile>();
  /** Made at the start, to try the folder; it becomes the file of the first store that needs one. */
  const first = createJournalFile(folder);
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
        file = free?.[1] ?? createJournalFile(folder);
      }
      files.set(storeId, file);
      return file;
    },
  };
}
