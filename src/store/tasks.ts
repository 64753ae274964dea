import { createClaims } from "./claims.ts";
import { hasTasksInPartitions } from "./layout.ts";
import { createLayoutReader, EARLIER_SCRIPTS, moveEarlierTask, placesOfOwner } from "./layout-1.ts";
import { claimName, META } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { scriptsOf } from "./script-runner.ts";
import { type BindCall, type Binding, bind } from "./scripts/bind.ts";
import { type CollectCall, type Collected, collect } from "./scripts/collect.ts";
import { type InspectCall, type Inspection, inspect } from "./scripts/inspect.ts";
import { type ObserveCall, type ObserveReply, observe } from "./scripts/observe.ts";
import { isCluster, layoutOf, partitionsOf } from "./store-facts.ts";
import type { TaskStore } from "./task-store.ts";

const SCRIPTS = { bind, inspect, observe, collect };

export type Tasks = ReturnType<typeof createTasks>;

/** The scripts and commands that touch the records of tasks and their claims, as layout and topology want them. */
export function createTasks(store: TaskStore) {
  const layouts = createLayoutReader(store);
  const isEarlier = (): boolean => layouts.layout() === "1";
  const scripts = () => (isEarlier() ? EARLIER_SCRIPTS : SCRIPTS);
  const isClustered = (): boolean => store.facts()?.cluster ?? false;
  const claims = createClaims(store);

  /** Before a record is written or deleted: while a migration goes on, one of layout 1 is moved first. */
  async function ready(taskId: string): Promise<void> {
    if (layouts.layout() === "1>2") await moveEarlierTask(store, taskId);
  }

  return {
    /**
     * Runs BIND. If another request owns the task id, nothing is charged, and that request's task is disputed.
     * @param isRepeat whether the store has answered it before
     * @throws ClaimError if nothing is charged because another primary than the account's is away
     */
    async bind(call: BindCall, isRepeat?: boolean): Promise<Binding> {
      if (isClustered()) return claims.bind(call, isRepeat);
      await ready(call.task.taskId);
      return (await store.of(call.key.partition).run(scripts().bind, call)).outcome;
    },

    /** Runs INSPECT for a task. */
    async inspect(call: InspectCall & Required<Pick<InspectCall, "task">>): Promise<Inspection> {
      const { run } = store.of(call.key.partition);
      const found = await run(scripts().inspect, call);
      if (found.outcome !== "not_found" || hasTasksInPartitions(layouts.layout())) return found;
      // It may lie where the other layout has it.
      const { taskId } = call.task;
      const isElsewhere = isEarlier()
        ? (await layouts.readAgain()) !== "1"
        : await moveEarlierTask(store, taskId);
      return isElsewhere ? run(scripts().inspect, call) : found;
    },

    /** Runs OBSERVE. */
    async observe(call: ObserveCall): Promise<ObserveReply> {
      await ready(call.task.taskId);
      return store.of(call.partition).run(scripts().observe, call);
    },

    /** Runs COLLECT, and gives the task id back. @throws ClaimError */
    async collect(call: CollectCall): Promise<Collected> {
      const { taskId } = call;
      if (taskId !== undefined && isClustered()) return claims.collect({ ...call, taskId });
      const { run } = store.of(call.partition);
      if (taskId === undefined || isEarlier()) return (await run(scripts().collect, call)).outcome;
      await ready(taskId);
      return (await run(collect, { ...call, claim: claimName(taskId) })).outcome;
    },

    /** Whether any account has a task of this id. */
    async isBound(taskId: string): Promise<boolean> {
      const names = placesOfOwner(taskId, layouts.layout());
      for (const name of names)
        if ((await store.ofName(name).command((redis) => redis.exists(name))) === 1) return true;
      return false;
    },
  };
}

/** The same for operators' functions. */
export async function tasksOf(nodes: RedisNodes): Promise<Tasks> {
  const facts = {
    partitions: await partitionsOf(nodes),
    cluster: await isCluster(nodes.ofName(META)),
    layout: await layoutOf(nodes),
  };
  return createTasks({
    of: (place) => scriptsOf(nodes.of(place)),
    ofName: (name) => ({ command: (work) => work(nodes.ofName(name)) }),
    facts: () => facts,
  });
}
