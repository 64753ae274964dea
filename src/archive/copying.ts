import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "../domain/errors.ts";
import { compareIds, LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
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
  usablePrimaries,
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

interface Progress {
  positions: Map<number, ArchivePosition>;
  complete: Set<number>;
}

export function createCopying(options: CopyingOptions) {
  const { step = () => undefined } = options;
  const progress: Progress = { positions: new Map(), complete: new Set() };
  const { positions, complete } = progress;
  let lookedAtDueMs = Number.NEGATIVE_INFINITY;

  /** @returns false if replicas lack some of it; then nothing is copied */
  async function copyBatch({ primary, partitions }: HeldPartitions, tables: ArchiveTables): Promise<boolean> {
    await step("read");
    const known = partitions.flatMap((partition) => positions.get(partition) ?? []);
    const pages = await readPages(primary, known, BATCH);
    const whole = pages.filter(({ isFork, isUnseen }) => !isFork && !isUnseen);
    const filled = whole.filter((page) => !isEmpty(page));
    await step("announce");
    // Announced on the connection of the read: the same server has both.
    await announceBatches(primary, filled);
    for (const { position, isUnseen } of pages) if (isUnseen) positions.delete(position.partition);
    const forked = pages.filter(({ isFork }) => isFork);
    for (const { position } of forked) {
      positions.delete(position.partition);
      await hideLost(options, primary, position, tables);
    }
    await step("confirm");
    // Replicas have everything that Redis had answered before the announcement.
    if (filled.length > 0 && !(await isConfirmed(primary))) return false;
    try {
      await writePages(options, progress, { primary, pages: whole, tables });
    } catch (error) {
      if (!(error instanceof StaleArchiveError)) throw error;
      for (const { partition } of known) positions.delete(partition);
    }
    return true;
  }

  async function copyAll(
    { primary, partitions }: HeldPartitions,
    tables: ArchiveTables,
    isTimeOver: () => boolean,
  ): Promise<boolean> {
    let waiting = partitions;
    while (waiting.length > 0) {
      await beginUnknown(positions, { primary, partitions: waiting }, { tables, isTimeOver });
      if (isTimeOver()) return false;
      if (!(await copyBatch({ primary, partitions: waiting }, tables))) return true;
      waiting = waiting.filter((partition) => !complete.has(partition));
    }
    return true;
  }

  return {
    keepOnly: (partitions: readonly number[]): void => keepOnly(progress, partitions),

    look: (partitions: readonly number[], tables: ArchiveTables) => look(positions, partitions, tables),

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
        return await copyAll(held, tables, isTimeOver);
      } catch (error) {
        // The missing note of a written batch is made when its partition begins again.
        for (const partition of partitions) positions.delete(partition);
        throw error;
      }
    },

    showLag: (held: readonly HeldPartitions[], failingMs = 0): Promise<void> =>
      showLag(options, { held, failingMs, complete }),
  };
}

function keepOnly({ positions, complete }: Progress, partitions: readonly number[]): void {
  const kept = new Set(partitions);
  for (const partition of positions.keys()) {
    if (kept.has(partition)) continue;
    positions.delete(partition);
    complete.delete(partition);
  }
}

/** Reads the archive's state of unknown partitions. If another process writes meanwhile, the next round tries again. */
async function beginUnknown(
  positions: Progress["positions"],
  { primary, partitions }: HeldPartitions,
  { tables, isTimeOver }: { tables: ArchiveTables; isTimeOver: () => boolean },
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

/** The archive's state; a partition with lost rows begins again. */
async function look(
  positions: Progress["positions"],
  partitions: readonly number[],
  tables: ArchiveTables,
): Promise<ReadonlyMap<number, ArchivedState>> {
  const states = await tables.state(partitions);
  for (const [partition, state] of states) {
    const known = positions.get(partition);
    if (known && hasLost(state, known)) positions.delete(partition);
  }
  return states;
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
  const cut = await cutOf(primary, partition);
  const point = await findForkPoint(tables, newest, cut, (ids) => entriesOf(primary, partition, ids));
  const after = point?.streamId ?? LEDGER_START;
  const entries = await tables.hideAfter(after, position);
  metrics.archiveForks.inc();
  log.error(
    { partition, after, until: newest.streamId, entries },
    "the store has lost ledger entries that the archive has; the archive keeps their rows and no longer counts them",
  );
}

async function writePages(
  { metrics, log, step = () => undefined }: CopyingOptions,
  { positions, complete }: Progress,
  { primary, pages, tables }: { primary: Primary; pages: readonly ArchivePage[]; tables: ArchiveTables },
): Promise<void> {
  await step("write");
  const written = await tables.write(pages);
  for (const [kind, rows] of Object.entries(written) as [keyof typeof written, number][])
    metrics.archiveRows.inc({ kind }, rows);
  for (const page of pages) sayMissing(log, page);
  await step("note");
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
  { connection, metrics }: CopyingOptions,
  {
    held,
    failingMs,
    complete,
  }: { held: readonly HeldPartitions[]; failingMs: number; complete: ReadonlySet<number> },
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

/** The newest entry that archive and store have in common; undefined if none. */
async function findForkPoint(
  tables: Pick<ArchiveTables, "entriesBefore">,
  newest: LedgerEntry,
  cut: string,
  read: (ids: readonly string[]) => Promise<LedgerEntry[]>,
): Promise<LedgerEntry | undefined> {
  let before = newest;
  for (;;) {
    const page = await tables.entriesBefore(before.partition, before.streamId, PAGE);
    const stored = new Map(
      (await read(page.map(({ streamId }) => streamId))).map((entry) => [entry.streamId, entry]),
    );
    const found = page.find((entry) => {
      if (compareIds(entry.streamId, cut) <= 0) return true;
      const same = stored.get(entry.streamId);
      return same !== undefined && isSameEntry(same, entry);
    });
    if (found) return found;
    const last = page.at(-1);
    if (page.length < PAGE || !last) return undefined;
    before = last;
  }
}
