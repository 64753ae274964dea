import { setTimeout as pause } from "node:timers/promises";
import type { Random } from "../../fault/random.ts";
import type { World } from "./world.ts";

export const KILLS = {
  gateway: "SIGKILL of a gateway",
  postgres: "SIGKILL of PostgreSQL",
  hang: "SIGSTOP of PostgreSQL",
  redis: "SIGKILL of Redis, and a start from its append-only file",
} as const;
export type Kill = keyof typeof KILLS;

/** How often each comes, of ten. */
const DRAW: readonly Kill[] = [
  ...(["gateway", "gateway", "gateway", "gateway"] as const),
  ...(["postgres", "postgres", "hang", "redis", "redis", "redis"] as const),
];

export interface PlannedKill {
  kill: Kill;
  /** From the recovery of the one before, ms. */
  afterMs: number;
  /** How long it is away or hangs, ms; a gateway comes back at once. */
  awayMs: number;
}

/** The same seed makes the same schedule. */
export const planKills = (random: Random, count: number): PlannedKill[] =>
  Array.from({ length: count }, () => ({
    kill: random.pick(DRAW),
    afterMs: random.int(150, 900),
    awayMs: random.int(0, 1500),
  }));

/** Does one, and brings back what it has killed. */
export async function strike(
  world: World,
  random: Random,
  { kill, afterMs, awayMs }: PlannedKill,
): Promise<void> {
  await pause(afterMs);
  switch (kill) {
    case "gateway":
      await world.endGateway(random.pick(world.gateways));
      await world.startGateway();
      return;
    case "postgres":
      await world.postgres.kill();
      await pause(awayMs);
      return world.postgres.start();
    case "hang":
      await world.postgres.suspend();
      await pause(awayMs);
      return world.postgres.resume();
    case "redis":
      await world.killRedis();
      await pause(awayMs / 4);
      return world.startRedisAgain();
  }
}
