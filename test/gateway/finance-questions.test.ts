import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { monthBounds } from "../../src/ledger/usage.ts";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { until } from "../support/gateway.ts";
import { createStage, openConnection } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: the calls of docs/management.md answer finance's questions, and each figure is the sum over the transactions behind it.

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/management.md"), "utf8");
const BLOCK = /\n## Questions that finance asks\n[\s\S]*?\n```sh\n([\s\S]*?)\n```/.exec(PAGE)?.[1] ?? "";
const [SETTINGS = "", ...QUESTIONS] = BLOCK.split(/^# /m);

const MONTH = new Date().toISOString().slice(0, 7);
const { first, next } = monthBounds(MONTH);
const LAST_DAY = new Date(Date.parse(next) - 86_400_000).toISOString().slice(0, 10);
const BEFORE = new Date(Date.parse(first) - 86_400_000).toISOString().slice(0, 7);
const run = promisify(execFile);

interface Row {
  account_id: string;
  kind: string;
  amount: number;
  created_at: string;
  [other: string]: unknown;
}

let redis: TestRedis;
let stage: ManageStage;
/** All transactions, read page by page: what the figures are compared with. */
let ledger: Row[];
const answers = new Map<number, string[]>();
beforeAll(async () => {
  redis = await givenRedis();
  await givenMonthBefore();
  stage = await givenManageStage({ redisUrl: redis.url });
  const begunMs = Date.now();
  await givenMonth();
  await isRolledUp();
  for (const question of QUESTIONS)
    answers.set(Number.parseInt(question, 10), await answerLines(question, begunMs));
  await isRolledUp();
  ledger = await allTransactions();
});
afterAll(async () => {
  await stage?.stop();
  await redis?.stop();
});

const post = async (path: string, body: object, token = ADMIN_TOKEN) => {
  const reply = await stage.manage("POST", path, { body, token });
  expect(reply.status, JSON.stringify(reply.body)).toBeLessThan(300);
  return reply.body;
};
const total = async () => (await stage.manage("GET", `/statements/total?month=${MONTH}`)).body;

/** Totals are about a second behind. */
const isRolledUp = () =>
  until(async () => (await total()).closing === balanceOf(await allTransactions()), "the roll-up");

/** Two customers a month ago, by a clock that stands there: bought, tried, charged, and refunded. */
async function givenMonthBefore(): Promise<void> {
  const connection = await openConnection(redis.url);
  for (const [nth, accountId] of ["acme", "bert"].entries()) {
    const partition = partitionOf(accountId, 64);
    const past = createStage(connection, { partition });
    past.clock.nowMs = Date.parse(`${BEFORE}-05T12:00:00Z`) + nth * 1000;
    const key = await past.givenKey({ accountId, credits: 0 });
    await past.recharge(keyRef("", accountId, partition), 300, "first-order");
    await past.recharge(keyRef("", accountId, partition), 20, "trial", 0, "trial");
    for (const outcome of ["completed", "failed"] as const) {
      const generation = past.request(key, { endpoint: TEXT_TO_VIDEO, price: 30, retentionMs: 2 ** 40 });
      await past.givenTask(generation);
      await past.observe(generation, outcome);
    }
  }
  await connection.close();
}

/** All that a month has. */
async function givenMonth(): Promise<void> {
  const support = await stage.givenToken(["credits:write"], { label: "support" });
  await post("/accounts", { account_id: "cleo", label: "Cleo" });
  await post("/accounts/acme/grants", { package: "premium", reference: "order-1" });
  await post("/accounts/acme/grants", { package: "basic", reference: "order-2" });
  const inEuros = { reference: "order-3", amount_paid: "45.50", currency: "EUR" };
  await post("/accounts/bert/grants", { credits: 500, ...inEuros });
  await post("/accounts/bert/grants", {
    package: "basic",
    reference: "order-4",
    amount_paid: "8.00",
    currency: "USD",
  });
  for (const [account, credits] of [
    ["acme", 10],
    ["cleo", 40],
  ] as const)
    await post(`/accounts/${account}/grants`, { credits, kind: "trial", reference: "trial again" });
  for (const [account, credits] of [
    ["acme", 15],
    ["cleo", 25],
  ] as const)
    await post(`/accounts/${account}/grants`, { credits, kind: "goodwill", reference: "sorry" }, support);
  await post("/accounts/bert/adjustments", { amount: -7, reason: "counted twice", reference: "adjusted" });
  const back = { reference: "chargeback-2", reason: "card was stolen", amount: 60 };
  await post("/accounts/acme/reversals", { of: "order-2", ...back });
  await post("/accounts/bert/reversals", { of: "order-4", reference: "chargeback-4", reason: "returned" });
  for (const [account, requests] of [
    ["acme", 5],
    ["bert", 3],
    ["cleo", 1],
  ] as const) {
    const { key } = await stage.givenKey(account, { limits: { max_concurrent: 20 } });
    const tasks: string[] = [];
    for (let nth = 0; nth < requests; nth++)
      tasks.push((await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT })).body.data.task_id);
    for (const task of tasks)
      await until(async () => {
        await stage.gateway.request("GET", `/api/v1/tasks/${task}`, { key });
        return (await stage.manage("GET", `/tasks/${task}`)).body.status === "completed";
      }, "the task's end");
    await post(`/tasks/${tasks[0]}/refund`, { reason: "black frames", reference: `refund-${account}` });
  }
}

async function allTransactions(): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor = ""; ; ) {
    const { body } = await stage.manage("GET", `/transactions?limit=100${cursor}`);
    rows.push(...body.data);
    if (body.next_cursor === null) return rows;
    cursor = `&cursor=${body.next_cursor}`;
  }
}

const isOf = (month: string) => (row: Row) => row.created_at.startsWith(month);
/** Sum of a kind of entries, in this month. */
const sumOf = (rows: readonly Row[], kind: string, month = MONTH): number =>
  Math.abs(balanceOf(rows.filter((row) => row.kind === kind && isOf(month)(row)))) *
  (kind === "adjustment" ? Math.sign(balanceOf(rows.filter((row) => row.kind === kind))) : 1);
const balanceOf = (rows: readonly Row[]): number => rows.reduce((sum, { amount }) => sum + amount, 0);

/** Runs the lines of a question in a shell as they are printed, in this month. @returns what each line answers */
async function answerLines(question: string, begunMs: number): Promise<string[]> {
  const settings = SETTINGS.replace(
    /^month=.*$/m,
    `month=${MONTH} before=${BEFORE} days="from=${first}&to=${LAST_DAY}"`,
  );
  const lines = question
    .split("\n")
    .slice(1)
    .join("\n")
    .replace(/^(get|post) .*$/gm, "$&; echo; echo ----")
    .replace("2026-10-05T10:00:00Z", new Date(begunMs).toISOString())
    .replace("2026-10-05T10:30:00Z", new Date(begunMs + 1_800_000).toISOString());
  const env = {
    ...process.env,
    api: `${stage.gateway.adminUrl}/manage/v1`,
    auth: `Authorization: Bearer ${ADMIN_TOKEN}`,
  };
  const { stdout } = await run("bash", ["-euc", `${settings}\n${lines}`], { env });
  const found = stdout.split("----\n").slice(0, -1);
  expect(found.length).toBeGreaterThan(0);
  expect(found.length, "two calls at most").toBeLessThanOrEqual(2);
  return found;
}

const answerTo = (question: number, nth = 0) => JSON.parse(answers.get(question)![nth]!);
const listed = (question: number, nth = 0): Row[] => {
  const { data, next_cursor: more } = answerTo(question, nth);
  expect(more).toBeNull();
  return data;
};

test("the page has ten questions", () => expect(QUESTIONS).toHaveLength(10));

test("1: what was sold and given adds up to the grants", () => {
  const sold = listed(1) as unknown as {
    kind: string;
    package: string | null;
    grants: number;
    credits: number;
  }[];
  for (const kind of ["purchase", "trial", "goodwill"]) {
    const rows = ledger.filter((row) => row.kind === kind && isOf(MONTH)(row));
    const ofKind = sold.filter((one) => one.kind === kind);
    expect(
      ofKind.reduce((sum, { credits }) => sum + credits, 0),
      kind,
    ).toBe(balanceOf(rows));
    expect(
      ofKind.reduce((sum, { grants }) => sum + grants, 0),
      kind,
    ).toBe(rows.length);
  }
  expect(sold.find((one) => one.package === "basic")).toMatchObject({ grants: 2, credits: 200 });
});

test("2: what is owed is what all transactions come to", () => {
  const { closing, source, since } = answerTo(2);
  // Before the corrections of question 7.
  const corrected = balanceOf(ledger.filter(({ reason }) => reason === "wrong price"));
  expect(corrected).toBeGreaterThan(0);
  expect([closing, source, since]).toEqual([balanceOf(ledger) - corrected, "redis", null]);
});

test("3: goodwill names account and giver", () => {
  const rows = listed(3);
  expect(rows.map(({ account_id, amount, by, reference }) => [account_id, amount, by, reference])).toEqual([
    ["cleo", 25, expect.stringMatching(/^tok_\S+ support$/), "sorry"],
    ["acme", 15, expect.stringMatching(/^tok_\S+ support$/), "sorry"],
  ]);
  expect(balanceOf(rows)).toBe(sumOf(ledger, "goodwill"));
});

test("4 and 5: refunds and reversals have their reasons, and add up", () => {
  const refunds = listed(4);
  expect(refunds.map(({ account_id, reason }) => [account_id, reason])).toEqual([
    ["cleo", "black frames"],
    ["bert", "black frames"],
    ["acme", "black frames"],
  ]);
  expect(balanceOf(refunds)).toBe(sumOf(ledger, "refund"));
  const reversals = listed(5);
  expect(reversals.map(({ of, amount, reason }) => [of, amount, reason])).toEqual([
    ["order-4", -100, "returned"],
    ["order-2", -60, "card was stolen"],
  ]);
  expect(-balanceOf(reversals)).toBe(sumOf(ledger, "reversal"));
});

test("6: a customer's statement adds up to the transactions behind it", () => {
  const [names, values] = answers
    .get(6)![0]!
    .split("\r\n")
    .map((line) => line.split(","));
  const column = (name: string) => Number(values![names!.indexOf(name)]);
  const rows = listed(6, 1);
  const columns = {
    charges: -1,
    refunds: 1,
    purchases: 1,
    trials: 1,
    goodwill: 1,
    adjustments: 1,
    reversals: -1,
  };
  for (const [name, sign] of Object.entries(columns))
    expect(column(name), name).toBe(sign * balanceOf(rows.filter(({ kind }) => `${kind}s`.startsWith(name))));
  expect(column("opening") + balanceOf(rows)).toBe(column("closing"));
  expect(column("closing")).toBe(rows[0]!.balance_after);
});

test("7: wrong charges are listed, and the difference goes back once each", () => {
  const [dry, done] = [answerTo(7), answerTo(7, 1)];
  // Refunded ones are none of them.
  const wrong = ledger.filter(({ kind }) => kind === "charge").filter(isOf(MONTH)).length - 3;
  expect(dry).toMatchObject({ charges: wrong, corrected: 0, credits: 2 * wrong });
  expect(done).toMatchObject({ charges: wrong, corrected: wrong, credits: 2 * wrong });
  const given = ledger.filter(({ reference }) => String(reference).startsWith("price-1005 "));
  expect([given.length, balanceOf(given)]).toEqual([wrong, 2 * wrong]);
});

test("8: what was paid adds up, by currency and customer", () => {
  const paid = (rows: readonly Row[]): Record<string, string> => {
    const cents: Record<string, number> = {};
    for (const { amount_paid: amount, currency } of rows.filter(isOf(MONTH)))
      if (amount !== undefined)
        cents[String(currency)] = (cents[String(currency)] ?? 0) + Math.round(Number(amount) * 100);
    return Object.fromEntries(Object.entries(cents).map(([name, sum]) => [name, (sum / 100).toFixed(2)]));
  };
  expect(answerTo(8).amounts_paid).toEqual(paid(ledger));
  expect(paid(ledger)).toEqual({ USD: "57.80", EUR: "45.50" });
  for (const one of listed(8, 1))
    expect(one.amounts_paid, one.account_id).toEqual(
      paid(ledger.filter(({ account_id }) => account_id === one.account_id)),
    );
});

test("9: the customers that spent most", () => {
  const spent = (account: string) =>
    -balanceOf(
      ledger
        .filter(isOf(MONTH))
        .filter(({ kind, account_id }) => account_id === account && /charge|refund/.test(kind)),
    );
  expect(listed(9).map((row) => [row.account_id, row.credits])).toEqual([
    ["acme", spent("acme")],
    ["bert", spent("bert")],
  ]);
});

test("10: a month begins with what the one before ended with", async () => {
  const [before, now] = [answerTo(10), answerTo(10, 1)];
  expect(before.closing).toBe(balanceOf(ledger.filter(isOf(BEFORE))));
  expect(before).toMatchObject({ opening: 0, purchases: 600, trials: 40, charges: 120, refunds: 60 });
  expect(now.opening).toBe(before.closing);
  expect(await total()).toMatchObject({
    ...{ opening: before.closing, closing: balanceOf(ledger) },
    ...{ purchases: sumOf(ledger, "purchase"), trials: sumOf(ledger, "trial") },
    ...{ goodwill: sumOf(ledger, "goodwill"), reversals: sumOf(ledger, "reversal") },
    ...{ refunds: sumOf(ledger, "refund"), adjustments: sumOf(ledger, "adjustment") },
  });
});
