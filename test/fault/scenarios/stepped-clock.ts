import { join } from "node:path";
import { copySources, type Patch } from "../tree.ts";
import type { RunOptions, World } from "../world.ts";

/** How far the store's clock is ahead, ms. The clock of a Redis cannot be set, so gateways and scripts add this to it. */
const AHEAD = "tg:test:ahead_ms";

export const STEPPED_CLOCK: readonly Patch[] = [
  {
    file: "lua/include/clock.lua",
    from: "NOW = t[1] * 1000 + math.floor(t[2] / 1000)",
    to: `NOW = t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(redis.call("GET", "${AHEAD}") or 0)`,
  },
  {
    file: "src/redis/server-info.ts",
    from: "return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);",
    to:
      `const aheadMs = Number((await redis.get("${AHEAD}")) ?? 0);\n` +
      "  return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000) + aheadMs;",
  },
];

/** The options of a run whose store has a clock that can be stepped: a copy of its sources that asks for it. */
export const withSteppedClock = (options: RunOptions): RunOptions => ({
  ...options,
  root: copySources(options.root, join(options.folder, "stepped-tree"), STEPPED_CLOCK),
});

/** Steps the store's clock ahead, or back, for all gateways at once. */
export async function stepClock(world: World, byMs: number): Promise<void> {
  world.clockAheadMs += byMs;
  world.note("clock step", `${Math.round(byMs / 1000)} s`);
  await world.redis.set(AHEAD, world.clockAheadMs);
  await stepLifetimes(world, byMs);
}

/** Lifetimes are by the clock that cannot be set: an Idempotency-Key that the stepped one ends is deleted here. */
async function stepLifetimes({ redis }: World, byMs: number): Promise<void> {
  for await (const page of redis.scanStream({ match: "tg:{p*}:idempotency:*", count: 1000 })) {
    const lifetimes = (page as string[]).map(async (name) => {
      const lifetimeMs = await redis.pttl(name);
      if (lifetimeMs > 0) await redis.pexpire(name, lifetimeMs - byMs);
    });
    await Promise.all(lifetimes);
  }
}
