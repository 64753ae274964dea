import { hasTasksInPartitions, knownLayout, type Layout } from "./layout.ts";
import { claimName, earlierTaskName, META, partitionOf, taskName } from "./names.ts";
import { taskRecord } from "./records.ts";
import type { Script } from "./script-definition.ts";
import { bindClaimed } from "./scripts/bind.ts";
import { collect } from "./scripts/collect.ts";
import { inspect } from "./scripts/inspect.ts";
import { type MoveCall, move } from "./scripts/move.ts";
import { observe } from "./scripts/observe.ts";
import type { TaskStore } from "./task-store.ts";

/** All that is known of layout 1, the names of earlier releases, and of the way out of it. Decision 0044. */

const withEarlierNames = <Call, Result>(script: Script<Call, Result>): Script<Call, Result> => ({
  ...script,
  keys: (call) => script.keys(call).map((name) => name.replace(/^tg:\{p\d+\}:task:/, earlierTaskName(""))),
});

/** The scripts that touch the record of a task, by the names of layout 1. */
export const EARLIER_SCRIPTS = {
  bind: withEarlierNames(bindClaimed),
  inspect: withEarlierNames(inspect),
  observe: withEarlierNames(observe),
  collect: withEarlierNames(collect),
};

/** The names that may hold the record of a task. */
export const placesOfTask = (taskId: string, partition: number, layout: Layout): string[] =>
  placesOf(taskName(taskId, partition), taskId, layout);

/** The names that may say which request owns a task id; its id begins their text. */
export const placesOfOwner = (taskId: string, layout: Layout): string[] =>
  placesOf(claimName(taskId), taskId, layout);

function placesOf(name: string, taskId: string, layout: Layout): string[] {
  if (hasTasksInPartitions(layout)) return [name];
  return layout === "1" ? [earlierTaskName(taskId)] : [name, earlierTaskName(taskId)];
}

/** The layout of a store. Facts are some seconds old: `readAgain` sees at once that a migration has begun. */
export function createLayoutReader({ facts, ofName }: Pick<TaskStore, "facts" | "ofName">) {
  let latest: { of: ReturnType<TaskStore["facts"]>; layout: Layout } | undefined;
  return {
    layout(): Layout {
      const known = facts();
      return latest !== undefined && latest.of === known ? latest.layout : (known?.layout ?? "2");
    },
    async readAgain(): Promise<Layout> {
      const known = facts();
      const layout = knownLayout((await ofName(META).command((redis) => redis.hget(META, "layout"))) ?? "1");
      latest = { of: known, layout };
      return layout;
    },
  };
}

/** @param text the record in layout 1 */
export function moveCallOf(taskId: string, text: string, partitions: number): MoveCall {
  const { requestId, accountId } = taskRecord(text);
  return { taskId, requestId, partition: partitionOf(accountId, partitions) };
}

/** Moves the record of a task to layout 2, if layout 1 has one. @returns whether it had one */
export async function moveEarlierTask(store: TaskStore, taskId: string): Promise<boolean> {
  const name = earlierTaskName(taskId);
  const text = await store.ofName(name).command((redis) => redis.get(name));
  if (text === null) return false;
  const call = moveCallOf(taskId, text, store.facts()?.partitions ?? 1);
  await store.of(call.partition).run(move, call);
  return true;
}
