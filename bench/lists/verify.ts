import type { Redis } from "ioredis";
import { reportInto } from "../../src/ledger/fold.ts";
import { verifyIndexes } from "../../src/ledger/verify-indexes.ts";
import type { Run, Verification } from "../../src/ledger/verify-run.ts";
import { oneNode } from "../../src/redis/nodes.ts";
import { readsOfMost } from "../../src/redis/partition-reads.ts";
import { commandsUs, PARTITIONS, WAIT_MS_MAX } from "./measure.ts";
import type { Probe } from "./probe.ts";

/** Steps of the check in which a wait is measured. */
const STEPS = 5;
/** Other programs disturb some stretches, so the median of the worst waits counts. */
const SHARES = [0.5, 0.95, 1];

/** The comparison of indexes that `ledger verify` makes, of one partition. @returns whether they are right, and Redis never busy for long */
export async function measureVerify(redis: Redis, probe: Probe, partition: number): Promise<boolean> {
  const credits = { recharged: 0, consumed: 0, refunded: 0, adjusted: 0, reversed: 0 };
  const result: Verification = { ok: true, accounts: 0, entries: 0, credits, violations: [] };
  const waitsMs: number[] = [];
  let [steps, commandUs, ownMs] = [0, 0, 0];
  const nodes = oneNode(redis);
  const run: Run = {
    ...{ nodes, reads: readsOfMost(nodes), partitions: PARTITIONS, wanted: undefined, has: () => true },
    ...{ report: reportInto(result), result },
    async step() {
      if (++steps % STEPS !== 0) return;
      waitsMs.push(await probe.end());
      const beganMs = performance.now();
      commandUs = Math.max(commandUs, ...(await commandsUs(redis)));
      await redis.slowlog("RESET");
      await probe.begin();
      ownMs += performance.now() - beganMs;
    },
  };
  await redis.slowlog("RESET");
  await probe.begin();
  const beganMs = performance.now();
  await verifyIndexes(run, redis, partition);
  const tookMs = performance.now() - beganMs - ownMs;
  waitsMs.push(await probe.end());
  waitsMs.sort((one, other) => one - other);
  const [median = 0, most, worst] = SHARES.map((share) => waitsMs[Math.ceil(waitsMs.length * share) - 1]!);
  console.log(
    `ledger verify, indexes of partition ${partition}: ${Math.round(tookMs)} ms, ${result.violations.length} violations, longest command ${commandUs / 1000} ms; worst waits of ${waitsMs.length} stretches, ms: median ${median.toFixed(2)}, 95 % ${most?.toFixed(2)}, all ${worst?.toFixed(2)}`,
  );
  return result.ok && median <= WAIT_MS_MAX;
}
