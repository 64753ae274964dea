import { randomUUID } from "node:crypto";
import type { ArchivedState, ArchivePage, ArchivePosition } from "./archive-pages.ts";
import { type NamedPages, noteAllChanged } from "./changed-records.ts";
import { compareIds } from "./entry-ids.ts";
import { LEDGER_START } from "./ledger-entries.ts";
import { archiveNames } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { many } from "./pipelines.ts";
import type { Primary } from "./primary.ts";
import type { ArchiveRecord } from "./records.ts";
import { partitionsOf } from "./store-facts.ts";

/** The store is copied to another archive. */
export class OtherArchiveError extends Error {
  override readonly name = "OtherArchiveError";
}

/** What is known of a partition before it is read. */
interface BeginOptions {
  archiveId: string;
  /** Its record in the store. */
  record: ArchiveRecord;
  /** What the archive has of it. */
  has: ArchivedState;
  /** The accounts and keys that the archive has of it. */
  listed: NamedPages;
}

/**
 * Notes that an archive is in use, in a partition where that is not noted yet. From then on COLLECT keeps what the archive
 * has not got. All accounts and keys are noted as changed.
 * @returns where to read on
 */
export async function beginCopying(
  primary: Primary,
  partition: number,
  { archiveId, record, has, listed }: BeginOptions,
): Promise<ArchivePosition> {
  if (record.archive !== undefined && record.archive !== archiveId) throw new OtherArchiveError();
  if (record.archive === undefined || isOutOfStep(has, record)) {
    const renewed = await renewGeneration(primary, partition, archiveId);
    return beginCopying(primary, partition, { archiveId, record: renewed, has, listed });
  }
  let noted = { newest: record.newest, batch: Number(record.batch ?? 0) };
  if (record.listed === undefined) {
    noted = { newest: has.newest?.streamId ?? noted.newest, batch: has.batch };
    await noteFirst(primary, partition, noted);
    await noteAllChanged(primary, partition, listed);
  }
  return {
    partition,
    generation: record.generation ?? "",
    noted,
    ...has,
    looked: { score: Number(record.looked_until ?? 0), times: 0 },
    due: 0,
  };
}

/** What the archive has when a generation begins: all of the store is copied again behind that. */
const noteFirst = (
  primary: Primary,
  partition: number,
  { newest, batch }: ArchivePosition["noted"],
): Promise<unknown> =>
  primary.command((redis) =>
    redis.hset(archiveNames(partition).archive, { batch, ...(newest === undefined ? {} : { newest }) }),
  );

/**
 * Whether the archive lacks what it once had, as after a restore from a backup, or the store lacks what was copied, as an older
 * copy of it does. The archive's newest batch is the one that is noted. Or it is the one that was announced behind that, and
 * its copier ended before it noted it: the store has all that was read for it, and still notes that as changed.
 */
function isOutOfStep({ newest, batch }: ArchivedState, record: ArchiveRecord): boolean {
  // Everything is to be listed.
  if (record.listed === undefined) return false;
  const isBehind = compareIds(newest?.streamId ?? LEDGER_START, record.newest ?? LEDGER_START) < 0;
  const noted = Number(record.batch ?? 0);
  return isBehind || (batch !== noted && record.writing !== writingOf(batch, noted));
}

const writingOf = (batch: number, noted: number): string => `${batch} after ${noted}`;

/**
 * Says in the store which batches are written next. A store that says so of the archive's newest batch is no older copy from
 * before that batch was read.
 */
export const announceBatches = (primary: Primary, pages: readonly ArchivePage[]): Promise<unknown> =>
  primary.command((redis) =>
    many(redis, pages, (pipe, { position: { partition, noted }, next }) =>
      pipe.hset(archiveNames(partition).archive, "writing", writingOf(next.batch, noted.batch)),
    ),
  );

/** What partitions' records say of their archive. */
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

/** Begins a new generation: accounts, keys and requests are copied again. */
export async function renewGeneration(
  primary: Primary,
  partition: number,
  archiveId: string,
): Promise<ArchiveRecord> {
  const { archive } = archiveNames(partition);
  const record = { generation: randomUUID().slice(0, 8), archive: archiveId };
  await primary.command((redis) =>
    redis.hdel(archive, "listed", "newest", "batch", "writing", "looked_until"),
  );
  await primary.command((redis) => redis.hset(archive, record));
  return record;
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
