import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { cliActor } from "../../src/records/actor.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames } from "../../src/records/names.ts";
import { itemOf } from "../../src/redis/script-runner.ts";
import { probe } from "../../src/scripts/gateways.ts";
import { issue } from "../../src/scripts/keys.ts";
import {
  createStage,
  NOON_MS,
  openConnection,
  randomId,
  type Stage,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";

// RECHARGE, ISSUE, CREDITS, INSPECT, PROBE, and amounts at the edge of the exact integers.

const MAX = Number.MAX_SAFE_INTEGER;

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

test("a recharge adds credits and a ledger entry, and one reference credits once", async () => {
  const key = await stage.givenKey({ credits: 100 });
  await stage.admit(stage.request(key, { price: 30 }));
  expect(await stage.recharge(key, 50, "order 1")).toEqual(["recharged", "120"]);
  const once = await stage.everything();
  expect(await stage.recharge(key, 50, "order 1")).toEqual(["duplicate", "120"]);
  expect(await stage.recharge(key, 51, "order 1")).toEqual(["mismatch", "120"]);
  expect(await stage.everything()).toEqual(once);
  const { recent, balance } = await stage.account(key);
  expect(balance).toBe(120);
  expect(recent[0]).toEqual({
    id: expect.any(String),
    type: "recharge",
    amount: 50,
    balance_after: 150,
    created_at: new Date(NOON_MS).toISOString(),
  });
});

test("a recharge of an account that nobody has made writes nothing", async () => {
  const key = await stage.givenKey();
  const accountId = randomId("acc");
  const { account } = accountNames(stage.partition, accountId);
  const stranger = { ...key, accountId, names: { ...key.names, account } };
  const before = await stage.everything();
  expect(await stage.recharge(stranger, 50, "order 1")).toEqual(["unknown_account", "0"]);
  expect(await stage.everything()).toEqual(before);
});

test("amounts near 2^53 are kept and printed to the last digit", async () => {
  const key = await stage.givenKey({ credits: MAX - 2, rate_limit: 9 });
  expect(await stage.recharge(key, 3, "one too many")).toEqual(["too_large", String(MAX - 2)]);
  expect(await stage.recharge(key, 2, "the last two")).toEqual(["recharged", String(MAX)]);
  const generation = stage.request(key, { price: MAX - 1 });
  await stage.givenTask(generation);
  expect(await stage.credits(key)).toMatchObject({ balance: 1, totalUsed: MAX - 1 });
  expect(await stage.observe(generation, "failed")).toMatchObject({ refunded: MAX - 1 });
  const { balance, totalUsed, recent } = await stage.account(key);
  expect([balance, totalUsed]).toEqual([MAX, 0]);
  expect(recent.map(({ amount, balance_after }) => [amount, balance_after])).toEqual([
    [MAX - 1, MAX],
    [1 - MAX, 1],
    [2, MAX],
    [MAX - 2, MAX - 2],
  ]);
  const stored = await stage.redis.xrevrange(key.names.ledger, "+", "-", "COUNT", 1);
  expect(entryFields(stored[0]![1]).amount).toBe("9007199254740990");
});

// A recharge to the very edge, then the refund of what was spent before it, once left the exact integers.
test("no refund can lift a balance beyond the exact integers", async () => {
  const key = await stage.givenKey({ credits: 10 });
  const generation = stage.request(key, { price: 10 });
  await stage.givenTask(generation);
  expect(await stage.recharge(key, MAX - 9, "too much")).toEqual(["too_large", "0"]);
  expect(await stage.recharge(key, MAX - 10, "just enough")).toEqual(["recharged", String(MAX - 10)]);
  await stage.observe(generation, "failed");
  expect(await stage.credits(key)).toMatchObject({ balance: MAX, totalUsed: 0 });
});

test("ISSUE makes key, account and credits in one step, and refuses what is there or too large", async () => {
  const key = await stage.givenKey({ credits: 70, tier: "enterprise", ownLimits: false });
  const { keys } = accountNames(key.partition, key.accountId);
  const { accounts } = partitionNames(key.partition);
  const { names } = key;
  const issued = (name: string, credits: number) =>
    connection.scripts.run(issue, {
      actor: cliActor(),
      key: { ...key, keyId: randomId("key"), names: { ...names, key: name } },
      tier: "standard",
      digest: randomId("digest"),
      limits: {},
      credits,
      reference: randomId("ref"),
    });
  expect(await stage.credits(key)).toMatchObject({ balance: 70, tier: "enterprise" });
  expect(await stage.redis.zrange(keys, "0", "-1")).toEqual([key.keyId]);
  expect(await stage.redis.zscore(accounts, key.accountId)).toBe("0");
  const before = await stage.everything();
  expect(await issued(names.key, 5)).toEqual({ outcome: "known", balance: 70 });
  expect(await issued(`${names.key}2`, MAX)).toEqual({ outcome: "too_large", balance: 70 });
  expect(await stage.everything()).toEqual(before);
  expect(await issued(`${names.key}2`, 5)).toEqual({ outcome: "issued", balance: 75 });
  expect(await issued(`${names.key}3`, 0)).toEqual({ outcome: "issued", balance: 75 });
  expect((await stage.account(key)).recent.map(({ amount }) => amount)).toEqual([5, 70]);
});

test("/credits lists the ten most recent transactions, the latest first", async () => {
  const key = await stage.givenKey({ credits: 1 });
  for (let amount = 2; amount <= 12; amount++) await stage.recharge(key, amount, `order ${amount}`);
  const { recent } = await stage.account(key);
  expect(recent.map(({ amount }) => amount)).toEqual(times(10, (at) => 12 - at));
});

test("INSPECT and CREDITS write nothing, whatever they find", async () => {
  const key = await stage.givenKey();
  const other = await stage.givenKey();
  const task = await stage.givenTask(stage.request(key));
  stage.clock.nowMs += 3_600_000;
  const before = await stage.everything();
  await stage.store.inspect(key, stage.tiers);
  for (const asker of [key, other]) await stage.store.inspectTask(asker, task.taskId, 5000, stage.tiers);
  await stage.store.inspectTask(key, "no_task", 5000, stage.tiers);
  await stage.credits(key);
  expect(await stage.everything()).toEqual(before);
});

test("a task is found by every key of its account, and by no other account", async () => {
  const key = await stage.givenKey();
  const sibling = await stage.givenKey({ accountId: key.accountId });
  const stranger = await stage.givenKey();
  const generation = stage.request(key);
  const { taskId } = await stage.givenTask(generation);
  const poll = (asker: typeof key, id = taskId) => stage.store.inspectTask(asker, id, 5000, stage.tiers);
  const { requestId } = generation;
  const task = { taskId, requestId, creatorKeyId: key.keyId, fresh: false, status: "", data: "" };
  for (const asker of [key, sibling]) {
    expect(await poll(asker)).toMatchObject({ outcome: "task", task: { ...task, createdAtMs: NOON_MS } });
  }
  const [others, nobodys] = [await poll(stranger), await poll(stranger, "no_task")];
  expect(others).toMatchObject({ outcome: "not_found" });
  expect(others).toEqual(nobodys);
});

test("an observation is fresh for less than the cache's lifetime, and never from the future", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  await stage.givenTask(generation);
  await stage.observe(generation, "processing", { data: "half" });
  const fresh = async (ageMs: number, cacheMs = 5000): Promise<boolean> => {
    const at = stage.clock.nowMs;
    stage.clock.nowMs += ageMs;
    const found = await stage.store.inspectTask(key, taskOf(generation), cacheMs, stage.tiers);
    stage.clock.nowMs = at;
    if (found.outcome !== "task") throw new Error(found.outcome);
    expect(found.task).toMatchObject({ status: "processing", data: "half" });
    return found.task.fresh;
  };
  expect([await fresh(0), await fresh(4999)]).toEqual([true, true]);
  expect([await fresh(5000), await fresh(-1), await fresh(0, 0)]).toEqual([false, false, false]);
});

test("PROBE writes, so that a read-only replica counts as away", async () => {
  const name = `tg:probe:${randomId("test")}`;
  expect(await connection.scripts.send(probe, [itemOf(probe, { name })])).toEqual([
    ["written", expect.any(Number)],
  ]);
  expect(await stage.redis.pttl(name)).toBeGreaterThan(0);
});
