import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "../domain/errors.ts";
import { compareIds, LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { usablePrimaries } from "../redis/topology/frozen-partitions.ts";
import { archived } from "../scripts/archive.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import {
  type ArchivedState,
  type ArchivePage,
  type ArchivePosition,
  hasRows,
  isSameEntry,
  readPages,
} from "./archive-pages.ts";
import {
  announceBatches,
  beginCopying,
  cutOf,
  entriesOf,
  isConfirmed,
  oldestUncopied,
  readArchiveRecords,
  renewGeneration,
} from "./archive-record.ts";
import { type ArchiveTables, StaleArchiveError } from "./tables.ts";

const BATCH = 500;
/** Leases are renewed after this much work. */
const BACKLOG_MS = 2500;
const LOOK_AT_DUE_EVERY_MS = 10_000;

export interface HeldPartitions {
  primary: Primary;
  partitions: readonly number[];
}

export interface CopyingOptions {
  connection: Connection;
  metrics: Pick<Metrics, "archiveLag" | "archiveRows" | "archiveForks">;
  log: Logger;
  /** For tests: called before each step of a batch. */
  step?: (name: "read" | "announce" | "confirm" | "write" | "note") => Promise<void> | void;
}

interface Copying extends CopyingOptions {
  positions: Map<number, ArchivePosition>;
  /** Partitions of which the archive has everything. */
  complete: Set<number>;
}

export function createCopying(options: CopyingOptions) {
  const copying: Copying = { ...options, positions: new Map(), complete: new Set() };
  const { positions, complete } = copying;
  let lookedAtDueMs = Number.NEGATIVE_INFINITY;

  return {
    keepOnly(partitions: readonly number[]): void {
      const kept = new Set(partitions);
      for (const partition of positions.keys()) {
        if (kept.has(partition)) continue;
        positions.delete(partition);
        complete.delete(partition);
      }
    },

    /** The archive's state; a partition with lost rows begins again. */
    async look(partitions: readonly number[], tables: ArchiveTables): Promise<Map<number, ArchivedState>> {
      const states = await tables.state(partitions);
      for (const [partition, state] of states) {
        const known = positions.get(partition);
        if (known && hasLost(state, known)) positions.delete(partition);
      }
      return states;
    },

    /** @returns false if there was no time for everything */
    async from(held: HeldPartitions, tables: ArchiveTables): Promise<boolean> {
      const { partitions } = held;
      const startedMs = performance.now();
      const isTimeOver = (): boolean => performance.now() - startedMs > BACKLOG_MS;
      if (startedMs - lookedAtDueMs > LOOK_AT_DUE_EVERY_MS) {
        lookedAtDueMs = startedMs;
        for (const position of positions.values()) position.due ??= 0;
      }
      for (const partition of partitions) complete.delete(partition);
      try {
        return await copyAll(copying, held, { tables, isTimeOver });
      } catch (error) {
        // The missing note of a written batch is made when its partition begins again.
        for (const partition of partitions) positions.delete(partition);
        throw error;
      }
    },

    showLag: (held: readonly HeldPartitions[], failingMs = 0): Promise<void> =>
      showLag(copying, held, failingMs),
  };
}

interface Into {
  tables: ArchiveTables;
  isTimeOver(): boolean;
}

async function copyAll(
  copying: Copying,
  { primary, partitions }: HeldPartitions,
  into: Into,
): Promise<boolean> {
  let waiting = partitions;
  while (waiting.length > 0) {
    await beginUnknown(copying, { primary, partitions: waiting }, into);
    if (into.isTimeOver()) return false;
    if (!(await copyBatch(copying, { primary, partitions: waiting }, into.tables))) return true;
    waiting = waiting.filter((partition) => !copying.complete.has(partition));
  }
  return true;
}

/** @returns false if replicas lack some of it; then nothing is copied */
async function copyBatch(
  copying: Copying,
  { primary, partitions }: HeldPartitions,
  tables: ArchiveTables,
): Promise<boolean> {
  const { positions, step } = copying;
  await step?.("read");
  const known = partitions.flatMap((partition) => positions.get(partition) ?? []);
  const pages = await readPages(primary, known, BATCH);
  const whole = pages.filter(({ isFork, isUnseen }) => !isFork && !isUnseen);
  const filled = whole.filter((page) => !isEmpty(page));
  await step?.("announce");
  // Announced on the connection of the read: the same server has both.
  await announceBatches(primary, filled);
  for (const { position, isFork, isUnseen } of pages) {
    if (isFork || isUnseen) positions.delete(position.partition);
    if (isFork) await hideLost(copying, primary, position, tables);
  }
  await step?.("confirm");
  // Replicas have everything that Redis had answered before the announcement.
  if (filled.length > 0 && !(await isConfirmed(primary))) return false;
  try {
    await writePages(copying, primary, whole, tables);
  } catch (error) {
    if (!(error instanceof StaleArchiveError)) throw error;
    for (const { partition } of known) positions.delete(partition);
  }
  return true;
}

/** Reads the archive's state of unknown partitions. If another process writes meanwhile, the next round tries again. */
async function beginUnknown(
  { positions }: Copying,
  { primary, partitions }: HeldPartitions,
  { tables, isTimeOver }: Into,
): Promise<void> {
  const unknown = partitions.filter((partition) => !positions.has(partition));
  if (unknown.length === 0) return;
  const before = await readArchiveRecords(primary, unknown);
  const states = await tables.state(unknown);
  const records = await readArchiveRecords(primary, unknown);
  for (const [partition, has] of states) {
    const record = records.get(partition) ?? {};
    if (!isDeepStrictEqual(record, before.get(partition) ?? {})) continue;
    const known = { archiveId: tables.archiveId, record, has, listed: tables.listed(partition) };
    const position = await beginCopying(primary, partition, known);
    if (position) positions.set(partition, position);
    if (isTimeOver()) return;
  }
}

/** Logged after the write: another process may have copied the entries. */
function sayMissing(log: Logger, { position, missingUntil, entries }: ArchivePage): void {
  if (missingUntil === undefined || entries.length === 0) return;
  const { partition, newest } = position;
  log.error(
    { partition, after: newest?.streamId, until: missingUntil },
    "the archive lacks ledger entries that have left Redis: restore a newer backup of it",
  );
}

async function hideLost(
  { metrics, log }: CopyingOptions,
  primary: Primary,
  position: ArchivePosition,
  tables: ArchiveTables,
): Promise<void> {
  const { newest, partition } = position;
  if (!newest) return;
  // First, so that a crash in between does not hide the reason.
  await renewGeneration(primary, partition, tables.archiveId);
  const after = await forkPoint(tables, newest, primary);
  const entries = await tables.hideAfter(after, position);
  metrics.archiveForks.inc();
  log.error(
    { partition, after, until: newest.streamId, entries },
    "the store has lost ledger entries that the archive has; the archive keeps their rows and no longer counts them",
  );
}

async function writePages(
  { metrics, log, positions, complete, step }: Copying,
  primary: Primary,
  pages: readonly ArchivePage[],
  tables: ArchiveTables,
): Promise<void> {
  await step?.("write");
  const written = await tables.write(pages);
  for (const [kind, rows] of Object.entries(written) as [keyof typeof written, number][])
    metrics.archiveRows.inc({ kind }, rows);
  for (const page of pages) sayMissing(log, page);
  await step?.("note");
  for (const page of pages) {
    const { partition } = page.position;
    const outcome = isEmpty(page) ? "archived" : (await primary.run(archived, notesOf(page))).outcome;
    if (outcome === "archived") positions.set(partition, notedAs(page.next));
    else positions.delete(partition);
    // The archive lost the last noted batch, or the store lost records of this one.
    if (outcome === "unseen") await renewGeneration(primary, partition, tables.archiveId);
    if (outcome === "archived" && !page.more) complete.add(partition);
  }
}

async function showLag(
  { connection, metrics, complete }: Copying,
  held: readonly HeldPartitions[],
  failingMs: number,
): Promise<void> {
  // The value stays while no primary is available.
  if (held.length === 0 && usablePrimaries(connection).length === 0) return;
  const ages = await Promise.all(
    held.map(async ({ primary, partitions }) => {
      const behind = partitions.filter((partition) => !complete.has(partition));
      if (behind.length === 0) return [];
      const times = await oldestUncopied(primary, behind).catch(withoutStore);
      return times?.map((atMs) => (atMs === undefined ? 0 : primary.nowMs() - atMs));
    }),
  );
  // The value stays while a primary is unavailable.
  if (ages.includes(undefined)) return;
  metrics.archiveLag.set(Math.max(failingMs, ...ages.flatMap((some) => some ?? [])) / 1000);
}

/** Partitions of an unavailable primary wait. @throws any other error */
export function withoutStore(error: unknown): undefined {
  if (error instanceof GatewayError) return undefined;
  throw error;
}

const isEmpty = (page: ArchivePage): boolean =>
  !hasRows(page) && page.next.looked.score === page.position.looked.score;

/** The archive lost rows, or another process has continued. */
const hasLost = ({ newest, batch }: ArchivedState, known: ArchivePosition): boolean =>
  batch !== known.batch ||
  compareIds(newest?.streamId ?? LEDGER_START, known.newest?.streamId ?? LEDGER_START) < 0;

const notedAs = (position: ArchivePosition): ArchivePosition => ({
  ...position,
  noted: { newest: position.newest?.streamId ?? position.noted.newest, batch: position.batch },
});

const notesOf = ({ position, next, requests, changed }: ArchivePage) => ({
  partition: next.partition,
  generation: next.generation,
  newest: next.newest?.streamId,
  batch: next.batch,
  noted: position.noted,
  lookedUntil: next.looked.score,
  requests: requests.map(({ requestId, record }) => ({ requestId, state: record.state ?? "" })),
  changed: changed.map(({ what, changes }) => ({ what, changes })),
});

const PAGE = 200;

async function forkPoint(tables: ArchiveTables, newest: LedgerEntry, primary: Primary): Promise<string> {
  const { partition } = newest;
  const cut = await cutOf(primary, partition);
  for (let before = newest.streamId; ; ) {
    const page = await tables.entriesBefore(partition, before, PAGE);
    const ids = page.map(({ streamId }) => streamId);
    const found = await entriesOf(primary, partition, ids);
    const stored = new Map(found.map((entry) => [entry.streamId, entry]));
    const common = page.find((entry) => {
      const same = stored.get(entry.streamId);
      return compareIds(entry.streamId, cut) <= 0 || (same !== undefined && isSameEntry(same, entry));
    });
    if (common) return common.streamId;
    if (page.length < PAGE) return LEDGER_START;
    before = ids.at(-1)!;
  }
}
