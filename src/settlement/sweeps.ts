import { withoutClaim } from "../durability/claims.ts";
import { createTaskIds } from "../durability/task-ids.ts";
import { type DueList, keyRef, listsOfOpenRequests, partitionNames, requestName } from "../records/names.ts";
import { requestOf } from "../records/records.ts";
import type { Connection } from "../redis/connection.ts";
import { createDueLists } from "../redis/due-lists.ts";
import { type Leased, lease, type OpenRequest } from "../scripts/tasks.ts";
import { type Voided, voidHold } from "../scripts/uncharged-holds.ts";

export type Sweeps = ReturnType<typeof createSweeps>;

export function createSweeps(connection: Connection, leaseMs: () => number, nowMs?: () => number) {
  const tasks = createTaskIds(connection);

  const dueLists = createDueLists(connection, listsOfOpenRequests, ["holds", "polls"], { nowMs });

  return {
    partitions: (): number => connection.known.facts?.partitions ?? 0,
    /** False while the primary of the partition is away, or the partition frozen: its work waits until it is back. */
    isUsable: (partition: number): boolean =>
      !connection.of(partition).breaker.isOpen && !connection.isFrozen(partition),

    due: dueLists,

    /** Leases up to `most` due holds or tasks of a partition. Two calls never lease the same ones at a time. */
    lease: (list: DueList, partition: number, most: number): Promise<Leased> =>
      connection.of(partition).run(lease, { list, partition, most, leaseMs: leaseMs() }),

    async voidDue(request: OpenRequest): Promise<Voided["outcome"]> {
      const { requestId, partition, accountId, creatorKeyId, idempotencyDigest } = request;
      const key = keyRef(creatorKeyId, accountId, partition);
      const { run } = connection.of(partition);
      const { outcome } = await run(voidHold, { key, requestId, idempotencyDigest, reason: "due" });
      if (outcome === "void") connection.metrics.settlements.inc({ outcome });
      return outcome;
    },

    /**
     * Deletes up to `most` requests past their retention; not those whose claim's primary is away, nor behind one the archive must get.
     * @param retentionMs of restored requests; all others have their own
     */
    async collect(
      partition: number,
      retentionMs: number,
      most: number,
    ): Promise<{ looked: number; collected: number }> {
      const { done } = partitionNames(partition);
      const primary = connection.of(partition);
      // A hint of what may be old enough: COLLECT looks at the store's clock.
      const before = nowMs?.() ?? primary.nowMs();
      const ids = await primary.command((redis) =>
        redis.zrangebyscore(done, "-inf", before, "LIMIT", 0, most),
      );
      let looked = 0;
      let collected = 0;
      for (const requestId of ids) {
        const record = await primary.command((redis) => redis.get(requestName(partition, requestId)));
        const { task_id: taskId } = requestOf(record);
        const outcome = await tasks
          .collect({ partition, requestId, taskId, retentionMs })
          .catch(withoutClaim);
        // All behind it have ended later: the archive has not got them either.
        if (outcome === "unarchived") break;
        if (outcome !== undefined) looked++;
        if (outcome === "collected" || outcome === "missing") collected++;
      }
      return { looked, collected };
    },
  };
}
