import fc from "fast-check";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { exportLedger } from "../../src/ledger/export.ts";
import { createStatement, type Statement } from "../../src/ledger/statement-sums.ts";
import { accountStatements, readStatement } from "../../src/ledger/statements.ts";
import { dayStartMs, monthBounds } from "../../src/ledger/usage.ts";
import { partitionNames } from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { writeEntries } from "../support/ledger-entries.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { closingOf, givenEntries, type RandomEntry, randomEntries } from "../support/statements.ts";
import type { TestConnection } from "../support/store.ts";

// An account's months, from Redis.

let server: OwnStore;
let connection: TestConnection;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  redis = connection.redis;
  nodes = oneNode(redis);
});
afterAll(() => server?.stop());

const MONTHS = ["2025-12", "2026-01", "2026-02", "2026-03", "2026-04"];

const statementsOf = async (accountId: string): Promise<Statement[]> => {
  const found: Statement[] = [];
  for (const month of MONTHS) {
    const [one] = await accountStatements(nodes, [accountId], month);
    expect(one).toMatchObject({ accountId, source: "redis", sinceMs: undefined });
    found.push(one!.statement);
  }
  return found;
};

/** Of the whole ledger, in its order. */
async function summedUp(accountId: string, month: string, balance: number): Promise<Statement> {
  const { first, next } = monthBounds(month);
  const statement = createStatement({ fromMs: dayStartMs(first), toMs: dayStartMs(next) });
  for await (const page of exportLedger(nodes, new Map(), { accountId, sinceMs: 0 }))
    for (const entry of page.entries) statement.add(entry);
  return statement.end(balance);
}

// Guarantee: a month adds up, the next one begins where it ended, and nothing is counted twice or left out.
test("months add up and chain, whatever entries they have, and agree with a pass over the ledger", async () => {
  const property = fc.asyncProperty(
    fc.array(randomEntries(MONTHS), { minLength: 1, maxLength: 40 }),
    async (all) => {
      await server.empty();
      const entries = givenEntries(all);
      await writeEntries(redis, 0, entries);
      for (const accountId of ["acc", "other"]) {
        const own = entries.filter((one) => one.accountId === accountId);
        if (own.length === 0) continue;
        const statements = await statementsOf(accountId);
        const balance = own.reduce((sum, { amount }) => sum + amount, 0);
        expect(statements[0]!.opening).toBe(0);
        for (const [at, one] of statements.entries()) {
          expect(one.closing).toBe(closingOf(one));
          expect(one.opening).toBe(statements[at - 1]?.closing ?? 0);
          expect(await summedUp(accountId, MONTHS[at]!, balance)).toEqual(one);
        }
        expect(statements.at(-1)!.closing).toBe(balance);
        for (const currency of ["USD", "EUR"]) {
          const isPaidIn = (one: RandomEntry): boolean =>
            one.accountId === accountId &&
            one.kind === "purchase" &&
            (one.cents % 2 === 0) === (currency === "USD");
          const paid = statements.map(({ amounts_paid: one }) =>
            Number((one[currency] ?? "0.00").replace(".", "")),
          );
          expect(paid.reduce((sum, one) => sum + one, 0)).toBe(
            all.filter(isPaidIn).reduce((sum, { cents }) => sum + cents, 0),
          );
        }
      }
    },
  );
  await fc.assert(property, { numRuns: 60 });
});

test("a month of which entries have left Redis says since when it is whole, and opens with what has left", async () => {
  await server.empty();
  const at = (day: string): number => Date.parse(`2026-01-${day}T00:00:00Z`);
  const ids = await writeEntries(redis, 0, [
    { accountId: "acc", amount: 100, atMs: at("02"), reference: "o-1" },
    { accountId: "acc", amount: 10, atMs: at("03"), reference: "o-2", kind: "trial" },
    { accountId: "acc", amount: 7, atMs: at("04"), reference: "o-3", kind: "goodwill" },
  ]);
  const { ledger, trimmed } = partitionNames(0);
  await redis.xtrim(ledger, "MINID", ids[1]!);
  await redis.hset(trimmed, { last_entry: ids[0]!, at: at("02"), entries: 1 });
  expect(await readStatement(nodes, "acc", "2026-01")).toMatchObject({
    sinceMs: at("03"),
    statement: { opening: 100, purchases: 0, trials: 10, goodwill: 7, closing: 117 },
  });
  expect(await readStatement(nodes, "acc", "2026-02")).toMatchObject({
    sinceMs: undefined,
    statement: { opening: 117, closing: 117 },
  });
  await redis.xtrim(ledger, "MAXLEN", 0);
  expect(await readStatement(nodes, "acc", "2026-01")).toMatchObject({
    sinceMs: at("04") + 1,
    statement: { opening: 117, closing: 117 },
  });
});

// Guarantee: finance gets no closing balance that is that of a later day.
test("a month behind which entries have left Redis is not answered from it", async () => {
  await server.empty();
  const at = (day: string): number => Date.parse(`${day}T00:00:00Z`);
  const ids = await writeEntries(redis, 0, [
    { accountId: "acc", amount: 100, atMs: at("2026-01-02"), reference: "o-1" },
    { accountId: "acc", amount: -30, atMs: at("2026-02-03"), reason: "mistake", reference: "a-1" },
    { accountId: "acc", amount: 7, atMs: at("2026-03-04"), reference: "o-2" },
  ]);
  const { ledger, trimmed } = partitionNames(0);
  const leave = async (count: number): Promise<void> => {
    await redis.xtrim(ledger, "MAXLEN", ids.length - count);
    await redis.hset(trimmed, { last_entry: ids[count - 1]!, at: at("2026-03-04"), entries: count });
  };
  await leave(1);
  expect((await readStatement(nodes, "acc", "2026-01")).statement.closing).toBe(100);
  // Entries that have left are of an earlier month, so this one is whole.
  expect(await readStatement(nodes, "acc", "2026-02")).toMatchObject({
    sinceMs: undefined,
    statement: { opening: 100, adjustments: -30, closing: 70 },
  });
  for (const count of [2, 3]) {
    await leave(count);
    await expect(readStatement(nodes, "acc", "2026-01")).rejects.toMatchObject({ code: "unavailable" });
    expect((await readStatement(nodes, "acc", "2026-03")).statement.closing).toBe(77);
  }
});

test.each([
  ["2026-13", "2026 has no month 13"],
  ["2026-00", "2026 has no month 00"],
  ["2026-02-30", "2026-02 has no day 30"],
  ["2026-1", "such as 2026-10"],
  ["2026", "such as 2026-10"],
  ["next", "such as 2026-10"],
  ["2026-02-03", "such as 2026-10"],
])("%s is no month: %s", async (month, words) => {
  const refused = readStatement(nodes, "acc", month);
  await expect(refused).rejects.toMatchObject({ problem: "invalid_month", path: "month" });
  await expect(refused).rejects.toThrow(words);
});

test("an account that is not there has no statement", async () => {
  await expect(readStatement(nodes, "nobody", "2026-01")).rejects.toMatchObject({ problem: "not_found" });
});
