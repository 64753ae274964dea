import { afterAll, beforeAll, expect, test } from "vitest";
import { CREDITS_MAX } from "../../src/domain/money.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { type FindArchivedCharge, refundTask } from "../../src/operations/credits/refunds.ts";
import { releaseTask } from "../../src/operations/tasks/operator-tasks.ts";
import type { Actor } from "../../src/records/actor.ts";
import { entryFields, LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  type KeyRef,
  partitionNames,
  partitionOf,
  requestName,
  taskName,
} from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { adjust as adjustScript, refund } from "../../src/scripts/credit-changes.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { changeMoney } from "../support/account-money.ts";
import {
  createStage,
  openConnection,
  RETENTION_MS,
  randomId,
  type TestConnection,
  taskOf,
} from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { readCounters } from "../support/stored-records.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, MONEY_MUTANTS, type Mutant } from "./mutants.ts";

// Changes of balances by operators: adjustments, and refunds of tasks that have finished.

let redis: TestRedis;
let nodes: RedisNodes;
let connection: TestConnection;
beforeAll(async () => {
  redis = await givenRedis();
  nodes = oneNode(redis.client);
  connection = await openConnection(redis.url);
});
afterAll(async () => {
  await connection.close();
  await redis.stop();
});

const ANN: Actor = { by: "tok_1 Ann's shop", requestId: "req_ann" };
const MAX = Number.MAX_SAFE_INTEGER;

/** An account of 100 credits in the partition where the store looks for it. */
async function givenAccount(credits = 100) {
  const accountId = randomId("acc");
  const stage = createStage(connection, { clock: "redis", partition: partitionOf(accountId, 64) });
  const key = await stage.givenKey({ accountId, credits });
  return { stage, key, accountId };
}

type Given = Awaited<ReturnType<typeof givenAccount>>;

/** A task of price 10 in this state. */
async function givenTask({ stage, key }: Given, state: string): Promise<Generation> {
  const request = stage.request(key);
  if (state === "uncollected") {
    await stage.admit(request);
    await stage.void(request, "released");
    await changeMoney(stage.redis, key.names.account, { balance: "0" });
    await stage.bind(request);
    await changeMoney(stage.redis, key.names.account, { balance: "100" });
    await stage.observe(request, "completed");
    return request;
  }
  await stage.admit(request);
  if (state === "held") return request;
  if (state === "void") {
    await stage.void(request, "refused");
    return request;
  }
  await stage.bind(request);
  if (state === "kept") await stage.observe(request, "failed", { refundFailed: false });
  else if (state !== "bound") await stage.observe(request, state as "completed");
  return request;
}

const codeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "done",
    (error: { code?: string }) => {
      if (error.code === undefined) throw error;
      return error.code;
    },
  );

test("an adjustment goes up and down once per reference, with its reason, and never below what is held", async () => {
  const given = await givenAccount();
  const { accountId, stage, key } = given;
  await givenTask(given, "held");
  const adjust = (amount: number, reference: string, reason = 'goodwill: "sorry"') =>
    adjustCredits(nodes, accountId, { amount, reason, reference }, ANN);
  const up = await adjust(5, "r-1");
  expect(up).toMatchObject({
    outcome: "adjusted",
    balance: 95,
    entry: { type: "recharge", amount: 5, reason: 'goodwill: "sorry"', reference: "r-1", by: ANN.by },
  });
  expect(await adjust(5, "r-1")).toEqual({ ...up, outcome: "duplicate" });
  await expect(adjust(6, "r-1")).rejects.toMatchObject({ code: "conflict", path: "reference" });
  await expect(grantCredits(nodes, accountId, 5, "r-1", ANN)).rejects.toMatchObject({ code: "conflict" });
  await expect(adjust(-96, "r-2")).rejects.toMatchObject({ code: "conflict", path: "amount" });
  expect(await adjust(-95, "r-3", "  taken back ")).toMatchObject({
    balance: 0,
    entry: { type: "consume", amount: -95, balanceAfter: 10, reason: "taken back" },
  });
  const { recent } = await readAccount(nodes, accountId);
  expect(recent.slice(0, 2)).toEqual([
    {
      id: expect.any(String),
      type: "consume",
      amount: -95,
      balance_after: 10,
      endpoint: "",
      reason: "taken back",
      created_at: expect.any(String),
    },
    expect.objectContaining({ type: "recharge", amount: 5, reason: 'goodwill: "sorry"' }),
  ]);
  expect(await stage.credits(key)).toMatchObject({ totalUsed: 0 });
  expect(await verifyLedger(nodes, { accountIds: [accountId] })).toMatchObject({
    ok: true,
    credits: { recharged: 100, consumed: 0, refunded: 0, adjusted: -90 },
  });
  const { records } = await pageAudit(nodes, { accountId, limit: 10 });
  expect(records.map(({ action }) => action)).toEqual(["credits.adjust", "credits.adjust", "key.create"]);
  expect(records[1]).toMatchObject({
    ...ANN,
    before: { balance: 90 },
    after: { balance: 95, amount: 5, reason: 'goodwill: "sorry"', reference: "r-1" },
  });
});

test.each([
  ["no amount", { amount: 0 }, "amount"],
  ["half a credit", { amount: 0.5 }, "amount"],
  ["more than the most", { amount: CREDITS_MAX + 1 }, "amount"],
  ["less than the most taken", { amount: -CREDITS_MAX - 1 }, "amount"],
  ["no reason", { reason: " " }, "reason"],
  ["a reason of two lines", { reason: "a\nb" }, "reason"],
  ["a reason that is too long", { reason: "x".repeat(201) }, "reason"],
  ["no reference", { reference: "" }, "reference"],
])("an adjustment with %s is refused", async (_, wrong, path) => {
  const { accountId } = await givenAccount();
  const wanted = { amount: 1, reason: "r", reference: "r", ...wrong };
  await expect(adjustCredits(nodes, accountId, wanted, ANN)).rejects.toMatchObject({ code: "invalid", path });
  expect(await readAccount(nodes, accountId)).toMatchObject({ balance: 100 });
});

test("an adjustment keeps the exact integers", async () => {
  const { accountId } = await givenAccount(MAX - 1);
  const adjust = (amount: number, reference: string) =>
    adjustCredits(nodes, accountId, { amount, reason: "r", reference }, ANN);
  await expect(adjust(2, "r-1")).rejects.toMatchObject({ code: "conflict", path: "amount" });
  expect(await adjust(1, "r-2")).toMatchObject({ balance: MAX });
  expect(await adjust(-CREDITS_MAX, "r-3")).toMatchObject({
    balance: MAX - CREDITS_MAX,
    entry: { amount: -CREDITS_MAX },
  });
});

test("a completed task is refunded once, by its task id or its request id", async () => {
  const given = await givenAccount();
  const { accountId, stage, key } = given;
  const request = await givenTask(given, "completed");
  const refund = (reference: string, id = taskOf(request)) =>
    refundTask(nodes, id, { reason: "picture was black", reference }, ANN);
  const first = await refund("r-1");
  expect(first).toMatchObject({
    outcome: "refunded",
    accountId,
    requestId: request.requestId,
    balance: 100,
    entry: {
      ...{ type: "recharge", amount: 10, reason: "refund", note: "picture was black", by: ANN.by },
      ...{ taskId: taskOf(request), requestId: request.requestId, keyId: key.keyId, reference: "r-1" },
    },
  });
  expect(await refund("r-1", request.requestId)).toEqual({ ...first, outcome: "duplicate" });
  await expect(refund("r-2")).rejects.toMatchObject({ code: "conflict" });
  const another = await givenTask(given, "completed");
  await expect(refund("r-1", taskOf(another))).rejects.toMatchObject({ code: "conflict", path: "reference" });
  expect(await stage.credits(key)).toMatchObject({ balance: 90, totalUsed: 10 });
  expect((await readAccount(nodes, accountId)).recent[1]).toMatchObject({
    ...{ type: "recharge", amount: 10, reason: "refund", task_id: taskOf(request) },
  });
  expect(await verifyLedger(nodes, { accountIds: [accountId] })).toMatchObject({ ok: true });
});

test.each([false, true])(
  "a refund gives room under the key's cap of the month (%s: its record was collected)",
  async (isCollected) => {
    const given = await givenAccount();
    const { stage, key } = given;
    const request = await givenTask(given, "completed");
    const spent = async () => (await readCounters(stage.redis, key.names.key)).spent;
    expect(await spent()).toBe("10");
    if (isCollected) await forget(given, request);
    await refundTask(nodes, request.requestId, { reason: "r", reference: "r-1" }, ANN);
    expect(await spent()).toBe("0");
  },
);

// Guarantee: a task is refunded once, whoever refunds it and however long ago it finished.
test.each([true, false])(
  "a task whose record was collected: refunded once by the ledger (%s: it was refunded before)",
  async (isRefunded) => {
    const given = await givenAccount();
    const { accountId, stage, key } = given;
    const request = await givenTask(given, isRefunded ? "failed" : "completed");
    const kept = isRefunded ? await givenTask(given, "kept") : undefined;
    await forget(given, request);
    const refund = (reference: string, id = request.requestId) =>
      refundTask(nodes, id, { reason: "late", reference }, ANN);
    if (kept) {
      await expect(refund("r-1", taskOf(request))).rejects.toMatchObject({ code: "conflict" });
      // It failed, and was not refunded: by its record, which says so only together with the ledger.
      expect(await refund("r-2", taskOf(kept))).toMatchObject({ outcome: "refunded", balance: 100 });
      return;
    }
    const first = await refund("r-1", taskOf(request));
    expect(first).toMatchObject({
      outcome: "refunded",
      balance: 100,
      entry: { keyId: key.keyId, amount: 10 },
    });
    expect(await refund("r-1")).toEqual({ ...first, outcome: "duplicate" });
    await expect(refund("r-2")).rejects.toMatchObject({ code: "conflict" });
    expect(await stage.credits(key)).toMatchObject({ balance: 100, totalUsed: 0 });
    expect(await verifyLedger(nodes, { accountIds: [accountId] })).toMatchObject({ ok: true });
  },
);

/** As if its retention had passed. */
async function forget({ stage }: Given, request: Generation): Promise<void> {
  await changeRequest(stage.redis, requestName(stage.partition, request.requestId), {
    finished_at: 1,
    retention_ms: 1,
  });
  await stage.redis.zadd(partitionNames(stage.partition).done, 1, request.requestId);
  await stage.sweeps.collect(stage.partition, RETENTION_MS, 100);
  expect(await stage.requestRecord(request)).toEqual({});
}

/** As if Redis had lost the record of a task, and a gateway sent its charge once more. */
async function chargeAgain({ stage }: Given, request: Generation): Promise<void> {
  await stage.redis.del(
    requestName(stage.partition, request.requestId),
    taskName(taskOf(request), stage.partition),
  );
  expect(await stage.bind(request)).toBe("late");
}

// Guarantee: whoever ends a task knows of an operator's refund, also where Redis has lost the task's record meanwhile.
test("a task that an operator has refunded is not refunded by its end when its charge comes again", async () => {
  const given = await givenAccount();
  const { accountId, stage, key } = given;
  const [failed, released] = [await givenTask(given, "completed"), await givenTask(given, "completed")];
  for (const request of [failed, released])
    await refundTask(nodes, taskOf(request), { reason: "r", reference: request.requestId }, ANN);
  for (const request of [failed, released]) await chargeAgain(given, request);
  expect(await stage.credits(key)).toMatchObject({ balance: 80 });
  expect(await stage.observe(failed, "failed")).toMatchObject({ outcome: "finished", refunded: 0 });
  expect(await releaseTask(nodes, taskOf(released), ANN)).toEqual({ outcome: "ended", refunded: 0 });
  expect(await readAccount(nodes, accountId)).toMatchObject({ balance: 80 });
  expect(await stage.requestRecord(failed)).toMatchObject({ state: "finished", refunded: "1" });
  expect(await codeOf(refundTask(nodes, taskOf(failed), { reason: "r", reference: "r-2" }, ANN))).toBe(
    "conflict",
  );
});

// Guarantee: the sum is 0 once, and `refunded` says only what has moved.
test.each([
  { what: "refunded by its end", state: "bound", refundFailed: true, byHand: "conflict" },
  { what: "refunded by hand", state: "bound", refundFailed: false, byHand: "done" },
  { what: "never charged", state: "late", refundFailed: true, byHand: "conflict" },
  { what: "free of charge", state: "free", refundFailed: true, byHand: "conflict" },
])(
  "a task ended at twice its maximum age, then known to have failed, then refunded by hand: $what",
  async ({ state, refundFailed, byHand }) => {
    const given = await givenAccount();
    const { stage, key, accountId } = given;
    const request = stage.request(key);
    await stage.admit(request);
    if (state === "late") {
      await stage.void(request, "released");
      await changeMoney(stage.redis, key.names.account, { balance: "0" });
    }
    await stage.bind(request);
    const { balance: before } = await readAccount(nodes, accountId);
    if (state === "free")
      await changeRequest(stage.redis, requestName(stage.partition, request.requestId), { price: 0 });
    const moved = async () => (await stage.requestRecord(request)).refunded ?? "0";
    const ended = await stage.observe(request, "expired", { refundFailed });
    expect(ended).toMatchObject({ outcome: "finished" });
    expect(Number(await moved())).toBe(ended.refunded > 0 ? 1 : 0);
    expect(await stage.observe(request, "failed", { refundFailed: true })).toMatchObject({
      ...{ outcome: "already_finished", refunded: 0 },
    });
    const wanted = { reason: "r", reference: "r-1" };
    expect(await codeOf(refundTask(nodes, request.requestId, wanted, ANN))).toBe(byHand);
    const { balance, entries } = await readAccount(nodes, accountId);
    const isMoved = state === "bound";
    expect(balance).toBe(before + (isMoved ? 10 : 0));
    expect(entries.filter(({ reason }) => reason === "refund")).toHaveLength(isMoved ? 1 : 0);
    expect(await moved()).toBe(isMoved ? "1" : "0");
  },
);

test.each([
  ["held", "release"],
  ["bound", "release"],
  ["void", "not charged"],
  ["uncollected", "not charged"],
  ["failed", "refunded before"],
])("a task that is %s is not refunded: %s", async (state, why) => {
  const given = await givenAccount();
  const request = await givenTask(given, state);
  const before = await readAccount(nodes, given.accountId);
  const refund = refundTask(nodes, request.requestId, { reason: "r", reference: "r-1" }, ANN);
  await expect(refund).rejects.toMatchObject({ code: "conflict", message: expect.stringContaining(why) });
  expect(await readAccount(nodes, given.accountId)).toEqual(before);
});

test("what nobody was charged for is not found", async () => {
  await expect(refundTask(nodes, "task_none", { reason: "r", reference: "r" }, ANN)).rejects.toMatchObject({
    code: "not_found",
  });
});

// Guarantee: where only the archive could know, nothing is refunded on a guess.
test("a charge that has left Redis is found in the archive, and without it nothing is refunded", async () => {
  const given = await givenAccount();
  const { accountId, stage } = given;
  const request = await givenTask(given, "completed");
  const { ledger, trimmed } = partitionNames(stage.partition);
  const entries = await nodes.of(0).xrange(ledger, "-", "+");
  await forget(given, request);
  const wanted = { reason: "r", reference: "r-1" };
  const refund = (findCharge?: FindArchivedCharge) =>
    refundTask(nodes, taskOf(request), wanted, ANN, { findCharge });
  const { entry: refunded } = await refundTask(
    nodes,
    taskOf(await givenTask(given, "completed")),
    { ...wanted, reference: "r-0" },
    ANN,
  );
  const charge = {
    ...refunded!,
    type: "consume",
    amount: -10,
    requestId: request.requestId,
    taskId: taskOf(request),
  };
  const [id] = entries.find(([, fields]) => entryFields(fields).request_id === request.requestId)!;
  await stage.redis.xdel(ledger, id);
  await stage.redis.hset(trimmed, { last_entry: id, at: 1, entries: 1 });
  try {
    expect(await codeOf(refund())).toBe("unavailable");
    expect(await codeOf(refund(() => Promise.reject(new Error("away"))))).toBe("unavailable");
    expect(await codeOf(refund(async () => undefined))).toBe("not_found");
    const archivedTo = id;
    expect(
      await codeOf(refund(async () => ({ charge, isRefunded: true, isChargedAgain: false, archivedTo }))),
    ).toBe("conflict");
    expect(await readAccount(nodes, accountId)).toMatchObject({ balance: 90 });
    const found: FindArchivedCharge = async () => ({
      charge,
      isRefunded: false,
      isChargedAgain: false,
      archivedTo,
    });
    const ofOthers = { ...wanted, accounts: ["another"] };
    expect(await codeOf(refundTask(nodes, taskOf(request), ofOthers, ANN, { findCharge: found }))).toBe(
      "not_found",
    );
    expect(await refund(found)).toMatchObject({ outcome: "refunded", balance: 100 });
    // The archive has not got this refund yet; Redis has.
    expect(
      await codeOf(
        refundTask(nodes, taskOf(request), { ...wanted, reference: "r-2" }, ANN, { findCharge: found }),
      ),
    ).toBe("conflict");
  } finally {
    await stage.redis.del(trimmed);
  }
});

/** Everything by hand, with these scripts. @returns what came of it */
async function byHand(nodes: RedisNodes): Promise<unknown> {
  const given = await givenAccount(100);
  const { accountId, stage, key } = given;
  const seen: unknown[] = [];
  const adjust = async (amount: number, reference: string, id = accountId): Promise<void> => {
    seen.push(await codeOf(adjustCredits(nodes, id, { amount, reason: "why", reference }, ANN)));
  };
  const refundBy = async (request: Generation, reference: string): Promise<void> => {
    seen.push(await codeOf(refundTask(nodes, request.requestId, { reason: "why", reference }, ANN)));
  };
  const tasks: Record<string, Generation> = {};
  for (const state of ["uncollected", "held", "bound", "void", "completed", "failed", "kept"])
    tasks[state] = await givenTask(given, state);
  await adjust(7, "r-1");
  await adjust(7, "r-1");
  await adjust(8, "r-1");
  // More than an operator may ask for; the script bounds what many adjustments add up to.
  const { run } = scriptsOf(nodes.of(0));
  const call = { partition: stage.partition, accountId, reason: "why", actor: ANN };
  seen.push((await run(adjustScript, { ...call, amount: MAX, reference: "r-2" })).outcome);
  for (const state of ["held", "bound", "void", "uncollected", "failed"])
    await refundBy(tasks[state]!, `f-${state}`);
  await refundBy(tasks.completed!, "f-1");
  await refundBy(tasks.completed!, "f-1");
  await refundBy(tasks.completed!, "f-2");
  await refundBy(tasks.failed!, "f-1");
  await chargeAgain(given, tasks.completed!);
  seen.push(await releaseTask(nodes, taskOf(tasks.completed!), ANN));
  const { balance } = await readAccount(nodes, accountId);
  await adjust(-balance - 1, "r-3");
  await adjust(-balance, "r-4");
  await adjust(1, "r-5", randomId("acc"));
  // The script checks for itself the entries that its callers look for in the ledger.
  const { requestId } = tasks.kept!;
  seen.push((await run(refund, { ...call, requestId, reference: "f-3" })).outcome);
  const [found] = await readLedger(stage.redis, stage.partition, LEDGER_START);
  const failed = { ...call, requestId: tasks.failed!.requestId, reference: "f-4", charge: found };
  seen.push((await run(refund, failed)).outcome);
  const entries = (await stage.redis.xrange(key.names.ledger, "-", "+")).map(([, fields]) =>
    Object.entries(entryFields(fields)).flat(),
  );
  const own = entries.filter((fields) => fields.includes(accountId) && fields.includes("reference"));
  const kept = ["type", "amount", "reason", "reference", "by", "note"];
  return {
    seen,
    entries: own
      .slice(1)
      .map((fields) => kept.map((name) => (fields.includes(name) ? fields[fields.indexOf(name) + 1] : ""))),
    references: await referencesOf(key, accountId),
    refunds: Object.values(await stage.redis.hgetall(accountNames(key.partition, accountId).refunds)),
    balance: (await readAccount(nodes, accountId)).balance,
  };
}

async function referencesOf({ partition }: KeyRef, accountId: string): Promise<string[]> {
  const stored = await redis.client.hgetall(accountNames(partition, accountId).references);
  return Object.entries(stored)
    .map(([reference, value]) => `${reference}: ${value.replace(/req_\w+/, "req")}`)
    .filter((text) => !text.startsWith("key:"))
    .sort();
}

const played = (mutant?: Mutant): Promise<unknown> => withMutant(redis.url, mutant, byHand);

test("adjustments and refunds by hand do what they say, once", async () => {
  expect(await played()).toEqual({
    seen: [
      ...["done", "done", "conflict", "too_large"],
      ...["conflict", "conflict", "conflict", "conflict", "conflict"],
      ...["done", "done", "conflict", "conflict"],
      { outcome: "ended", refunded: 0 },
      ...["conflict", "done", "not_found", "search", "refunded_before"],
    ],
    entries: [
      ["recharge", "7", "why", "r-1", ANN.by, ""],
      ["recharge", "10", "refund", "f-1", ANN.by, "why"],
      ["consume", "-67", "why", "r-4", ANN.by, ""],
    ],
    references: ["f-1: refund req", "r-1: adjustment 7", "r-4: adjustment -67"],
    refunds: ["f-1"],
    balance: 0,
  });
});

// Guarantee: a mistake in what moves money by hand shows.
test.each(inShare(MONEY_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const found = await played(mutant).catch((error: Error) => error.message);
  expect(found).not.toEqual(await played());
  expect(String(found)).not.toContain("compiling script");
});
