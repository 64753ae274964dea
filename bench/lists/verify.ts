import type { Redis } from "ioredis";
import { reportInto } from "../../src/ledger/fold.ts";
import { verifyIndexes } from "../../src/ledger/verify-indexes.ts";
import type { Run, Verification } from "../../src/ledger/verify-run.ts";
import { readsOfMost } from "../../src/redis/partition-reads.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { commandsUs, PARTITIONS, WAIT_MS_MAX } from "./measure.ts";
import type { Probe } from "./probe.ts";

/** Other programs disturb some steps, so the median of the worst waits counts. */
const SHARES = [0.5, 0.95];
const sharesOf = (waitsMs: readonly number[]): number[] => {
  const sorted = waitsMs.toSorted((one, other) => one - other);
  return SHARES.map((share) => sorted[Math.ceil(sorted.length * share) - 1] ?? 0);
};

/** The comparison of indexes that `ledger verify` makes, of one partition. @returns whether they are right, and Redis never busy for long */
export async function measureVerify(redis: Redis, probe: Probe, partition: number): Promise<boolean> {
  const credits = { recharged: 0, consumed: 0, refunded: 0, adjusted: 0, reversed: 0 };
  const result: Verification = { ok: true, accounts: 0, entries: 0, credits, violations: [] };
  const waitsMs: number[] = [];
  const idleMs: number[] = [];
  const commandsMs: number[] = [];
  let [ownMs, beganMs] = [0, 0];
  const nodes = oneNode(redis);
  const run: Run = {
    ...{ nodes, reads: readsOfMost(nodes), partitions: PARTITIONS, wanted: undefined, has: () => true },
    ...{ report: reportInto(result), result },
    async step() {
      const endedMs = performance.now();
      waitsMs.push(await probe.end());
      idleMs.push(await probe.idle(endedMs - beganMs));
      commandsMs.push(Math.max(0, ...(await commandsUs(redis))) / 1000);
      await redis.slowlog("RESET");
      await probe.begin();
      beganMs = performance.now();
      ownMs += beganMs - endedMs;
    },
  };
  await redis.slowlog("RESET");
  await probe.begin();
  const startedMs = performance.now();
  beganMs = startedMs;
  await verifyIndexes(run, redis, partition);
  const tookMs = performance.now() - startedMs - ownMs;
  await probe.end();
  const sharesInWords = (ms: readonly number[]): string =>
    sharesOf(ms)
      .map((one) => one.toFixed(2))
      .join(" and ");
  console.log(
    `ledger verify, indexes of partition ${partition}: ${Math.round(tookMs)} ms in ${waitsMs.length} steps, ${result.violations.length} violations; median and 95 %, ms: longest command of a step ${sharesInWords(commandsMs)}, longest wait ${sharesInWords(waitsMs)}, without it ${sharesInWords(idleMs)}`,
  );
  return result.ok && sharesOf(waitsMs)[0]! - sharesOf(idleMs)[0]! <= WAIT_MS_MAX;
}
