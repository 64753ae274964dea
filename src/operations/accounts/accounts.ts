import { RECENT_TRANSACTIONS, transactionOf } from "../../records/ledger-entries.ts";
import { accountNames, firstThat, partitionOf, randomId } from "../../records/names.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import { accountOf } from "../../records/packed-fields.ts";
import type { AccountRecord } from "../../records/records.ts";
import { partitionsOf, placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import { requireAccountId } from "../access/operator-values.ts";
import { latestEntries } from "../credits/account-history.ts";

export interface AccountRow {
  accountId: string;
  /** Without held credits. */
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
}

export function accountRow(accountId: string, record: AccountRecord): AccountRow {
  const held = Number(record.held ?? 0);
  return {
    accountId,
    balance: Number(record.balance ?? 0) - held,
    held,
    totalUsed: Number(record.total_used ?? 0),
    totalRequests: Number(record.total_requests ?? 0),
  };
}

export async function readAccount(nodes: RedisNodes, accountId: string) {
  requireAccountId(accountId);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const record = accountOf(await redis.hgetall(accountNames(partition, accountId).account));
  if (record.balance === undefined) throw unknownAccount(accountId);
  const entries = await latestEntries(redis, partition, {
    accountId,
    last: record.last_entry ?? "",
    most: RECENT_TRANSACTIONS,
  });
  return { ...accountRow(accountId, record), partition, entries, recent: entries.map(transactionOf) };
}

/** Where an account is. @throws OperatorError: a misspelt account must not look empty */
export async function requireAccount(nodes: RedisNodes, accountId: string) {
  const place = await placeOfAccount(nodes, accountId);
  if (!(await place.redis.exists(accountNames(place.partition, accountId).account)))
    throw noAccount(accountId);
  return place;
}

export const unknownAccount = (accountId: string): OperatorError =>
  new OperatorError(
    `there is no account ${accountId}`,
    "not_found",
    undefined,
    `\`tollgate keys create --account ${accountId}\` makes it`,
  );

export async function randomAccountId(nodes: RedisNodes): Promise<string> {
  const partitions = await partitionsOf(nodes);
  return firstThat(
    () => randomId("acc"),
    (id) => nodes.isWritable?.(nodes.of(partitionOf(id, partitions))) ?? true,
  );
}
