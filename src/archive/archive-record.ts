import { randomUUID } from "node:crypto";
import { readCut } from "../records/checkpoints.ts";
import {
  compareIds,
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  type StreamEntry,
} from "../records/ledger-entries.ts";
import { archiveNames, partitionNames } from "../records/names.ts";
import type { ArchiveRecord } from "../records/records.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { archived, note } from "../scripts/archive.ts";
import { workLease } from "../scripts/gateways.ts";
import type { ArchivedState, ArchivePage, ArchivePosition } from "./archive-pages.ts";
import { type NamedPages, noteAllChanged } from "./changed-records.ts";

export class OtherArchiveError extends Error {
  override readonly name = "OtherArchiveError";
}

/** @param noted what the store has noted of its archive; undefined where it has none @throws OtherArchiveError */
export function requireSameArchive(noted: string | undefined, archiveId: string): void {
  if (noted !== undefined && noted !== archiveId) throw new OtherArchiveError();
}

/** Ids of the archives of partitions; unavailable partitions are left out. @param partition this one alone; undefined: all */
export async function notedArchives(nodes: RedisNodes, partition?: number): Promise<Set<string>> {
  const partitions =
    partition === undefined
      ? Array.from({ length: await partitionsOf(nodes) }, (_, at) => ({ partition: at }))
      : [{ partition }];
  const noted = await readsOfMost(nodes).many<string | null, { partition: number }>(partitions, (pipe, at) =>
    pipe.hget(archiveNames(at.partition).archive, "archive"),
  );
  return new Set(noted.filter((id) => typeof id === "string"));
}

interface BeginOptions {
  archiveId: string;
  record: ArchiveRecord;
  has: ArchivedState;
  listed: NamedPages;
}

/** Continues after the last copier, or begins a new generation: COLLECT keeps uncopied requests. @returns undefined if another has continued */
export async function beginCopying(
  primary: Primary,
  partition: number,
  { archiveId, record, has, listed }: BeginOptions,
): Promise<ArchivePosition | undefined> {
  requireSameArchive(record.archive, archiveId);
  const { generation = "", looked_until: lookedUntil } = record;
  const at = { partition, ...has, due: 0 };
  // A generation whose listing has not come to its end is not continued: what was copied in it may be unknown to the archive.
  if (record.listed !== generation || isOutOfStep(has, record)) {
    const renewed = await renewGeneration(primary, partition, archiveId, has);
    await noteAllChanged(primary, partition, { generation: renewed, archived: listed });
    return { ...at, generation: renewed, noted: notedOf(has), looked: { score: 0, times: 0 } };
  }
  const looked = { score: Number(lookedUntil ?? 0), times: 0 };
  if (has.batch === batchOf(record))
    return { ...at, generation, noted: { newest: record.newest, batch: has.batch }, looked };
  return (await completeNote(primary, partition, record, has))
    ? { ...at, generation, noted: notedOf(has), looked }
    : undefined;
}

const batchOf = (record: ArchiveRecord): number => Number(record.batch ?? 0);

const notedOf = ({ newest, batch }: ArchivedState): ArchivePosition["noted"] => ({
  newest: newest?.streamId ?? LEDGER_START,
  batch,
});

/** Notes a batch whose copier ended between its commit and its note. Its records are copied again. */
async function completeNote(
  primary: Primary,
  partition: number,
  record: ArchiveRecord,
  has: ArchivedState,
): Promise<boolean> {
  const { generation = "", newest, looked_until: lookedUntil } = record;
  const { outcome } = await primary.run(archived, {
    ...{ partition, generation, ...notedOf(has) },
    noted: { newest, batch: batchOf(record) },
    lookedUntil: Number(lookedUntil ?? 0),
    requests: [],
    changed: [],
  });
  return outcome === "archived";
}

/** True if archive or store was restored from an older copy: the archive's newest batch is neither noted nor announced. */
function isOutOfStep({ newest, batch }: ArchivedState, record: ArchiveRecord): boolean {
  const isBehind = compareIds(newest?.streamId ?? LEDGER_START, record.newest ?? LEDGER_START) < 0;
  const noted = batchOf(record);
  return isBehind || (batch !== noted && record.writing !== writingOf(batch, noted));
}

const writingOf = (batch: number, noted: number): string => `${batch} after ${noted}`;

/** Says in the store which batches come next: a store that names the archive's newest batch is no older copy from before it. */
export const announceBatches = (primary: Primary, pages: readonly ArchivePage[]): Promise<unknown> =>
  primary.command(() =>
    Promise.all(
      pages.map(({ position: { partition, noted }, next }) =>
        primary.scripts.run(note, { partition, record: { writing: writingOf(next.batch, noted.batch) } }),
      ),
    ),
  );

export const readArchiveRecords = (
  primary: Primary,
  partitions: readonly number[],
): Promise<Map<number, ArchiveRecord>> =>
  primary.command(async (redis) => {
    const found = await many<ArchiveRecord, number>(redis, partitions, (pipe, partition) =>
      pipe.hgetall(archiveNames(partition).archive),
    );
    return new Map(partitions.map((partition, at) => [partition, found[at]!]));
  });

/** Begins a new generation: all is copied again. @param has the archive's state; unknown: the next copier begins anew */
export async function renewGeneration(
  primary: Primary,
  partition: number,
  archiveId: string,
  has?: ArchivedState,
): Promise<string> {
  const generation = randomUUID().slice(0, 8);
  const record = {
    ...{ generation, archive: archiveId, listed: "", writing: "", looked_until: 0 },
    newest: has?.newest?.streamId ?? LEDGER_START,
    batch: has?.batch ?? 0,
  } satisfies Record<keyof ArchiveRecord, string | number>;
  await primary.command(() => primary.scripts.run(note, { partition, record }));
  return generation;
}

/** Ends the use of an archive: nothing is noted or kept for it any more. @returns how many partitions had one */
export async function detachArchive(nodes: RedisNodes): Promise<number> {
  nodes.requireWritable?.(nodes.all());
  const partitions = await partitionsOf(nodes);
  let detached = 0;
  for (let partition = 0; partition < partitions; partition++) {
    const { archive, changed, archiver } = archiveNames(partition);
    const redis = nodes.of(partition);
    detached += await redis.del(archive);
    await redis.del(changed, archiver);
  }
  return detached;
}

export const cutOf = (primary: Primary, partition: number): Promise<string> =>
  primary.command(async (redis) => (await readCut(redis, partition)).lastEntry);

/** True if replicas have all writes so far, or need not confirm. */
export const isConfirmed = async ({ confirmation }: Primary): Promise<boolean> =>
  confirmation === undefined || (await confirmation.confirmed()) === "replicas";

export const entriesOf = (
  primary: Primary,
  partition: number,
  ids: readonly string[],
): Promise<LedgerEntry[]> =>
  primary.command(async (redis) => {
    const { ledger } = partitionNames(partition);
    const found = await many<StreamEntry[], string>(redis, ids, (pipe, id) => pipe.xrange(ledger, id, id));
    return found.flat().map((entry) => ledgerEntry(partition, entry));
  });

export async function oldestUncopied(
  primary: Primary,
  partitions: readonly number[],
): Promise<(number | undefined)[]> {
  return primary.command(async (redis) => {
    const noted = await many<string | null, number>(redis, partitions, (pipe, partition) =>
      pipe.hget(archiveNames(partition).archive, "newest"),
    );
    const firsts = await many<StreamEntry[], number>(redis, [...partitions.keys()], (pipe, at) =>
      pipe.xrange(partitionNames(partitions[at]!).ledger, `(${noted[at] ?? LEDGER_START}`, "+", "COUNT", 1),
    );
    return firsts.map(([first], at) => first && ledgerEntry(partitions[at]!, first).atMs);
  });
}

/** Leases partitions to this process. Two copiers at a time do no harm: primary keys decide. */
export async function takeLeases(
  primary: Primary,
  partitions: readonly number[],
  { holder, leaseMs }: { holder: string; leaseMs: number },
): Promise<number[]> {
  const taken = await Promise.all(
    partitions.map((partition) =>
      primary.run(workLease, { name: archiveNames(partition).archiver, holder, leaseMs }),
    ),
  );
  return partitions.filter((_, at) => taken[at]);
}

export const endLeases = (primary: Primary, partitions: readonly number[], holder: string): Promise<void> =>
  primary.command(async (redis) => {
    const names = partitions.map((partition) => archiveNames(partition).archiver);
    const holders = await many<string | null, string>(redis, names, (pipe, name) => pipe.get(name));
    await many(
      redis,
      names.filter((_, at) => holders[at] === holder),
      (pipe, name) => pipe.del(name),
    );
  });
