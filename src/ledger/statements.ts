import { calendarProblem, isMonth } from "../domain/moments.ts";
import { listAccounts } from "../operations/accounts/account-lists.ts";
import { requireAccount } from "../operations/accounts/accounts.ts";
import type { LostUntilMs } from "../operations/credits/archive-lag.ts";
import { ledgerEntry, msOf } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { moneyOf } from "../records/packed-fields.ts";
import type { Unread } from "../redis/partition-reads.ts";
import { manyByNode } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { unlessAway } from "./account-usage.ts";
import { type AccountPlace, entriesBack, LOOKED_AT_MAX, rolledStatement } from "./rolled-statement.ts";
import { createStatement, emptyStatement, type Statement } from "./statement-sums.ts";
import { dayStartMs, monthBounds } from "./usage.ts";

/** @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchivedStatements {
  statements(accountIds: readonly string[], month: string): Promise<Map<string, Statement>>;
  copiedUntilMs(partition: number): Promise<number | undefined>;
  lostUntilMs: LostUntilMs;
}

export interface AccountStatement {
  accountId: string;
  statement: Statement;
  source: "archive" | "redis";
  /** Earlier entries are not in it: they have left Redis, or the archive has lost them. Unix ms; undefined: it is whole. */
  sinceMs: number | undefined;
  /** Of the archive: later entries may be missing, Unix ms. */
  untilMs: number | undefined;
}

/** From the archive, or from Redis without one or while it is away. @throws OperatorError `unavailable` if that would read too much */
export async function accountStatements(
  nodes: RedisNodes,
  accountIds: readonly string[],
  month: string,
  archive?: ArchivedStatements,
  lookedAtMax = LOOKED_AT_MAX,
): Promise<AccountStatement[]> {
  if (archive) {
    const found = await fromArchive(nodes, accountIds, month, archive).catch(unlessAway);
    if (found) return found;
  }
  const budget = { left: lookedAtMax };
  const partitions = await partitionsOf(nodes);
  const places = accountIds.map((accountId): AccountPlace => {
    const partition = partitionOf(accountId, partitions);
    return { redis: nodes.of(partition), partition, accountId, budget };
  });
  const moneys = await manyByNode<string | null, AccountPlace>(
    places,
    ({ redis }) => redis,
    (pipe, { partition, accountId }) => pipe.hget(accountNames(partition, accountId).account, "money"),
  );
  const statements: AccountStatement[] = [];
  for (const [at, place] of places.entries()) {
    const found = await fromRedis(place, moneys[at], month);
    statements.push({ accountId: place.accountId, ...found, source: "redis", untilMs: undefined });
  }
  return statements;
}

async function fromArchive(
  nodes: RedisNodes,
  accountIds: readonly string[],
  month: string,
  archive: ArchivedStatements,
): Promise<AccountStatement[]> {
  const partitions = await partitionsOf(nodes);
  // Before the entries, so that none up to then is missing.
  const places = new Set(accountIds.map((accountId) => partitionOf(accountId, partitions)));
  const endMs = dayStartMs(monthBounds(month).next);
  const reach = new Map<number, Pick<AccountStatement, "sinceMs" | "untilMs">>();
  for (const partition of places) {
    const lostMs = await archive.lostUntilMs(endMs, partition);
    const untilMs = (await archive.copiedUntilMs(partition)) ?? 0;
    reach.set(partition, { sinceMs: lostMs === undefined ? undefined : lostMs + 1, untilMs });
  }
  const found = await archive.statements(accountIds, month);
  return accountIds.map((accountId) => ({
    accountId,
    statement: found.get(accountId) ?? emptyStatement(0),
    source: "archive",
    ...reach.get(partitionOf(accountId, partitions))!,
  }));
}

/** A longer history is summed from the roll-up where that has all of it. */
const SLICES_FIRST = 3;

/** Follows the account's entries back from its last one, whose balance is that of the statement. @param money of its record */
async function fromRedis(place: AccountPlace, money: string | null | undefined, month: string) {
  const { redis, partition } = place;
  const { first, next } = monthBounds(month);
  const period = { fromMs: dayStartMs(first), toMs: dayStartMs(next) };
  const statement = createStatement(period);
  const { balance: stored, last_entry: last } = moneyOf(money);
  const newest = last ? await redis.xrange(partitionNames(partition).ledger, last, last) : [];
  // Where the last entry has left Redis, all have.
  if (!newest[0]) {
    requireReach(last, period.toMs, month);
    const sinceMs = last && msOf(last) >= period.fromMs ? msOf(last) + 1 : undefined;
    return { statement: statement.end(Number(stored ?? 0)), sinceMs };
  }
  const { balanceAfter } = ledgerEntry(partition, newest[0]);
  let [slices, oldestMs] = [0, msOf(newest[0][0])];
  let left: string | undefined;
  for await (const page of entriesBack(place, last ?? "", period.fromMs, month)) {
    for (const entry of page.entries) {
      statement.add(entry);
      oldestMs = Math.min(oldestMs, entry.atMs);
    }
    left = page.outcome === "left" ? page.next : undefined;
    if (oldestMs >= period.toMs) requireReach(left, period.toMs, month);
    slices++;
    if (slices !== SLICES_FIRST || left !== undefined || page.next === "") continue;
    const rolled = await rolledStatement(place, month);
    if (rolled) return { statement: rolled, sinceMs: undefined };
  }
  // Entries of earlier months may have left.
  const isWhole = left === undefined || msOf(left) < period.fromMs;
  return { statement: statement.end(balanceAfter), sinceMs: isWhole ? undefined : oldestMs };
}

/** @param left the account's newest entry that has left Redis @throws OperatorError: after it, nobody knows the balance at the month's end */
function requireReach(left: string | undefined, toMs: number, month: string): void {
  if (!left || msOf(left) < toMs) return;
  throw new OperatorError(
    `entries after ${month} have left Redis for the archive, which cannot be read now or is not configured; try again later`,
    "unavailable",
  );
}

/** @throws OperatorError `invalid_month`, `not_found`; `unavailable` if that would read more of Redis than `lookedAtMax` */
export async function readStatement(
  nodes: RedisNodes,
  accountId: string,
  month: string,
  archive?: ArchivedStatements,
  lookedAtMax?: number,
): Promise<AccountStatement> {
  requireMonth(month);
  await requireAccount(nodes, accountId);
  const [statement] = await accountStatements(nodes, [accountId], month, archive, lookedAtMax);
  return statement!;
}

/** All accounts, in the order of their ids. @param own the only visible accounts; undefined: all */
export async function pageStatements(
  nodes: RedisNodes,
  { month, ...page }: { month: string; cursor?: string | undefined; limit: number },
  own: readonly string[] | undefined,
  archive?: ArchivedStatements,
): Promise<{ statements: AccountStatement[]; next: string | undefined; unread: Unread | undefined }> {
  requireMonth(month);
  const { accounts, next, unread } = await listAccounts(nodes, page, own);
  const ids = accounts.map(({ accountId }) => accountId);
  return { statements: await accountStatements(nodes, ids, month, archive), next, unread };
}

/** @throws OperatorError `invalid_month` */
export function requireMonth(month: string): void {
  if (isMonth(month)) return;
  const problem = calendarProblem(month);
  throw new OperatorError(
    `month must be a month such as 2026-10${problem === undefined ? "" : `; ${problem}`}`,
    "invalid_month",
    "month",
  );
}
