import { entryOfTail, readCheckpoint } from "../../records/checkpoints.ts";
import {
  type LedgerEntry,
  ledgerEntry,
  type PlaceOfEntry,
  placeOfTransaction,
} from "../../records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { entryUnder, type ReadArchived, requireReference } from "./references.ts";

/** Undefined if the archive has none. @throws Error if the archive is unavailable, or another store's */
export type FindArchivedEntry = (nodes: RedisNodes, place: PlaceOfEntry) => Promise<LedgerEntry | undefined>;

/**
 * By the public id, from Redis or the archive. @throws OperatorError `unavailable` if the archive is needed and
 * unavailable
 */
export async function findTransaction(
  nodes: RedisNodes,
  id: string,
  findArchived: FindArchivedEntry | undefined,
): Promise<LedgerEntry | undefined> {
  const place = placeOfTransaction(id);
  if (!place || place.partition >= (await partitionsOf(nodes))) return undefined;
  const { partition, streamId } = place;
  const [found] = await nodes.of(partition).xrange(partitionNames(partition).ledger, streamId, streamId);
  if (found) return ledgerEntry(partition, found);
  return findArchived && fromArchive(() => findArchived(nodes, place));
}

/** Without an archive, trimmed entries come from the checkpoint. */
export async function transactionOfAccount(
  nodes: RedisNodes,
  accountId: string,
  id: string,
  findArchived: FindArchivedEntry | undefined,
): Promise<LedgerEntry | undefined> {
  const found = await findTransaction(nodes, id, findArchived);
  if (found) return found.accountId === accountId ? found : undefined;
  const place = placeOfTransaction(id);
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  if (place?.partition !== partition) return undefined;
  const checkpoint = await readCheckpoint(nodes.of(partition), partition, accountId);
  const entry = checkpoint?.tail.find(({ streamId }) => streamId === place.streamId);
  return entry && entryOfTail(partition, accountId, entry);
}

/**
 * Without an archive, undefined also if Redis has forgotten it. @throws OperatorError for an invalid reference;
 * `unavailable` if the archive is needed and unavailable
 */
export async function transactionOfReference(
  nodes: RedisNodes,
  accountId: string,
  reference: string,
  readArchived: ReadArchived | undefined,
): Promise<LedgerEntry | undefined> {
  requireReference(reference);
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  const redis = nodes.of(partition);
  const ask: ReadArchived | undefined = readArchived && ((...of) => fromArchive(() => readArchived(...of)));
  // Otherwise an unknown reference would be searched among the latest entries.
  if (await redis.hexists(accountNames(partition, accountId).references, reference))
    return entryUnder(nodes, { partition, accountId, reference }, ask);
  return ask?.(nodes, accountId, reference);
}

async function fromArchive<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new OperatorError(`the archive cannot be read now (${why}); try again later`, "unavailable");
  }
}
