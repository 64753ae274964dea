import type { Redis } from "ioredis";
import { accountNames, REFERENCE_ACCOUNTS_MAX, referencePlace } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { partitionsOf } from "../../redis/store-facts.ts";

/** An account that may have the reference. */
interface Indexed {
  accountId: string;
  entry: string;
}

/** As written by lua/include/references.lua. */
export const readPlace = (text: string | null | undefined): Indexed[] =>
  (text ?? "")
    .split(" ")
    .filter((one) => one !== "")
    .map((one) => {
      const [accountId = "", entry = ""] = one.split("@");
      return { accountId, entry };
    });

export const placeText = (indexed: readonly Indexed[]): string =>
  indexed.map(({ accountId, entry }) => `${accountId}@${entry}`).join(" ");

/** It may be another reference's, or trimmed. */
export async function entryIdOf(
  redis: Redis,
  partition: number,
  accountId: string,
  reference: string,
): Promise<string | undefined> {
  const { name, field } = referencePlace(partition, reference);
  const [listed, beyond] = await redis.hmget(name, field, `${field} ${accountId}`);
  return readPlace(listed).find((one) => one.accountId === accountId)?.entry || beyond || undefined;
}

/** Accounts that have used this reference, by the index of each partition. `complete` is false if a place is full. */
export async function accountsOfReference(
  nodes: RedisNodes,
  reference: string,
): Promise<{ accountIds: string[]; complete: boolean; unread: Unread | undefined }> {
  const reads = readsOfMost(nodes);
  const places = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => ({
    partition,
    ...referencePlace(partition, reference),
  }));
  const texts = await reads.many<string | null, (typeof places)[number]>(places, (pipe, { name, field }) =>
    pipe.hget(name, field),
  );
  const lists = texts.map((text, partition) =>
    readPlace(text).map(({ accountId }) => ({ partition, accountId })),
  );
  const listed = lists.flat();
  const has = await reads.many<number, (typeof listed)[number]>(listed, (pipe, { partition, accountId }) =>
    pipe.hexists(accountNames(partition, accountId).references, reference),
  );
  return {
    accountIds: listed.filter((_, at) => has[at] === 1).map(({ accountId }) => accountId),
    complete: lists.every(({ length }) => length < REFERENCE_ACCOUNTS_MAX),
    unread: reads.unread(),
  };
}
