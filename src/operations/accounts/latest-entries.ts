import type { Redis } from "ioredis";
import { entryOfTail, readCheckpoint } from "../../records/checkpoints.ts";
import { type LedgerEntry, ledgerEntry } from "../../records/ledger-entries.ts";
import { partitionNames } from "../../records/names.ts";

/**
 * Up to `most` entries of an account, from its last one back. Where older ones have left the ledger, its checkpoint has the
 * latest of them.
 * @param last the entry to begin with; empty for none
 */
export async function latestEntries(
  redis: Redis,
  partition: number,
  { accountId, last, most }: { accountId: string; last: string; most: number },
): Promise<LedgerEntry[]> {
  const { ledger } = partitionNames(partition);
  const entries: LedgerEntry[] = [];
  for (let at = last; at !== "" && entries.length < most; at = entries.at(-1)!.previous) {
    const [found] = await redis.xrange(ledger, at, at);
    if (!found) return [...entries, ...(await leftFrom(redis, partition, accountId, at))].slice(0, most);
    entries.push(ledgerEntry(partition, found));
  }
  return entries;
}

/** What an account's checkpoint has of one entry and those before it, most recent first. */
async function leftFrom(
  redis: Redis,
  partition: number,
  accountId: string,
  from: string,
): Promise<LedgerEntry[]> {
  const tail = (await readCheckpoint(redis, partition, accountId))?.tail ?? [];
  const first = tail.findIndex(({ streamId }) => streamId === from);
  const entries = first < 0 ? [] : tail.slice(first).map((entry) => entryOfTail(partition, accountId, entry));
  return entries.map((entry, at) => ({ ...entry, previous: entries[at + 1]?.streamId ?? "" }));
}
