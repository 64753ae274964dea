import { setTimeout as pause } from "node:timers/promises";
import type { Fleet } from "../fault/fleet.ts";
import { isReady } from "../fault/gateways.ts";
import type { Random } from "../fault/random.ts";

/** From the moment at which all gateways are ready until the next kill. */
const BETWEEN_MS = [100, 800] as const;
/** After a failover gateways compare and replay for seconds; so long that one gets done, also if the store is away at first. */
const READY_MAX_MS = 5000;
const LOOK_EVERY_MS = 50;

/** Kills one random gateway after the other, and starts it again at once, until it is stopped. */
export function startKilling(fleet: Fleet, random: Random): { stop(): Promise<void> } {
  let stopped = false;
  const work = (async () => {
    while (!stopped) {
      await pause(random.int(...BETWEEN_MS));
      const slot = random.int(0, fleet.gateways.length - 1);
      // Another kill may be under way.
      if (stopped || !fleet.gateways[slot]) continue;
      fleet.kill(slot, "at random");
      await fleet.startIn(slot);
      await readyOrAway(fleet, () => stopped);
    }
  })();
  // Whoever stops it is told.
  work.catch(() => undefined);
  return {
    stop() {
      stopped = true;
      return work;
    },
  };
}

async function readyOrAway({ gateways }: Fleet, isStopped: () => boolean): Promise<void> {
  const untilMs = Date.now() + READY_MAX_MS;
  while (!isStopped() && Date.now() < untilMs) {
    const ready = await Promise.all(gateways.map((gateway) => gateway && isReady(gateway)));
    if (ready.every(Boolean)) return;
    await pause(LOOK_EVERY_MS);
  }
}
