import type { Redis } from "ioredis";
import { accountNames, partitionNames, partitionOf } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { readsOfAll } from "../../redis/partition-reads.ts";
import { many } from "../../redis/pipelines.ts";
import { listPages, membersOf, pages } from "../../redis/sorted-set-pages.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { type KeyRecord, readKeys } from "./keys.ts";

/** Keys of one account that are read along with those of other accounts. */
const FIRST_KEYS = 100;

/**
 * Keys of one account, or of all, in no particular order and some hundred at a time. A key may come twice, as with
 * Redis's own SCAN; one that exists all the while comes at least once.
 * @param reads may go on without the servers that are away
 */
export async function* eachKey(
  nodes: RedisNodes,
  accountId?: string,
  reads = readsOfAll(nodes),
): AsyncGenerator<KeyRecord> {
  for await (const { partition, keyIds } of keyIdPages(nodes, accountId, reads)) {
    yield* await readKeys(
      reads,
      keyIds.map((keyId) => ({ keyId, partition })),
    );
  }
}

/** Key ids of one account, or of all, in bounded pages; an id may come twice. */
export async function* keyIdPages(
  nodes: RedisNodes,
  accountId?: string,
  reads = readsOfAll(nodes),
): AsyncGenerator<{ partition: number; keyIds: string[] }> {
  const partitions = await partitionsOf(nodes);
  const only = accountId === undefined ? undefined : partitionOf(accountId, partitions);
  for (let partition = only ?? 0; partition < (only ?? partitions - 1) + 1; partition++) {
    const walk = (redis: Redis) =>
      accountId === undefined ? keyIdsIn(redis, partition) : keyIdsOf(redis, partition, [accountId]);
    for await (const keyIds of reads.pages(partition, walk)) yield { partition, keyIds };
  }
}

async function* keyIdsIn(redis: Redis, partition: number): AsyncGenerator<string[]> {
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts))
    yield* keyIdsOf(redis, partition, accountIds);
}

/** The first keys of all these accounts in one round trip; most accounts have no more. */
async function* keyIdsOf(
  redis: Redis,
  partition: number,
  accountIds: readonly string[],
): AsyncGenerator<string[]> {
  const names = accountIds.map((id) => accountNames(partition, id).keys);
  const first = await many<[string, string[]], string>(redis, names, (pipe, name) =>
    pipe.zscan(name, "0", "COUNT", FIRST_KEYS),
  );
  yield* pages(first.flatMap(([, flat]) => membersOf(flat)));
  for (const [at, [cursor]] of first.entries()) {
    if (cursor !== "0") yield* listPages(redis, names[at] ?? "", cursor);
  }
}
