import type { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import {
  listTasks,
  type TaskPage,
  type TaskQuery,
  type TaskView,
} from "../../src/operations/tasks/task-lists.ts";
import { CURSOR_CHARS_MAX, cursorOf } from "../../src/records/cursors.ts";
import { accountNames, dueFrom, type KeyRef, requestName } from "../../src/records/names.ts";
import { requestText } from "../../src/records/records.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, ENDPOINT, type Stage, type TestConnection, times } from "../support/store.ts";

// Lists of tasks look at lists of a whole partition, so the store is a test's own.

let server: OwnStore;
let redis: Redis;
let nodes: RedisNodes;
let connection: TestConnection;
let stage: Stage;
let key: KeyRef;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  redis = server.client;
  nodes = oneNode(redis);
});
afterAll(() => server?.stop());
beforeEach(async () => {
  await server.empty();
  stage = createStage(connection, { partition: 0, clock: "redis" });
  key = await stage.givenKey({ accountId: "acc", credits: 1000 });
});

/** All pages of a list. */
async function listed(query: Partial<TaskQuery> = {}, accountId = "acc"): Promise<TaskView[]> {
  const tasks: TaskView[] = [];
  let cursor: string | undefined;
  do {
    const page = await listTasks(nodes, accountId, { limit: 3, ...query, cursor });
    expect(page.tasks.length).toBeLessThanOrEqual(query.limit ?? 3);
    tasks.push(...page.tasks);
    cursor = page.next;
  } while (cursor !== undefined);
  return tasks;
}
const idsOf = (tasks: readonly TaskView[]): string[] => tasks.map(({ requestId }) => requestId);

/** Requests of an account in each state, beside those of another one. */
async function givenTasks() {
  const other = await stage.givenKey({ accountId: "other", credits: 1000 });
  const made = (owner: KeyRef): Generation[] => times(7, () => stage.request(owner, { price: 10 }));
  const ours = made(key);
  for (const requests of [ours, made(other)]) {
    const [held, processing, completed, failed, unsent, refused, second] = requests as [
      Generation,
      ...Generation[],
    ];
    await stage.admit(held);
    for (const request of [processing, completed, failed, second]) await stage.givenTask(request!);
    await stage.observe(completed!, "completed");
    await stage.observe(second!, "completed");
    await stage.observe(failed!, "failed");
    for (const [request, reason] of [
      [unsent!, "unsent"],
      [refused!, "refused"],
    ] as const) {
      await stage.admit(request);
      await stage.void(request, reason);
    }
  }
  const [held, processing, completed, failed, unsent, refused, second] = idsOf(ours as unknown as TaskView[]);
  return { held, processing, completed, failed, unsent, refused, second };
}

test("tasks that have not ended come first, then charged ones from the newest on", async () => {
  const { held, processing, completed, failed, second } = await givenTasks();
  for (const limit of [1, 2, 3, 100])
    expect(idsOf(await listed({ limit }))).toEqual([held, processing, second, failed, completed]);
  const [first, , , third, last] = await listed({ limit: 100 });
  const of = { accountId: "acc", keyId: key.keyId, endpoint: ENDPOINT, price: 10 };
  expect(first).toMatchObject({ ...of, status: "held", taskId: undefined, refunded: false });
  expect(third).toMatchObject({ ...of, status: "failed", taskId: expect.any(String), refunded: true });
  expect(last).toMatchObject({ ...of, status: "completed", refunded: false });
  const { createdAtMs, boundAtMs, finishedAtMs } = last!;
  expect([createdAtMs, boundAtMs, finishedAtMs]).toEqual([createdAtMs, boundAtMs, finishedAtMs].toSorted());
  expect(createdAtMs).toBeGreaterThan(Date.now() - 60_000);
});

test("they are filtered by status, endpoint and time", async () => {
  const { held, processing, completed, failed, unsent, refused, second } = await givenTasks();
  expect(idsOf(await listed({ status: "held" }))).toEqual([held]);
  expect(idsOf(await listed({ status: "processing" }))).toEqual([processing]);
  expect(idsOf(await listed({ status: "completed", limit: 1 }))).toEqual([second, completed]);
  expect(idsOf(await listed({ status: "failed" }))).toEqual([failed]);
  expect(idsOf(await listed({ status: "void" })).sort()).toEqual([unsent, refused].sort());
  expect(await listed({ endpoint: "/other" })).toEqual([]);
  expect(await listed({ endpoint: ENDPOINT })).toHaveLength(5);
  const all = await listed();
  const newest = Math.max(...all.map(({ createdAtMs }) => createdAtMs!));
  expect(await listed({ toMs: newest + 1 })).toHaveLength(5);
  expect(idsOf(await listed({ toMs: newest }))).toEqual(
    idsOf(all.filter(({ createdAtMs }) => createdAtMs! < newest)),
  );
  expect(idsOf(await listed({ fromMs: newest }))).toEqual(
    idsOf(all.filter(({ createdAtMs }) => createdAtMs === newest)),
  );
  expect(await listed({ fromMs: newest + 1 })).toEqual([]);
});

// Guarantee: a task is found under the day of its request, also where its outcome was unknown until the upstream called back.
test("a task that was charged hours after its request is listed by the time of the request", async () => {
  const hours = createStage(connection, { partition: 0 });
  const owner = await hours.givenKey({ accountId: "late", credits: 1000 });
  const request = hours.request(owner, { price: 10 });
  await hours.admit(request);
  const toMs = hours.clock.nowMs + 1;
  hours.clock.nowMs += 2 * 3_600_000;
  await hours.bind(request);
  await hours.observe(request, "completed");
  expect(idsOf(await listed({ toMs }, "late"))).toEqual([request.requestId]);
});

// Guarantee: no list calls a task refunded whose refund was taken back.
test("a task that completed late is listed as completed and charged, also when Redis has forgotten it", async () => {
  const made = times(3, () => stage.request(key, { price: 10 }));
  const shown = async (limit: number) =>
    (await listed({ limit })).map(({ requestId, status, refunded }) => [requestId, status, refunded]);
  for (const request of made) {
    const task = await stage.givenTask(request);
    await stage.observe(request, "expired");
    const { accountId, partition } = request.key;
    const data = '{"status":"completed"}';
    expect((await stage.reclaim({ partition, accountId, task, data }))[0]).toBe("charged_again");
  }
  const all = idsOf(made as unknown as TaskView[]).toReversed();
  const charged = all.map((requestId) => [requestId, "completed", false]);
  for (const limit of [1, 2, 100]) expect(await shown(limit)).toEqual(charged);
  await redis.del(all.map((requestId) => requestName(0, requestId)));
  for (const limit of [1, 2, 100]) expect(await shown(limit)).toEqual(charged);
});

// Guarantee: a task is listed as long as its charge is in the ledger; its refund may be any number of pages before it.
test("what Redis has forgotten is judged by the ledger", async () => {
  await server.empty();
  const charge = (at: number): GivenEntry => ({
    ...{ accountId: "old", amount: -10, atMs: at, keyId: "key", endpoint: ENDPOINT },
    ...{ taskId: `task_${at}`, requestId: `req_${at}` },
  });
  const refund = (of: number, atMs: number, more: Partial<GivenEntry> = {}): GivenEntry => ({
    ...{ ...charge(of), type: "recharge", amount: 10, reason: "refund", atMs, ...more },
  });
  await writeEntries(redis, 0, [
    { accountId: "old", amount: 1000, atMs: 1 },
    ...times(8, (at) => charge(10 + at)),
    refund(11, 30),
    refund(12, 31, { reference: "complaint" }),
  ]);
  await redis.hset(accountNames(0, "old").refunds, "req_12", "complaint");
  for (const limit of [1, 3, 100]) {
    const tasks = await listed({ limit }, "old");
    expect(tasks.map(({ taskId, status, refunded }) => [taskId, status, refunded])).toEqual([
      ...[17, 16, 15, 14, 13].map((at) => [`task_${at}`, "completed", false]),
      ["task_12", "completed", true],
      ["task_11", "failed", true],
      ["task_10", "completed", false],
    ]);
  }
  expect(await listed({ status: "failed", limit: 1 }, "old")).toMatchObject([
    { taskId: "task_11", boundAtMs: 11 },
  ]);
});

// Guarantee: what happened to a task does not depend on the times that a list is asked for.
test("a task of a day is listed as refunded, also if that was later and Redis has forgotten it", async () => {
  const DAY_MS = 86_400_000;
  const dayMs = Date.UTC(2026, 9, 1);
  stage = createStage(connection, { partition: 0 });
  stage.clock.nowMs = dayMs + DAY_MS - 30 * 60_000;
  key = await stage.givenKey({ accountId: "late", credits: 100 });
  const [failed, complained, fine] = times(3, () => stage.request(key, { price: 10 })) as [
    Generation,
    Generation,
    Generation,
  ];
  for (const request of [failed, complained, fine]) await stage.givenTask(request);
  stage.clock.nowMs += 2 * 3_600_000;
  await stage.observe(failed, "failed");
  for (const request of [complained, fine]) await stage.observe(request, "completed");
  const why = { reason: "black frames", reference: "complaint" };
  stage.clock.nowMs += 30 * DAY_MS;
  await refundTask(nodes, complained.requestId, why, { by: "cli ann", requestId: "" });
  const ofDay = { fromMs: dayMs, toMs: dayMs + DAY_MS };
  const shown = async (query: Partial<TaskQuery>) =>
    (await listed(query, "late")).map(({ requestId, status, refunded }) => [requestId, status, refunded]);
  const known = await shown(ofDay);
  expect(known).toEqual([
    [fine.requestId, "completed", false],
    [complained.requestId, "completed", true],
    [failed.requestId, "failed", true],
  ]);
  // Such as COLLECT does.
  await redis.del(known.map(([requestId]) => requestName(0, String(requestId))));
  expect(await shown(ofDay)).toEqual(known);
  expect(await shown({ ...ofDay, status: "failed" })).toEqual(known.slice(2));
});

test("in a list of long ago, a refund is found in the day after it, and one by an operator always", async () => {
  await server.empty();
  const [startMs, DAY_MS] = [Date.UTC(2026, 0, 1), 86_400_000];
  const charge = (name: string, atMs: number): GivenEntry => ({
    ...{ accountId: "old", amount: -10, atMs, keyId: "key", endpoint: ENDPOINT },
    ...{ taskId: `task_${name}`, requestId: `req_${name}` },
  });
  const refund = (name: string, atMs: number, more: Partial<GivenEntry> = {}): GivenEntry => ({
    ...{ ...charge(name, atMs), type: "recharge", amount: 10, reason: "refund", ...more },
  });
  await writeEntries(redis, 0, [
    { accountId: "old", amount: 100_000, atMs: 1 },
    ...["a", "b", "c"].map((name) => charge(name, startMs)),
    ...times(2, (at) => charge(`after_${at}`, startMs + DAY_MS)),
    refund("after_0", startMs + DAY_MS + 1),
    refund("a", startMs + DAY_MS + 1),
    ...times(3000, (at) => charge(`later_${at}`, startMs + 3 * DAY_MS + at)),
    refund("b", startMs + 4 * DAY_MS, { reference: "complaint" }),
    ...times(1000, (at) => charge(`last_${at}`, startMs + 5 * DAY_MS + at)),
  ]);
  await redis.hset(accountNames(0, "old").refunds, "req_b", "complaint");
  for (const limit of [1, 3, 100]) {
    const tasks = await listed({ limit, fromMs: startMs, toMs: startMs + 3_600_000 }, "old");
    expect(tasks.map(({ taskId, status, refunded }) => [taskId, status, refunded])).toEqual([
      ["task_c", "completed", false],
      ["task_b", "completed", true],
      ["task_a", "failed", true],
    ]);
  }
});

// Guarantee: a list of tasks is read to its end, however many refunds come before their charges.
test("a cursor with as many refunds as it carries is one that the API takes", async () => {
  await server.empty();
  const charge = (at: number): GivenEntry => ({
    ...{ accountId: "old", amount: -10, atMs: at, keyId: "key", endpoint: ENDPOINT },
    ...{ taskId: `task_${at}`, requestId: `req_${at}` },
  });
  const refund = (at: number): GivenEntry => ({
    ...{ ...charge(at), type: "recharge", amount: 10, reason: "refund" },
    ...{ atMs: 5000 + at },
  });
  const [charges, refunds] = [times(400, (at) => charge(10 + at)), times(400, (at) => refund(10 + at))];
  await writeEntries(redis, 0, [{ accountId: "old", amount: 5000, atMs: 1 }, ...charges, ...refunds]);
  const seen: TaskView[] = [];
  const lengths: number[] = [];
  for (let cursor: string | undefined = ""; cursor !== undefined; ) {
    const page: TaskPage = await listTasks(nodes, "old", { limit: 20, cursor: cursor || undefined });
    seen.push(...page.tasks);
    lengths.push(page.next?.length ?? 0);
    cursor = page.next;
  }
  expect(seen.filter(({ refunded }) => refunded)).toHaveLength(400);
  // The digests of all 400.
  expect(Math.max(...lengths)).toBeGreaterThan(4000);
  expect(Math.max(...lengths)).toBeLessThan(CURSOR_CHARS_MAX);
});

test("a page looks at a bounded number of requests of the partition, and the next one goes on", async () => {
  const other = await stage.givenKey({ accountId: "other", credits: 0 });
  const pipe = redis.pipeline();
  for (let at = 0; at < 4500; at++) {
    pipe.set(
      requestName(0, `busy_${at}`),
      requestText({ state: "bound", account_id: "other", key_id: other.keyId }),
    );
    pipe.zadd("tg:{p00}:due", dueFrom("polls") + 1 + (at % 7), `busy_${at}`);
  }
  await pipe.exec();
  const request = stage.request(key);
  await stage.givenTask(request);
  const first = await listTasks(nodes, "acc", { limit: 3 });
  expect(first).toMatchObject({ tasks: [], next: expect.any(String) });
  expect(idsOf(await listed())).toEqual([request.requestId]);
  expect(await listed({ limit: 100 }, "other")).toHaveLength(4500);
});

test("a cursor that is made up, of another account or of other filters is refused", async () => {
  await givenTasks();
  const { next: cursor } = await listTasks(nodes, "acc", { limit: 1 });
  const list = ["tasks", "acc", undefined, undefined, undefined, undefined];
  const texts = [
    "{}",
    "[]",
    "x",
    "null",
    '"text"',
    '{"of":"holds","score":"-inf","times":1e300}',
    '{"of":"holds","score":"-inf","times":-1}',
    '{"of":"keys"}',
    '{"of":"holds","score":"x","times":1}',
    '{"of":"done","score":"1","times":0.5}',
  ];
  const charges = [
    '{"of":"charges","at":"99999999999999999999-1","refunds":[]}',
    '{"of":"charges","at":"1-1","refunds":[1]}',
    '{"of":"charges","at":"nonsense","refunds":[]}',
    '{"of":"charges","at":"archive x","refunds":[]}',
  ];
  const made = [...texts, ...charges].map((text) => cursorOf(list, text));
  const archive = {
    history: async () => ({ entries: [], next: undefined }),
    requests: async () => new Map(),
  };
  for (const one of ["", "x", `${cursor}x`, ...made.slice(0, -1)])
    await expect(listTasks(nodes, "acc", { limit: 1, cursor: one }, archive), one).rejects.toMatchObject({
      code: "invalid",
    });
  await expect(listTasks(nodes, "other", { limit: 1, cursor })).rejects.toMatchObject({ code: "invalid" });
  await expect(listTasks(nodes, "acc", { limit: 1, cursor, status: "held" })).rejects.toMatchObject({
    code: "invalid",
  });
  await expect(listTasks(nodes, "nobody", { limit: 1 })).rejects.toMatchObject({ code: "not_found" });
  for (const limit of [0, 101])
    await expect(listTasks(nodes, "acc", { limit })).rejects.toMatchObject({ code: "invalid" });
});
