import { lstatSync, readdirSync, renameSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "../../telemetry/log.ts";
import { fileNamesIn } from "../process-files.ts";
import { readJournalFile } from "./journal-lines.ts";
import { hasWriterEnded, holdLock, isStem, removeLock, removeLocks } from "./journal-lock.ts";
import type { Charge, Settlement } from "./outbox-queues.ts";

export const SUFFIX = ".ndjson";

const stemOf = (name: string): string => name.slice(0, -SUFFIX.length);
const isOurs = (name: string): boolean => name.endsWith(SUFFIX) && isStem(stemOf(name));

/**
 * Takes over the files of ended gateways. One that cannot be taken over is logged once, and tried again at the next look.
 * @returns looks once; `keep` resolves once a file's settlements are on disk, `isAgain` if it failed at an earlier look
 * @throws when the folder cannot be read
 */
export function createTakeOver(folder: string, log: Logger) {
  /** Why a file was left alone at the last look. */
  const leftAlone = new Map<string, string>();
  /** Files whose settlements `keep` got, and did not keep. */
  const unkept = new Set<string>();

  function complain(name: string, error: NodeJS.ErrnoException): void {
    const why = error.code ?? error.message;
    // Another gateway has taken it over.
    if (why === "ENOENT" || leftAlone.get(name) === why) return;
    leftAlone.set(name, why);
    log.error(
      { err: error, file: name },
      "a journal file cannot be taken over; what is in it waits, and it is tried again",
    );
  }

  async function lookAt(name: string, path: string, store: string, keep: Keep): Promise<void> {
    if (!(await hasWriterEnded(folder, stemOf(name), SUFFIX))) return;
    const { size } = lstatSync(path);
    const { settlements, otherFormat } = readJournalFile(path, log);
    if (otherFormat !== undefined) {
      if (leftAlone.get(name) === OTHER_FORMAT) return;
      leftAlone.set(name, OTHER_FORMAT);
      log.error({ file: name, format: otherFormat }, OTHER_FORMAT);
      return;
    }
    const other = settlements.find(({ storeId }) => storeId !== undefined && storeId !== store);
    // A line that was written before the store was known names none; once taken over, it does.
    if (!other)
      return adopt(folder, stemOf(name), async (claimed) => {
        // Tens of thousands of lines are not parsed twice.
        const all = lstatSync(claimed).size === size ? settlements : readJournalFile(claimed).settlements;
        const named = all.map((each) => ({ ...each, storeId: store }));
        const isAgain = unkept.has(name);
        unkept.add(name);
        await keep(named, isAgain);
        unkept.delete(name);
      });
    leftAlone.set(name, notOf(store));
    log.warn({ file: name, store: other.storeId, own_store: store }, OF_ANOTHER_STORE);
  }

  return async (store: string, keep: Keep): Promise<void> => {
    const names = new Set(readdirSync(folder));
    removeLocks(folder, names, SUFFIX);
    for (const known of [leftAlone, unkept])
      for (const name of known.keys()) if (!names.has(name)) known.delete(name);
    for (const name of names) {
      const path = join(folder, name);
      // A file of another store never becomes one of this store: it has one writer and one store. It is not read again.
      if (!isOurs(name) || leftAlone.get(name) === notOf(store)) continue;
      await lookAt(name, path, store, keep).catch((error) => complain(name, error));
    }
  };
}

/** All charges that wait in a folder, of all gateways and stores. Files that cannot be read are skipped. */
export function chargesWaitingIn(folder: string): Charge[] {
  return fileNamesIn(folder, SUFFIX).flatMap((name) => {
    if (!isOurs(name)) return [];
    try {
      return readJournalFile(join(folder, name)).settlements.filter((each) => each.script === "bind");
    } catch {
      return [];
    }
  });
}

const notOf = (store: string): string => `not of ${store}`;

type Keep = (settlements: readonly Settlement[], isAgain: boolean) => Promise<void>;

const OF_ANOTHER_STORE =
  "a journal file is of another store and is left alone; start a gateway with the REDIS_URL of that store on this " +
  "folder, or delete the file: what it holds is then never charged";

const OTHER_FORMAT =
  "a journal file was written by another version of Tollgate and is left alone; start a gateway of that version on this folder";

/**
 * Claims a file by renaming it, so that one gateway takes it over, and removes it once its settlements are in our own file: a crash in
 * between sends them twice, which is harmless. On failure it gets its old name back.
 */
async function adopt(folder: string, stem: string, keep: (claimed: string) => Promise<void>): Promise<void> {
  const lock = await holdLock(folder);
  const [path, claimed] = [join(folder, stem + SUFFIX), join(folder, lock.stem + SUFFIX)];
  try {
    renameSync(path, claimed);
    try {
      const now = new Date();
      utimesSync(claimed, now, now);
      await keep(claimed);
      rmSync(claimed, { force: true });
      removeLock(folder, stem);
    } catch (error) {
      renameSync(claimed, path);
      throw error;
    }
  } finally {
    lock.release();
  }
}
