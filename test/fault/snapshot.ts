import type { Redis } from "ioredis";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { accountNames, keyRef, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { moneyOf } from "../../src/records/packed-fields.ts";
import { many, manyByNode } from "../../src/redis/pipelines.ts";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import type { AccountFacts, StoreEntry } from "./history.ts";

const PAGE = 500;

/** Everything under `tg:`, name by name. */
export async function readStore(nodes: RedisNodes): Promise<StoreEntry[]> {
  const parts = await Promise.all(nodes.all().map(readNode));
  return parts.flat().sort((a, b) => (a.name < b.name ? -1 : 1));
}

async function readNode(redis: Redis): Promise<StoreEntry[]> {
  const names = new Set<string>();
  let cursor = "0";
  do {
    const [next, page] = await redis.scan(cursor, "MATCH", "tg:*", "COUNT", 1000);
    for (const name of page) names.add(name);
    cursor = next;
  } while (cursor !== "0");
  const entries: StoreEntry[] = [];
  const all = [...names].sort();
  for (let at = 0; at < all.length; at += PAGE) {
    const page = all.slice(at, at + PAGE);
    const types = await many<string, string>(redis, page, (pipe, name) => pipe.type(name));
    // A list that was emptied meanwhile is gone.
    const typed = page.flatMap((name, index) =>
      types[index] === "none" ? [] : [{ name, type: types[index] ?? "" }],
    );
    const values = await many<unknown, { name: string; type: string }>(
      redis,
      typed,
      (pipe, { name, type }) => {
        switch (type) {
          case "hash":
            return pipe.hgetall(name);
          case "list":
            return pipe.lrange(name, 0, -1);
          case "set":
            return pipe.smembers(name);
          case "zset":
            return pipe.zrange(name, "0", "-1");
          case "stream":
            return pipe.xrange(name, "-", "+");
          default:
            return pipe.get(name);
        }
      },
    );
    typed.forEach(({ name }, index) => {
      if (values[index] !== null) entries.push({ name, value: values[index] });
    });
  }
  return entries;
}

/** How much is open: held or unfinished requests, slots taken, accounts with holds. */
export async function countOpen(nodes: RedisNodes, accounts: readonly AccountFacts[]): Promise<number> {
  const partitions = Number(await nodes.ofName(META).hget(META, "partitions"));
  let open = 0;
  for (let partition = 0; partition < partitions; partition++) {
    open += await nodes.of(partition).zcard(partitionNames(partition).due);
  }
  const nodeOf = ({ accountId }: AccountFacts): Redis => nodes.of(partitionOf(accountId, partitions));
  const money = await manyByNode<string | null, AccountFacts>(accounts, nodeOf, (pipe, { accountId }) =>
    pipe.hget(accountNames(partitionOf(accountId, partitions), accountId).account, "money"),
  );
  const slots = await manyByNode<number, AccountFacts>(accounts, nodeOf, (pipe, { accountId, keyId }) =>
    pipe.exists(keyRef(keyId, accountId, partitionOf(accountId, partitions)).names.slots),
  );
  open += money.filter((text) => Number(moneyOf(text).held ?? 0) !== 0).length;
  return open + slots.filter((exists) => exists === 1).length;
}

/** Findings of the product's own verification, and what it could not read, in words. */
export async function verifyStore(nodes: RedisNodes): Promise<string[]> {
  const { violations, unread } = await verifyLedger(nodes);
  const found = violations.map(
    ({ invariant, account_id, request_id, message }) =>
      `${invariant}: ${account_id} ${request_id ?? ""}: ${message}`,
  );
  return unread ? [...found, `not read: ${JSON.stringify(unread)}`] : found;
}
