import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { findTask } from "../../src/operations/tasks/operator-tasks.ts";
import { dueFrom, partitionNames, requestName } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import {
  createStage,
  MAX_AGE_MS,
  openConnection,
  POLL_MS,
  RETENTION_MS,
  type Stage,
  type TestConnection,
  taskOf,
} from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

async function givenTask(credits = 100): Promise<Generation> {
  const generation = stage.request(await stage.givenKey({ credits }), { price: 30 });
  await stage.givenTask(generation);
  return generation;
}
const account = async ({ key }: Generation) => {
  const { balance, totalUsed, state } = await stage.account(key);
  return { balance, totalUsed, active: state.active };
};
const CHARGED = { balance: 70, totalUsed: 30, active: 1 };

test("an observation before the end keeps slot and charge, and puts off the sweeper", async () => {
  const task = await givenTask();
  stage.clock.nowMs += 5000;
  for (const status of ["processing", "pending"] as const) {
    const observed = await stage.observe(task, status, { data: `{"s":"${status}"}` });
    expect(observed).toMatchObject({ outcome: "observed", status, data: `{"s":"${status}"}`, refunded: 0 });
  }
  expect(await account(task)).toEqual(CHARGED);
  expect(await stage.redis.zscore(task.key.names.due, task.requestId)).toBe(
    String(dueFrom("polls") + stage.clock.nowMs + POLL_MS),
  );
});

test("completed frees the slot and keeps the charge", async () => {
  const task = await givenTask();
  expect(await stage.observe(task, "completed")).toMatchObject({ outcome: "finished", refunded: 0 });
  expect(await account(task)).toEqual({ ...CHARGED, active: 0 });
  expect(await stage.redis.zscore(task.key.names.due, task.requestId)).toBeNull();
});

test("failed frees the slot and is refunded once, however often and by whomever it is seen", async () => {
  const task = await givenTask();
  const seen = await Promise.all([1, 2, 3, 4].map(() => stage.observe(task, "failed")));
  expect(seen.map(({ refunded }) => refunded).sort()).toEqual([0, 0, 0, 30]);
  expect(seen.filter(({ outcome }) => outcome === "already_finished")).toHaveLength(3);
  expect(await account(task)).toEqual({ balance: 100, totalUsed: 0, active: 0 });
  const [refund, charge] = (await stage.account(task.key)).recent;
  expect(refund).toMatchObject({
    type: "recharge",
    amount: 30,
    balance_after: 100,
    reason: "refund",
    task_id: `task_${task.requestId}`,
  });
  expect(refund).not.toHaveProperty("endpoint");
  expect(charge).toMatchObject({ type: "consume", amount: -30, balance_after: 70 });
});

test("failed is not refunded where refunds are off, nor later when they are on", async () => {
  const task = await givenTask();
  expect(await stage.observe(task, "failed", { refundFailed: false })).toMatchObject({ refunded: 0 });
  expect(await stage.observe(task, "failed")).toMatchObject({ outcome: "already_finished", refunded: 0 });
  expect(await account(task)).toEqual({ ...CHARGED, active: 0 });
});

test("what is said of another request's task changes neither", async () => {
  const [task, other] = [await givenTask(), await givenTask()];
  await stage.observe(other, "processing");
  const before = await stage.everything();
  const seen = await stage.observe(task, "completed", { taskId: taskOf(other) });
  expect(seen).toMatchObject({ outcome: "missing", refunded: 0 });
  expect(await stage.everything()).toEqual(before);
});

// Guarantee: nobody is told of another account's task, also when the upstream gives out a task id once more.
test("a poll whose task was collected and is another account's by now is told nothing of it", async () => {
  const [alices, bobs] = [await givenTask(), stage.request(await stage.givenKey())];
  await stage.observe(alices, "completed");
  stage.clock.nowMs += RETENTION_MS;
  await stage.sweeps.collect(stage.partition, 0, 10);
  await stage.givenTask(bobs, taskOf(alices));
  await stage.observe(bobs, "completed", { taskId: taskOf(alices), data: '{"video":"bob\'s"}' });
  const before = await stage.everything();
  const seen = await stage.observe(alices, "completed");
  expect(seen).toMatchObject({ outcome: "missing", status: "", data: "", refunded: 0 });
  expect(await stage.everything()).toEqual(before);
});

/** The upstream gives a task id of one request to another, of another account or of the same. */
async function reused(task: Generation, account: "another's" | "the same"): Promise<void> {
  const key = account === "the same" ? task.key : await stage.givenKey();
  const other = stage.request(key);
  await stage.admit(other);
  expect(await stage.bind(other, taskOf(task))).toBe("conflict");
}

// Guarantee: nobody is shown another account's video. What was answered once stays, and nothing that the upstream says of a
// task id that it gave twice is believed.
test.each(["another's", "the same"] as const)(
  "an answer that was given is not replaced once %s account got the task id",
  async (account) => {
    const task = await givenTask();
    await stage.observe(task, "completed", { data: '{"video":"own"}' });
    await reused(task, account);
    for (const status of ["completed", "processing", "failed", "gone"] as const) {
      const seen = await stage.observe(task, status, { data: '{"video":"another\'s"}' });
      expect(seen).toMatchObject({
        outcome: "already_finished",
        status: "completed",
        data: '{"video":"own"}',
        refunded: 0,
      });
    }
  },
);

test.each(["completed", "failed", "processing", "gone"] as const)(
  "a running task whose id another account got keeps slot and charge, whatever is said, to its maximum age: %s",
  async (status) => {
    const seenBefore = '{"progress":1}';
    const [task, unseen] = [await givenTask(), await givenTask()];
    await stage.observe(task, "processing", { data: seenBefore });
    const boundAt = new Date(stage.clock.nowMs).toISOString();
    await reused(task, "another's");
    await reused(unseen, "another's");
    stage.clock.nowMs += MAX_AGE_MS - 1;
    const others = { data: '{"video":"another\'s"}' };
    expect(await stage.observe(task, status, others)).toMatchObject({
      outcome: "observed",
      isDisputed: true,
      status: "processing",
      data: seenBefore,
    });
    const { data } = await stage.observe(unseen, status, others);
    expect(JSON.parse(data)).toEqual({ task_id: taskOf(unseen), status: "pending", created_at: boundAt });
    expect(await account(task)).toEqual(CHARGED);
    expect(await stage.redis.zscore(task.key.names.due, task.requestId)).toBe(
      String(dueFrom("polls") + stage.clock.nowMs + POLL_MS),
    );
    stage.clock.nowMs += 1;
    const end = await stage.observe(task, status, others);
    expect(end).toMatchObject({ outcome: "finished", status: "failed", refunded: 30 });
    expect(JSON.parse(end.data)).toEqual({ task_id: taskOf(task), status: "failed", created_at: boundAt });
    expect(await account(task)).toEqual({ balance: 100, totalUsed: 0, active: 0 });
    expect(await stage.requestRecord(task)).toMatchObject({ ended_by: "expired" });
    const again = await stage.observe(task, "failed", others);
    expect(again).toMatchObject({ outcome: "already_finished", data: end.data, refunded: 0 });
  },
);

test("a disputed task that was restored keeps slot and charge to the maximum age of the gateway that asks", async () => {
  const task = await givenTask();
  await changeRequest(stage.redis, requestName(stage.partition, task.requestId), {
    max_age_ms: undefined,
    upstream: undefined,
  });
  await reused(task, "another's");
  stage.clock.nowMs += MAX_AGE_MS - 1;
  expect(await stage.observe(task, "completed")).toMatchObject({ outcome: "observed", isDisputed: true });
  expect(await account(task)).toEqual(CHARGED);
  stage.clock.nowMs += 1;
  expect(await stage.observe(task, "completed")).toMatchObject({ outcome: "finished", status: "failed" });
});

test("a running task whose id the same account got twice goes on: it is its own in either case", async () => {
  const task = await givenTask();
  await reused(task, "the same");
  const seen = await stage.observe(task, "completed", { data: '{"video":"own"}' });
  expect(seen).toMatchObject({ outcome: "finished", status: "completed", data: '{"video":"own"}' });
});

test("a disputed task is found, bound again and collected as any other, and its id is free then", async () => {
  // Operators look in the partitions that there are.
  stage = createStage(connection, { partition: 61 });
  const task = await givenTask();
  await stage.observe(task, "completed");
  await reused(task, "another's");
  expect(await stage.bind(task)).toBe("bound");
  const { requestId, seen: before } = await findTask(oneNode(connection.redis), taskOf(task));
  expect({ requestId, status: before?.status }).toEqual({ requestId: task.requestId, status: "completed" });
  stage.clock.nowMs += RETENTION_MS;
  // First in its list and alone: other tests have records in this partition, and their clocks are behind.
  await connection.redis.zadd(partitionNames(stage.partition).done, 0, task.requestId);
  expect(await stage.sweeps.collect(stage.partition, 0, 1)).toMatchObject({ collected: 1 });
  const next = stage.request(await stage.givenKey());
  await stage.givenTask(next, taskOf(task));
  const seen = await stage.observe(next, "completed", { taskId: taskOf(task), data: '{"video":"own"}' });
  expect(seen).toMatchObject({ outcome: "finished", status: "completed" });
});

test("data is kept to the letter, whatever it holds", async () => {
  const task = await givenTask();
  for (const data of [
    '{"a":" b  c ","d":"\\u0000\\n"}',
    '{"e":"line\nline \u2028 \ud83c\udfac %S %1"}',
    "{}",
  ]) {
    await stage.observe(task, "processing", { data });
    const polled = await stage.store.inspectTask(task.key, taskOf(task), 5000, stage.tiers);
    expect(polled).toMatchObject({ outcome: "task", task: { status: "processing", data, fresh: true } });
  }
});

test.each([
  ["completed", "failed"],
  ["failed", "completed"],
  ["completed", "processing"],
  ["failed", "gone"],
  ["completed", "expired"],
] as const)("what ended as %s stays so when %s is said", async (end, later) => {
  const task = await givenTask();
  await stage.observe(task, end, { data: "the end" });
  const before = await stage.everything();
  const answer = await stage.observe(task, later, { data: "later" });
  expect(answer).toMatchObject({ outcome: "already_finished", status: end, data: "the end", refunded: 0 });
  expect(await stage.everything()).toEqual(before);
});

test("the same end said again may bring fresher links", async () => {
  const task = await givenTask();
  await stage.observe(task, "completed", { data: "old link" });
  expect(await stage.observe(task, "completed", { data: "new link" })).toMatchObject({ data: "new link" });
});

test("three 404s over a minute end a task as failed; two, or three in a moment, do not", async () => {
  const task = await givenTask();
  for (let at = 0; at < 5; at++) {
    expect(await stage.observe(task, "gone"), `404 number ${at}`).toMatchObject({ outcome: "observed" });
  }
  stage.clock.nowMs += 59_999;
  expect(await stage.observe(task, "gone")).toMatchObject({ outcome: "observed", status: "" });
  stage.clock.nowMs += 1;
  expect(await stage.observe(task, "gone")).toMatchObject({
    outcome: "finished",
    status: "failed",
    refunded: 30,
  });
  expect(await account(task)).toEqual({ balance: 100, totalUsed: 0, active: 0 });
  expect(await stage.requestRecord(task)).toMatchObject({ ended_by: "gone" });

  const other = await givenTask();
  await stage.observe(other, "gone");
  stage.clock.nowMs += 60_000;
  expect(await stage.observe(other, "gone")).toMatchObject({ outcome: "observed" });
});

test("a good answer between 404s starts their count anew", async () => {
  const task = await givenTask();
  await stage.observe(task, "gone");
  await stage.observe(task, "gone");
  stage.clock.nowMs += 60_000;
  await stage.observe(task, "processing");
  for (let at = 0; at < 3; at++) {
    expect(await stage.observe(task, "gone")).toMatchObject({ outcome: "observed", status: "processing" });
  }
});

test("a task past its maximum age ends as failed, with slot and refund", async () => {
  const task = await givenTask();
  expect(await stage.observe(task, "expired", { data: "given up" })).toMatchObject({
    outcome: "finished",
    status: "failed",
    data: "given up",
    refunded: 30,
  });
  expect(await account(task)).toEqual({ balance: 100, totalUsed: 0, active: 0 });
  expect(await stage.requestRecord(task)).toMatchObject({ ended_by: "expired", status: "failed" });
});

test("an observation of what has no task writes nothing", async () => {
  const key = await stage.givenKey();
  const [held, gone] = [stage.request(key), stage.request(key)];
  await stage.admit(held);
  await stage.admit(gone);
  await stage.void(gone, "refused");
  const before = await stage.everything();
  for (const generation of [held, gone, stage.request(key)]) {
    expect(await stage.observe(generation, "failed")).toMatchObject({ outcome: "missing", refunded: 0 });
  }
  expect(await stage.everything()).toEqual(before);
});

test("the slot that comes back is the creating key's, the numbers are the polling key's", async () => {
  const creator = await stage.givenKey({ max_concurrent: 2 });
  const poller = await stage.givenKey({ accountId: creator.accountId, max_concurrent: 5 });
  const [task, own] = [stage.request(creator), stage.request(poller)];
  await stage.givenTask(task);
  await stage.givenTask(own);
  const { state } = await stage.observe(task, "completed", { poller });
  expect(state).toMatchObject({ concurrentLimit: 5, active: 1 });
  expect((await stage.store.inspect(creator, stage.tiers)).state).toMatchObject({
    concurrentLimit: 2,
    active: 0,
  });
});
