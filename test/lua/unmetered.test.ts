import { afterAll, beforeAll, beforeEach, expect, inject, test } from "vitest";
import type { Charge } from "../../src/durability/outbox/outbox-queues.ts";
import { idempotencyName, type KeyRef, requestName } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { createHolds } from "../../src/settlement/holds.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  newTask,
  openConnection,
  randomId,
  type Stage,
  type TestConnection,
  taskOf,
} from "../support/store.ts";
import { readRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, UNMETERED_MUTANTS } from "./mutants.ts";

// Requests that passed while the store was away, and were never admitted: BIND at price 0.

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const unmetered = (own: Stage, key: KeyRef, more: Partial<Generation> = {}): Generation =>
  own.request(key, {
    ...{ requestId: `unmetered_${randomId("x")}`, price: 0, admittedAtMs: own.clock.nowMs },
    ...more,
  });

const record = (own: Stage, { requestId }: Generation) =>
  readRequest(own.redis, requestName(own.partition, requestId));

test("an unmetered task is bound without credits, slot, window or day, and listed in the ledger", async () => {
  const key = await stage.givenKey({ credits: 5 });
  const before = await stage.account(key);
  const generation = unmetered(stage, key);
  expect(await stage.bind(generation)).toBe("bound");
  const { recent, ...after } = await stage.account(key);
  expect(after).toEqual({ ...before, recent: undefined });
  expect(recent).toEqual([
    expect.objectContaining({ type: "consume", amount: 0, reason: "unmetered", task_id: taskOf(generation) }),
    ...before.recent,
  ]);
  expect(await record(stage, generation)).toMatchObject({ state: "bound", price: "0", unmetered: "1" });
  expect(await stage.redis.hget(key.names.key, "counters")).toBeNull();
  expect(await stage.redis.zscore(key.names.due, generation.requestId)).not.toBeNull();
});

test("it is bound once, however often and from wherever BIND comes", async () => {
  const key = await stage.givenKey();
  const generation = unmetered(stage, key);
  for (let nth = 0; nth < 3; nth++) expect(await stage.bind(generation)).toBe("bound");
  expect((await stage.account(key)).recent).toHaveLength(2);
  await stage.observe(generation, "completed");
  expect(await stage.bind(generation)).toBe("bound");
  expect(await record(stage, generation)).toMatchObject({ state: "finished" });
});

test("of two accounts that were given the same task id, one has it", async () => {
  const [first, second] = [await stage.givenKey(), await stage.givenKey()];
  const [one, other] = [unmetered(stage, first), unmetered(stage, second)];
  expect(await stage.bind(one, "task_twice")).toBe("bound");
  expect(await stage.bind(other, "task_twice")).toBe("conflict");
  expect(await record(stage, other)).toEqual({});
});

test("a failed one refunds nothing, and an operator cannot refund it", async () => {
  const [bound, outcome, ended, refund] = await lived();
  expect([bound, outcome, ended, refund]).toMatchObject([
    { recent: 2 },
    "bound",
    { recent: 2, balance: 5 },
    "uncharged",
  ]);
});

// The customer repeated a request while the store was away: that is a second task, but the first one is charged.
test.each(["held", "bound"] as const)(
  "it takes no Idempotency-Key of a request that is %s",
  async (first) => {
    expect(await repeated(first)).toBe("bound: metered, then metered, 1 charged");
  },
);

test("it takes an Idempotency-Key that no other request has", async () => {
  expect(await repeated()).toBe("bound: unmetered, then unmetered, 0 charged");
});

// Guarantee: the request of a task is the same in every process that keeps it.
test("the same task of an account is the same request, whatever request it came with", async () => {
  const kept: Charge[] = [];
  const away = () => Promise.reject(new Error("away"));
  const { bindUnmetered } = createHolds(
    {
      ...connection,
      known: { facts: { id: "a store" } },
      of: () => ({ run: away, nowMs: () => 1000 }),
    } as never,
    { defer: async (settlement: Charge) => void kept.push(settlement), charged() {}, voided() {} } as never,
  );
  const [key, other] = [await stage.givenKey(), await stage.givenKey()];
  for (const [of, taskId] of [
    [key, "task_a"],
    [key, "task_a"],
    [key, "task_b"],
    [other, "task_a"],
  ] as const)
    await bindUnmetered(stage.request(of), newTask(taskId));
  const ids = kept.map(({ call }) => call.requestId);
  expect(ids[1]).toBe(ids[0]);
  expect(new Set(ids).size).toBe(3);
  expect(kept[0]).toMatchObject({ storeId: "a store", call: { price: 0, admittedAtMs: 1000 } });
});

test.each(inShare(UNMETERED_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await lived(mutant)).not.toEqual(await lived());
});

/** Whose task a repeat is answered with, and the charges. @param first its state when the unmetered task is bound; absent: there is none */
async function repeated(first?: "held" | "bound", own = stage): Promise<string> {
  const key = await own.givenKey({ credits: 50 });
  const idempotency = { digest: `${key.accountId}-twice`, fingerprint: "f" };
  const metered = own.request(key, { idempotency });
  const other = unmetered(own, key, { idempotency });
  if (first) await own.admit(metered);
  if (first === "bound") await own.bind(metered);
  const binding = await own.bind(other);
  const entry = await own.redis.hget(idempotencyName(key.partition, idempotency.digest), "request_id");
  if (first === "held") await own.bind(metered);
  const again = await own.admit(own.request(key, { idempotency }));
  const answered = again.outcome === "replayed" ? again.taskId : again.outcome;
  const whose = (text: string | null) =>
    text?.endsWith(metered.requestId) ? "metered" : text?.endsWith(other.requestId) ? "unmetered" : text;
  const { recent } = await own.account(key);
  const charges = recent.filter(({ amount }) => amount < 0).length;
  return `${binding}: ${whose(entry)}, then ${whose(answered)}, ${charges} charged`;
}

/** Results of an unmetered task of an account with 5 credits, up to an operator's refund; then of a repeat. */
async function lived(mutant?: Mutant): Promise<unknown[]> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(inject("redisUrl"), 10_000);
  try {
    await client.connect();
    const scripts = createScriptRunner(client, folder === undefined ? {} : { folder });
    const own = createStage(connection, { scripts });
    const key = await own.givenKey({ credits: 5 });
    const generation = unmetered(own, key);
    const seen = async () => {
      const { balance, recent, state } = await own.account(key);
      const { state: stored, unmetered: mark, uncollected } = await record(own, generation);
      return {
        balance,
        recent: recent.length,
        reason: recent[0]?.reason,
        active: state.active,
        stored,
        mark,
        uncollected,
      };
    };
    const outcome = await own.bind(generation);
    const bound = await seen();
    await own.observe(generation, "failed");
    const ended = await seen();
    const { accountId, partition } = key;
    const call = { partition, accountId, requestId: generation.requestId, reference: "r", reason: "r" };
    const [refund] = await own.refund({ ...call, actor: { by: "cli ann", requestId: "" } });
    return [bound, outcome, ended, refund, await repeated("bound", own)];
  } finally {
    client.disconnect();
  }
}
