import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sumReferences, takeSlice } from "../../src/ledger/account-check.ts";
import { addEntry, emptyAccount, emptyFold } from "../../src/ledger/fold.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  dueFrom,
  idempotencyName,
  type KeyRef,
  partitionNames,
  partitionOf,
  requestName,
} from "../../src/records/names.ts";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { ENTRIES_AT_ONCE } from "../../src/scripts/ledger.ts";
import { accountIn, addMoney, changeMoney } from "../support/account-money.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import {
  createStage,
  openConnection,
  randomId,
  setAccountLimits,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";
import { changeCounters, readCounters, setKeyFields } from "../support/stored-records.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { SNAPSHOT_MUTANTS } from "./mutants.ts";

let server: OwnStore;
let connection: TestConnection;
beforeAll(async () => {
  // Its own, since `verifyLedger` looks at every request that there is.
  server = await openOwnStore(64);
  connection = server.connection;
});
afterAll(() => server?.stop());

const MINUTE_MS = 60_000;
const RUN = { step: async () => {} };
const HOUR_MS = 60 * MINUTE_MS;

/** An account in a real partition, where `ledger verify` looks, with a request in each state. */
async function givenLedger() {
  const { redis } = connection;
  const accountId = randomId("acc");
  const partition = partitionOf(accountId, await partitionsOf(oneNode(redis)));
  const stage = createStage(connection, { clock: "redis", partition });
  const key = await stage.givenKey({ accountId, credits: 1000 });
  const other = await stage.givenKey({ accountId });
  const requests = {
    held: stage.request(key),
    bound: stage.request(key, { price: 20 }),
    completed: stage.request(key),
    failed: stage.request(other, { price: 30 }),
    void: stage.request(other),
  };
  await stage.admit(requests.held);
  await stage.givenTask(requests.bound);
  await stage.givenTask(requests.completed);
  await stage.observe(requests.completed, "completed");
  await stage.givenTask(requests.failed);
  await stage.observe(requests.failed, "failed");
  await stage.admit(requests.void);
  await stage.void(requests.void, "refused");
  await stage.recharge(key, 500, "order-1");
  const verify = (readings = 1) => verifyIn(readings, { accountId, partition });
  return { stage, redis, accountId, partition, key, other, requests, verify };
}

/** A large ledger is read several times, each time for the charges of other requests. */
async function verifyIn(
  readings: number,
  { accountId, partition }: { accountId: string; partition: number },
) {
  const { redis } = connection;
  const chargesAtOnce = Math.ceil((await redis.xlen(partitionNames(partition).ledger)) / readings);
  return verifyLedger(oneNode(redis), { accountIds: [accountId], chargesAtOnce });
}

type Ledger = Awaited<ReturnType<typeof givenLedger>>;

/** Posts an entry as `post` does: balance, ledger and the account's last entry go together. */
async function post(ledger: Ledger, amount: number, fields: Record<string, string>): Promise<void> {
  const { redis, accountId, key } = ledger;
  const balance = await addMoney(redis, key.names.account, "balance", amount);
  const entry = {
    account_id: accountId,
    type: "consume",
    amount: String(amount),
    balance_after: String(balance),
    endpoint: "",
    reason: "",
    task_id: "",
    at: "1",
    previous: (await accountIn(redis, key.names.account)).last_entry ?? "",
    ...fields,
  };
  const id = await redis.xadd(key.names.ledger, "*", ...Object.entries(entry).flat());
  await changeMoney(redis, key.names.account, { last_entry: id! });
}

const consume = (request: Generation, amount = -request.price) => ({
  amount,
  fields: { request_id: request.requestId, task_id: taskOf(request), key_id: request.key.keyId },
});

async function charge(
  ledger: Ledger,
  request: Generation,
  amount = -request.price,
  more = {},
): Promise<void> {
  const entry = consume(request, amount);
  await post(ledger, amount, { ...entry.fields, ...more });
  await addMoney(ledger.redis, ledger.key.names.account, "total_used", -amount);
}

async function refund(ledger: Ledger, request: Generation, amount = request.price): Promise<void> {
  const { fields } = consume(request);
  await post(ledger, amount, { ...fields, type: "recharge", reason: "refund" });
  await addMoney(ledger.redis, ledger.key.names.account, "total_used", -amount);
}

const record = ({ partition }: Ledger, { requestId }: Generation): string =>
  requestName(partition, requestId);

const found = async (ledger: Ledger): Promise<string[]> => {
  const { ok, violations } = await ledger.verify();
  expect(ok).toBe(violations.length === 0);
  expectFoundAgain((await ledger.verify(3)).violations, violations);
  expect(violations.every(({ account_id, message }) => account_id === ledger.accountId && message)).toBe(
    true,
  );
  return [...new Set(violations.map(({ invariant }) => invariant))].sort();
};

type Violations = Awaited<ReturnType<Ledger["verify"]>>["violations"];

/** Several readings find the same, nothing twice, and may find more about a request or a day that is wrong already. */
function expectFoundAgain(parted: Violations, whole: Violations): void {
  for (const one of whole) expect(parted.filter((other) => isDeepStrictEqual(one, other))).toHaveLength(1);
  const requests = new Set(whole.map(({ request_id }) => request_id));
  const further = parted.filter(
    ({ invariant, request_id }) =>
      !requests.has(request_id) && (whole.length === 0 || invariant !== "day_count"),
  );
  expect(further).toEqual([]);
}

test("a sound ledger of an account with limits over its keys has no violation", async () => {
  const { stage, key, other, verify } = await givenLedger();
  await setAccountLimits(stage, key, { max_concurrent: 9 }, [key.keyId, other.keyId]);
  expect((await verify()).violations).toEqual([]);
});

test("a sound ledger with a request in every state has no violation", async () => {
  const ledger = await givenLedger();
  expect(await ledger.verify()).toEqual({
    ok: true,
    accounts: 1,
    entries: 6,
    credits: { recharged: 1500, consumed: 60, refunded: 30, adjusted: 0, reversed: 0 },
    violations: [],
  });
});

/** Changes of the ledger, and the names under which each is found: exactly these. */
const BREAKAGES: [string, string[], (ledger: Ledger) => Promise<unknown>][] = [
  [
    "a stored balance that is one off",
    ["balance"],
    ({ redis, key }) => addMoney(redis, key.names.account, "balance", 1),
  ],
  [
    "an entry whose balance does not follow",
    ["chain"],
    async (ledger) => {
      await addMoney(ledger.redis, ledger.key.names.account, "balance", 5);
      await post(ledger, 5, { type: "recharge", amount: "4" });
    },
  ],
  [
    "a balance below zero",
    ["balance", "held", "requests"],
    async (ledger) => {
      await charge(ledger, ledger.requests.held, -2000);
    },
  ],
  ["credits held for nobody", ["held"], ({ redis, key }) => addMoney(redis, key.names.account, "held", 1)],
  [
    "more held than there is",
    ["held"],
    async (ledger) => {
      const balance = Number((await accountIn(ledger.redis, ledger.key.names.account)).balance);
      const name = record(ledger, ledger.requests.held);
      await changeRequest(ledger.redis, name, { price: balance + 1 });
      await changeMoney(ledger.redis, ledger.key.names.account, { held: balance + 1 });
    },
  ],
  [
    "a total that forgot a refund",
    ["total_used"],
    ({ redis, key }) => addMoney(redis, key.names.account, "total_used", 30),
  ],
  [
    "an entry that says it is the first",
    ["chain"],
    (ledger) => post(ledger, 5, { type: "recharge", previous: "" }),
  ],
  [
    "an entry that leaves out the one before it",
    ["chain"],
    async (ledger) => post(ledger, 5, { type: "recharge", previous: await secondLast(ledger) }),
  ],
  [
    "an account whose last entry is an earlier one",
    ["chain"],
    async (ledger) =>
      changeMoney(ledger.redis, ledger.key.names.account, { last_entry: await secondLast(ledger) }),
  ],
  [
    "an account that knows no last entry",
    ["chain"],
    ({ redis, key }) => changeMoney(redis, key.names.account, { last_entry: "" }),
  ],
  [
    "a reference that credited nothing",
    ["index", "references"],
    ({ redis, partition, accountId }) =>
      redis.hset(accountNames(partition, accountId).references, "order-2", 5),
  ],
  [
    "a recharge whose reference is forgotten",
    ["index", "references"],
    ({ redis, partition, accountId }) => redis.hdel(accountNames(partition, accountId).references, "order-1"),
  ],
  [
    "an account that is not listed",
    ["accounts"],
    ({ redis, partition, accountId }) => redis.zrem(partitionNames(partition).accounts, accountId),
  ],
  ["a request charged twice", ["requests"], (ledger) => charge(ledger, ledger.requests.completed)],
  ["a task refunded twice", ["requests"], (ledger) => refund(ledger, ledger.requests.failed)],
  ["a completed task refunded", ["requests"], (ledger) => refund(ledger, ledger.requests.completed)],
  ["a refund of what was never charged", ["requests"], (ledger) => refund(ledger, ledger.requests.void)],
  ["a void request charged", ["requests"], (ledger) => charge(ledger, ledger.requests.void)],
  [
    "a refund of less than was charged",
    ["requests"],
    async (ledger) => {
      await ledger.redis.del(record(ledger, ledger.requests.completed));
      await refund(ledger, ledger.requests.completed, 9);
    },
  ],
  [
    "a charge that adds credits",
    ["requests"],
    (ledger) => charge(ledger, ledger.stage.request(ledger.key), 5),
  ],
  [
    "a charge of no credits that was not unmetered",
    ["requests"],
    (ledger) => charge(ledger, ledger.stage.request(ledger.key), 0),
  ],
  ["an adjustment without a reason", ["chain"], (ledger) => post(ledger, -5, { type: "consume" })],
  [
    "an adjustment that says another direction",
    ["chain"],
    (ledger) => post(ledger, 5, { type: "consume", reason: "sorry" }),
  ],
  [
    "an operator's refund of what was refunded",
    ["references", "requests"],
    async (ledger) => {
      const { fields } = consume(ledger.requests.failed);
      await post(ledger, 30, { ...fields, type: "recharge", reason: "refund", reference: "r-1" });
      await addMoney(ledger.redis, ledger.key.names.account, "total_used", -30);
    },
  ],
  [
    "an operator's refund of a task that runs",
    ["references", "requests"],
    async (ledger) => {
      const { fields } = consume(ledger.requests.bound);
      await post(ledger, 20, { ...fields, type: "recharge", reason: "refund", reference: "r-1" });
      await addMoney(ledger.redis, ledger.key.names.account, "total_used", -20);
    },
  ],
  ["a recharge that takes credits", ["chain"], (ledger) => post(ledger, -5, { type: "recharge" })],
  [
    "more reversed than was granted",
    ["chain"],
    async (ledger) => {
      await post(ledger, 100, { type: "recharge", reason: "sorry" });
      await post(ledger, -1501, { type: "consume", kind: "reversal" });
      await ledger.redis.hset(accountNames(ledger.partition, ledger.accountId).reversed, "", 1501);
    },
  ],
  [
    "a reversal that gives credits",
    ["chain"],
    async (ledger) => {
      await post(ledger, 5, { type: "recharge", kind: "reversal" });
      await ledger.redis.hset(accountNames(ledger.partition, ledger.accountId).reversed, "", -5);
    },
  ],
  ["a trial that takes credits", ["chain"], (ledger) => post(ledger, -5, { type: "consume", kind: "trial" })],
  ["an entry of no known type", ["chain"], (ledger) => post(ledger, 5, { type: "gift" })],
  [
    "a charge of what is marked uncollected",
    ["requests"],
    (ledger) => changeRequest(ledger.redis, record(ledger, ledger.requests.completed), { uncollected: "1" }),
  ],
  [
    "a slot for another account's request",
    ["requests"],
    async (ledger) => {
      await changeRequest(ledger.redis, record(ledger, ledger.requests.held), { account_id: "x" });
    },
  ],
  [
    "a second slot of another key",
    ["slots"],
    (ledger) => ledger.redis.sadd(ledger.other.names.slots, ledger.requests.bound.requestId),
  ],
  [
    "another price than was fixed",
    ["requests"],
    ({ redis, ...ledger }) =>
      changeRequest(redis, record({ redis, ...ledger }, ledger.requests.completed), { price: 11 }),
  ],
  [
    "a charge for another task",
    ["requests"],
    ({ redis, ...ledger }) =>
      changeRequest(redis, record({ redis, ...ledger }, ledger.requests.bound), { task_id: "other" }),
  ],
  [
    "a charge for another account's request",
    ["requests"],
    ({ redis, ...ledger }) =>
      changeRequest(redis, record({ redis, ...ledger }, ledger.requests.completed), { account_id: "x" }),
  ],
  [
    "a task that was never charged",
    ["requests"],
    async (ledger) => {
      const { requestId, price } = ledger.requests.held;
      await changeRequest(ledger.redis, requestName(ledger.partition, requestId), { state: "bound" });
      await addMoney(ledger.redis, ledger.key.names.account, "held", -price);
      await ledger.redis.zadd(ledger.key.names.due, dueFrom("polls") + 1, requestId);
    },
  ],
  [
    "a finished task that was never charged",
    ["requests"],
    (ledger) => changeRequest(ledger.redis, record(ledger, ledger.requests.void), { state: "finished" }),
  ],
  [
    "an open request among the ended ones",
    ["requests"],
    (ledger) => ledger.redis.zadd(ledger.key.names.done, 1, ledger.requests.bound.requestId),
  ],
  [
    "an ended request that keeps its slot",
    ["slots"],
    (ledger) => ledger.redis.sadd(ledger.key.names.slots, ledger.requests.completed.requestId),
  ],
  ["a slot of nobody", ["slots"], (ledger) => ledger.redis.sadd(ledger.key.names.slots, randomId("req"))],
  [
    "an open task without its slot",
    ["slots"],
    (ledger) => ledger.redis.srem(ledger.key.names.slots, ledger.requests.bound.requestId),
  ],
  [
    "a hold without its slot",
    ["held", "slots"],
    (ledger) => ledger.redis.srem(ledger.key.names.slots, ledger.requests.held.requestId),
  ],
  [
    "a slot of another key",
    ["slots"],
    ({ redis, key, other, requests }) =>
      redis.smove(key.names.slots, other.names.slots, requests.bound.requestId),
  ],
  [
    "an open task that is never due",
    ["due"],
    (ledger) => ledger.redis.zrem(ledger.key.names.due, ledger.requests.bound.requestId),
  ],
  [
    "a hold that is never due",
    ["due"],
    (ledger) => ledger.redis.zrem(ledger.key.names.due, ledger.requests.held.requestId),
  ],
  [
    "a hold that is polled",
    ["due"],
    (ledger) => ledger.redis.zadd(ledger.key.names.due, dueFrom("polls") + 1, ledger.requests.held.requestId),
  ],
  [
    "a task that is due as a hold",
    ["due"],
    (ledger) => ledger.redis.zadd(ledger.key.names.due, 1, ledger.requests.bound.requestId),
  ],
  [
    "an open request in neither list",
    ["due", "slots"],
    async ({ redis, key, requests }) => {
      await redis.zrem(key.names.due, requests.bound.requestId);
      await redis.srem(key.names.slots, requests.bound.requestId);
    },
  ],
  [
    "an ended request that is due",
    ["due"],
    (ledger) =>
      ledger.redis.zadd(ledger.key.names.due, dueFrom("polls") + 1, ledger.requests.completed.requestId),
  ],
  [
    "a void request that is due",
    ["due"],
    (ledger) => ledger.redis.zadd(ledger.key.names.due, 1, ledger.requests.void.requestId),
  ],
  [
    "a slot of an account without limits over its keys",
    ["slots"],
    ({ redis, partition, accountId, requests }) =>
      redis.sadd(accountNames(partition, accountId).slots, requests.bound.requestId),
  ],
  [
    "an account with limits that misses an open task",
    ["slots"],
    async ({ stage, redis, key, other, requests, partition, accountId }) => {
      await setAccountLimits(stage, key, { max_concurrent: 9 }, [key.keyId, other.keyId]);
      await redis.srem(accountNames(partition, accountId).slots, requests.bound.requestId);
    },
  ],
  [
    "an account with limits that has a slot of an ended task",
    ["slots"],
    async ({ stage, redis, key, other, requests, partition, accountId }) => {
      await setAccountLimits(stage, key, { max_concurrent: 9 }, [key.keyId, other.keyId]);
      await redis.sadd(accountNames(partition, accountId).slots, requests.completed.requestId);
    },
  ],
  ["a window out of order", ["window"], (ledger) => ledger.redis.lpush(ledger.key.names.window, 1)],
  [
    "a window that forgot its newest admissions",
    ["window"],
    (ledger) => ledger.redis.del(ledger.key.names.window),
  ],
  [
    "a day that forgot an admission",
    ["day_count"],
    ({ redis, key }) => changeCounters(redis, key.names.key, { day_count: (earlier) => earlier - 1 }),
  ],
  [
    "a day of another key that forgot an ended task",
    ["day_count"],
    ({ redis, other }) => changeCounters(redis, other.names.key, { day_count: 0 }),
  ],
  ["more admitted in 60 s than was allowed", ["window"], (ledger) => heldTo(ledger, "2 9 9cd")],
  ["more open at a time than was allowed", ["slots"], (ledger) => heldTo(ledger, "9 1 9rd")],
  ["more admitted in a day than was allowed", ["day_count"], (ledger) => heldTo(ledger, "9 9 2rc")],
  ["limits that cannot be read", ["window"], (ledger) => heldTo(ledger, "9 9")],
];

/** As if the latest admission of the key had been held to these limits. */
const heldTo = ({ redis, key }: Ledger, limits: string) => changeCounters(redis, key.names.key, { limits });

// Guarantee: an older version can verify the ledger of a newer one that has one more limit.
test("numbers behind the known limits of an admission are ignored", async () => {
  const ledger = await givenLedger();
  await heldTo(ledger, "9 9 9 1");
  expect(await found(ledger)).toEqual([]);
  await heldTo(ledger, "2 9 9 9 9x");
  expect(await found(ledger)).toEqual(["window"]);
  await heldTo(ledger, "2 1 2 9rcdx");
  expect(await found(ledger)).toEqual([]);
});

test("a key that was just within its limits, or above those in shadow mode, is not named", async () => {
  const ledger = await givenLedger();
  for (const limits of ["3 2 3", "2 1 2rcd"]) {
    await heldTo(ledger, limits);
    expect(await found(ledger), limits).toEqual([]);
  }
});

/** Id of the entry before the account's last one. */
async function secondLast({ redis, key, accountId }: Ledger): Promise<string> {
  const entries = await redis.xrange(key.names.ledger, "-", "+");
  const own = entries.filter(([, fields]) => entryFields(fields).account_id === accountId).map(([id]) => id);
  return own.at(-2)!;
}

test.each(BREAKAGES)("%s is named", async (_, invariants, breakLedger) => {
  const ledger = await givenLedger();
  await breakLedger(ledger);
  expect(await found(ledger)).toEqual(invariants);
});

// Guarantee: a large ledger hides no video that was never paid.
test("tasks that were never charged are named once each, whichever reading judges their charges", async () => {
  const ledger = await givenLedger();
  const { stage, redis, key, partition } = ledger;
  const unpaid = times(8, () => stage.request(key));
  for (const one of unpaid) {
    await stage.admit(one);
    await changeRequest(redis, requestName(partition, one.requestId), { state: "bound" });
    await addMoney(redis, key.names.account, "held", -one.price);
    await redis.zadd(key.names.due, dueFrom("polls") + 1, one.requestId);
  }
  const { violations } = await ledger.verify(4);
  expect(violations.every(({ message }) => message === "is bound, but was never charged")).toBe(true);
  expect(violations.map(({ request_id }) => request_id).sort()).toEqual(
    unpaid.map(({ requestId }) => requestId).sort(),
  );
});

test("a violation names its request", async () => {
  const ledger = await givenLedger();
  await charge(ledger, ledger.requests.completed);
  expect((await ledger.verify()).violations).toEqual([
    {
      invariant: "requests",
      account_id: ledger.accountId,
      request_id: ledger.requests.completed.requestId,
      message: expect.stringContaining("once more"),
    },
  ]);
});

test("more violations than anybody reads are counted, not listed", async () => {
  const ledger = await givenLedger();
  await ledger.redis.sadd(ledger.key.names.slots, ...times(1100, () => randomId("req")));
  const { ok, violations, unlisted } = await ledger.verify();
  expect({ ok, listed: violations.length, unlisted }).toEqual({ ok: false, listed: 1000, unlisted: 100 });
  await ledger.redis.del(ledger.key.names.slots);
});

test("late, uncollected, taken back and forgotten requests are no violations", async () => {
  const ledger = await givenLedger();
  const { stage, key, redis } = ledger;
  const late = stage.request(key);
  await stage.admit(late);
  await stage.void(late, "refused");
  await stage.bind(late);
  const lateAndOpen = stage.request(key);
  await stage.admit(lateAndOpen);
  await stage.void(lateAndOpen, "unsent");
  await stage.bind(lateAndOpen);
  const lateAndEnded = stage.request(key);
  await stage.admit(lateAndEnded);
  await stage.void(lateAndEnded, "unsent");
  await stage.bind(lateAndEnded);
  await stage.observe(lateAndEnded, "failed");
  const uncollected = stage.request(key, { price: 1_000_000 });
  await stage.void(uncollected, "unsent");
  await stage.bind(uncollected);
  const poor = stage.request(key, { price: 2_000_000 });
  await stage.bind(poor);
  await stage.observe(poor, "completed");
  await stage.bind(stage.request(key, { price: 0, admittedAtMs: Date.now() }));
  await redis.del(record(ledger, ledger.requests.failed));
  expect(await found(ledger)).toEqual([]);
});

test("a request that is uncollected since its Idempotency-Key has expired early is no violation", async () => {
  const ledger = await givenLedger();
  const { stage, key, partition, redis } = ledger;
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const [first, repeat] = times(2, () => stage.request(key, { idempotency, retentionMs: 7 * 24 * HOUR_MS }));
  await stage.admit(first!);
  await stage.void(first!, "released");
  expect(await found(ledger)).toEqual([]);
  await stage.givenTask(repeat!);
  await redis.del(idempotencyName(partition, idempotency.digest));
  expect(await stage.bind(first!)).toBe("uncollected");
  expect(await found(ledger)).toEqual([]);
  await stage.observe(first!, "completed");
  expect(await found(ledger)).toEqual([]);
});

// VOID gave the day's count back, other requests took it, and then the first ones were bound after all.
test.each([1, 2])(
  "%i late requests above the limit of their day are no violation; one more is",
  async (count) => {
    const ledger = await givenLedger();
    const { stage, key, redis } = ledger;
    const { day_count } = await readCounters(redis, key.names.key);
    const late = times(count, () => stage.request(key));
    for (const one of late) {
      await stage.admit(one);
      await stage.void(one, "refused");
    }
    await changeCounters(redis, key.names.key, { limits: `1000 1000 ${day_count}` });
    for (const one of late) await stage.bind(one);
    expect(await found(ledger)).toEqual([]);
    await redis.hset(key.names.key, "late_count", count - 1);
    expect(await found(ledger)).toEqual(["day_count"]);
  },
);

test("an account that is listed without a record is named", async () => {
  const { redis, partition, accountId } = await givenLedger();
  // Of the same partition by its name alone, which is all that the list says.
  const ghost = await idInPartition(partition);
  await redis.zadd(partitionNames(partition).accounts, 0, ghost);
  const { violations } = await verifyLedger(oneNode(redis), { accountIds: [ghost, accountId] });
  expect(violations.map((one) => [one.invariant, one.account_id])).toEqual([["accounts", ghost]]);
  await redis.zrem(partitionNames(partition).accounts, ghost);
});

async function idInPartition(partition: number): Promise<string> {
  const partitions = await partitionsOf(oneNode(connection.redis));
  for (;;) {
    const id = randomId("acc");
    if (partitionOf(id, partitions) === partition) return id;
  }
}

// Guarantee: who does what decision 0008 says is not told that the ledger is wrong.
test.each([
  ["over midnight", 23.5],
  ["within a day", 12],
])("a key that was freed by hand from a clock that had been ahead %s is sound", async (_, startHours) => {
  const accountId = randomId("acc");
  const partition = partitionOf(accountId, await partitionsOf(oneNode(connection.redis)));
  const stage = createStage(connection, { partition });
  stage.clock.nowMs = Date.UTC(2031, 4, 6) + startHours * HOUR_MS;
  const key = await stage.givenKey({ accountId, credits: 1000, daily_limit: 9 });
  const admitAndBind = () => stage.givenTask(stage.request(key));
  const complaints = async () =>
    (await verifyLedger(oneNode(connection.redis), { accountIds: [accountId] })).violations.map(
      (one) => one.message,
    );
  await admitAndBind();
  stage.clock.nowMs += HOUR_MS;
  for (let at = 0; at < 3; at++) await admitAndBind();
  const hold = stage.request(key);
  await stage.admit(hold);
  expect(await complaints(), "ahead").toEqual([]);
  // A hand takes a while.
  stage.clock.nowMs += 2 * MINUTE_MS - HOUR_MS;
  await changeCounters(connection.redis, key.names.key, { clock_ms: 0 });
  await connection.redis.del(key.names.window);
  expect(await complaints(), "freed").toEqual([]);
  await admitAndBind();
  expect(await complaints(), "admitted again").toEqual([]);
  await stage.void(hold, "refused");
  stage.clock.nowMs += HOUR_MS;
  await admitAndBind();
  expect(await complaints(), "once time has caught up").toEqual([]);
  // Losses from now on are found as ever.
  await changeCounters(connection.redis, key.names.key, { day_count: (earlier) => earlier - 9 });
  await connection.redis.del(key.names.window);
  expect(await complaints()).toHaveLength(2);
});

test("ledgers longer than a page are read to their end", async () => {
  const ledger = await givenLedger();
  const { stage, key } = ledger;
  await Promise.all(times(2100, (at) => stage.recharge(key, 1, `page-${at}`)));
  expect(await ledger.verify()).toMatchObject({ ok: true, accounts: 1, entries: 2106, violations: [] });
});

test("a ledger that grew by more than a page is read up to the instant of the snapshot", async () => {
  const { stage, redis, key, accountId, partition } = await givenLedger();
  await Promise.all(times(2100, (at) => stage.recharge(key, 1, `grown-${at}`)));
  const fold = emptyFold();
  const report = (): void => {};
  const pages: number[] = [];
  const place = { redis, partition, accountId, fold, report };
  const { account } = await takeSlice(RUN, place, async ({ entries }) => {
    pages.push(entries.length);
    for (const entry of entries) addEntry(fold, entry, report);
  });
  expect(pages.length).toBeGreaterThan(2106 / ENTRIES_AT_ONCE);
  expect(new Set(pages.slice(0, -1))).toEqual(new Set([ENTRIES_AT_ONCE]));
  const { last, entries } = fold.accounts.get(accountId) ?? emptyAccount();
  expect([last, entries]).toEqual([account.last_entry, 2106]);
});

test("a ledger that moves while it is read is never called wrong", async () => {
  const ledger = await givenLedger();
  const { stage, key, other } = ledger;
  let going = true;
  let moved = 0;
  const live = async (owner: KeyRef): Promise<void> => {
    while (going) {
      const turn = moved++;
      const request = stage.request(owner, { price: 1 });
      const { outcome } = await stage.admit(request);
      if (outcome !== "admitted") await stage.recharge(owner, 100, randomId("order"));
      else if (turn % 5 === 0) await stage.void(request, turn % 2 === 0 ? "refused" : "unsent");
      else {
        await stage.bind(request);
        await stage.observe(request, turn % 2 === 0 ? "failed" : "completed");
      }
    }
  };
  await setKeyFields(ledger.redis, key.names.key, { rate_limit: 1_000_000, daily_limit: 1_000_000 });
  await setKeyFields(ledger.redis, other.names.key, { rate_limit: 1_000_000, daily_limit: 1_000_000 });
  const reader = await openConnection(server.url);
  const traffic = [live(key), live(key), live(other), live(other)];
  try {
    const enoughMs = performance.now() + 5000;
    for (let round = 0; round < 15 && performance.now() < enoughMs; round++) {
      const { violations } = await verifyLedger(oneNode(reader.redis), { accountIds: [ledger.accountId] });
      expect(violations).toEqual([]);
    }
  } finally {
    going = false;
    await Promise.all(traffic);
    await reader.close();
  }
  expect(moved).toBeGreaterThan(100);
  expect(await found(ledger)).toEqual([]);
});

// Guarantee: Redis stands still for no account, however often it was credited: references are read in bounded pages.
test("a snapshot of an account with 20,000 references reads none of them, and their sum is judged all the same", async () => {
  const { redis, partition, accountId, verify } = await givenLedger();
  const { references } = accountNames(partition, accountId);
  const fill = `for n = 1, 20000 do redis.call("HSET", KEYS[1], "key:filled-" .. n, "7") end`;
  await redis.eval(fill, 1, references);
  const fold = emptyFold();
  // Accounts of other tests may share the partition, and have filled more than a page of its ledger.
  const place = { redis, partition, accountId, fold, report: () => {} };
  const snapshot = await takeSlice(RUN, place, async ({ entries }) => {
    for (const entry of entries) addEntry(fold, entry, () => {});
  });
  expect(snapshot.references).toBe(await redis.hlen(references));
  expect(await sumReferences(RUN, place, snapshot.references)).toBe(140_000 + 1500);
  const { violations } = await verify();
  expect(violations.map(({ invariant }) => invariant)).toEqual(["references"]);
  expect(violations[0]?.message).toMatch(/^2000\d of 141500 credits, in the ledger \d of 1500$/);
  // A reference added after the snapshot: the sum is not that of its instant, so nothing is concluded from it.
  await redis.hset(references, "later", 1);
  expect(await sumReferences(RUN, place, snapshot.references)).toBeUndefined();
});

test("an amount under a reference that is not the one in the ledger is a violation", async () => {
  const { redis, partition, accountId, verify } = await givenLedger();
  await redis.hset(accountNames(partition, accountId).references, "order-1", 501);
  expect((await verify()).violations).toMatchObject([{ invariant: "references" }]);
});

test.each(SNAPSHOT_MUTANTS)("a snapshot that $what is found by the check", async (mutant) => {
  const { accountId, redis, key } = await givenLedger();
  // As many fields as it has references would hide the mistake.
  await redis.hset(key.names.account, "spare", "");
  const folder = await plantForTest(mutant);
  const reader = await openConnection(server.url);
  try {
    Object.assign(scriptsOf(reader.redis), createScriptRunner(reader.redis, { folder }));
    const { violations } = await verifyLedger(oneNode(reader.redis), { accountIds: [accountId] });
    expect(violations).toMatchObject([{ invariant: "references" }]);
  } finally {
    await reader.close();
  }
});
