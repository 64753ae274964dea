import type { Redis } from "ioredis";
import { packedEntry } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames } from "../../src/records/names.ts";
import { moneyText } from "../../src/records/packed-fields.ts";
import { answersOf } from "../../src/redis/pipelines.ts";

/** Fields of an entry that a test gives; the rest is filled in as `post` of lua/include/ledger.lua would. */
export interface GivenEntry {
  accountId: string;
  type?: "consume" | "recharge";
  amount: number;
  /** Unix ms. */
  atMs: number;
  reason?: string;
  reference?: string;
  taskId?: string;
  requestId?: string;
  keyId?: string;
  endpoint?: string;
  kind?: string;
  details?: string;
}

/** Entries written at a time. */
const PAGE = 5000;

/**
 * Writes entries to a partition's ledger, much faster than requests would. Ids follow `atMs`, which must not go back.
 * @param balances where the accounts' entries go on; empty for the first of them
 * @returns their ids
 */
export async function writeEntries(
  redis: Redis,
  partition: number,
  given: readonly GivenEntry[],
  balances = new Map<string, { balance: number; last: string }>(),
): Promise<string[]> {
  const { ledger, accounts } = partitionNames(partition);
  const ids: string[] = [];
  let [lastMs, number] = [0, 0];
  for (let from = 0; from < given.length; from += PAGE) {
    const pipe = redis.pipeline();
    for (const entry of given.slice(from, from + PAGE)) {
      const { accountId, amount, atMs } = entry;
      number = atMs === lastMs ? number + 1 : 0;
      lastMs = atMs;
      const id = `${atMs}-${number}`;
      const before = balances.get(accountId) ?? { balance: 0, last: "" };
      const balance = before.balance + amount;
      pipe.xadd(ledger, id, ...fieldsOf(entry, balance, before.last));
      balances.set(accountId, { balance, last: id });
      ids.push(id);
    }
    answersOf(await pipe.exec());
  }
  const createdAt = given[0]?.atMs ?? 0;
  const pipe = redis.pipeline();
  for (const [accountId, { balance, last }] of balances) {
    const money = moneyText({ balance: String(balance), last_entry: last });
    pipe.hset(accountNames(partition, accountId).account, { money, created_at: createdAt });
    pipe.zadd(accounts, 0, accountId);
  }
  answersOf(await pipe.exec());
  return ids;
}

const fieldsOf = (entry: GivenEntry, balanceAfter: number, previous: string): string[] =>
  packedEntry({
    type: entry.amount < 0 ? "consume" : "recharge",
    ...{ endpoint: "", reason: "", reference: "", taskId: "", requestId: "", keyId: "", by: "", note: "" },
    ...{ kind: "", details: "" },
    ...entry,
    ...{ balanceAfter, previous, partition: 0, streamId: "" },
  });
