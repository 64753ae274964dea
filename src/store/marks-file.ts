import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Logger } from "../telemetry/log.ts";

const FORMAT = 1;
const SUFFIX = ".marks.json";
/** Stores that are remembered; beyond, the one that was met first is forgotten. */
const STORES_MAX = 8;
/** A file that was not written for this long is merged into the file of the next gateway that starts. */
const SILENT_MS = 45_000;

/** A ledger entry that a store has confirmed. */
export interface Mark {
  /** Id in the partition's stream. */
  id: string;
  accountId: string;
  /** charge, refund or grant. */
  kind: string;
  credits: number;
  /** Of a grant. */
  reference: string;
  /** Of a charge or refund; missing in files of earlier releases. */
  requestId?: string;
}

/** The last entry of each partition's ledger that a store has confirmed, by the ledger's name. */
export interface StoreMarks {
  /** The acceptance after which they were learned (Unix ms by the store's clock); 0 before any. */
  epoch: number;
  marks: Map<string, Mark>;
}

/** As it stands in a file. */
interface Content {
  format: number;
  stores: Record<string, { epoch: number; marks: Record<string, Mark> }>;
}

export type MarksFile = ReturnType<typeof openMarksFile>;

/** When the entry was written, Unix ms. */
export const msOf = (id: string): number => Number(id.slice(0, id.indexOf("-")));

const sequenceOf = (id: string): number => Number(id.slice(id.indexOf("-") + 1));

/** Whether an entry comes after another of the same ledger. */
export const isLater = (id: string, other: string): boolean =>
  msOf(id) > msOf(other) || (msOf(id) === msOf(other) && sequenceOf(id) > sequenceOf(other));

/** Takes one mark, unless a later one of the same epoch is known. */
function learn(stores: Map<string, StoreMarks>, storeId: string, ledger: string, mark: Mark): boolean {
  const { marks } = stores.get(storeId)!;
  const known = marks.get(ledger);
  if (known && !isLater(mark.id, known.id)) return false;
  marks.set(ledger, mark);
  return true;
}

/** All that the files of a folder say, each store's latest. Files that cannot be read are passed over. */
export const readMarks = (folder: string): Map<string, StoreMarks> => readFolder(folder).stores;

/** @returns also the files that were read, by name, with the time of their last change, Unix ms */
function readFolder(
  folder: string,
  log?: Logger,
): { stores: Map<string, StoreMarks>; read: Map<string, number> } {
  const stores = new Map<string, StoreMarks>();
  const read = new Map<string, number>();
  for (const name of namesIn(folder)) {
    try {
      const path = join(folder, name);
      const { mtimeMs } = statSync(path);
      const content = JSON.parse(readFileSync(path, "utf8")) as Content;
      if (content.format !== FORMAT) throw new Error(`format ${content.format} is of a later release`);
      for (const [storeId, { epoch, marks }] of Object.entries(content.stores)) {
        const known = stores.get(storeId);
        if (known && known.epoch > epoch) continue;
        if (!known || known.epoch < epoch) stores.set(storeId, { epoch, marks: new Map() });
        for (const [ledger, mark] of Object.entries(marks)) learn(stores, storeId, ledger, mark);
      }
      read.set(name, mtimeMs);
    } catch (error) {
      log?.warn({ err: error, file: name }, "a file of ledger marks cannot be read");
    }
  }
  return { stores, read };
}

const namesIn = (folder: string): string[] => {
  try {
    return readdirSync(folder).filter((name) => name.endsWith(SUFFIX));
  } catch {
    return [];
  }
};

/**
 * What stores have confirmed, in a small file of this process beside the journal; it begins with what the files of all
 * processes say, and replaces those that have not been written for long.
 * @param folder without one it is kept in memory only
 */
export function openMarksFile(folder: string | undefined, log: Logger) {
  const found = folder === undefined ? undefined : readFolder(folder, log);
  const stores = found?.stores ?? new Map<string, StoreMarks>();
  const own = `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}${SUFFIX}`;
  let dirty = false;
  let saving: Promise<void> = Promise.resolve();
  /** Files whose marks are among ours. */
  let merged = found?.read ?? new Map<string, number>();

  function of(storeId: string): StoreMarks {
    let store = stores.get(storeId);
    if (!store) {
      if (stores.size >= STORES_MAX) stores.delete(stores.keys().next().value!);
      store = { epoch: 0, marks: new Map() };
      stores.set(storeId, store);
    }
    return store;
  }

  async function write(into: string): Promise<void> {
    if (!dirty) return;
    dirty = false;
    const content: Content = { format: FORMAT, stores: {} };
    for (const [storeId, { epoch, marks }] of stores)
      content.stores[storeId] = { epoch, marks: Object.fromEntries(marks) };
    mkdirSync(into, { recursive: true });
    const path = join(into, own);
    await writeFile(`${path}.tmp`, JSON.stringify(content), { mode: 0o600, flush: true });
    await rename(`${path}.tmp`, path);
    removeMerged(into);
  }

  /**
   * What silent files say is in ours now, unless they have changed since they were read. One whose gateway lives after
   * all is written again at its next change.
   */
  function removeMerged(from: string): void {
    for (const [name, readMs] of merged) {
      const { mtimeMs } = statSync(join(from, name), { throwIfNoEntry: false }) ?? {};
      if (mtimeMs === readMs && Date.now() - mtimeMs > SILENT_MS) rmSync(join(from, name), { force: true });
    }
    merged = new Map();
  }

  return {
    of,
    learn(storeId: string, ledger: string, mark: Mark): void {
      of(storeId);
      if (learn(stores, storeId, ledger, mark)) dirty = true;
    },
    /** An operator has accepted the store as it was then: what was known before does not count any more. */
    accept(storeId: string, epoch: number): void {
      of(storeId);
      stores.set(storeId, { epoch, marks: new Map() });
      dirty = true;
    },
    /** Writes what has changed. A disk that fails is logged, and tried again. */
    save(): Promise<void> {
      if (folder === undefined) return Promise.resolve();
      saving = saving
        .then(() => write(folder))
        .catch((error: unknown) => {
          dirty = true;
          log.error({ err: error, folder }, "the ledger marks cannot be written");
        });
      return saving;
    },
  };
}
