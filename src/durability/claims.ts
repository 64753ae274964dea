import { claimName, claimText, readClaim } from "../records/names.ts";
import { pipelineOfTick } from "../redis/pipelines.ts";
import { type BindCall, type Binding, bindClaimed } from "../scripts/bind.ts";
import { type CollectCall, type Collected, collect } from "../scripts/collect.ts";
import { dispute } from "../scripts/dispute.ts";
import type { TaskStore } from "./task-store.ts";

/** How long the mark of a disputed task id waits for the BIND of the request that owns it. */
const NOTED_MS = 3_600_000;
/** Longer than the settings let a task and its record live: a claim does not stay for ever if its owner was lost. */
const CLAIM_MS = 500 * 86_400_000;

/**
 * What a charge needs on another primary than its account's cannot be had now. Nothing was charged, and its account's primary
 * has not failed.
 */
export class ClaimError extends Error {
  constructor(cause: unknown) {
    super("the primary of the task id's claim does not answer as it should", { cause });
  }
}

/** BIND and COLLECT on a Redis Cluster, where they do not reach the claim of the task id: the gateway takes and deletes it. */
export function createClaims(store: TaskStore) {
  /** All of a tick go to a server in one write. */
  const take = pipelineOfTick<BindCall, string | null>(
    ({ task }) => store.ofName(claimName(task.taskId)),
    (pipe, { task, requestId, key }) =>
      pipe.set(claimName(task.taskId), claimText(requestId, key.partition), "PX", CLAIM_MS, "NX", "GET"),
  );
  const read = async (name: string): Promise<string | undefined> => {
    const owner = await store.ofName(name).command((redis) => redis.get(name));
    return owner === null ? undefined : readClaim(owner).requestId;
  };
  const remove = (name: string): Promise<number> => store.ofName(name).command((redis) => redis.del(name));
  const leftClaims = createLeftClaims(read, remove);

  /** What does not concern the primary of the account. @throws ClaimError */
  async function elsewhere<T>(account: { partition: number }, server: unknown, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      throw server === store.of(account.partition) ? error : new ClaimError(error);
    }
  }

  return {
    /**
     * @param isRepeat whether the store has answered it before: then it had its claim, and does not wait for the claim's primary
     * @throws ClaimError
     */
    async bind(call: BindCall, isRepeat = false): Promise<Binding> {
      const { requestId, key } = call;
      const { taskId } = call.task;
      const name = claimName(taskId);
      const claimed = elsewhere(key, store.ofName(name), take(call));
      const taken = await (isRepeat ? claimed.catch(withoutClaim) : claimed);
      const owner = taken ? readClaim(taken) : undefined;
      if (owner && owner.requestId !== requestId) {
        const { partition } = owner;
        const given = { taskId, partition, ownerId: owner.requestId, accountId: key.accountId };
        const other = store.of(partition);
        await elsewhere(key, other, other.run(dispute, { ...given, lifetimeMs: NOTED_MS }));
        return "conflict";
      }
      const { outcome } = await store.of(key.partition).run(bindClaimed, call);
      // This request is not charged for the task id, so nobody else could use it. What fails here is tried again with the charge.
      if (taken !== undefined && (outcome === "forgotten" || outcome === "conflict"))
        await elsewhere(key, store.ofName(name), remove(name));
      return outcome;
    },

    /**
     * The claim is read first: while its server is away, nothing is collected. Only who collects the request deletes it.
     * @throws ClaimError while the claim's primary is away
     */
    async collect(call: CollectCall & { taskId: string }): Promise<Collected> {
      const name = claimName(call.taskId);
      await leftClaims.remove();
      const owner = await elsewhere(call, store.ofName(name), read(name));
      const { outcome } = await store.of(call.partition).run(collect, call);
      if (outcome === "collected" && owner === call.requestId)
        await remove(name).catch(() => leftClaims.add(name, call.requestId));
      return outcome;
    },
  };
}

/** More are forgotten, and expire. */
const LEFT_MAX = 10_000;
/** Tried again at a time. */
const LEFT_BATCH = 20;

/** Claims of collected requests that could not be deleted, since their primary went away just then. */
function createLeftClaims(
  read: (name: string) => Promise<string | undefined>,
  remove: (name: string) => Promise<unknown>,
) {
  const requestIds = new Map<string, string>();

  function add(name: string, requestId: string): void {
    if (requestIds.size < LEFT_MAX) requestIds.set(name, requestId);
  }

  return {
    add,
    /** Tries some again. The first DEL may have come, and another request may have claimed the task id since. */
    async remove(): Promise<void> {
      for (const [name, requestId] of [...requestIds].slice(0, LEFT_BATCH)) {
        requestIds.delete(name);
        try {
          if ((await read(name)) === requestId) await remove(name);
        } catch {
          add(name, requestId);
        }
      }
    },
  };
}

/** @throws any other error than ClaimError */
export function withoutClaim(error: unknown): undefined {
  if (error instanceof ClaimError) return undefined;
  throw error;
}
