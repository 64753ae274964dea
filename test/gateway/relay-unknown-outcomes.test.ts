import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, makeDue, readLedger } from "../support/audit.ts";
import type { MadeTask } from "../support/callback-upstream.ts";
import { expectStatus, type Reply, type TestGateway, until } from "../support/gateway.ts";
import {
  callBack,
  callbackCounts,
  givenRelayGateway,
  givenRelayStage,
  type RelayStage,
  storyboard,
} from "../support/relay-stage.ts";

// Guarantee: no video for nothing. An unknown outcome whose callback comes is bound and charged, whichever way it came about.

const PRICE = 150;

let stage: RelayStage;
/** Shares the store and the upstream, and has made no request. */
let other: TestGateway;
beforeAll(async () => {
  const tasks = { unknownOutcomesPerAccount: 1000, sweepIntervalMs: 20 };
  const upstream = { totalTimeoutMs: 2000, headersTimeoutMs: 1000 };
  stage = await givenRelayStage({ config: { tasks, upstream } });
  other = await givenRelayGateway(stage.upstream);
});
afterEach(() => stage.upstream.behave({}));
afterAll(async () => {
  await other.stop();
  await stage.stop();
});

const ledgerOf = (key: IssuedKey) => readLedger(stage.gateway.redis, key);

async function expectCharged(key: IssuedKey, task: MadeTask, slots: number): Promise<void> {
  const ledger = await ledgerOf(key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 1000 - PRICE, held: 0, totalUsed: PRICE });
  expect(ledger.slots).toHaveLength(slots);
  expect(consumed(ledger)).toMatchObject([{ taskId: task.taskId, amount: -PRICE }]);
}

async function lostCreate(
  key: IssuedKey,
  create: "reset" | "hang" = "reset",
  headers = {},
): Promise<MadeTask> {
  stage.upstream.behave({ create });
  const reply = await storyboard(stage.gateway, key, undefined, headers);
  expect([502, 504]).toContain(reply.status);
  return stage.latest();
}

test.each(["reset", "hang"] as const)(
  "a create whose answer is lost (%s) is charged by its callback",
  async (how) => {
    const key = await stage.gateway.givenKey();
    const task = await lostCreate(key, how);
    expect(await ledgerOf(key)).toMatchObject({ balance: 1000, held: PRICE });
    expectStatus(await callBack(stage.gateway, task), 200);
    await expectCharged(key, task, 1);
    const shown = await stage.gateway.request("GET", `/api/v1/tasks/${task.taskId}`, { key: key.key });
    expect(shown.body.data).toMatchObject({ task_id: task.taskId, status: "processing" });
    task.status = "completed";
    expectStatus(await callBack(stage.gateway, task), 200);
    await expectCharged(key, task, 0);
  },
);

test("a completed task of an unknown outcome is charged and ends with its one callback", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  task.status = "completed";
  expectStatus(await callBack(stage.gateway, task), 200);
  await expectCharged(key, task, 0);
});

/** A generation whose callback comes, and is charged, before the upstream answers it. */
async function calledBackFirst(
  key: IssuedKey,
  headers = {},
): Promise<{ task: MadeTask; reply: Promise<Reply> }> {
  stage.upstream.behave({ create: "hang" });
  const before = stage.upstream.tasks.length;
  const reply = storyboard(stage.gateway, key, undefined, headers);
  await until(() => stage.upstream.tasks.length > before, "the task to be made");
  const task = stage.latest();
  expectStatus(await callBack(stage.gateway, task), 200);
  await expectCharged(key, task, 1);
  return { task, reply };
}

test("a callback that comes before the create's answer binds, and the answer finds it bound", async () => {
  const key = await stage.gateway.givenKey();
  const { task, reply } = await calledBackFirst(key);
  task.answer();
  expectStatus(await reply, 200);
  await expectCharged(key, task, 1);
});

// A refusal says that nothing is charged.
test("a create that is refused after its callback was charged is no refusal to the customer", async () => {
  const key = await stage.gateway.givenKey();
  const headers = { "idempotency-key": "order-1" };
  const { task, reply } = await calledBackFirst(key, headers);
  task.refuse();
  const { status, body } = await reply;
  expect({ status, body }).toMatchObject({ status: 502, body: { code: 502 } });
  const repeat = await storyboard(stage.gateway, key, undefined, headers);
  expectStatus(repeat, 200);
  expect(repeat.body.data.task_id).toBe(task.taskId);
  await expectCharged(key, task, 1);
});

test("another gateway gets the callback of a request whose gateway does not answer", async () => {
  const key = await stage.gateway.givenKey();
  stage.upstream.behave({ create: "hang" });
  const before = stage.upstream.tasks.length;
  const reply = storyboard(stage.gateway, key);
  await until(() => stage.upstream.tasks.length > before, "the task to be made");
  const task = stage.latest();
  task.status = "completed";
  expectStatus(await callBack(other, task), 200);
  await expectCharged(key, task, 0);
  // The first gateway comes to its unknown outcome after the task has ended.
  expect([502, 504]).toContain((await reply).status);
  await expectCharged(key, task, 0);
});

test("after its hold was void as due, a callback still charges", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  await makeDue(stage.gateway.redis, key.accountId);
  await until(async () => (await ledgerOf(key)).held === 0, "the hold to be void");
  expect(await ledgerOf(key)).toMatchObject({ balance: 1000, slots: [] });
  expectStatus(await callBack(stage.gateway, task), 200);
  await expectCharged(key, task, 1);
});

test("a late callback that the balance does not cover is not charged, and counts", async () => {
  const key = await stage.gateway.givenKey({ credits: 200 });
  const task = await lostCreate(key);
  await makeDue(stage.gateway.redis, key.accountId);
  await until(async () => (await ledgerOf(key)).held === 0, "the hold to be void");
  expectStatus(await storyboard(stage.gateway, key, {}), 502);
  stage.upstream.behave({});
  expectStatus(await storyboard(stage.gateway, key, {}), 402);
  expectStatus(await callBack(stage.gateway, task), 200);
  const ledger = await ledgerOf(key);
  expect(ledger).toMatchObject({ balance: 200, held: PRICE });
  expect(await callbackCounts(stage.gateway)).toMatchObject({ uncollected: 1 });
});

test("however often it comes, at whichever gateway, a callback charges once", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  task.status = "completed";
  const gateways = [stage.gateway, other, stage.gateway, other];
  for (const reply of await Promise.all(gateways.map((gateway) => callBack(gateway, task))))
    expectStatus(reply, 200);
  await expectCharged(key, task, 0);
});

test("three callbacks at once at one gateway bind and charge once", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  const replies = await Promise.all([1, 2, 3].map(() => callBack(stage.gateway, task)));
  for (const reply of replies) expectStatus(reply, 200);
  await expectCharged(key, task, 1);
  const polls = stage.upstream.polls.filter((id) => id === task.taskId);
  expect(polls.length, "one of its own, and one that two share").toBe(2);
});

// Whichever names it: callbacks at once share a poll, not what one of them names.
test.each([0, 1, 2, 3])(
  "of four callbacks at once, number %d alone names the task, which is charged",
  async (at) => {
    const key = await stage.gateway.givenKey();
    const task = await lostCreate(key);
    const nameless = [{ data: {} }, "nonsense", { data: { task_id: "" } }, {}];
    const replies = await Promise.all(
      nameless.map((body, nth) => callBack(stage.gateway, task, nth === at ? undefined : body)),
    );
    for (const reply of replies) expectStatus(reply, 200);
    await expectCharged(key, task, 1);
  },
);

test("a callback that names the task of another request is a conflict, and charges nobody", async () => {
  const [key, others] = [await stage.gateway.givenKey(), await stage.gateway.givenKey()];
  expectStatus(await storyboard(stage.gateway, others), 200);
  const bound = stage.latest();
  const task = await lostCreate(key);
  const before = [await ledgerOf(key), await ledgerOf(others)];
  expectStatus(await callBack(stage.gateway, task, stage.upstream.callbackOf(bound)), 200);
  expect([await ledgerOf(key), await ledgerOf(others)]).toEqual(before);
  expect(await callbackCounts(stage.gateway)).toMatchObject({ conflict: 1 });
  // Nothing that a callback says is believed: its owner still has it.
  bound.status = "completed";
  expectStatus(await callBack(stage.gateway, bound), 200);
  const shown = await stage.gateway.request("GET", `/api/v1/tasks/${bound.taskId}`, { key: others.key });
  expect(shown.body.data).toMatchObject({ status: "completed" });
});

test.each([
  ["no task", { data: {} }],
  ["an id that is none", { data: { task_id: "../../credits" } }],
  ["nothing that can be read", "\0 nonsense"],
])("a callback that names %s charges nothing", async (_, body) => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  const before = await ledgerOf(key);
  expectStatus(await callBack(stage.gateway, task, body), 200);
  expect(await ledgerOf(key)).toEqual(before);
});

// Some generators call back before their own polls find the task.
test("a task that the upstream does not know yet is asked for again, then the callback is wished again", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  const before = await ledgerOf(key);
  const polls = stage.upstream.polls.length;
  stage.upstream.behave({ unknownPolls: 2 });
  expectStatus(await callBack(stage.gateway, task), 200);
  expect(stage.upstream.polls.slice(polls)).toEqual([task.taskId, task.taskId, task.taskId]);
  await expectCharged(key, task, 1);
  const another = await stage.gateway.givenKey();
  const invented = await callBack(stage.gateway, await lostCreate(another), {
    data: { task_id: "task_invented" },
  });
  expectStatus(invented, 503);
  expect(invented.headers.get("retry-after")).toBe("5");
  expect(stage.upstream.polls.filter((id) => id === "task_invented")).toHaveLength(3);
  expect(await ledgerOf(another)).toMatchObject({ balance: before.balance, held: PRICE });
});

test("while the upstream cannot confirm the task, the callback is asked for once more, and charges then", async () => {
  const key = await stage.gateway.givenKey();
  const task = await lostCreate(key);
  stage.upstream.behave({ isDown: true });
  const reply = await callBack(stage.gateway, task);
  expectStatus(reply, 503);
  expect(reply.headers.get("retry-after")).toBe("5");
  expect(await ledgerOf(key)).toMatchObject({ balance: 1000, held: PRICE });
  stage.upstream.behave({});
  expectStatus(await callBack(stage.gateway, task), 200);
  await expectCharged(key, task, 1);
});

// The customer was told that it was refused, and may have sent another one.
test("a request that the upstream refused is not charged by a callback", async () => {
  const key = await stage.gateway.givenKey();
  stage.upstream.behave({ create: "refuse" });
  expectStatus(await storyboard(stage.gateway, key), 422);
  const before = await ledgerOf(key);
  expectStatus(await callBack(stage.gateway, stage.latest()), 200);
  expect(await ledgerOf(key)).toEqual(before);
  expect(await callbackCounts(stage.gateway)).toMatchObject({ void: 1 });
});

// Decision 0008: one Idempotency-Key is charged once, and a repeat is answered with what was charged.
test("a repeat with the Idempotency-Key of a request that a callback bound gets its task, also after a void", async () => {
  for (const isVoid of [false, true]) {
    const key = await stage.gateway.givenKey();
    const headers = { "idempotency-key": `order-${isVoid}` };
    const task = await lostCreate(key, "reset", headers);
    if (isVoid) {
      await makeDue(stage.gateway.redis, key.accountId);
      await until(async () => (await ledgerOf(key)).held === 0, "the hold to be void");
    }
    expectStatus(await callBack(other, task), 200);
    stage.upstream.behave({});
    const repeat = await storyboard(stage.gateway, key, undefined, headers);
    expectStatus(repeat, 200);
    expect(repeat.headers.get("idempotency-replayed")).toBe("true");
    expect(repeat.body.data.task_id).toBe(task.taskId);
    await expectCharged(key, task, 1);
  }
});

test("a retry that was charged under the same Idempotency-Key stays the only charge", async () => {
  const key = await stage.gateway.givenKey();
  const headers = { "idempotency-key": "order-1" };
  const lost = await lostCreate(key, "reset", headers);
  await makeDue(stage.gateway.redis, key.accountId);
  await until(async () => (await ledgerOf(key)).held === 0, "the hold to be void");
  stage.upstream.behave({});
  expectStatus(await storyboard(stage.gateway, key, undefined, headers), 200);
  const retried = stage.latest();
  expectStatus(await callBack(stage.gateway, lost), 200);
  expect(consumed(await ledgerOf(key))).toMatchObject([{ taskId: retried.taskId }]);
});
