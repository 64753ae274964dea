import type { Tiers } from "../../domain/limits.ts";
import { type AccountRow, OperatorError, readAccount } from "../../store/accounts.ts";
import { eachKey, findKey, type KeyRecord, storeNowMs } from "../../store/keys.ts";
import { type LedgerEntry, transactionId } from "../../store/ledger-entries.ts";
import { partitionOf } from "../../store/names.ts";
import { KEYS_LOOKED_AT_MAX, type KeyUse, topKeysByUse, withUseNow } from "../../store/operator-keys.ts";
import type { OperatorSession, RedisNodes } from "../../store/operator-session.ts";
import { findTask } from "../../store/operator-tasks.ts";
import { OPEN_LOOKED_AT_MAX, oldOpenRequests, pageAccounts } from "../../store/operator-views.ts";
import { readsOfMost, UnreadError } from "../../store/partition-reads.ts";
import { dayStartMs, refusalsOf, topRefusals } from "../../store/refusals.ts";
import { partitionsOf } from "../../store/store-facts.ts";
import { pageTransactions } from "../../store/transactions.ts";
import { shared } from "../shared-result.ts";
import type { AccountCredits, AccountKey, Answers, KeyUse as KeyUseShown, Transaction } from "./answers.ts";

const TOP_KEYS = 20;
const TOP_REFUSALS = 50;
const ACCOUNTS_PER_PAGE = 25;
const TRANSACTIONS_PER_PAGE = 25;
const KEYS_OF_ACCOUNT_MAX = 100;
const REFUSALS_OF_ACCOUNT_MAX = 100;
const OPEN_SHOWN_MAX = 100;
const SHARED_MS = 3000;

/** By name: the query's parameters to what is answered as JSON. */
type Reads = { [Name in Exclude<keyof Answers, "live">]: (query: URLSearchParams) => Promise<Answers[Name]> };

/**
 * What the console shows of Redis, by name under /console/api/. Every read is bounded and says where it was cut.
 * @throws OperatorError for what an operator can mend, GatewayError `store_unavailable`
 */
export function createReads({ run }: OperatorSession, tiers: () => Tiers): Reads {
  const topKeys = shared(SHARED_MS, (most: number) => run((nodes) => readTopKeys(nodes, tiers(), most)));
  const openRequests = shared(SHARED_MS, (olderThanMs: number) =>
    run((nodes) => readOpenRequests(nodes, olderThanMs)),
  );
  return {
    "top-keys": () => topKeys(TOP_KEYS),
    refusals: () => run(readRefusals),
    accounts: (query) => run((nodes) => readAccounts(nodes, query)),
    account: (query) => run((nodes) => readAccountAndKeys(nodes, query.get("id") ?? "", tiers())),
    transactions: (query) => run((nodes) => readTransactions(nodes, query)),
    "open-requests": async (query) => {
      const seconds = Number(query.get("older_than_seconds") ?? 0);
      if (!(seconds >= 0)) throw new OperatorError("older_than_seconds must be a number of seconds");
      return openRequests(seconds * 1000);
    },
    find: (query) => run((nodes) => find(nodes, (query.get("q") ?? "").trim())),
  };
}

async function readTopKeys(nodes: RedisNodes, tiers: Tiers, most: number): Promise<Answers["top-keys"]> {
  const { keys, keysLookedAt, complete, unread } = await topKeysByUse(nodes, tiers, most);
  const rows = keys.map((key) => ({
    ...useShown(key),
    day_count: key.dayCount,
    daily_limit: key.dailyLimit,
  }));
  return {
    keys: rows,
    keys_looked_at: keysLookedAt,
    keys_looked_at_max: KEYS_LOOKED_AT_MAX,
    complete,
    unread,
  };
}

async function readOpenRequests(nodes: RedisNodes, olderThanMs: number): Promise<Answers["open-requests"]> {
  const { requests, old, open, complete, unread } = await oldOpenRequests(nodes, olderThanMs, OPEN_SHOWN_MAX);
  const rows = requests.map((view) => ({
    request_id: view.requestId,
    task_id: view.taskId || undefined,
    account_id: view.accountId,
    key_id: view.keyId,
    state: view.state,
    status: view.status || undefined,
    endpoint: view.endpoint,
    price: view.price,
    admitted_at: iso(view.admittedAtMs),
    age_seconds: Math.max(0, Math.round((view.seenAtMs - view.admittedAtMs) / 1000)),
    due_in_seconds: Math.round((view.dueAtMs - view.seenAtMs) / 1000),
  }));
  return { requests: rows, old, open, looked_at_max: OPEN_LOOKED_AT_MAX, complete, unread };
}

async function readRefusals(nodes: RedisNodes): Promise<Answers["refusals"]> {
  // A gateway counts them by the day of any server's clock.
  const nowMs = await storeNowMs(nodes.of(0));
  const counts = await topRefusals(nodes, nowMs, TOP_REFUSALS);
  return {
    since: iso(dayStartMs(nowMs)),
    refusals: counts.map(({ keyId, accountId, outcome, count }) => ({
      key_id: keyId,
      account_id: accountId,
      outcome,
      count,
    })),
  };
}

async function readAccounts(nodes: RedisNodes, query: URLSearchParams): Promise<Answers["accounts"]> {
  const [prefix, cursor] = [query.get("prefix") ?? "", query.get("cursor") ?? ""];
  const { accounts, next, unread } = await pageAccounts(nodes, prefix, cursor, ACCOUNTS_PER_PAGE);
  return { accounts: accounts.map(creditsShown), next, unread };
}

async function readAccountAndKeys(nodes: RedisNodes, id: string, tiers: Tiers): Promise<Answers["account"]> {
  const account = await readAccount(nodes, id);
  /** By id: a scan may show a key twice. */
  const keys = new Map<string, KeyRecord>();
  let more = false;
  for await (const key of eachKey(nodes, account.accountId)) {
    more = keys.size >= KEYS_OF_ACCOUNT_MAX && !keys.has(key.keyId);
    if (more) break;
    keys.set(key.keyId, key);
  }
  const used = await withUseNow(nodes, [...keys.values()], tiers);
  const { hours } = await refusalsOf(nodes, account.accountId, await storeNowMs(nodes.of(account.partition)));
  return {
    ...creditsShown(account),
    keys: used.map((key) => ({ ...useShown(key), ...lifeOf(key) })),
    more_keys: more,
    refusals: hours.slice(0, REFUSALS_OF_ACCOUNT_MAX).map(({ atMs, keyId, outcome, count }) => ({
      hour: iso(atMs),
      key_id: keyId,
      outcome,
      count,
    })),
    more_refusals: hours.length > REFUSALS_OF_ACCOUNT_MAX,
  };
}

async function readTransactions(nodes: RedisNodes, query: URLSearchParams): Promise<Answers["transactions"]> {
  const { accountId } = await readAccount(nodes, query.get("account") ?? "");
  const cursor = query.get("before") || undefined;
  const { entries, next } = await pageTransactions(nodes, accountId, {
    cursor,
    limit: TRANSACTIONS_PER_PAGE,
  });
  return { transactions: entries.map(transactionShown), next };
}

/** What an id names: an account, else a key, else a task or request. */
async function find(nodes: RedisNodes, id: string): Promise<Answers["find"]> {
  if (id.startsWith("sk_")) {
    throw new OperatorError("look for a key by its id: the key itself is a secret and has no place here");
  }
  const partition = partitionOf(id, await partitionsOf(nodes));
  // If the server of an account of this id is away, it may still be a key or a task of another one.
  const account = await unlessUnknown(readsOfMost(nodes).at(partition, () => readAccount(nodes, id)));
  if (account) return { kind: "account", account_id: account.accountId };
  const key = await unlessUnknown(findKey(nodes, id));
  if (key) return { kind: "key", account_id: key.accountId, key_id: key.keyId };
  const task = await unlessUnknown(findTask(nodes, id), UnreadError);
  if (!task) throw new OperatorError(`there is no account, key, task or request with the id ${id}`);
  const { record } = task;
  // One whose task came late is bound, and keeps what its VOID wrote.
  const isVoid = record.state === "void";
  return {
    kind: "request",
    account_id: record.account_id,
    key_id: record.key_id,
    request_id: task.requestId,
    task_id: record.task_id,
    state: record.state,
    status: task.seen?.status ?? record.status,
    endpoint: record.endpoint,
    price: record.price === undefined ? undefined : Number(record.price),
    void_reason: isVoid ? record.reason : undefined,
    ended_by: record.ended_by,
    admitted_at: isoOf(record.admitted_at),
    bound_at: isoOf(record.bound_at),
    finished_at: isoOf(isVoid ? record.void_at : record.finished_at),
  };
}

/** @param besides errors that are thrown all the same */
async function unlessUnknown<Found>(
  looking: Promise<Found>,
  besides?: typeof UnreadError,
): Promise<Found | undefined> {
  try {
    return await looking;
  } catch (error) {
    if (error instanceof OperatorError && !(besides && error instanceof besides)) return undefined;
    throw error;
  }
}

const creditsShown = (account: AccountRow): AccountCredits => ({
  account_id: account.accountId,
  balance: account.balance,
  held: account.held,
  total_used: account.totalUsed,
  total_requests: account.totalRequests,
});

const useShown = ({
  keyId,
  accountId,
  tier,
  now,
}: Pick<KeyUse, "keyId" | "accountId" | "tier" | "now">): KeyUseShown => ({
  key_id: keyId,
  account_id: accountId,
  tier,
  usable: now !== undefined,
  window_used: now?.windowUsed,
  rate_limit: now?.rateLimit,
  active: now?.active,
  max_concurrent: now?.maxConcurrent,
});

const lifeOf = ({
  createdAtMs,
  expiresAtMs,
  revokedAtMs,
}: KeyRecord): Omit<AccountKey, keyof KeyUseShown> => ({
  created_at: iso(createdAtMs),
  expires_at: iso(expiresAtMs),
  revoked_at: iso(revokedAtMs),
});

const transactionShown = (entry: LedgerEntry): Transaction => ({
  id: transactionId(entry),
  type: entry.type,
  amount: entry.amount,
  balance_after: entry.balanceAfter,
  endpoint: entry.endpoint || undefined,
  reason: entry.reason || undefined,
  reference: entry.reference || undefined,
  task_id: entry.taskId || undefined,
  request_id: entry.requestId || undefined,
  key_id: entry.keyId || undefined,
  created_at: iso(entry.atMs),
});

const iso = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();
const isoOf = (ms: string | undefined): string | undefined =>
  ms === undefined ? undefined : iso(Number(ms));
