import { setTimeout as pause } from "node:timers/promises";
import type { Fleet } from "../fault/fleet.ts";
import type { Random } from "../fault/random.ts";

/** Until the next kill, once all gateways listen. */
const BETWEEN_MS = [200, 1200] as const;
const LOOK_EVERY_MS = 20;

/** Kills one random gateway after the other, and starts it again at once, until it is stopped. One listens meanwhile. */
export function startKilling(fleet: Fleet, random: Random): { stop(): Promise<void> } {
  const { gateways } = fleet;
  let stopped = false;
  const work = (async () => {
    while (!stopped) {
      await pause(random.int(...BETWEEN_MS));
      while (!stopped && !gateways.every((gateway) => gateway?.alive)) await pause(LOOK_EVERY_MS);
      if (stopped) return;
      const slot = random.int(0, gateways.length - 1);
      fleet.kill(slot, "at random");
      await fleet.startIn(slot);
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
