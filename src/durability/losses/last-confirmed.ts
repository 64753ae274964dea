import { mkdirSync, rmSync, statSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isLater } from "../../records/ledger-entries.ts";
import { StoreError } from "../../redis/reasons.ts";
import type { FoundStore } from "../../redis/store-facts.ts";
import type { Logger } from "../../telemetry/log.ts";
import { fileNamesIn, newFileName, readRegularFile, SILENT_MS } from "../process-files.ts";
import type { Term } from "../terms.ts";

const FORMAT = 1;
const SUFFIX = ".last-entries.json";
const FILE_BYTES_MAX = 32 * 2 ** 20;
const STORES_MAX = 8;

export interface ConfirmedEntry {
  id: string;
  accountId: string;
  kind: string;
  credits: number;
  reference: string;
  requestId?: string;
  /** Confirmed by replicas, so it may be there under another id. */
  onReplicas?: true;
}

export interface LastConfirmed {
  /** Acceptance before the read (Unix ms, store's clock); 0 for none. */
  acceptedAt: number;
  entries: Map<string, ConfirmedEntry>;
}

type Terms = Map<string, Map<string, Term>>;

interface Content {
  format: number;
  stores: Record<
    string,
    {
      acceptedAt: number;
      entries: Record<string, ConfirmedEntry>;
      terms: Record<string, Term>;
    }
  >;
}

function keepLater({ entries }: LastConfirmed, ledger: string, entry: ConfirmedEntry): boolean {
  const known = entries.get(ledger);
  if (known && !isLater(entry.id, known.id)) return false;
  entries.set(ledger, entry);
  return true;
}

function keepLaterTerm(terms: Terms, storeId: string, name: string, term: Term): boolean {
  const ofStore = terms.get(storeId) ?? new Map<string, Term>();
  terms.set(storeId, ofStore);
  const known = ofStore.get(name);
  if (known && (known.term > term.term || (known.term === term.term && known.replid === term.replid)))
    return false;
  ofStore.set(name, term);
  return true;
}

const isMeant = ({ id, acceptedAt }: FoundStore, known: ReadonlyMap<string, unknown>): boolean =>
  known.size === 0 || (id !== undefined && (acceptedAt > 0 || known.has(id)));

export const isMeantBy = (folder: string | undefined, found: FoundStore): boolean =>
  folder === undefined || isMeant(found, readLastConfirmed(folder));

export const replacedStore = (id: string | undefined): StoreError =>
  new StoreError(
    `Redis ${id === undefined ? "is empty" : `holds another store (${id})`}, and the journal folder knows a store that has accounts and credits`,
    "bring back that Redis with its data; if this one is meant, run `tollgate store accept`, or start with an empty journal folder",
  );

export const readLastConfirmed = (folder: string): Map<string, LastConfirmed> => readFolder(folder).stores;

function readFolder(
  folder: string,
  log?: Logger,
): { stores: Map<string, LastConfirmed>; terms: Terms; read: Map<string, number> } {
  const stores = new Map<string, LastConfirmed>();
  const terms: Terms = new Map();
  const read = new Map<string, number>();
  for (const name of fileNamesIn(folder, SUFFIX)) {
    try {
      const path = join(folder, name);
      const { mtimeMs } = statSync(path);
      const content = JSON.parse(readRegularFile(path, FILE_BYTES_MAX)) as Content;
      if (content.format !== FORMAT) throw new Error(`format ${content.format} is of another version`);
      for (const [storeId, { acceptedAt, entries, terms: ofStore }] of Object.entries(content.stores)) {
        for (const [name, term] of Object.entries(ofStore)) keepLaterTerm(terms, storeId, name, term);
        let known = stores.get(storeId);
        if (known && known.acceptedAt > acceptedAt) continue;
        if (!known || known.acceptedAt < acceptedAt) {
          known = { acceptedAt, entries: new Map() };
          stores.set(storeId, known);
        }
        for (const [ledger, entry] of Object.entries(entries)) keepLater(known, ledger, entry);
      }
      read.set(name, mtimeMs);
    } catch (error) {
      log?.warn({ err: error, file: name }, "a file of last confirmed ledger entries cannot be read");
    }
  }
  return { stores, terms, read };
}

/** One file per process beside the journal; merges those of ended processes. @param folder undefined: in memory only */
export class LastConfirmedFile {
  readonly #folder: string | undefined;
  readonly #log: Logger;
  readonly #stores: Map<string, LastConfirmed>;
  readonly #terms: Terms;
  readonly #own = newFileName(SUFFIX);
  #hasChanged = false;
  /** Since it was last written: it is tried each second, and said once. */
  #hasFailed = false;
  #saving: Promise<void> = Promise.resolve();
  #merged: Map<string, number>;

  constructor(folder: string | undefined, log: Logger) {
    const found = folder === undefined ? undefined : readFolder(folder, log);
    this.#folder = folder;
    this.#log = log;
    this.#stores = found?.stores ?? new Map();
    this.#terms = found?.terms ?? new Map();
    this.#merged = found?.read ?? new Map();
  }

  of(storeId: string): LastConfirmed {
    const known = this.#stores.get(storeId);
    if (known) return known;
    if (this.#stores.size >= STORES_MAX) {
      const first = this.#stores.keys().next().value!;
      this.#stores.delete(first);
      this.#terms.delete(first);
    }
    const store = { acceptedAt: 0, entries: new Map() };
    this.#stores.set(storeId, store);
    return store;
  }

  keep(storeId: string, ledger: string, entry: ConfirmedEntry): void {
    if (keepLater(this.of(storeId), ledger, entry)) this.#hasChanged = true;
  }

  isMeant(found: FoundStore): boolean {
    return isMeant(found, this.#stores);
  }

  readonly use = async (storeId: string): Promise<void> => {
    if (this.#stores.has(storeId)) return;
    this.of(storeId);
    this.#hasChanged = true;
    await this.save();
  };

  term(storeId: string, name: string): Term | undefined {
    return this.#terms.get(storeId)?.get(name);
  }

  keepTerm(storeId: string, name: string, term: Term): void {
    this.of(storeId);
    if (keepLaterTerm(this.#terms, storeId, name, term)) this.#hasChanged = true;
  }

  /** The entry may be there under another id: the ledger is read anew. */
  forget(storeId: string, ledger: string): void {
    if (this.of(storeId).entries.delete(ledger)) this.#hasChanged = true;
  }

  accept(storeId: string, acceptedAt: number): void {
    this.of(storeId);
    this.#stores.set(storeId, { acceptedAt, entries: new Map() });
    this.#hasChanged = true;
  }

  readonly save = (): Promise<void> => {
    const folder = this.#folder;
    if (folder === undefined) return Promise.resolve();
    this.#saving = this.#saving
      .then(() => this.#write(folder))
      .catch((error: unknown) => {
        this.#hasChanged = true;
        if (!this.#hasFailed)
          this.#log.error({ err: error, folder }, "the last confirmed ledger entries cannot be written");
        this.#hasFailed = true;
      });
    return this.#saving;
  };

  async #write(into: string): Promise<void> {
    if (!this.#hasChanged) return;
    this.#hasChanged = false;
    const content: Content = { format: FORMAT, stores: {} };
    for (const [storeId, { acceptedAt, entries }] of this.#stores)
      content.stores[storeId] = {
        acceptedAt,
        entries: Object.fromEntries(entries),
        terms: Object.fromEntries(this.#terms.get(storeId) ?? []),
      };
    mkdirSync(into, { recursive: true });
    const path = join(into, this.#own);
    await writeFile(`${path}.tmp`, JSON.stringify(content), { mode: 0o600, flush: true });
    await rename(`${path}.tmp`, path);
    this.#hasFailed = false;
    this.#removeMerged(into);
  }

  /** Removes merged files of ended processes unless they have changed. A living process writes its file again. */
  #removeMerged(from: string): void {
    for (const [name, readMs] of this.#merged) {
      const { mtimeMs } = statSync(join(from, name), { throwIfNoEntry: false }) ?? {};
      if (mtimeMs === readMs && Date.now() - mtimeMs > SILENT_MS) rmSync(join(from, name), { force: true });
    }
    this.#merged = new Map();
  }
}
