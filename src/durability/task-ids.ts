import { claimName } from "../records/names.ts";
import { type BindCall, type Binding, bind } from "../scripts/holds.ts";
import { type CollectCall, type Collected, collect } from "../scripts/tasks.ts";
import { createClaims, type TaskStore } from "./claims.ts";

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

    async isBound(taskId: string): Promise<boolean> {
      const name = claimName(taskId);
      return (await store.ofName(name).command((redis) => redis.exists(name))) === 1;
    },
  };
}
