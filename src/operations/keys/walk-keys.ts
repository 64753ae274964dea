import type { Redis } from "ioredis";
import { accountNames, partitionNames, partitionOf } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { readsOfAll } from "../../redis/partition-reads.ts";
import { many } from "../../redis/pipelines.ts";
import { listPages, membersOf, pages } from "../../redis/sorted-set-pages.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { type KeyRecord, readKeys } from "./keys.ts";

const FIRST_KEYS = 100;

/**
 * In pages of some hundred, in no order. As with SCAN, a key may come twice, and one that exists all the while comes
 * at least once.
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

/** In one round trip; most accounts have no more keys. */
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

export interface KeyPage {
  keys: KeyRecord[];
  more: boolean;
}

/** In the order of creation, after `after`. At most two pages are in memory, and repeated keys are dropped. */
export async function oldestKeys(
  walk: AsyncIterable<KeyRecord>,
  options: { limit: number; after?: KeyRecord | undefined; wanted?: (key: KeyRecord) => boolean },
): Promise<KeyPage> {
  const { limit, after, wanted = () => true } = options;
  let keys: KeyRecord[] = [];
  let more = false;
  const cut = (): void => {
    keys.sort(byAge);
    keys = keys.filter((key, at) => key.keyId !== keys[at - 1]?.keyId);
    if (keys.length <= limit) return;
    keys.length = limit;
    more = true;
  };
  for await (const key of walk) {
    if (after && byAge(key, after) <= 0) continue;
    if (!wanted(key)) continue;
    keys.push(key);
    if (keys.length >= 2 * limit) cut();
  }
  cut();
  return { keys, more };
}

const byAge = (a: KeyRecord, b: KeyRecord): number =>
  (a.createdAtMs ?? 0) - (b.createdAtMs ?? 0) || (a.keyId < b.keyId ? -1 : a.keyId > b.keyId ? 1 : 0);
