import { accountNames, partitionNames } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { readsOfMost, type Unread } from "./partition-reads.ts";
import { many } from "./pipelines.ts";
import { partitionsOf } from "./store-facts.ts";

/** Accounts looked at, at most: references are kept by account, and an index of all would cost each grant a write. */
export const ACCOUNTS_LOOKED_AT_MAX = 20_000;
/** Accounts of one round trip: a fraction of a millisecond of Redis. */
const PAGE = 500;
const FOUND_MAX = 20;

/**
 * Accounts with a grant, an adjustment or a refund of this reference, the first 20.
 * @returns `complete` is false when there were more accounts than are looked at
 */
export async function accountsOfReference(
  nodes: RedisNodes,
  reference: string,
): Promise<{ accountIds: string[]; complete: boolean; unread: Unread | undefined }> {
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  const accountIds: string[] = [];
  let lookedAt = 0;
  for (let partition = 0; partition < partitions; partition++) {
    for (let start = 0, isLast = false; !isLast; start += PAGE) {
      if (lookedAt >= ACCOUNTS_LOOKED_AT_MAX || accountIds.length >= FOUND_MAX)
        return { accountIds, complete: false, unread: reads.unread() };
      const page = await reads.at(partition, async (redis) => {
        const ids = await redis.zrange(
          partitionNames(partition).accounts,
          String(start),
          String(start + PAGE - 1),
        );
        const has = await many<number, string>(redis, ids, (pipe, id) =>
          pipe.hexists(accountNames(partition, id).references, reference),
        );
        return { ids, found: ids.filter((_, at) => has[at] === 1) };
      });
      accountIds.push(...(page?.found ?? []));
      lookedAt += page?.ids.length ?? 0;
      isLast = (page?.ids.length ?? 0) < PAGE;
    }
  }
  return { accountIds: accountIds.slice(0, FOUND_MAX), complete: true, unread: reads.unread() };
}
