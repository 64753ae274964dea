import { afterAll, beforeAll, expect, test } from "vitest";
import { type CorrectionTerms, correctCharges } from "../../src/ledger/corrections.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { listTasks } from "../../src/operations/tasks/task-lists.ts";
import type { Actor } from "../../src/records/actor.ts";
import { detailsOf, kindOf } from "../../src/records/ledger-entries.ts";
import { accountNames, requestName } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { changeAccount } from "../support/account-money.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import {
  createStage,
  ENDPOINT,
  randomId,
  type Stage,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";
import { withMutant } from "./mutant-client.ts";
import { CORRECTION_MUTANTS, inShare, type Mutant } from "./mutants.ts";

// A wrong price was in force for half an hour: exactly its charges are found, and given back once each.

let server: OwnStore;
let connection: TestConnection;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  nodes = oneNode(connection.redis);
});
afterAll(() => server?.stop());

const ANN: Actor = { by: "tok_1 Ann", requestId: "req_ann" };
const WRONG = [{ endpoint: ENDPOINT, charged: 100, correct: 10 }];

/** An hour of an account: charges of 10, then half an hour at 100, of which some failed, run or were refunded, then of 10. */
async function givenHour() {
  await server.empty();
  const stage = createStage(connection, { clock: "redis", partition: 0 });
  const limits = { rate_limit: 1000, max_concurrent: 1000, daily_limit: 1000 };
  const [acme, other] = [
    await stage.givenKey({ accountId: "acme", credits: 10_000, ...limits }),
    await stage.givenKey({ accountId: "other", credits: 10_000, ...limits }),
  ];
  const charge = async (key: typeof acme, price: number, end?: "completed" | "failed", prices?: string) => {
    const request = stage.request(key, { price, prices: prices && `${price} ${prices}` });
    await stage.admit(request);
    await stage.bind(request);
    if (end) await stage.observe(request, end);
    return request;
  };
  await charge(acme, 10, "completed");
  await charge(acme, 100, "completed");
  await nextMs();
  const fromMs = Date.now();
  const wrong = [await charge(acme, 100, "completed"), await charge(other, 100, "completed")];
  const listed = await charge(other, 100, "completed", "wrong.yaml");
  await charge(acme, 10, "completed");
  await charge(acme, 100, "failed");
  const refunded = await charge(acme, 100, "completed");
  await refundTask(nodes, refunded.requestId, { reason: "black", reference: "f-1" }, ANN);
  const running = await charge(acme, 100);
  await nextMs();
  const toMs = Date.now();
  await nextMs();
  await charge(acme, 100, "completed");
  const terms = { fromMs, toMs, prices: WRONG, reference: "oops", reason: "wrong price", isDryRun: false };
  return { stage, wrong, listed, refunded, running, terms };
}

/** A charge of 100 of an account of its own, whose task was too old; the task has completed since. */
async function givenExpired(stage: Stage, refundFailed = true) {
  const accountId = randomId("late");
  const key = await stage.givenKey({ accountId, credits: 100 });
  const request = stage.request(key, { price: 100 });
  await stage.givenTask(request);
  await stage.observe(request, "expired", { refundFailed });
  const { requestId } = request;
  const task = { taskId: taskOf(request), requestId, creatorKeyId: key.keyId };
  const call = { partition: 0, accountId, task, data: '{"status":"completed"}' };
  const reclaim = async () => [...(await stage.reclaim(call))].filter((_, at) => at !== 1);
  const balance = async () => (await readAccount(nodes, accountId)).balance;
  return { key, requestId, reclaim, balance };
}

async function nextMs(): Promise<void> {
  const now = Date.now();
  while (Date.now() <= now + 1) await new Promise(setImmediate);
}

const run = (terms: CorrectionTerms, on = nodes) => correctCharges(on, terms, ANN);
const balances = async () => [
  (await readAccount(nodes, "acme")).balance,
  (await readAccount(nodes, "other")).balance,
];

test("exactly the charges of that price and time are found and given back, once each, however often", async () => {
  const { stage, wrong, running, terms } = await givenHour();
  const before = await balances();
  const dry = await run({ ...terms, isDryRun: true });
  expect(dry).toMatchObject({ charges: 4, corrected: 0, running: 1, credits: 270, next: undefined });
  expect(await balances()).toEqual(before);
  const first = await run(terms);
  expect(first).toMatchObject({
    charges: 4,
    corrected: 3,
    repeated: 0,
    refunded: 2,
    running: 1,
    credits: 270,
  });
  expect(await balances()).toEqual([before[0]! + 90, before[1]! + 180]);
  await Promise.all(times(3, () => run(terms)));
  expect(await balances()).toEqual([before[0]! + 90, before[1]! + 180]);
  await stage.observe(running, "completed");
  expect(await run(terms)).toMatchObject({ corrected: 1, repeated: 3, running: 0, credits: 90 });
  expect(await run({ ...terms, reference: "again" })).toMatchObject({
    corrected: 0,
    refunded: 6,
    credits: 0,
  });
  expect(await balances()).toEqual([before[0]! + 180, before[1]! + 180]);
  const { entries } = await readAccount(nodes, "other");
  const own = entries.filter((entry) => kindOf(entry) === "adjustment");
  expect(own).toMatchObject(times(2, () => ({ amount: 90, reason: "wrong price", by: ANN.by })));
  expect(own.map((entry) => detailsOf(entry).corrects)).toContain(wrong[1]!.requestId);
  await expect(
    refundTask(nodes, wrong[0]!.requestId, { reason: "r", reference: "f-2" }, ANN),
  ).rejects.toMatchObject({ problem: "already_refunded", message: expect.stringContaining("corrected") });
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: a rehearsal of a repeat foresees what the repeat says.
test("a dry run tells what this reference gave back before from what was refunded", async () => {
  const { terms } = await givenHour();
  await run(terms);
  const repeat = await run(terms);
  expect(repeat).toMatchObject({ corrected: 0, repeated: 3, refunded: 2, running: 1, credits: 0 });
  expect(await run({ ...terms, isDryRun: true })).toEqual(repeat);
  expect(await run({ ...terms, reference: "again", isDryRun: true })).toEqual(
    await run({ ...terms, reference: "again" }),
  );
});

// Guarantee: a call whose reference was used with another price changes nothing, whichever charges it finds first.
test("a repeat with another price gives nothing back, and a dry run says so", async () => {
  const { terms } = await givenHour();
  await run(terms);
  const before = await balances();
  const wider = { ...terms, fromMs: 0, prices: [{ ...WRONG[0]!, correct: 20 }] };
  for (const isDryRun of [true, false])
    await expect(run({ ...wider, isDryRun })).rejects.toMatchObject({ problem: "reference_mismatch" });
  expect(await balances()).toEqual(before);
});

// Guarantee: who paid a wrong price gets the difference, also where the charge was given back and taken again before.
test("a charge that was taken again since its task completed late is corrected, once", async () => {
  const { stage, terms } = await givenHour();
  const { requestId, reclaim, balance } = await givenExpired(stage);
  expect(await reclaim()).toEqual(["charged_again", "100"]);
  await nextMs();
  const wider = { ...terms, toMs: Date.now() };
  const numbers = { corrected: 5, refunded: 2, running: 1, credits: 450 };
  expect(await run({ ...wider, isDryRun: true })).toMatchObject({ ...numbers, corrected: 0 });
  expect(await run(wider)).toMatchObject(numbers);
  expect(await balance()).toBe(90);
  await connection.redis.del(requestName(0, requestId));
  expect(await run(wider)).toMatchObject({ corrected: 0, repeated: 5, refunded: 2 });
  expect(await run({ ...wider, reference: "again" })).toMatchObject({ corrected: 0, refunded: 7 });
  expect(await balance()).toBe(90);
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: a video that is paid for is delivered, also where a part of its price was given back.
test("a task that failed unrefunded and was corrected completes late, and one that an operator refunded does not", async () => {
  const { stage, terms } = await givenHour();
  const [corrected, refunded] = [await givenExpired(stage, false), await givenExpired(stage, false)];
  await refundTask(nodes, refunded.requestId, { reason: "black", reference: "f-3" }, ANN);
  await nextMs();
  await run({ ...terms, toMs: Date.now() });
  expect(await corrected.reclaim()).toEqual(["charged_again", "0"]);
  expect(await refunded.reclaim()).toEqual(["finished"]);
  expect([await corrected.balance(), await refunded.balance()]).toEqual([90, 100]);
  const { tasks } = await listTasks(nodes, corrected.key.accountId, { limit: 1 });
  expect(tasks[0]).toMatchObject({ status: "completed" });
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: support does not take a corrected task for a refunded one, whatever is left of its record.
test("a corrected task is not listed as refunded, also once its record was collected", async () => {
  const { wrong, refunded, terms } = await givenHour();
  await run(terms);
  for (const isCollected of [false, true]) {
    if (isCollected)
      await connection.redis.del(...[wrong[0]!, refunded].map(({ requestId }) => requestName(0, requestId)));
    const { tasks } = await listTasks(nodes, "acme", { limit: 100 });
    const isRefunded = (id: string) => tasks.find(({ requestId }) => requestId === id)?.refunded;
    expect([isRefunded(wrong[0]!.requestId), isRefunded(refunded.requestId)]).toEqual([false, true]);
  }
});

test("a time before the first charge needs no archive where nothing has left Redis", async () => {
  const { terms } = await givenHour();
  const { charges } = await run({ ...terms, isDryRun: true });
  for (const fromMs of [0, -1000])
    expect(await run({ ...terms, fromMs, isDryRun: true })).toMatchObject({ charges: charges + 1 });
});

// Guarantee: with a multiplier the difference is that of the multiplied prices, and a right price that equals the wrong one stays.
test("charges of accounts with a multiplier are found by their list price", async () => {
  const { stage, terms } = await givenHour();
  const accountIds: string[] = [];
  for (const [multiplier, price] of [
    ["0.55", 100],
    ["10", 10],
    ["2", 50],
    ["0.01", 100],
  ] as const) {
    const key = await stage.givenKey({ accountId: randomId("times"), credits: 1000 });
    await changeAccount(stage.redis, key.names.account, { price_multiplier: multiplier });
    const request = stage.request(key, { price });
    await stage.givenTask(request);
    await stage.observe(request, "completed");
    accountIds.push(key.accountId);
  }
  await nextMs();
  const { shown } = await run({ ...terms, toMs: Date.now() });
  const found = shown.filter(({ entry }) => accountIds.includes(entry.accountId));
  // 55 was charged, and 10 times 0.55 is 6. At 0.01 it is 1 credit for either price.
  expect(found.map(({ entry, credits }) => [entry.accountId, credits])).toEqual([[accountIds[0], 49]]);
  expect((await readAccount(nodes, accountIds[0]!)).balance).toBe(1000 - 6);
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: two corrections whose times meet give back each charge between them, and none twice.
test("the beginning of the time is in it, and its end is not", async () => {
  const { terms } = await givenHour();
  const { shown } = await run({ ...terms, isDryRun: true });
  const { atMs } = shown[0]!.entry;
  const foundIn = async (fromMs: number, toMs: number) =>
    (await run({ ...terms, fromMs, toMs, isDryRun: true })).shown.filter(({ entry }) => entry.atMs === atMs);
  expect(await foundIn(atMs, atMs + 1)).not.toEqual([]);
  expect(await foundIn(terms.fromMs - 1000, atMs)).toEqual([]);
  expect(await foundIn(atMs + 1, terms.toMs)).toEqual([]);
});

test("many wrong charges are all counted and given back, and a hundred of them shown", async () => {
  const { stage, terms } = await givenHour();
  const key = await stage.givenKey({
    accountId: "many",
    credits: 20_000,
    rate_limit: 1000,
    max_concurrent: 1000,
  });
  for (const request of times(120, () => stage.request(key, { price: 100 }))) await stage.givenTask(request);
  await nextMs();
  const { shown, charges, running } = await run({ ...terms, toMs: Date.now() });
  expect([shown.length, charges, running]).toEqual([100, 125, 121]);
});

test("a price file narrows it down to the charges that name it", async () => {
  const { listed, terms } = await givenHour();
  const found = await run({ ...terms, priceList: "wrong.yaml" });
  expect(found).toMatchObject({ charges: 1, corrected: 1 });
  expect(found.shown.map(({ entry }) => entry.requestId)).toEqual([listed.requestId]);
});

test.each([
  [{ prices: [{ endpoint: "gen9", charged: 9, correct: 1 }] }, "unknown_endpoint"],
  [{ prices: [{ endpoint: ENDPOINT, charged: 9, correct: 9 }] }, "invalid"],
  [{ prices: [...WRONG, ...WRONG] }, "invalid"],
  [{ fromMs: 5, toMs: 4 }, "invalid"],
  [{ reference: "x".repeat(151) }, "invalid"],
  [{ reason: " " }, "invalid"],
  [{ cursor: "abc" }, "invalid"],
])("corrections with %j are refused", async (wrong, problem) => {
  const { terms } = await givenHour();
  const before = await balances();
  await expect(run({ ...terms, ...wrong })).rejects.toMatchObject({ problem });
  expect(await balances()).toEqual(before);
});

const played = (mutant?: Mutant): Promise<unknown> =>
  withMutant(server.url, mutant, async (on) => {
    const scripts = scriptsOf(on.of(0));
    const { wrong, terms } = await givenHour();
    const stage = createStage(connection, { clock: "redis", partition: 0, scripts });
    await (await givenExpired(stage)).reclaim();
    const unrefunded = await givenExpired(stage, false);
    await nextMs();
    const toMs = Date.now();
    const seen: unknown[] = [];
    for (const reference of ["oops", "oops", "again"]) {
      const { shown: _, ...numbers } = await run({ ...terms, toMs, reference }, on);
      seen.push(numbers);
    }
    const again = refundTask(nodes, wrong[0]!.requestId, { reason: "r", reference: "f-2" }, ANN);
    seen.push(
      await again.then(
        () => "refunded",
        ({ problem }) => problem,
      ),
    );
    seen.push(await unrefunded.reclaim());
    const { entries, totalUsed } = await readAccount(nodes, "acme");
    const shown = entries.map((entry) => [
      kindOf(entry),
      entry.amount,
      entry.by,
      detailsOf(entry).corrects?.slice(0, 4),
    ]);
    const references = await connection.redis.hlen(accountNames(0, "acme").references);
    return { seen, shown, totalUsed, references, balances: await balances() };
  });

// Guarantee: a mistake in what gives back shows.
test.each(inShare(CORRECTION_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await played();
  const found = await played(mutant).catch((error: Error) => error.message);
  expect(found).not.toEqual(good);
  expect(String(found)).not.toContain("compiling script");
});
