import { expect, test } from "vitest";
import type { Store } from "../../../src/store/operations.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { createSweeper } from "../../../src/workers/sweeper.ts";

const TASKS = {
  refundFailed: true,
  maxAgeMs: 7_200_000,
  sweepIntervalMs: 1000,
  pollIntervalMs: 10_000,
  sweepPollsPerSecond: 50,
  retentionMs: 604_800_000,
};

const never = (): never => {
  throw new Error("nothing is due");
};

// Guarantee: however much ends, the records of what has ended do not pile up in Redis.
test("records that one round cannot collect are collected in the next ones, not a minute later", async () => {
  const { sweep, ended } = givenEnded(1000);
  await sweep();
  const [most = 0] = ended;
  expect(most, "a round has an end").toBeGreaterThan(0);
  for (let round = 0; round < 5; round++) await sweep();
  expect(ended, "nothing is left").toEqual([0, 0]);
  ended[0] = 1;
  await sweep();
  expect(ended, "then it is looked for once a minute").toEqual([1, 0]);
});

/** A store of two partitions, in the first of which so many records are past their retention. */
function givenEnded(records: number) {
  const ended = [records, 0];
  const sweeper = createSweeper({
    store: { observe: never } as unknown as Store,
    sweeps: {
      partitions: () => ended.length,
      nowMs: () => 0,
      due: async () => new Set(),
      claim: async () => ({ claimed: 0, requests: [] }),
      voidDue: never,
      async collect(partition, _retentionMs, most) {
        const collected = Math.min(most, ended[partition] ?? 0);
        ended[partition] = (ended[partition] ?? 0) - collected;
        return collected;
      },
    },
    upstream: { poll: never },
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
  return { sweep: sweeper.sweep, ended };
}
