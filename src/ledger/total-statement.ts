import { dayText } from "../domain/moments.ts";
import { archivedUntilMs } from "../operations/credits/archive-lag.ts";
import { META, partitionNames } from "../records/names.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { monthsOf, unlessAway } from "./account-usage.ts";
import { rolledSinceOf } from "./all-usage.ts";
import { creditsOf } from "./rolled-statement.ts";
import { type ArchivedSales, amountsPaid, salesOf } from "./sales.ts";
import { changeOf, type Statement } from "./statement-sums.ts";
import { type ArchivedStatements, requireMonth } from "./statements.ts";
import { dayStartMs, monthBounds } from "./usage.ts";
import { NO_USAGE, sumOfNumbers, totalsOf } from "./usage-rollups.ts";

/** The sum of all accounts' statements; null where Redis does not reach back to the first entry and there is no archive that does. */
type TotalStatement = Omit<Statement, "opening" | "closing"> & {
  opening: number | null;
  closing: number | null;
};

interface FoundTotal {
  statement: TotalStatement;
  source: "archive" | "redis";
  /** Earlier entries of the month are not counted, Unix ms; undefined if all are. */
  sinceMs: number | undefined;
  /** Of the archive: later entries may be missing, Unix ms; undefined if it has all of the month. */
  untilMs: number | undefined;
  unread: Unread | undefined;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export type ArchivedTotal = (month: string) => Promise<TotalStatement>;

/** @throws OperatorError `unavailable` while the archive cannot be used */
type ArchivedTotals = { sales: ArchivedSales; total: ArchivedTotal } & Pick<
  ArchivedStatements,
  "lostUntilMs"
>;

/** A UTC month of all accounts, a second behind: from the roll-up, before it from the archive. @throws OperatorError `invalid_month` */
export async function totalStatement(
  nodes: RedisNodes,
  month: string,
  archive?: ArchivedTotals,
): Promise<FoundTotal> {
  requireMonth(month);
  const nowMs = await storeNowMs(nodes.ofName(META));
  const { entriesMs } = await rolledSinceOf(nodes, nowMs);
  const isWhole = await hasEveryEntry(nodes, entriesMs);
  const { first, next } = monthBounds(month);
  // The first month that the totals have as a whole.
  const reach = monthBounds(dayText(entriesMs - 1).slice(0, 7)).next;
  const { days, unread } = await totalsOf(nodes, monthsOf(nowMs, undefined, undefined));
  if (archive && !isWhole && (first < reach || unread)) return fromArchive(nodes, month, archive);
  const earlier = archive && !isWhole ? await openingOf(nodes, reach, archive).catch(unlessAway) : undefined;
  let [before, within] = [NO_USAGE, NO_USAGE];
  for (const [day, numbers] of days) {
    if (day < first && !(earlier && day < reach)) before = sumOfNumbers(before, numbers);
    else if (day >= first && day < next) within = sumOfNumbers(within, numbers);
  }
  const { sales } = await salesOf(nodes, month);
  const credits = creditsOf(within);
  const openedWith = isWhole ? 0 : (earlier?.opening ?? null);
  const opening = openedWith === null || unread ? null : openedWith + changeOf(creditsOf(before));
  return {
    statement: {
      opening,
      ...credits,
      closing: opening === null ? null : opening + changeOf(credits),
      amounts_paid: amountsPaid(sales),
    },
    source: earlier ? "archive" : "redis",
    sinceMs: isWhole || entriesMs <= dayStartMs(first) ? undefined : entriesMs,
    untilMs: earlier?.untilMs,
    unread,
  };
}

/** @param day the first of a month */
async function openingOf(nodes: RedisNodes, day: string, archive: ArchivedTotals) {
  const untilMs = await archivedUntilMs(nodes, dayStartMs(day));
  const { opening } = await archive.total(day.slice(0, 7));
  const lostMs = await archive.lostUntilMs(dayStartMs(monthBounds(day.slice(0, 7)).next));
  return { opening: lostMs === undefined ? opening : null, untilMs };
}

async function fromArchive(nodes: RedisNodes, month: string, archive: ArchivedTotals): Promise<FoundTotal> {
  const { first, next } = monthBounds(month);
  const untilMs = await archivedUntilMs(nodes, dayStartMs(next));
  const statement = await archive.total(month);
  const lostMs = await archive.lostUntilMs(dayStartMs(next));
  return {
    statement: lostMs === undefined ? statement : { ...statement, opening: null, closing: null },
    source: "archive",
    sinceMs: lostMs !== undefined && lostMs >= dayStartMs(first) ? lostMs + 1 : undefined,
    untilMs,
    unread: undefined,
  };
}

/** Totals expire, but not before the first entry that a ledger without an archive has. @param keptMs from when on totals are kept */
async function hasEveryEntry(nodes: RedisNodes, keptMs: number): Promise<boolean> {
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => partition);
  const reads = readsOfMost(nodes);
  const isWhole = (partition: number) =>
    reads.at(partition, async (redis) => {
      const { ledger, rolled, trimmed } = partitionNames(partition);
      const [first, since, cut] = await Promise.all([
        redis.xrange(ledger, "-", "+", "COUNT", 1),
        redis.hget(rolled, "since"),
        redis.exists(trimmed),
      ]);
      const isCounted = since === null ? first.length === 0 : since === "0";
      return isCounted && cut === 0 && Number(first[0]?.[0].split("-")[0] ?? keptMs) >= keptMs;
    });
  return (await Promise.all(partitions.map(isWhole))).every((one) => one !== false);
}
