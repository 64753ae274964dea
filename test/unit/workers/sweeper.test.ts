import { afterEach, expect, test, vi } from "vitest";
import type { Store } from "../../../src/store/operations.ts";
import type { OpenRequest } from "../../../src/store/sweeps.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import type { Upstream } from "../../../src/upstream/upstream.ts";
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

// Guarantee: an upstream that is down is not hammered by every gateway, and is asked as before once it is back.
test("an upstream that fails is asked ever more rarely, one that answers as fast as it may be", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const upstream = { outcome: "failed", asked: 0 };
  const sweeper = givenBacklog(upstream);
  sweeper.start();
  const askedIn = async (ms: number): Promise<number> => {
    const before = upstream.asked;
    await vi.advanceTimersByTimeAsync(ms);
    return upstream.asked - before;
  };
  expect(await askedIn(60_000)).toBeLessThan(40);
  const whileDown = await askedIn(60_000);
  expect(whileDown, "but it is asked").toBeGreaterThan(3);
  expect(whileDown).toBeLessThan(30);
  upstream.outcome = "refused";
  await askedIn(15_000);
  expect(await askedIn(10_000)).toBeGreaterThan(0.9 * 10 * TASKS.sweepPollsPerSecond);
  await sweeper.stop();
});

afterEach(() => vi.useRealTimers());

/** More tasks than can be asked for are due, and what the upstream says of each is `upstream.outcome`. */
function givenBacklog(upstream: { outcome: string; asked: number }) {
  let tasks = 0;
  const task = (): OpenRequest => ({
    requestId: `req_${++tasks}`,
    partition: 0,
    accountId: "acc_1",
    creatorKeyId: "key_1",
    state: "bound",
    idempotencyDigest: undefined,
    taskId: `task_${tasks}`,
    boundAtMs: 0,
  });
  return createSweeper({
    store: { observe: never } as unknown as Store,
    sweeps: {
      partitions: () => 1,
      nowMs: () => 0,
      due: async () => new Set([0]),
      claim: async (list, _partition, most) =>
        list === "holds"
          ? { claimed: 0, requests: [] }
          : { claimed: most, requests: Array.from({ length: most }, task) },
      voidDue: never,
      collect: async () => 0,
    },
    upstream: {
      async poll() {
        upstream.asked++;
        return { outcome: upstream.outcome } as Awaited<ReturnType<Upstream["poll"]>>;
      },
    },
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
}

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
