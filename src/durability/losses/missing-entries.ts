import type { Redis } from "ioredis";
import { isLater, LEDGER_START, msOf } from "../../records/ledger-entries.ts";
import { partitionOfLedger } from "../../records/names.ts";
import type { PartitionReads } from "../../redis/partition-reads.ts";
import { pages } from "../../redis/pipelines.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";
import { absentEntries, missingAmong, trimmedTo } from "./loss-report.ts";
import type { RecentEntry } from "./recent-entries.ts";

export interface ListedEntry extends ConfirmedEntry {
  ledger: string;
  atMs: number;
}

export interface MissingList {
  entries: ListedEntry[];
  knownUntilMs: number;
  /** Ledgers with unlisted losses: time of the first listed one, Unix ms. */
  unknownBeforeMs: Map<string, number>;
}

export async function listMissing(
  reads: PartitionReads,
  known: ReadonlyMap<string, ReadonlyMap<string, RecentEntry>>,
): Promise<MissingList> {
  const list: MissingList = { entries: [], knownUntilMs: 0, unknownBeforeMs: new Map() };
  for (const [ledger, entries] of known)
    await reads.at(partitionOfLedger(ledger), async (redis) => {
      for (const { id } of entries.values()) list.knownUntilMs = Math.max(list.knownUntilMs, msOf(id));
      const missing: RecentEntry[] = [];
      for (const page of pages([...entries.values()])) {
        const absent = await absentEntries(redis, () => ledger, page);
        missing.push(...(await missingAmong(redis, () => ledger, absent)));
      }
      for (const { after: _, ...entry } of missing)
        list.entries.push({ ...entry, ledger, atMs: msOf(entry.id) });
      const before = await unknownBefore(redis, ledger, entries, missing);
      if (before !== undefined) list.unknownBeforeMs.set(ledger, msOf(before));
    });
  list.entries.sort((a, b) => a.atMs - b.atMs);
  return list;
}

/** The latest missing entry of a ledger after the latest one that it has: a primary has everything before that. */
export async function latestMissing(
  redis: Redis,
  ledger: string,
  entries: readonly ConfirmedEntry[],
): Promise<ConfirmedEntry | undefined> {
  const newestFirst = entries.toSorted((a, b) => (isLater(a.id, b.id) ? -1 : 1));
  for (const page of pages(newestFirst)) {
    const absent = new Set(await absentEntries(redis, () => ledger, page));
    const until = page.findIndex((entry) => !absent.has(entry));
    const [latest] = await missingAmong(redis, () => ledger, until < 0 ? page : page.slice(0, until));
    if (latest || until >= 0) return latest;
  }
  return undefined;
}

async function unknownBefore(
  redis: Redis,
  ledger: string,
  entries: ReadonlyMap<string, RecentEntry>,
  missing: readonly RecentEntry[],
): Promise<string | undefined> {
  const trimmed = (await trimmedTo(redis, [ledger])).get(ledger)!;
  const isKnown = async (after: string): Promise<boolean> =>
    after === LEDGER_START ||
    entries.has(after) ||
    !isLater(after, trimmed) ||
    (await redis.xrange(ledger, after, after)).length > 0;
  let latest: string | undefined;
  for (const { id, after } of missing) {
    if (latest !== undefined && !isLater(id, latest)) continue;
    if (after === undefined || !(await isKnown(after))) latest = id;
  }
  return latest;
}
