import type { Redis } from "ioredis";
import { claimName, type KeyRef, readClaim, requestName, unclaimedName } from "../records/names.ts";
import { requestOf } from "../records/records.ts";
import type { StoreFacts } from "../redis/store-facts.ts";
import { type BindCall, type Binding, bind } from "../scripts/holds.ts";
import type { Run } from "../scripts/script-definition.ts";
import { type CollectCall, type Collected, collect } from "../scripts/tasks.ts";
import { createClaims } from "./claims.ts";

/** The connection's, the outbox's past the breakers, or an operator's. */
export interface TaskStore {
  of(partition: number): { run: Run };
  ofName(name: string): { command<T>(work: (redis: Redis) => Promise<T>): Promise<T> };
  /** `facts`: undefined until the store was reached. */
  readonly known: { readonly facts: Omit<StoreFacts, "id"> | undefined };
}

/** Charges for task ids, each of which belongs to one request; on a Redis Cluster by its claim. */
export function createTaskIds(store: TaskStore) {
  const isClustered = (): boolean => store.known.facts?.cluster ?? false;
  const claims = createClaims(store);

  return {
    /** Charges nothing if another request owns the task id. @param isRepeat the store has answered it before @throws ClaimError */
    bind: (call: BindCall, isRepeat?: boolean): Promise<Binding> =>
      isClustered() ? claims.bind(call, isRepeat) : store.of(call.key.partition).run(bind, call),

    async collect(call: CollectCall): Promise<Collected> {
      const { taskId } = call;
      if (taskId !== undefined && isClustered()) return claims.collect({ ...call, taskId });
      const claim = taskId === undefined ? undefined : claimName(taskId);
      return (await store.of(call.partition).run(collect, { ...call, claim })).outcome;
    },

    /** True on a Redis Cluster for an accepted task of the account that waits for its claim, or has it and waits for its BIND, at any gateway. */
    async isWaiting({ partition, accountId }: KeyRef, taskId: string): Promise<boolean> {
      const read = (name: string) => store.ofName(name).command((redis) => redis.get(name));
      const [notedFor, claim] = await Promise.all([
        read(unclaimedName(partition, taskId)),
        read(claimName(taskId)),
      ]);
      if (notedFor === accountId) return true;
      const owner = claim === null ? undefined : readClaim(claim);
      if (owner?.partition !== partition) return false;
      const { account_id, state } = requestOf(await read(requestName(partition, owner.requestId)));
      return account_id === accountId && (state === "held" || state === "void");
    },
    async isBound(taskId: string): Promise<boolean> {
      const name = claimName(taskId);
      return (await store.ofName(name).command((redis) => redis.exists(name))) === 1;
    },
  };
}
