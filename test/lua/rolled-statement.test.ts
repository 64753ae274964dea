import fc from "fast-check";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { DAY_MS } from "../../src/domain/moments.ts";
import { entriesBack, LOOKED_AT_MAX, rolledStatement } from "../../src/ledger/rolled-statement.ts";
import { createStatement, type Statement } from "../../src/ledger/statement-sums.ts";
import { accountStatements } from "../../src/ledger/statements.ts";
import { dayStartMs, monthBounds } from "../../src/ledger/usage.ts";
import { type GrantKind, grantText } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames, referencePlace } from "../../src/records/names.ts";
import { moneyOf } from "../../src/records/packed-fields.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { rollup } from "../../src/scripts/ledger.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { givenEntries, givenEntry, randomEntries } from "../support/statements.ts";

// A month that is summed from the roll-up, against the same month from all entries.

let server: OwnStore;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore();
  redis = server.client;
  nodes = oneNode(redis);
});
afterAll(() => server?.stop());
beforeEach(() => server.empty());

const { trimmed } = partitionNames(0);
const names = accountNames(0, "acc");
const monthBefore = (months: number): string => {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 1)).toISOString().slice(0, 7);
};
const MONTHS = [3, 2, 1, 0].map(monthBefore);
const [FIRST = "", , LAST = ""] = MONTHS;
const beginMs = dayStartMs(monthBounds(FIRST).first);
const endMs = dayStartMs(monthBounds(LAST).next);

const place = () => ({ redis, partition: 0, accountId: "acc", budget: { left: LOOKED_AT_MAX } });

const rollUpSome = (slice: number) => scriptsOf(redis).run(rollup, { partition: 0, bounds: { slice } });

async function walked(month: string): Promise<Statement> {
  const { first, next } = monthBounds(month);
  const statement = createStatement({ fromMs: dayStartMs(first), toMs: dayStartMs(next) });
  const { last_entry: last = "" } = moneyOf(await redis.hget(names.account, "money"));
  let balance = 0;
  for await (const { entries } of entriesBack(place(), last, 0, month))
    for (const entry of entries) {
      if (entry.streamId === last) balance = entry.balanceAfter;
      statement.add(entry);
    }
  return statement.end(balance);
}

/** Grants are named as the scripts that make them do. */
async function write(given: readonly GivenEntry[]): Promise<void> {
  const ids = await writeEntries(redis, 0, given);
  const pipe = redis.pipeline();
  for (const [at, { accountId, reference, amount, kind }] of given.entries()) {
    if (reference === undefined) continue;
    const { name, field } = referencePlace(0, reference);
    pipe.hset(
      accountNames(0, accountId).references,
      reference,
      grantText((kind ?? "purchase") as GrantKind, amount),
    );
    pipe.hset(name, field, `${accountId}@${ids[at]}`);
  }
  await pipe.exec();
}

// Guarantee: the short way never says another number than all entries do, however far ROLLUP has come.
test("a month of the roll-up equals the month of all entries, in any history and while ROLLUP lags", async () => {
  const property = fc.asyncProperty(
    fc.array(randomEntries(MONTHS), { minLength: 1, maxLength: 60 }),
    fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 4 }),
    async (all, steps) => {
      await server.empty();
      await write(givenEntries(all));
      if (!all.some(({ accountId }) => accountId === "acc")) return;
      for (const slice of steps) {
        await rollUpSome(slice);
        for (const month of MONTHS)
          expect(await rolledStatement(place(), month)).toEqual(await walked(month));
      }
    },
  );
  await fc.assert(property, { numRuns: 60 });
});

const charges = (count: number): GivenEntry[] =>
  Array.from({ length: count }, (_, at) =>
    givenEntry(
      { kind: "charge", credits: 2, cents: 0, keyId: "key_1", accountId: "acc", atMs: endMs - 10_000 + at },
      at,
    ),
  );
const purchase = (atMs: number): GivenEntry =>
  givenEntry({ kind: "purchase", credits: 5000, cents: 990, keyId: "", accountId: "acc", atMs }, 9999);

// Guarantee: an entry that ROLLUP counts while its sums are read counts once.
test("a month is the same if ROLLUP counts entries of the account between any two reads", async () => {
  await write([purchase(beginMs), ...charges(30)]);
  await rollUpSome(5);
  const expected = await walked(LAST);
  for (const command of ["hlen", "hscan", "hget", "hmget", "xrange", "exists"] as const) {
    const between = new Proxy(redis, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        if (name !== command) return value.bind(target);
        return async (...args: unknown[]) => {
          await rollUpSome(1);
          const answer: unknown = await Reflect.apply(value, target, args);
          await rollUpSome(1);
          return answer;
        };
      },
    });
    const found = await rolledStatement({ ...place(), redis: between }, LAST);
    expect(found ?? expected, command).toEqual(expected);
  }
  expect(await rolledStatement(place(), LAST)).toEqual(expected);
});

test("the roll-up is not asked where it does not have every entry, or where a grant cannot be found", async () => {
  await write([purchase(beginMs), ...charges(3)]);
  expect(await rolledStatement(place(), FIRST)).toBeUndefined();
  await rollUpSome(100);
  expect(await rolledStatement(place(), FIRST)).toEqual(await walked(FIRST));
  await redis.hset(trimmed, { last_entry: "0-1", at: 1, entries: 1 });
  expect(await rolledStatement(place(), FIRST)).toBeUndefined();
  await redis.del(trimmed);
  await redis.hset(partitionNames(0).rolled, { since: "1" });
  expect(await rolledStatement(place(), FIRST)).toBeUndefined();
  await redis.hset(partitionNames(0).rolled, { since: "0" });
  await redis.hdel(names.references, "o-9999");
  expect(await rolledStatement(place(), FIRST)).toBeUndefined();
  expect(await rolledStatement(place(), LAST)).toEqual(await walked(LAST));
  expect(await rolledStatement(place(), monthBefore(24))).toBeUndefined();
});

test("the roll-up is not asked once entries were made while the clock was months ahead", async () => {
  await write([purchase(beginMs), ...charges(3), purchase(endMs + 70 * DAY_MS)]);
  await rollUpSome(100);
  for (const month of [FIRST, LAST]) expect(await rolledStatement(place(), month)).toBeUndefined();
});

// Guarantee: what a page reads does not grow with the entries of an account.
test("a month with 3,000 charges reads some thousand entries at most, and says what all of them say", async () => {
  await write([purchase(endMs - 20_000), ...charges(3000)]);
  await rollUpSome(10_000);
  const expected = await walked(LAST);
  await redis.config("RESETSTAT");
  const [found] = await accountStatements(nodes, ["acc"], LAST);
  expect(found).toMatchObject({ statement: expected, source: "redis", sinceMs: undefined });
  expect(found!.statement).toMatchObject({ charges: 6000, purchases: 5000, amounts_paid: { USD: "9.90" } });
  const [, calls] = /cmdstat_xrevrange:calls=(\d+)/.exec(await redis.info("commandstats")) ?? [];
  expect(Number(calls)).toBeLessThan(1200);
});
