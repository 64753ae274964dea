import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenCliAccount, json, refusal, runHere } from "../support/cli.ts";
import { openConnection, randomId, type TestConnection, taskOf } from "../support/store.ts";

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

describe("credits", () => {
  test("one reference credits once, and another amount under it is an error", async () => {
    const { accountId } = await givenCliAccount(connection);
    const grant = (...more: string[]) => ["credits", "grant", accountId, ...more];
    const first = {
      account_id: accountId,
      kind: "purchase",
      amount: 50,
      reference: "order-1",
      balance: 1050,
    };
    expect(await json(...grant("50", "--reference", "order-1"))).toEqual({ outcome: "recharged", ...first });
    expect(await json(...grant("50", "--reference", "order-1"))).toEqual({ outcome: "duplicate", ...first });
    expect((await runHere(grant("50", "--reference", "order-1"))).stdout).toContain("nothing is changed");
    expect(await refusal(...grant("51", "--reference", "order-1"))).toContain("another grant");
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 1050 });
  });

  test.each([
    ["basic", 100],
    ["standard", 200],
    ["premium", 500],
    ["enterprise", 1000],
  ])("the package %s is worth %i credits", async (name, amount) => {
    const { accountId } = await givenCliAccount(connection);
    const answer = await json("credits", "grant", accountId, "--package", name, "--reference", "order-1");
    expect(answer).toMatchObject({ outcome: "recharged", amount, balance: 1000 + amount });
  });

  test("grant refuses what is unclear", async () => {
    const { accountId } = await givenCliAccount(connection);
    const to = ["credits", "grant", accountId];
    expect(await refusal(...to, "5")).toContain("--reference");
    expect(await refusal(...to, "--reference", "r")).toContain("how many");
    expect(await refusal(...to, "5", "--package", "basic", "--reference", "r")).toContain("not both");
    expect(await refusal(...to, "--package", "huge", "--reference", "r")).toContain("premium");
    expect(await refusal(...to, "0", "--reference", "r")).toContain("whole number");
    expect(await refusal(...to, "5", "--reference", "")).toContain("reference");
    expect(await refusal("credits", "grant", randomId("acc"), "5", "--reference", "r")).toContain(
      "no account",
    );
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 1000 });
  });

  test("show tells what can be spent, what is held, and the latest transactions", async () => {
    const { accountId, keyId, stage, ref } = await givenCliAccount(connection);
    await stage.admit(stage.request(ref, { price: 30 }));
    await stage.givenTask(stage.request(ref, { price: 200 }));
    const shown = await json("credits", "show", accountId);
    expect(shown).toMatchObject({
      account_id: accountId,
      balance: 770,
      held: 30,
      total_used: 200,
      total_requests: 2,
      recent_transactions: [
        { type: "consume", amount: -200, balance_after: 800 },
        { type: "recharge", amount: 1000, balance_after: 1000 },
      ],
      keys: [{ key_id: keyId }],
    });
    expect(await refusal("credits", "show", randomId("acc"))).toContain("no account");
  });
});

// Guarantee: an operator sees at a glance what each transaction is, and what it was for.
test("credits show names the kind of each transaction, and its endpoint, task, reason or reference", async () => {
  const { accountId, stage, ref } = await givenCliAccount(connection);
  const request = stage.request(ref, { price: 30 });
  await stage.givenTask(request);
  const taskId = taskOf(request);
  await json("tasks", "release", taskId);
  await json("credits", "grant", accountId, "50", "--reference", "order-1");
  await json("credits", "adjust", accountId, "-5", "--reason", "slip", "--reference", "ticket-9");
  const { stdout } = await runHere(["credits", "show", accountId]);
  const rows = stdout.split("\n").filter((line) => /^\d{4}-/.test(line) && / {2}-?\d+ {2}/.test(line));
  expect(rows.map((line) => line.split(/ {2,}/).slice(1))).toEqual([
    ["adjustment", "-5", "1045", "slip (ticket-9)"],
    ["purchase", "50", "1050", "(order-1)"],
    ["refund", "30", "1000", expect.stringContaining(taskId)],
    ["charge", "-30", "970", request.endpoint],
    ["trial", "1000", "1000", expect.anything()],
  ]);
  const { recent_transactions } = await json("credits", "show", accountId);
  expect(recent_transactions.slice(0, 2)).toMatchObject([
    { type: "consume", reason: "slip", kind: "adjustment", reference: "ticket-9" },
    { type: "recharge", kind: "purchase", reference: "order-1" },
  ]);
});

describe("tasks", () => {
  test("release ends a stuck task as failed, refunds it once and frees its slot", async () => {
    const { accountId, stage, ref } = await givenCliAccount(connection);
    const request = stage.request(ref, { price: 30 });
    await stage.givenTask(request);
    const taskId = taskOf(request);
    expect(await json("tasks", "show", taskId)).toMatchObject({
      request_id: request.requestId,
      task_id: taskId,
      state: "bound",
      account_id: accountId,
      price: 30,
    });
    const released = await json("tasks", "release", taskId);
    expect(released).toMatchObject({ outcome: "ended", refunded: 30, state: "finished", status: "failed" });
    expect(await json("tasks", "release", request.requestId)).toMatchObject({ outcome: "already_finished" });
    expect(await json("credits", "show", accountId)).toMatchObject({ balance: 1000, total_used: 0 });
    expect(await connection.redis.smembers(ref.names.slots)).toEqual([]);
    const answer = await stage.store.inspectTask(ref, taskId, 5000, stage.tiers);
    expect(answer).toMatchObject({ task: { status: "failed" } });
    expect(await json("ledger", "verify", "--account", accountId)).toMatchObject({ ok: true });
  });

  test("release takes a hold back before it is due", async () => {
    const { accountId, stage, ref } = await givenCliAccount(connection);
    const request = stage.request(ref, { price: 30 });
    await stage.admit(request);
    expect(await json("tasks", "show", request.requestId)).toMatchObject({ state: "held", price: 30 });
    const released = await json("tasks", "release", request.requestId);
    expect(released).toMatchObject({ outcome: "voided", credits: 30, state: "void" });
    expect(await json("tasks", "release", request.requestId)).toMatchObject({ outcome: "already_void" });
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 1000, held: 0 });
    expect(await connection.redis.smembers(ref.names.slots)).toEqual([]);
    expect(await json("ledger", "verify", "--account", accountId)).toMatchObject({ ok: true });
  });

  // Guarantee: who answers a customer sees whether their credits went back, by a failure or by an operator.
  test("show says whether a task was refunded", async () => {
    const { stage, ref } = await givenCliAccount(connection);
    const [failed, completed] = [stage.request(ref, { price: 30 }), stage.request(ref, { price: 20 })];
    await stage.givenTask(failed);
    await stage.givenTask(completed);
    expect(await json("tasks", "show", taskOf(failed))).toMatchObject({ refunded: false });
    expect((await runHere(["tasks", "show", taskOf(failed)])).stdout).toMatch(/^refunded +false$/m);
    expect(await json("tasks", "release", taskOf(failed))).toMatchObject({ outcome: "ended", refunded: 30 });
    expect(await json("tasks", "show", taskOf(failed))).toMatchObject({ refunded: true });

    await stage.observe(completed, "completed");
    const refund = ["tasks", "refund", taskOf(completed), "--reason", "outage", "--reference", "t-1"];
    expect(await json("tasks", "show", taskOf(completed))).toMatchObject({ refunded: false });
    expect(await json(...refund)).toMatchObject({ outcome: "refunded" });
    expect((await runHere(["tasks", "show", taskOf(completed)])).stdout).toMatch(/^refunded +true$/m);
  });

  test("an unknown task is an error", async () => {
    expect(await refusal("tasks", "show", randomId("task"))).toContain("no task or request");
    expect(await refusal("tasks", "release", randomId("task"))).toContain("no task or request");
    // A customer may quote an id of their own.
    expect(await refusal("tasks", "show", "order-1")).toContain("client_request_id");
  });
});
