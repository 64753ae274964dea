import { setTimeout as pause } from "node:timers/promises";
import { CALLBACKS } from "../../src/gateway/callbacks.ts";
import type { Target } from "./client.ts";
import { anyGateway, type Fleet } from "./fleet.ts";
import type { UpstreamEvent } from "./history.ts";

const TRIES_MAX = 60;
const AGAIN_MS = 500;

/** The path of the gateways' address for a request; empty if the upstream was given none. */
export const callbackPathOf = ({ callBackUrl = "" }: UpstreamEvent): string =>
  callBackUrl.includes(CALLBACKS) ? new URL(callBackUrl).pathname : "";

/**
 * Brings one callback to a gateway, as the upstream does. @returns its status; 0 if none came
 * @param taskId that it names
 */
export async function callBack(
  gateway: Target,
  event: UpstreamEvent,
  { taskId = event.taskId, status = "completed" } = {},
): Promise<number> {
  const sentMs = Date.now();
  const body = JSON.stringify({ code: 200, msg: "success", data: { task_id: taskId, status } });
  const answered = await fetch(gateway.url + callbackPathOf(event), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  }).catch(() => undefined);
  await answered?.body?.cancel();
  if (answered?.status === 200 && taskId === event.taskId) {
    event.calledBackMs ??= Date.now();
    event.lastCalledBackMs = sentMs;
  }
  return answered?.status ?? 0;
}

/** Repeats a callback until it is taken, through any gateway. @returns whether it was */
export async function callBackUntilTaken(fleet: Fleet, event: UpstreamEvent): Promise<boolean> {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const status = await callBack(await anyGateway(fleet, tries), event);
    if (status === 200) return true;
    await pause(AGAIN_MS);
  }
  return false;
}

/** Most tasks are called back about as they end; the others are found by polls, of customers or the sweeper. */
export function callBackAtTheEnd(fleet: Fleet) {
  const underWay = new Set<Promise<void>>();
  fleet.upstream.steer({
    read(event, wish) {
      if (event.callBackUrl === undefined || event.truth === "no" || fleet.random.chance(0.3))
        return undefined;
      const work = (async () => {
        await pause(wish.lifeMs + wish.delayMs);
        if (!(await callBackUntilTaken(fleet, event)))
          fleet.note("not reached", `callback of ${event.requestId}`);
      })().finally(() => underWay.delete(work));
      underWay.add(work);
      return undefined;
    },
  });
  return { idle: async (): Promise<void> => void (await Promise.all(underWay)) };
}
