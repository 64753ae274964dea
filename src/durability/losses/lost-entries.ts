import type { Redis } from "ioredis";
import { isLater, msOf } from "../../records/entry-ids.ts";
import { LEDGER_START } from "../../records/ledger-entries.ts";
import { partitionOfLedger } from "../../records/names.ts";
import type { PartitionReads } from "../../redis/partition-reads.ts";
import { cutsOf, goneEntries, lostAmong } from "./entry-judge.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";
import type { RecentEntry } from "./recent-entries.ts";

/** Entries that are looked for in one pipeline. */
const LOOKED_FOR = 1000;

/** Any confirmed entry, the last of its ledger or one before it, that the store does not have any more. For the list of what is lost. */
export interface LostEntry extends ConfirmedEntry {
  ledger: string;
  /** When it was written, Unix ms by the store's clock. */
  atMs: number;
}

/** All entries that are known to be lost, and how far the list can be trusted. */
export interface LostEntries {
  /** Oldest first. */
  entries: LostEntry[];
  /** The newest entry that is known, lost or not, Unix ms; 0 if none is. What was written after it is not known. */
  knownUntilMs: number;
  /** By the names of ledgers that have lost more than is known: when the first known of the lost ones was written, Unix ms. */
  unknownBeforeMs: Map<string, number>;
}

/** Which of the known entries the store lacks, and whether those before them are known. */
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

/** Adds what one ledger has lost. */
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

/**
 * Which entries of one ledger a changed primary has lost, up to the latest one that it still has: a primary has all that
 * came before what it has.
 */
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

/** The latest lost entry whose predecessor is unknown, or known to be lost without being listed. */
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
