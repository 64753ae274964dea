import type { Redis } from "ioredis";
import { entryOfTail, readCheckpoint } from "../../records/checkpoints.ts";
import { badCursor } from "../../records/cursors.ts";
import { isLater, msOf } from "../../records/entry-ids.ts";
import { kindOf, type LedgerEntry } from "../../records/ledger-entries.ts";
import { accountNames } from "../../records/names.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { type HistoryFilter, history } from "../../scripts/history.ts";

const LOOKED_AT_MAX = 3000;
/** In one call of the script: half a millisecond of Redis. */
const SLICE = 50;
/** So many entries are followed one by one before those of the wanted time are searched for in the partition. */
const FOLLOWED_MAX = 500;
/** Ids follow the server's clock. Where it was put back by less, an entry is still found by its time. */
const CLOCK_SLACK_MS = 5 * 60_000;

export interface HistoryPage {
  entries: LedgerEntry[];
  /** Where the next page begins; undefined after the last one. */
  next: string | undefined;
  /** Older entries are not in Redis, and there is no archive to read them from: the time of the oldest that is, Unix ms. */
  reachesBackToMs?: number | undefined;
}

/**
 * Reads an account's entries from the archive, newest first.
 * @param position where to begin: `first <id>` with this entry, `before <id>` with the one before it, or a `next` of its own
 */
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
  /** A `next` of an earlier page; undefined for the first one. */
  position: string | undefined;
  limit: number;
  archive: ArchivedHistory | undefined;
}

/** In front of positions in the archive. */
const ARCHIVED = "archive ";
/** Redis takes no more than 2^64 - 1 in either half of an id. */
const IN_REDIS = /^(\(?\d{1,19}-\d{1,19})?$/;

/**
 * A page of an account's ledger entries. A page is from Redis or from the archive, and it may have fewer entries than wanted, even
 * none, and still a `next`: each one looks at a bounded number of entries.
 * @throws OperatorError for an account that does not exist, and if the archive is needed and away
 */
export async function readHistory(options: HistoryOptions): Promise<HistoryPage> {
  const { redis, partition, accountId, filter, limit, archive } = options;
  const { account } = accountNames(partition, accountId);
  const [balance, last] = await redis.hmget(account, "balance", "last_entry");
  if (balance === null) throw noAccount(accountId);
  const position = options.position ?? last ?? "";
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
  // The next page finds that the ledger does not have this entry, and goes on in the checkpoint.
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

/** Follows the entries that the ledger has. `left`: it does not have the one at `next`. */
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
    // Whoever asks for a time long ago would follow all that came since.
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

/** What an account's checkpoint has of an entry and of those before it, newest first. */
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

/** Whether an entry is one that the filter asks for. */
export function isWanted(entry: LedgerEntry, filter: HistoryFilter): boolean {
  const { wanted, endpoint, fromMs, refundsToMs } = filter;
  const { type, atMs } = entry;
  const kind = kindOf(entry);
  if (wanted && !wanted.includes(`${type}/${kind}`)) return false;
  const toMs = refundsToMs !== undefined && kind === "refund" ? undefined : filter.toMs;
  if (endpoint && entry.endpoint !== endpoint) return false;
  return (fromMs === undefined || atMs >= fromMs) && (toMs === undefined || atMs < toMs);
}
