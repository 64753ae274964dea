import { claimName, claimText, readClaim } from "./names.ts";
import { pipelineOfTick } from "./pipelines.ts";
import { type BindCall, type Binding, bindClaimed } from "./scripts/bind.ts";
import { type CollectCall, type Collected, collect } from "./scripts/collect.ts";
import { dispute } from "./scripts/dispute.ts";
import type { TaskStore } from "./task-store.ts";

/** How long the mark of a disputed task id waits for the BIND of the request that owns it. */
const NOTED_MS = 3_600_000;
/** Longer than the settings let a task and its record live: a claim does not stay for ever if its owner was lost. */
const CLAIM_MS = 500 * 86_400_000;

/** BIND and COLLECT on a Redis Cluster, where they do not reach the claim of the task id: the gateway takes and deletes it. */
export function createClaims(store: TaskStore) {
  /** All of a tick go to a server in one write. */
  const take = pipelineOfTick<BindCall, string | null>(
    ({ task }) => store.ofName(claimName(task.taskId)),
    (pipe, { task, requestId, key }) =>
      pipe.set(claimName(task.taskId), claimText(requestId, key.partition), "PX", CLAIM_MS, "NX", "GET"),
  );
  const remove = (name: string): Promise<number> => store.ofName(name).command((redis) => redis.del(name));

  return {
    async bind(call: BindCall): Promise<Binding> {
      const { requestId, key } = call;
      const { taskId } = call.task;
      const taken = await take(call);
      const owner = taken === null ? undefined : readClaim(taken);
      if (owner && owner.requestId !== requestId) {
        const { partition } = owner;
        const given = { taskId, partition, ownerId: owner.requestId, accountId: key.accountId };
        await store.of(partition).run(dispute, { ...given, lifetimeMs: NOTED_MS });
        return "conflict";
      }
      const { outcome } = await store.of(key.partition).run(bindClaimed, call);
      // Nobody else could use the task id that was free until now.
      if (!owner && (outcome === "forgotten" || outcome === "conflict")) await remove(claimName(taskId));
      return outcome;
    },

    /** The claim is read first: while its server is away, nothing is collected. Only who collects the request deletes it. */
    async collect(call: CollectCall & { taskId: string }): Promise<Collected> {
      const name = claimName(call.taskId);
      const owner = await store.ofName(name).command((redis) => redis.get(name));
      const isOurs = owner !== null && readClaim(owner).requestId === call.requestId;
      const { outcome } = await store.of(call.partition).run(collect, call);
      if (outcome === "collected" && isOurs) await remove(name);
      return outcome;
    },
  };
}
