import { mkdirSync, rmSync } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import type { Logger } from "../telemetry/log.ts";
import { createTakeOver, newFile, openHere } from "./journal-files.ts";
import type { Settlement } from "./outbox.ts";

/** A living gateway touches its file this often, so that others can tell it from one that ended. */
const SIGN_OF_LIFE_MS = 10_000;

/** What the journal asks of its outbox. */
export interface JournalOwner {
  /** Takes over settlements that an ended gateway left unanswered. */
  take(settlements: readonly Settlement[]): void;
  /** Everything that waits for an answer. */
  waiting(): Iterable<Settlement>;
}

export interface Journal {
  /**
   * Gives signs of life, now and from then on, and with each looks for what ended gateways left, once `attach` has
   * said which store is ours. Logs what goes wrong, and tries again.
   * @returns resolves after the first look
   */
  watch(owner: JournalOwner): Promise<void>;
  /**
   * Says which store has what is settled here, and looks for what ended gateways owe it.
   * @param storeId the store's own; each line has it from now on
   * @returns resolves after the look; at once if that is known already
   */
  attach(storeId: string): Promise<void>;
  /** Resolves once the settlement is on disk. Those that come together share one flush to disk. */
  append(settlement: Settlement): Promise<void>;
  /** Every settlement so far has been answered: forgets them. */
  clear(): Promise<void>;
  close(): Promise<void>;
}

/** A line to write, or undefined to forget all that came before. */
interface Job {
  text: string | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

/** Without a disk: what waits is lost with the process. For tools that settle nothing, and for tests. */
export const memoryJournal: Journal = {
  watch: async () => undefined,
  attach: async () => undefined,
  append: async () => undefined,
  clear: async () => undefined,
  close: async () => undefined,
};

/**
 * The settlements that wait for the store, on disk, so that a charge outlives the process that owes it. Each gateway
 * has a file of its own in a folder that several may share; the file of one that has ended is taken over by another.
 * Replaying is safe: each script has the effect of once.
 * @param options.signOfLifeMs for tests
 * @throws when the folder cannot be written
 */
export async function openJournal(
  folder: string,
  log: Logger,
  options: { signOfLifeMs?: number } = {},
): Promise<Journal> {
  mkdirSync(folder, { recursive: true });
  let file = newFile(folder);
  let handle: FileHandle = await open(file, "ax", 0o600);
  openHere.add(file);
  let timer: NodeJS.Timeout | undefined;
  /** The store's id. Until it is known, nothing of others is touched: it may be owed to another store. */
  let store: string | undefined;
  let jobs: Job[] = [];
  let writing = false;
  /** A write that failed may have left half a line, which must not take the next one with it. */
  let torn = false;

  /** Does what waits, in order: a line that comes after a `clear` is written after it. */
  async function write(): Promise<void> {
    writing = true;
    while (jobs.length > 0) {
      const batch = jobs;
      jobs = [];
      const lastClear = batch.findLastIndex(({ text }) => text === undefined);
      const lines = batch.slice(lastClear + 1).map(({ text }) => text);
      try {
        if (lastClear >= 0) await handle.truncate(0);
        await handle.appendFile((torn ? "\n" : "") + lines.join(""));
        await handle.datasync();
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
      jobs.push({ text, resolve, reject });
      if (!writing) void write();
    });

  const append = ({ requestId, atMs, untilMs, verb, keys, args, own }: Settlement): Promise<void> =>
    enqueue(`${JSON.stringify({ store, requestId, atMs, untilMs, verb, keys, args, own })}\n`);

  const takeFiles = createTakeOver(folder, log);

  /** Takes over what ended gateways owe the store. */
  async function takeOver(owner: JournalOwner): Promise<void> {
    if (store === undefined) return;
    await takeFiles(store, async (settlements) => {
      const kept = Promise.all(settlements.map(append));
      // Before anything else can find the outbox empty, and clear the journal of what it has just been given.
      if (settlements.length > 0) owner.take(settlements);
      await kept;
    });
  }

  /** Touches the file. A gateway that was paused for long finds that another has taken it: then it begins anew. */
  async function signOfLife(owner: JournalOwner): Promise<void> {
    const now = new Date();
    await handle.utimes(now, now);
    const [mine, there] = [await handle.stat(), await stat(file).catch(() => undefined)];
    if (there?.ino === mine.ino) return;
    const [lost, next] = [handle, newFile(folder)];
    mkdirSync(folder, { recursive: true });
    handle = await open(next, "ax", 0o600);
    openHere.add(next);
    openHere.delete(file);
    file = next;
    await lost.close();
    await Promise.all([...owner.waiting()].map(append));
  }

  let looking: Promise<void> = Promise.resolve();
  /** One after the other: a look that `attach` asks for must not be one that began before the store was known. */
  const look = (owner: JournalOwner): Promise<void> => {
    looking = looking
      .then(() => signOfLife(owner))
      .then(() => takeOver(owner))
      .catch((error: unknown) => log.error({ err: error, folder }, "the journal cannot be kept"));
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
    clear: () => enqueue(undefined),
    async close() {
      clearInterval(timer);
      watching = undefined;
      await looking;
      openHere.delete(file);
      const { size } = await handle.stat();
      await handle.close();
      if (size === 0) rmSync(file, { force: true });
    },
  };
}
