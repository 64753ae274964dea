import type { Redis } from "ioredis";
import { msOf } from "../records/entry-ids.ts";
import { ledgerEntry } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { moneyOf } from "../records/packed-fields.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { partitionsOf } from "../redis/store-facts.ts";
import { history } from "../scripts/history.ts";
import { createStatement, emptyStatement, type Statement } from "./statements.ts";
import { dayStartMs, monthBounds } from "./usage.ts";

/** Half a millisecond of Redis. */
const SLICE = 50;
/** Of all accounts of a call; some seconds. */
const LOOKED_AT_MAX = 200_000;

/** @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchivedStatements {
  statements(accountIds: readonly string[], month: string): Promise<Map<string, Statement>>;
  copiedUntilMs(partition: number): Promise<number | undefined>;
}

export interface AccountStatement {
  accountId: string;
  statement: Statement;
  source: "archive" | "redis";
  /** Earlier entries of the month have left Redis, and are not in it, Unix ms; undefined: it is whole. */
  sinceMs: number | undefined;
  /** Of the archive: later entries may be missing, Unix ms. */
  untilMs: number | undefined;
}

/**
 * Statements of accounts that exist, from the archive, or from Redis while there is none or it is away. @throws OperatorError
 * `unavailable` if that would read too much of Redis
 */
export async function accountStatements(
  nodes: RedisNodes,
  accountIds: readonly string[],
  month: string,
  archive?: ArchivedStatements,
): Promise<AccountStatement[]> {
  if (archive) {
    const found = await fromArchive(nodes, accountIds, month, archive).catch(unlessAway);
    if (found) return found;
  }
  const budget = { left: LOOKED_AT_MAX };
  const partitions = await partitionsOf(nodes);
  const statements: AccountStatement[] = [];
  for (const accountId of accountIds) {
    const partition = partitionOf(accountId, partitions);
    const found = await fromRedis({ redis: nodes.of(partition), partition, accountId, budget }, month);
    statements.push({ accountId, ...found, source: "redis", untilMs: undefined });
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
  const until = new Map<number, number | undefined>();
  for (const partition of places) until.set(partition, await archive.copiedUntilMs(partition));
  const found = await archive.statements(accountIds, month);
  return accountIds.map((accountId) => ({
    accountId,
    statement: found.get(accountId) ?? emptyStatement(0),
    source: "archive",
    sinceMs: undefined,
    untilMs: until.get(partitionOf(accountId, partitions)),
  }));
}

function unlessAway(error: unknown): undefined {
  if (error instanceof OperatorError && error.code === "unavailable") return undefined;
  throw error;
}

interface Place {
  redis: Redis;
  partition: number;
  accountId: string;
  budget: { left: number };
}

/** Follows the account's entries back from its last one, whose balance is that of the statement. */
async function fromRedis(place: Place, month: string) {
  const { redis, partition, accountId, budget } = place;
  const { first, next } = monthBounds(month);
  const period = { fromMs: dayStartMs(first), toMs: dayStartMs(next) };
  const statement = createStatement(period);
  const { account } = accountNames(partition, accountId);
  const { balance: stored, last_entry: last } = moneyOf(await redis.hget(account, "money"));
  const newest = last ? await redis.xrange(partitionNames(partition).ledger, last, last) : [];
  // Where the last entry has left Redis, all have.
  if (!newest[0]) {
    const sinceMs = last && msOf(last) >= period.fromMs ? msOf(last) + 1 : undefined;
    return { statement: statement.end(Number(stored ?? 0)), sinceMs };
  }
  const { balanceAfter } = ledgerEntry(partition, newest[0]);
  let [from, oldestMs] = [last ?? "", Number.MAX_SAFE_INTEGER];
  let hasLeft = false;
  while (from !== "" && !hasLeft) {
    if (budget.left <= 0) throw tooMuch(month);
    const call = {
      partition,
      accountId,
      from,
      fromMs: period.fromMs,
      lookedAtMax: SLICE,
      answeredMax: SLICE,
    };
    const page = await scriptsOf(redis).run(history, call);
    budget.left -= SLICE;
    for (const entry of page.entries) {
      statement.add(entry);
      oldestMs = Math.min(oldestMs, entry.atMs);
    }
    hasLeft = page.outcome === "left";
    from = page.next;
  }
  return { statement: statement.end(balanceAfter), sinceMs: hasLeft ? oldestMs : undefined };
}

const tooMuch = (month: string): OperatorError =>
  new OperatorError(
    `Redis has more than ${LOOKED_AT_MAX} entries of these accounts since ${month}; ask for fewer accounts, or set up an archive`,
    "unavailable",
  );
