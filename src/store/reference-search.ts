import { accountNames, REFERENCE_ACCOUNTS_MAX, referencePlace } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { readsOfMost, type Unread } from "./partition-reads.ts";
import { partitionsOf } from "./store-facts.ts";

/** An account that may have the reference. */
interface Listed {
  partition: number;
  accountId: string;
}

/**
 * Accounts with a grant, an adjustment or a refund of this reference that Redis knows: one look into the index of each partition,
 * whose places may name others, too.
 * @returns `complete` is false where a place is full, so that there may be more
 */
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
  const lists = texts.map((text) => text?.split(" ") ?? []);
  const listed = lists.flatMap((ids, partition): Listed[] =>
    ids.map((accountId) => ({ partition, accountId })),
  );
  const has = await reads.many<number, Listed>(listed, (pipe, { partition, accountId }) =>
    pipe.hexists(accountNames(partition, accountId).references, reference),
  );
  return {
    accountIds: listed.filter((_, at) => has[at] === 1).map(({ accountId }) => accountId),
    complete: lists.every(({ length }) => length < REFERENCE_ACCOUNTS_MAX),
    unread: reads.unread(),
  };
}
