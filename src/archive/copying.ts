import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "../domain/errors.ts";
import { compareIds } from "../records/entry-ids.ts";
import { LEDGER_START } from "../records/ledger-entries.ts";
import type { Primary } from "../redis/primary.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { type ArchivedState, type ArchivePage, type ArchivePosition, hasRows } from "./archive-pages.ts";
import type { ArchiveSource } from "./archive-source.ts";
import { findForkPoint } from "./forks.ts";
import { type ArchiveTables, StaleArchiveError } from "./tables.ts";

/** Ledger entries, requests, accounts and keys each in one transaction, at most. Reading them holds Redis for less than a millisecond. */
const BATCH = 500;
/** A backlog is copied for so long at a time, before turns are renewed. */
const BACKLOG_MS = 2500;
/** How often requests that may be collected are looked at. */
const LOOK_AT_DUE_EVERY_MS = 10_000;

/** Partitions of one primary that this process copies. */
export interface HeldPartitions {
  primary: Primary;
  partitions: readonly number[];
}

export interface CopyingOptions {
  source: ArchiveSource;
  metrics: Pick<Metrics, "archiveLag" | "archiveRows" | "archiveForks">;
  log: Logger;
  /** For tests: called before each step of a batch. */
  step?: (name: "read" | "announce" | "confirm" | "write" | "note") => Promise<void> | void;
}

/** Where each partition is read on. */
interface Progress {
  positions: Map<number, ArchivePosition>;
  /** Partitions of which all has been copied that was there at the last look. */
  complete: Set<number>;
}

/** Reads, writes and notes, batch by batch. */
export function createCopying(options: CopyingOptions) {
  const { source, step = () => undefined } = options;
  const progress: Progress = { positions: new Map(), complete: new Set() };
  const { positions, complete } = progress;
  let lookedAtDueMs = Number.NEGATIVE_INFINITY;

  /** One batch. @returns false if replicas do not have all of it, so nothing is copied */
  async function copyBatch({ primary, partitions }: HeldPartitions, tables: ArchiveTables): Promise<boolean> {
    await step("read");
    const known = partitions.flatMap((partition) => positions.get(partition) ?? []);
    const pages = await source.read(primary, known, BATCH);
    const whole = pages.filter(({ isFork, isUnseen }) => !isFork && !isUnseen);
    const filled = whole.filter((page) => !isEmpty(page));
    await step("announce");
    // At once: the connection by which they were read is still there, so the store has what they have.
    await source.announce(primary, filled);
    for (const { position, isUnseen } of pages) if (isUnseen) positions.delete(position.partition);
    const forked = pages.filter(({ isFork }) => isFork);
    for (const { position } of forked) {
      positions.delete(position.partition);
      await hideLost(options, primary, position, tables);
    }
    await step("confirm");
    // After they were read and announced: replicas have what Redis had answered by then.
    if (filled.length > 0 && !(await source.isConfirmed(primary))) return false;
    try {
      await writePages(options, progress, { primary, pages: whole, tables });
    } catch (error) {
      if (!(error instanceof StaleArchiveError)) throw error;
      for (const { partition } of known) positions.delete(partition);
    }
    return true;
  }

  /** @returns false if there is more to copy */
  async function copyAll(
    { primary, partitions }: HeldPartitions,
    tables: ArchiveTables,
    isTimeOver: () => boolean,
  ): Promise<boolean> {
    let waiting = partitions;
    while (waiting.length > 0) {
      await beginUnknown(source, positions, { primary, partitions: waiting }, { tables, isTimeOver });
      if (isTimeOver()) return false;
      if (!(await copyBatch({ primary, partitions: waiting }, tables))) return true;
      waiting = waiting.filter((partition) => !complete.has(partition));
    }
    return true;
  }

  return {
    /** Forgets what was read of all other partitions. */
    keepOnly(partitions: readonly number[]): void {
      const kept = new Set(partitions);
      for (const partition of positions.keys()) {
        if (kept.has(partition)) continue;
        positions.delete(partition);
        complete.delete(partition);
      }
    },

    look: (partitions: readonly number[], tables: ArchiveTables) => look(positions, partitions, tables),

    /** @returns false if there is more to copy */
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
        // Of a batch that was written and not noted, the note is made up for when its partition is begun again.
        for (const partition of partitions) positions.delete(partition);
        throw error;
      }
    },

    /** @param failingMs for how long nothing could be copied */
    showLag: (held: readonly HeldPartitions[], failingMs = 0): Promise<void> =>
      showLag(options, { held, failingMs, complete }),
  };
}

/**
 * Asks the archive what it has of partitions that are not known. Where another process announces or notes a batch meanwhile,
 * the archive's state and the record are of two moments: such a partition is asked for again the next time. So is what there is
 * no time for: to list a partition takes long, and turns end.
 */
async function beginUnknown(
  source: ArchiveSource,
  positions: Progress["positions"],
  { primary, partitions }: HeldPartitions,
  { tables, isTimeOver }: { tables: ArchiveTables; isTimeOver: () => boolean },
): Promise<void> {
  const unknown = partitions.filter((partition) => !positions.has(partition));
  if (unknown.length === 0) return;
  const before = await source.records(primary, unknown);
  const states = await tables.state(unknown);
  const records = await source.records(primary, unknown);
  for (const [partition, has] of states) {
    const record = records.get(partition) ?? {};
    if (!isDeepStrictEqual(record, before.get(partition) ?? {})) continue;
    const known = { archiveId: tables.archiveId, record, has, listed: tables.listed(partition) };
    const position = await source.begin(primary, partition, known);
    if (position) positions.set(partition, position);
    if (isTimeOver()) return;
  }
}

/** What the archive has of partitions now. One of which it has lost something is begun again. */
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

/** Said once, after the write: until then another process may have copied what has left. The next page is read behind the gap. */
function sayMissing(log: Logger, { position, missingUntil, entries }: ArchivePage): void {
  if (missingUntil === undefined || entries.length === 0) return;
  const { partition, newest } = position;
  log.error(
    { partition, after: newest?.streamId, until: missingUntil },
    "the archive lacks ledger entries that have left Redis: restore a newer backup of it",
  );
}

/** What the archive has and the store has lost does not count any more. */
async function hideLost(
  { source, metrics, log }: CopyingOptions,
  primary: Primary,
  position: ArchivePosition,
  tables: ArchiveTables,
): Promise<void> {
  const { newest, partition } = position;
  if (!newest) return;
  // Accounts and keys are of before, too. First, so that a process that ends in between has not hidden the reason.
  await source.renew(primary, partition, tables.archiveId);
  const cut = await source.cut(primary, partition);
  const point = await findForkPoint(tables, newest, cut, (ids) => source.entries(primary, partition, ids));
  const after = point?.streamId ?? LEDGER_START;
  const entries = await tables.hideAfter(after, position);
  metrics.archiveForks.inc();
  log.error(
    { partition, after, until: newest.streamId, entries },
    "the store has lost ledger entries that the archive has; the archive keeps their rows and no longer counts them",
  );
}

/** Writes pages to the archive, notes in the store that they are there, and goes on behind them. */
async function writePages(
  { source, metrics, log, step = () => undefined }: CopyingOptions,
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
    const outcome = isEmpty(page) ? "archived" : await source.archived(primary, notesOf(page));
    if (outcome === "archived") positions.set(partition, notedAs(page.next));
    else positions.delete(partition);
    // The archive may have lost what was noted last before this batch was written, or the store what was read for this one.
    if (outcome === "unseen") await source.renew(primary, partition, tables.archiveId);
    if (outcome === "archived" && !page.more) complete.add(partition);
  }
}

/**
 * Shows the age of the oldest entry of these partitions that is not copied. What else waits while copying fails, such as changed
 * keys, is not looked for.
 */
async function showLag(
  { source, metrics }: CopyingOptions,
  {
    held,
    failingMs,
    complete,
  }: { held: readonly HeldPartitions[]; failingMs: number; complete: ReadonlySet<number> },
): Promise<void> {
  // While all primaries are away, the figure stays.
  if (held.length === 0 && source.primaries().length === 0) return;
  const ages = await Promise.all(
    held.map(async ({ primary, partitions }) => {
      const behind = partitions.filter((partition) => !complete.has(partition));
      if (behind.length === 0) return [];
      const times = await source.oldestUncopied(primary, behind).catch(withoutStore);
      return times?.map((atMs) => (atMs === undefined ? 0 : primary.nowMs() - atMs));
    }),
  );
  // What is on a primary that is away is not known: the figure stays.
  if (ages.includes(undefined)) return;
  metrics.archiveLag.set(Math.max(failingMs, ...ages.flatMap((some) => some ?? [])) / 1000);
}

/** A primary that is away, or refuses: its partitions wait. @throws any other error */
export function withoutStore(error: unknown): undefined {
  if (error instanceof GatewayError) return undefined;
  throw error;
}

const isEmpty = (page: ArchivePage): boolean =>
  !hasRows(page) && page.next.looked.score === page.position.looked.score;

/** Whether the archive lacks what it had at a position, or another process has gone on. */
const hasLost = ({ newest, batch }: ArchivedState, known: ArchivePosition): boolean =>
  batch !== known.batch ||
  compareIds(newest?.streamId ?? LEDGER_START, known.newest?.streamId ?? LEDGER_START) < 0;

/** A position once the store has noted what the archive has there. */
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
