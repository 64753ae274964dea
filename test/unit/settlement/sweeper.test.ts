import { afterEach, expect, test, vi } from "vitest";
import type { DueList } from "../../../src/records/names.ts";
import type { OpenRequest } from "../../../src/scripts/tasks.ts";
import type { Store } from "../../../src/settlement/store.ts";
import { Sweeper } from "../../../src/settlement/sweeper.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import type { PollOutcome } from "../../../src/upstream/poll-request.ts";

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
  const upstream = { outcome: "failed", pollsMade: 0 };
  const sweeper = givenBacklog(upstream);
  sweeper.start();
  const askedIn = async (ms: number): Promise<number> => {
    const before = upstream.pollsMade;
    await vi.advanceTimersByTimeAsync(ms);
    return upstream.pollsMade - before;
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

// Guarantee: what one primary refuses does not keep due work of another one waiting.
test("a partition whose primary fails does not end the round", async () => {
  const everywhere = Array.from({ length: 64 }, (_, partition) => partition);
  const { sweeper, claims } = givenDue({ holds: everywhere, polls: [] }, { backlog: false, fails: [7, 8] });
  await expect(sweeper.sweep()).rejects.toThrow("away");
  expect(claims.map(({ partition }) => partition).toSorted((a, b) => a - b)).toEqual(everywhere);
});

// Guarantee: Redis is asked for what is due and can be taken, and for nothing else.
test("only lists in which something is due are claimed from", async () => {
  const { sweeper, claims } = givenDue({ holds: [3, 40], polls: [5] }, { backlog: false });
  await sweeper.sweep();
  expect(claims.map(({ list, partition }) => `${list} ${partition}`).toSorted()).toEqual([
    "holds 3",
    "holds 40",
    "polls 5",
  ]);
});

test("no more tasks are claimed than there is room for, and holds are ended without any", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const everywhere = Array.from({ length: 64 }, (_, partition) => partition);
  const { sweeper, claims, hanging } = givenDue({ holds: [3], polls: everywhere }, { backlog: true });
  const leased = async () => {
    claims.length = 0;
    await vi.advanceTimersByTimeAsync(TASKS.sweepIntervalMs);
    return (["holds", "polls"] as const).map((one) =>
      claims.filter(({ list }) => list === one).map(({ most }) => most),
    );
  };
  sweeper.start();
  const [, first = []] = await leased();
  expect(first.length, "a few partitions fill the queue").toBeLessThan(8);
  expect(await leased(), "it is full").toEqual([[50], []]);
  for (const end of hanging.splice(0, 2)) end();
  expect(await leased(), "room for two is filled from one partition").toEqual([[50], [2]]);
  await sweeper.stop();
});

// Guarantee: every task ends in time, also when the upstream never answers about any of them.
test.each<[string, PollOutcome]>([
  ["has failed", { outcome: "failed", detail: "" }],
  ["has limited us", { outcome: "rate_limited", retryAfterSeconds: 30, detail: "" }],
])(
  "many tasks past twice their maximum age end once the upstream %s for long; younger ones wait",
  async (_, says) => {
    vi.useFakeTimers();
    const { sweeper, polledIds, ended } = givenOldTasks({ overdue: 400, young: 400, says: () => says });
    sweeper.start();
    await vi.advanceTimersByTimeAsync(TASKS.maxAgeMs / 10);
    expect(ended.size, "only what was asked for").toBe(
      polledIds.filter((id) => id.startsWith("overdue")).length,
    );
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ended.size).toBe(400);
    expect([...ended.keys()].filter((id) => id.startsWith("young"))).toEqual([]);
    expect(new Set(ended.values())).toEqual(new Set(["expired"]));
    expect(polledIds.length).toBeLessThan(120);
    await sweeper.stop();
  },
);

test("an upstream that answers is asked about each task, however old", async () => {
  vi.useFakeTimers();
  const answers: PollOutcome[] = [
    { outcome: "failed", detail: "" },
    { outcome: "task", status: "completed", data: "{}" },
  ];
  const { sweeper, polledIds, ended } = givenOldTasks({
    overdue: 400,
    young: 0,
    says: (nth) => answers[nth % 2]!,
  });
  sweeper.start();
  await vi.advanceTimersByTimeAsync(240_000);
  expect([...ended.keys()].sort()).toEqual([...new Set(polledIds)].sort());
  expect(ended.size).toBe(400);
  await sweeper.stop();
});

// Guarantee: after an outage of gateway and upstream, no task ends because the first polls fail.
test("a task past twice its maximum age ends unanswered only after a while of polls of its upstream", async () => {
  vi.useFakeTimers();
  const failed: PollOutcome = { outcome: "failed", detail: "" };
  const says = { present: failed };
  const { sweeper, polledIds, ended } = givenOldTasks({ overdue: 3, young: 0, says: () => says.present });
  sweeper.start();
  await vi.advanceTimersByTimeAsync(TASKS.maxAgeMs / 10 - 30_000);
  expect(polledIds.length).toBeGreaterThan(3);
  expect(ended.size).toBe(0);
  await vi.advanceTimersByTimeAsync(90_000);
  expect(ended.size).toBe(3);
  await sweeper.stop();
});

afterEach(() => vi.useRealTimers());

/**
 * A store of 64 partitions with something due in these, and an upstream that hangs until the test ends a question.
 * @param options.fails partitions whose primary is away
 * @param options.backlog whether each list has as many tasks as anybody asks for, or none by the time it is claimed from
 */
function givenDue(
  due: Record<DueList, number[]>,
  { backlog, fails = [] }: { backlog: boolean; fails?: number[] },
) {
  const claims: { list: DueList; partition: number; most: number }[] = [];
  const hanging: (() => void)[] = [];
  let tasks = 0;
  const sweeper = new Sweeper({
    store: { observe: never } as unknown as Store,
    sweeps: {
      partitions: () => 64,
      isUsable: () => true,
      due: async () => ({ holds: new Set(due.holds), polls: new Set(due.polls) }),
      async lease(list, partition, most) {
        claims.push({ list, partition, most });
        if (fails.includes(partition)) throw new Error("away");
        const leased = backlog && list === "polls" ? most : 0;
        return { leased, requests: Array.from({ length: leased }, () => dueTask(++tasks)) };
      },
      voidDue: never,
      collect: async () => ({ looked: 0, collected: 0 }),
    },
    upstreamOf: () => ({
      tag: "present",
      poll: () =>
        new Promise((resolve) => {
          hanging.push(() =>
            resolve({ outcome: "refused", status: 400, code: 400, text: "", detail: "", aboutTask: true }),
          );
        }),
    }),
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
  return { sweeper, claims, hanging };
}

const dueTask = (nth: number): OpenRequest => ({
  requestId: `req_${nth}`,
  partition: 0,
  accountId: "acc_1",
  creatorKeyId: "key_1",
  state: "bound",
  idempotencyDigest: undefined,
  taskId: `task_${nth}`,
  boundAtMs: 0,
  leasedAtMs: 0,
  maxAgeMs: undefined,
  upstream: undefined,
});

/** More tasks than can be asked for are due, and what the upstream says of each is `upstream.outcome`. */
function givenBacklog(upstream: { outcome: string; pollsMade: number }) {
  let tasks = 0;
  return new Sweeper({
    store: { observe: never } as unknown as Store,
    sweeps: {
      partitions: () => 1,
      isUsable: () => true,
      due: async () => ({ holds: new Set(), polls: new Set([0]) }),
      lease: async (list, _partition, most) =>
        list === "holds"
          ? { leased: 0, requests: [] }
          : { leased: most, requests: Array.from({ length: most }, () => dueTask(++tasks)) },
      voidDue: never,
      collect: async () => ({ looked: 0, collected: 0 }),
    },
    upstreamOf: () => ({
      tag: "present",
      async poll() {
        upstream.pollsMade++;
        return { outcome: upstream.outcome } as PollOutcome;
      },
    }),
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
}

/** A store of two partitions, in the first of which so many records are past their retention. */
function givenEnded(records: number) {
  const ended = [records, 0];
  const sweeper = new Sweeper({
    store: { observe: never } as unknown as Store,
    sweeps: {
      partitions: () => ended.length,
      isUsable: () => true,
      due: async () => ({ holds: new Set(), polls: new Set() }),
      lease: async () => ({ leased: 0, requests: [] }),
      voidDue: never,
      async collect(partition, _retentionMs, most) {
        const collected = Math.min(most, ended[partition] ?? 0);
        ended[partition] = (ended[partition] ?? 0) - collected;
        return { looked: collected, collected };
      },
    },
    upstreamOf: () => ({ tag: "present", poll: never }),
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
  return { sweep: () => sweeper.sweep(), ended };
}

/** Tasks past twice their maximum age and younger ones in one partition of a store with leases of 20 s. */
function givenOldTasks(given: { overdue: number; young: number; says(nth: number): PollOutcome }) {
  const ageMs = { overdue: 2 * TASKS.maxAgeMs, young: 2 * TASKS.maxAgeMs - 1 };
  const kinds = (["young", "overdue"] as const).flatMap((kind) =>
    Array.from({ length: given[kind] }, () => kind),
  );
  const open = new Map(
    kinds.map((kind, nth): [string, OpenRequest] => {
      const taskId = `${kind}_${nth}`;
      return [taskId, { ...dueTask(nth), taskId, leasedAtMs: ageMs[kind], maxAgeMs: TASKS.maxAgeMs }];
    }),
  );
  const leasedUntilMs = new Map<string, number>();
  const polledIds: string[] = [];
  const ended = new Map<string, string>();
  const sweeper = new Sweeper({
    store: {
      async observe({ task }: { task: { taskId: string } }, { status }: { status: string }) {
        open.delete(task.taskId);
        ended.set(task.taskId, status);
        return { outcome: "finished" };
      },
    } as unknown as Store,
    sweeps: {
      partitions: () => 1,
      isUsable: () => true,
      due: async () => ({ holds: new Set(), polls: new Set([0]) }),
      async lease(list, _partition, most) {
        const nowMs = performance.now();
        const isDue = (id: string): boolean => (leasedUntilMs.get(id) ?? 0) <= nowMs;
        const due =
          list === "holds" ? [] : [...open.values()].filter(({ taskId }) => isDue(taskId)).slice(0, most);
        for (const { taskId } of due) leasedUntilMs.set(taskId, nowMs + 20_000);
        return { leased: due.length, requests: due };
      },
      voidDue: never,
      collect: async () => ({ looked: 0, collected: 0 }),
    },
    upstreamOf: () => ({
      tag: "present",
      poll: async (taskId) => given.says(polledIds.push(taskId)),
    }),
    metrics: createMetrics(),
    log: createLogger("silent", { write: () => undefined }),
    settings: () => ({ tiers: {}, tasks: TASKS }),
  });
  return { sweeper, polledIds, ended };
}
