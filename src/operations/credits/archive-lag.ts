import { LEDGER_START, ledgerEntry, type StreamEntry } from "../../records/ledger-entries.ts";
import { archiveNames, partitionNames } from "../../records/names.ts";
import { readsOfMost } from "../../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";

/** When the last entry of a gap was made that begins before then, Unix ms: nobody has the entries of a gap. */
export type LostUntilMs = (beforeMs: number, partition?: number) => Promise<number | undefined>;

interface Place {
  partition: number;
  at: number;
}

/**
 * Up to when the archive has all entries, Unix ms; undefined if it has those before `endMs`. Ask before its entries are read.
 * Partitions whose servers are away are left out. @param partition this one alone; undefined: all
 */
export async function archivedUntilMs(
  nodes: RedisNodes,
  endMs = Number.POSITIVE_INFINITY,
  partition?: number,
): Promise<number | undefined> {
  const partitions =
    partition === undefined
      ? Array.from({ length: await partitionsOf(nodes) }, (_, at) => ({ partition: at, at }))
      : [{ partition, at: 0 }];
  const reads = readsOfMost(nodes);
  const copied = await reads.many<string | null, Place>(partitions, (pipe, { partition: of }) =>
    pipe.hget(archiveNames(of).archive, "newest"),
  );
  const waiting = await reads.many<StreamEntry[], Place>(partitions, (pipe, { partition: of, at }) =>
    pipe.xrange(partitionNames(of).ledger, `(${copied[at] ?? LEDGER_START}`, "+", "COUNT", 1),
  );
  // Its id is later than the entry itself where the clock of Redis was set back.
  const oldestMs = Math.min(
    ...waiting.flatMap((found, at) =>
      (found ?? []).map((one) => ledgerEntry(partitions[at]!.partition, one).atMs),
    ),
  );
  return oldestMs < endMs ? oldestMs - 1 : undefined;
}
