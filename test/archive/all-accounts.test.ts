import { afterAll, beforeAll, expect, test } from "vitest";
import { periodOf } from "../../src/admin/api/request.ts";
import { type ArchiveReads, openArchiveReads } from "../../src/archive/reads.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import { salesOf } from "../../src/ledger/sales.ts";
import { totalStatement } from "../../src/ledger/total-statement.ts";
import { topAccounts } from "../../src/operations/accounts/top-accounts.ts";
import { pageAllTransactions, pageTransactions } from "../../src/operations/credits/transactions.ts";
import type { LedgerEntry } from "../../src/records/ledger-entries.ts";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage } from "./stage.ts";

// Lists over all accounts, of the two customers of docs/archive.md; nothing of theirs is rolled up in Redis.

let stage: ArchiveStage;
let archive: ArchiveReads & { close(): void };
beforeAll(async () => {
  stage = await givenArchiveStage();
  await givenExample(stage);
  const copier = await stage.copier();
  await copier.copy();
  const { of, close } = openArchiveReads(stage.url);
  archive = { ...of(stage.nodes), close };
});
afterAll(async () => {
  archive.close();
  await stage.stop();
});

async function transactions(limit: number, more: object = {}): Promise<LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  let cursor: string | undefined;
  do {
    const page = await pageAllTransactions(stage.nodes, { limit, cursor, ...more }, archive);
    expect(page.source).toBe("archive");
    entries.push(...page.entries);
    cursor = page.next;
  } while (cursor !== undefined);
  return entries;
}

test("transactions of all accounts are all there, each once, newest first, whatever the size of a page", async () => {
  for (const limit of [1, 4, 100]) {
    const entries = await transactions(limit);
    expect(entries).toHaveLength(22);
    expect(new Set(entries.map(({ partition, streamId }) => `${partition} ${streamId}`)).size).toBe(22);
    expect(entries.map(({ atMs }) => atMs)).toEqual(entries.map(({ atMs }) => atMs).sort((a, b) => b - a));
  }
  const october = { fromMs: Date.parse("2025-10-01"), toMs: Date.parse("2025-11-01") };
  expect(await transactions(2, { ...october, kind: "purchase" })).toMatchObject([{ amount: 200 }]);
  const inRedis = await pageAllTransactions(stage.nodes, { limit: 100 });
  expect(inRedis.source).toBe("redis");
  const idsOf = (some: LedgerEntry[]) => some.map(({ streamId }) => streamId).sort();
  expect(idsOf(inRedis.entries)).toEqual(idsOf(await transactions(100)));
});

test("what was sold before Redis reaches back comes from the archive, with the money", async () => {
  const sold = await salesOf(stage.nodes, "2025-10", archive);
  expect(sold).toMatchObject({ source: "archive", sinceMs: undefined, unread: undefined });
  expect(sold.sales).toEqual([
    { kind: "purchase", package: "", currency: "", grants: 1, credits: 200, amountPaid: undefined },
  ]);
  expect(await salesOf(stage.nodes, "2025-10")).toMatchObject({ source: "redis", sales: [] });
});

test("the statement of all accounts comes from the archive, and without one says what is not known", async () => {
  const numbers = { purchases: 200, trials: 0, goodwill: 0, charges: 150, refunds: 80, adjustments: 0 };
  expect(await totalStatement(stage.nodes, "2025-10", archive)).toEqual({
    statement: { opening: 580, ...numbers, reversals: 0, closing: 710, amounts_paid: {} },
    ...{ source: "archive", sinceMs: undefined, untilMs: undefined, unread: undefined },
  });
  expect(await totalStatement(stage.nodes, "2025-10")).toMatchObject({
    statement: { opening: null, closing: null },
    ...{ source: "redis", sinceMs: expect.any(Number) },
  });
});

test("usage of months that Redis does not reach comes from the archive, by month and account", async () => {
  const period = { from: "2025-09-01", to: "2025-11-30", limit: 100 };
  const byMonth = await allUsage(stage.nodes, { ...period, by: ["month"] }, archive);
  expect(byMonth).toMatchObject({ source: "archive", sinceMs: undefined });
  expect(byMonth.rows.map(({ month, credits, refunds }) => [month, credits, refunds])).toEqual([
    ["2025-09", 60, 40],
    ["2025-10", 150, 80],
    ["2025-11", 50, 10],
  ]);
  const both = await allUsage(stage.nodes, { ...period, by: ["month", "account"] }, archive);
  expect(both.rows.map(({ account_id: id, month, credits }) => [id, month, credits])).toEqual([
    ...[
      ["acme", "2025-09", 60],
      ["acme", "2025-10", 150],
      ["acme", "2025-11", 10],
    ],
    ["globex", "2025-11", 40],
  ]);
});

test("top accounts of months that Redis does not reach come from the archive", async () => {
  const period = { from: "2025-09-01", to: "2025-11-30" };
  const top = await topAccounts(stage.nodes, { by: "spend", limit: 1, ...period }, archive);
  expect(top).toMatchObject({
    source: "archive",
    complete: true,
    accounts: [{ accountId: "acme", amount: 100 }],
  });
  const inRedis = await topAccounts(stage.nodes, { by: "spend", limit: 1, ...period });
  expect(inRedis).toMatchObject({ source: "redis", accounts: [], sinceMs: expect.any(Number) });
});

// Guarantee: the list is the same from either source: nobody is in it who spent nothing.
test("an account whose charges were all refunded is none that spent", async () => {
  const period = { from: "2025-10-17", to: "2025-10-17" };
  expect(await topAccounts(stage.nodes, { by: "spend", limit: 10, ...period }, archive)).toMatchObject({
    source: "archive",
    accounts: [],
  });
});

// Guarantee: a period without an end, as programs write it, is answered.
test("days at both ends of the calendar are those that PostgreSQL cannot write, too", async () => {
  const all = { from: "0000-01-01", to: "9999-12-31" };
  expect(await transactions(100, periodOf(all))).toHaveLength(22);
  expect(
    (await pageTransactions(stage.nodes, "acme", { limit: 100, ...periodOf(all) }, archive)).entries,
  ).toHaveLength(16);
  expect((await allUsage(stage.nodes, { ...all, by: ["month"], limit: 100 }, archive)).rows).toHaveLength(3);
  expect((await topAccounts(stage.nodes, { by: "spend", limit: 1, ...all }, archive)).accounts).toMatchObject(
    [{ accountId: "acme", amount: 100 }],
  );
  for (const [month, closing] of [
    ["0000-01", 0],
    ["9999-12", 640],
  ] as const) {
    expect((await totalStatement(stage.nodes, month, archive)).statement).toMatchObject({ closing });
    expect((await salesOf(stage.nodes, month, archive)).sales).toEqual([]);
  }
});

test("usage by account says that it is from Redis while the archive is away", async () => {
  const away = openArchiveReads("postgres://127.0.0.1:1/none");
  const found = await allUsage(stage.nodes, { by: ["account"], limit: 100 }, away.of(stage.nodes));
  away.close();
  expect(found).toMatchObject({ source: "redis", sinceMs: expect.any(Number) });
});
