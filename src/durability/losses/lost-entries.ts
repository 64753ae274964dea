import type { Redis } from "ioredis";
import { isLater, msOf } from "../../records/entry-ids.ts";
import { LEDGER_START } from "../../records/ledger-entries.ts";
import { partitionOfLedger } from "../../records/names.ts";
import type { PartitionReads } from "../../redis/partition-reads.ts";
import { cutsOf, goneEntries, lostAmong } from "./entry-judge.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";
import type { RecentEntry } from "./recent-entries.ts";

const LOOKED_FOR = 1000;

/** A confirmed entry that the store lacks, for the list of losses. */
export interface LostEntry extends ConfirmedEntry {
  ledger: string;
  atMs: number;
}

export interface LostEntries {
  entries: LostEntry[];
  /** Later entries are unknown; 0 for none. */
  knownUntilMs: number;
  /** Ledgers with unlisted losses: time of the first listed one, Unix ms. */
  unknownBeforeMs: Map<string, number>;
}

export async function lostEntries(
  reads: PartitionReads,
  known: ReadonlyMap<string, ReadonlyMap<string, RecentEntry>>,
): Promise<LostEntries> {
  const lost: LostEntries = { entries: [], knownUntilMs: 0, unknownBeforeMs: new Map() };
  for (const [ledger, entries] of known) {
    await reads.at(partitionOfLedger(ledger), (redis) => addLost(redis, ledger, entries, lost));
  }
  lost.entries.sort((a, b) => a.atMs - b.atMs);
  return lost;
}

async function addLost(
  redis: Redis,
  ledger: string,
  entries: ReadonlyMap<string, RecentEntry>,
  lost: LostEntries,
): Promise<void> {
  for (const { id } of entries.values()) lost.knownUntilMs = Math.max(lost.knownUntilMs, msOf(id));
  const missing = await missingAmong(redis, ledger, [...entries.values()]);
  for (const { after: _, ...entry } of missing) lost.entries.push({ ...entry, ledger, atMs: msOf(entry.id) });
  const before = await unknownBefore(redis, ledger, entries, missing);
  if (before !== undefined) lost.unknownBeforeMs.set(ledger, msOf(before));
}

async function missingAmong(
  redis: Redis,
  ledger: string,
  entries: readonly RecentEntry[],
): Promise<RecentEntry[]> {
  const missing: RecentEntry[] = [];
  for (let at = 0; at < entries.length; at += LOOKED_FOR) {
    const page = entries.slice(at, at + LOOKED_FOR);
    const gone = await goneEntries(redis, () => ledger, page);
    missing.push(...(await lostAmong(redis, () => ledger, gone)));
  }
  return missing;
}

/** Lost entries of a ledger after its latest common entry: a primary has everything before that. */
export async function lostSince(
  redis: Redis,
  ledger: string,
  entries: readonly ConfirmedEntry[],
): Promise<ConfirmedEntry[]> {
  const newestFirst = entries.toSorted((a, b) => (isLater(a.id, b.id) ? -1 : 1));
  const lost: ConfirmedEntry[] = [];
  for (let at = 0; at < newestFirst.length; at += LOOKED_FOR) {
    const page = newestFirst.slice(at, at + LOOKED_FOR);
    const gone = new Set(await goneEntries(redis, () => ledger, page));
    const until = page.findIndex((entry) => !gone.has(entry));
    const since = until < 0 ? page : page.slice(0, until);
    lost.push(...(await lostAmong(redis, () => ledger, since)));
    if (until >= 0) break;
  }
  return lost;
}

/** The latest lost entry with an unlisted predecessor. */
async function unknownBefore(
  redis: Redis,
  ledger: string,
  entries: ReadonlyMap<string, RecentEntry>,
  missing: readonly RecentEntry[],
): Promise<string | undefined> {
  const firsts = missing.filter(
    ({ after }) => after === undefined || (after !== LEDGER_START && !entries.has(after)),
  );
  const cut: string[] = [];
  const trimmed = (await cutsOf(redis, [ledger])).get(ledger)!;
  const isKnown = async (after: string): Promise<boolean> =>
    !isLater(after, trimmed) || (await redis.xrange(ledger, after, after)).length > 0;
  for (const { id, after } of firsts) {
    if (after === undefined || !(await isKnown(after))) cut.push(id);
  }
  return cut.reduce<string | undefined>(
    (latest, id) => (latest === undefined || isLater(id, latest) ? id : latest),
    undefined,
  );
}
