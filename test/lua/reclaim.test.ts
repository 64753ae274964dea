import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { trimLedger } from "../../src/archive/trimming.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { pageTransactions } from "../../src/operations/credits/transactions.ts";
import { findTask, transactionsOfTask } from "../../src/operations/tasks/operator-tasks.ts";
import { cliActor } from "../../src/records/actor.ts";
import { checkpointOf } from "../../src/records/checkpoints.ts";
import { LEDGER_START, type LedgerEntry, packedEntry, readLedger } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames, requestName } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { addMoney, changeMoney } from "../support/account-money.ts";
import { checkpointText } from "../support/checkpoint-text.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, type Stage, type TestConnection, taskOf } from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";

// RECLAIM: what the ledger, its checkpoints and its checks say of a refund that is taken back. They concern all accounts of a
// partition, so these tests have a store of their own, with one partition.

let server: OwnStore;
let connection: TestConnection;
let nodes: RedisNodes;
let stage: Stage;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  nodes = oneNode(connection.redis);
});
beforeEach(async () => {
  await server.empty();
  stage = createStage(connection, { clock: "redis", partition: 0 });
});
afterAll(() => server?.stop());

const entriesNow = (): Promise<LedgerEntry[]> => readLedger(connection.redis, 0, LEDGER_START);
const verified = async (): Promise<string[]> =>
  (await verifyLedger(nodes)).violations.map(({ message }) => message);

/** A task that ended as too old and was refunded. */
async function givenExpired() {
  const key = await stage.givenKey({ credits: 100 });
  const generation = stage.request(key, { price: 30 });
  await stage.givenTask(generation);
  await stage.observe(generation, "expired");
  const task = { taskId: taskOf(generation), requestId: generation.requestId, creatorKeyId: key.keyId };
  const call = { partition: 0, accountId: key.accountId, task, data: '{"status":"completed"}' };
  return { key, generation, call };
}

async function givenReclaimed() {
  const expired = await givenExpired();
  const [outcome, , credits] = await stage.reclaim(expired.call);
  expect([outcome, credits]).toEqual(["charged_again", "30"]);
  return expired;
}

/** Appends an entry that no script would write; the balance goes along, so that only what it is about is wrong. */
async function append({ accountId }: { accountId: string }, more: Partial<LedgerEntry>): Promise<void> {
  const last = (await entriesNow()).findLast((entry) => entry.accountId === accountId)!;
  const amount = more.amount ?? last.amount;
  const entry = {
    ...last,
    previous: last.streamId,
    ...more,
    amount,
    balanceAfter: last.balanceAfter + amount,
  };
  const { account } = accountNames(0, accountId);
  const id = await connection.redis.xadd(partitionNames(0).ledger, "*", ...packedEntry(entry));
  await addMoney(connection.redis, account, "balance", amount);
  await addMoney(connection.redis, account, "total_used", -amount);
  await changeMoney(connection.redis, account, { last_entry: id ?? "" });
}

test("the ledger is sound with a refund that was taken back, and the customer sees what it was for", async () => {
  const { key, generation } = await givenReclaimed();
  expect(await verified()).toEqual([]);
  const { balance, totalUsed, recent } = await stage.account(key);
  expect({ balance, totalUsed }).toEqual({ balance: 70, totalUsed: 30 });
  expect(recent[0]).toMatchObject({
    type: "consume",
    amount: -30,
    endpoint: generation.endpoint,
    reason: "completed_late",
    task_id: taskOf(generation),
  });
  const page = (type: "consume" | "recharge") => pageTransactions(nodes, key.accountId, { type, limit: 10 });
  expect((await page("consume")).entries.map(({ type }) => type)).toEqual(["reclaim", "consume"]);
  expect((await page("recharge")).entries.map(({ amount }) => amount)).toEqual([30, 100]);
});

test("an operator's refund of it is refused, also when its record is gone", async () => {
  const { generation } = await givenReclaimed();
  const wanted = { reason: "sorry", reference: "ticket" };
  const refused = () => refundTask(nodes, generation.requestId, wanted, cliActor());
  await expect(refused()).rejects.toMatchObject({ problem: "charged_again" });
  await connection.redis.del(requestName(0, generation.requestId));
  await expect(refused()).rejects.toMatchObject({ problem: "charged_again" });
  expect(await entriesNow()).toHaveLength(4);
});

// Guarantee: a task that was paid once is not shown as one that was paid twice.
test("its task has the charge, the refund and the charge after it, and nothing of other tasks", async () => {
  const { key, generation } = await givenReclaimed();
  await stage.givenTask(stage.request(key, { price: 30 }));
  const found = await findTask(nodes, generation.requestId);
  const entries = await transactionsOfTask(nodes, found, {});
  expect(entries.map(({ type, amount }) => [type, amount])).toEqual([
    ["consume", -30],
    ["recharge", 30],
    ["reclaim", -30],
  ]);
});

test("what is wrong with it is found", async () => {
  const { key, generation } = await givenReclaimed();
  await append(key, {});
  expect((await verified()).join()).toMatch(/what was not refunded again/);
  const other = await stage.givenKey({ credits: 100 });
  const charged = stage.request(other, { price: 20 });
  await stage.givenTask(charged);
  await stage.observe(charged, "completed");
  await append(other, { type: "reclaim", reason: "completed_late" });
  expect((await verifyLedger(nodes, { accountIds: [other.accountId] })).violations.length).toBeGreaterThan(0);
  await changeRequest(connection.redis, requestName(0, generation.requestId), { charged_again: undefined });
  expect((await verified()).join()).toMatch(/its record does not say so/);
});

test("a second refund after it is found", async () => {
  const { key } = await givenReclaimed();
  await append(key, { type: "recharge", reason: "refund", amount: 30 });
  expect((await verified()).join()).toMatch(/refunded 30/);
});

test("its entries leave the ledger, before and after it is taken back, and the rest stays sound", async () => {
  const trimAll = async (): Promise<void> => {
    const archivedTo = (await entriesNow()).at(-1)!;
    await trimLedger(scriptsOf(connection.redis).run, { partition: 0, archivedTo, keepMs: 0 });
  };
  const { key, call } = await givenExpired();
  await stage.givenKey({ credits: 1 });
  await trimAll();
  expect((await entriesNow()).length).toBe(1);
  await stage.reclaim(call);
  expect(await verified()).toEqual([]);
  await stage.givenKey({ credits: 1 });
  await trimAll();
  expect(await verified()).toEqual([]);
  const text = (await connection.redis.get(accountNames(0, key.accountId).checkpoint)) ?? "";
  const checkpoint = checkpointOf(text)!;
  expect(checkpoint).toMatchObject({ balance: 70, consumed: 30, refunded: 0 });
  expect(checkpoint.tail[0]).toMatchObject({ type: "reclaim", amount: -30, reason: "completed_late" });
  expect(checkpointText(checkpoint)).toBe(text);
  expect((await stage.account(key)).recent[0]).toMatchObject({ type: "consume", amount: -30 });
});
