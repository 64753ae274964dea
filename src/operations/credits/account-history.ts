import type { Redis } from "ioredis";
import { entryOfTail, readCheckpoint } from "../../records/checkpoints.ts";
import { badCursor } from "../../records/cursors.ts";
import { isLater, kindOf, type LedgerEntry, ledgerEntry, msOf } from "../../records/ledger-entries.ts";
import { accountNames, partitionNames } from "../../records/names.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import { moneyOf } from "../../records/packed-fields.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { type HistoryFilter, history } from "../../scripts/ledger.ts";
import { CLOCK_SLACK_MS } from "../newest-first.ts";

const LOOKED_AT_MAX = 3000;
/** Half a millisecond of Redis. */
const SLICE = 50;
/** After so many entries the wanted time is searched for in the partition. */
const FOLLOWED_MAX = 500;

export interface HistoryPage {
  entries: LedgerEntry[];
  next: string | undefined;
  /** The oldest entry, if Redis has no older ones and there is no archive, Unix ms. */
  reachesBackToMs?: number | undefined;
}

/** Newest first. @param position `first <id>` with it, `before <id>` without it, or a `next` of the archive */
export type ArchivedHistory = (
  accountId: string,
  filter: HistoryFilter,
  position: string,
  limit: number,
) => Promise<Pick<HistoryPage, "entries" | "next">>;

interface HistoryOptions {
  redis: Redis;
  partition: number;
  accountId: string;
  filter: HistoryFilter;
  position: string | undefined;
  limit: number;
  archive: ArchivedHistory | undefined;
}

const ARCHIVED = "archive ";
/** Redis limits each half of an id to 2^64 - 1. */
const IN_REDIS = /^(\(?\d{1,19}-\d{1,19})?$/;

/** Reads a bounded number: pages may be short. @throws OperatorError for an unknown account, or if the archive is needed and unavailable */
export async function readHistory(options: HistoryOptions): Promise<HistoryPage> {
  const { redis, partition, accountId, filter, limit, archive } = options;
  const { account } = accountNames(partition, accountId);
  const money = await redis.hget(account, "money");
  if (money === null) throw noAccount(accountId);
  const position = options.position ?? moneyOf(money).last_entry ?? "";
  if (position.startsWith(ARCHIVED)) return fromArchive(options, position.slice(ARCHIVED.length));
  if (!IN_REDIS.test(position)) throw badCursor();
  const { entries, next, left } = await followEntries(options, position);
  if (!left) return { entries, next: next || undefined };
  const older = next.startsWith("(") ? `before ${next.slice(1)}` : `first ${next}`;
  if (archive && entries.length > 0) return { entries, next: ARCHIVED + older };
  if (archive) return fromArchive(options, older);
  const tail = await tailFrom(redis, partition, accountId, next);
  const wanted = tail.entries.filter((entry) => isWanted(entry, filter));
  const shown = [...entries, ...wanted].slice(0, limit);
  const behind = wanted[limit - entries.length];
  // The next page finds that this entry was trimmed, and continues in the checkpoint.
  if (behind) return { entries: shown, next: behind.streamId };
  return {
    entries: shown,
    next: undefined,
    reachesBackToMs: tail.isWhole ? undefined : tail.reachesBackToMs,
  };
}

async function fromArchive(
  { accountId, filter, limit, archive }: HistoryOptions,
  position: string,
): Promise<HistoryPage> {
  if (!archive) throw new OperatorError("the archive is not configured here; set ARCHIVE_URL", "unavailable");
  const { entries, next } = await archive(accountId, filter, position, limit);
  return { entries, next: next === undefined ? undefined : ARCHIVED + next };
}

/** `left`: the entry at `next` was trimmed. */
async function followEntries(
  { redis, partition, accountId, filter, limit, position: given }: HistoryOptions,
  position: string,
): Promise<{ entries: LedgerEntry[]; next: string; left: boolean }> {
  const { run } = scriptsOf(redis);
  const entries: LedgerEntry[] = [];
  const untilMs = filter.refundsToMs ?? filter.toMs;
  const searchFrom = untilMs === undefined ? undefined : untilMs + CLOCK_SLACK_MS;
  let at = position;
  for (let lookedAt = 0; at !== "" && lookedAt < LOOKED_AT_MAX && entries.length < limit; lookedAt += SLICE) {
    // Skips entries that are newer than a time long ago.
    if (
      given === undefined &&
      lookedAt === FOLLOWED_MAX &&
      searchFrom !== undefined &&
      searchFrom < msOf(at.replace("(", ""))
    )
      at = `(${searchFrom}-0`;
    const found = await run(history, {
      ...{ partition, accountId, ...filter, from: at },
      lookedAtMax: SLICE,
      answeredMax: limit - entries.length,
    });
    if (found.outcome === "other") throw badCursor();
    entries.push(...found.entries);
    at = found.next;
    if (found.outcome === "left") return { entries, next: at, left: true };
  }
  return { entries, next: at, left: false };
}

/** Entries of the checkpoint from one on, newest first. */
async function tailFrom(redis: Redis, partition: number, accountId: string, from: string) {
  const checkpoint = await readCheckpoint(redis, partition, accountId);
  const tail = checkpoint?.tail ?? [];
  const first = from.startsWith("(")
    ? tail.findIndex(({ streamId }) => isLater(from.slice(1), streamId))
    : tail.findIndex(({ streamId }) => streamId === from);
  const entries = first < 0 ? [] : tail.slice(first).map((entry) => entryOfTail(partition, accountId, entry));
  const isWhole = checkpoint === undefined || checkpoint.entries === tail.length;
  return { entries, isWhole, reachesBackToMs: tail.at(-1)?.atMs };
}

export function isWanted(entry: LedgerEntry, filter: HistoryFilter): boolean {
  const { wanted, endpoint, fromMs, refundsToMs } = filter;
  const { type, atMs } = entry;
  const kind = kindOf(entry);
  if (wanted && !wanted.includes(`${type}/${kind}`)) return false;
  const toMs = refundsToMs !== undefined && kind === "refund" ? undefined : filter.toMs;
  if (endpoint && entry.endpoint !== endpoint) return false;
  return (fromMs === undefined || atMs >= fromMs) && (toMs === undefined || atMs < toMs);
}

/** Newest first. Entries that were trimmed come from the checkpoint. @param last empty for none */
export async function latestEntries(
  redis: Redis,
  partition: number,
  { accountId, last, most }: { accountId: string; last: string; most: number },
): Promise<LedgerEntry[]> {
  const { ledger } = partitionNames(partition);
  const entries: LedgerEntry[] = [];
  for (let at = last; at !== "" && entries.length < most; at = entries.at(-1)!.previous) {
    const [found] = await redis.xrange(ledger, at, at);
    if (!found) {
      const { entries: older } = await tailFrom(redis, partition, accountId, at);
      const linked = older.map((entry, of) => ({ ...entry, previous: older[of + 1]?.streamId ?? "" }));
      return [...entries, ...linked].slice(0, most);
    }
    entries.push(ledgerEntry(partition, found));
  }
  return entries;
}
