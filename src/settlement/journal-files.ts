import { readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileNamesIn, isOfEndedProcess, newFileName } from "../store/process-files.ts";
import type { Logger } from "../telemetry/log.ts";
import { readJournalFile } from "./journal-lines.ts";
import type { Charge, Settlement } from "./settlement.ts";

const SUFFIX = ".ndjson";
/** As `newFile` makes it: other files in the folder are not ours. */
const NAME = /^.+\.\d+\.[0-9a-f]{8}\.ndjson$/;

/** Files that gateways of this process have; neither silence nor process id may take them away. */
export const openHere = new Set<string>();

/** A new file name of this process. */
export const newFile = (folder: string): string => join(folder, newFileName(SUFFIX));

/**
 * Takes over the files of gateways that have ended, each by itself: what is the matter with one is logged, once, and
 * must not strand the others. It is tried again at the next look.
 * @returns takes one look for what is owed to the store of this id; `keep` makes the settlements of a file our own, and
 *   resolves once they are on disk
 * @throws when the folder cannot be read
 */
export function createTakeOver(folder: string, log: Logger) {
  /** What was the matter with a file when it was last looked at. */
  const said = new Map<string, string>();

  function complain(name: string, error: NodeJS.ErrnoException): void {
    const why = error.code ?? error.message;
    // Gone: another gateway was faster.
    if (why === "ENOENT" || said.get(name) === why) return;
    said.set(name, why);
    log.error(
      { err: error, file: name },
      "a journal file cannot be taken over; what is in it waits, and it is tried again",
    );
  }

  async function lookAt(name: string, path: string, store: string, keep: Keep): Promise<void> {
    if (!isOfEndedProcess(path)) return;
    const { settlements, laterFormat } = readJournalFile(path, log);
    if (laterFormat !== undefined) {
      if (said.get(name) === LATER_FORMAT) return;
      said.set(name, LATER_FORMAT);
      log.error({ file: name, format: laterFormat }, LATER_FORMAT);
      return;
    }
    const other = settlements.find(({ storeId }) => storeId !== undefined && storeId !== store);
    // Lines of earlier releases do not say to which store they are owed; from here on they do.
    if (!other)
      return adopt(
        path,
        settlements.map((each) => ({ ...each, storeId: store })),
        keep,
      );
    said.set(name, notOf(store));
    log.warn({ file: name, store: other.storeId, own_store: store }, OF_ANOTHER_STORE);
  }

  return async (store: string, keep: Keep): Promise<void> => {
    const names = new Set(readdirSync(folder));
    for (const name of said.keys()) if (!names.has(name)) said.delete(name);
    for (const name of names) {
      const path = join(folder, name);
      // What is another store's stays so: a file has one writer, and that one store. It is not read at each look.
      if (!NAME.test(name) || openHere.has(path) || said.get(name) === notOf(store)) continue;
      await lookAt(name, path, store, keep).catch((error) => complain(name, error));
    }
  };
}

/** All charges that wait in a folder, whoever owes them to which store. Files that cannot be read are passed over. */
export function chargesWaitingIn(folder: string): Charge[] {
  return fileNamesIn(folder, SUFFIX).flatMap((name) => {
    if (!NAME.test(name)) return [];
    try {
      return readJournalFile(join(folder, name)).settlements.filter((each) => each.script === "bind");
    } catch {
      return [];
    }
  });
}

const notOf = (store: string): string => `not of ${store}`;

type Keep = (settlements: readonly Settlement[]) => Promise<void>;

const OF_ANOTHER_STORE =
  "a journal file is of another store and is left alone; start a gateway with the REDIS_URL of that store on this " +
  "folder, or delete the file: what it holds is then never charged";

const LATER_FORMAT =
  "a journal file was written by a later release and is left alone; start a gateway of that release on this folder";

/**
 * Claims a file by renaming it, so that of two that look at it only one has it; makes what is in it our own, and only
 * then removes it: an end in between replays it twice, no harm. If it fails, the file has its old name again.
 */
async function adopt(path: string, settlements: readonly Settlement[], keep: Keep): Promise<void> {
  const claimed = newFile(dirname(path));
  renameSync(path, claimed);
  openHere.add(claimed);
  try {
    await keep(settlements);
    rmSync(claimed, { force: true });
  } catch (error) {
    renameSync(claimed, path);
    throw error;
  } finally {
    openHere.delete(claimed);
  }
}
