import fc from "fast-check";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { accountUsage } from "../../src/ledger/account-usage.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import type { UsageRow } from "../../src/ledger/usage.ts";
import { accountNames, META, partitionNames, usageName } from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

// Pages of usage, of one account and of all.

let server: TestRedis;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await givenRedis();
  redis = server.client;
  nodes = oneNode(redis);
});
afterAll(() => server.stop());
beforeEach(() => empty());

async function empty(): Promise<void> {
  await redis.flushall();
  await redis.hset(META, { partitions: 1, id: "store", layout: "1" });
}

const monthAgo = (ago: number): string => {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago, 1)).toISOString().slice(0, 7);
};
const MONTHS = [2, 1, 0].map(monthAgo);

interface Given {
  accountId: string;
  month: string;
  field: string;
  requests: number;
}
const given: fc.Arbitrary<Given[]> = fc.array(
  fc.record({
    accountId: fc.constantFrom("acc", "acc-1", "bert"),
    month: fc.constantFrom(...MONTHS),
    field: fc
      .tuple(
        fc.constantFrom("01", "15", "28"),
        fc.constantFrom("-", "/a", "/ab"),
        fc.constantFrom("-", "k1", "k12", "*"),
      )
      .map((words) => words.join(" ")),
    requests: fc.integer({ min: 1, max: 9 }),
  }),
  { maxLength: 60 },
);

async function write(all: readonly Given[]): Promise<void> {
  await empty();
  for (const accountId of ["acc", "acc-1", "bert"]) {
    await redis.hset(accountNames(0, accountId).account, { money: "0 0 0 0 - +", created_at: "0" });
    await redis.zadd(partitionNames(0).accounts, 0, accountId);
  }
  for (const { accountId, month, field, requests } of all)
    await redis.hset(usageName(0, accountId, month), field, `${requests} ${10 * requests}`);
}

async function allPages(
  read: (place: string | undefined) => Promise<{ rows: UsageRow[]; next: string | undefined }>,
  most: number,
): Promise<UsageRow[]> {
  const rows: UsageRow[] = [];
  let place: string | undefined;
  do {
    const page = await read(place);
    expect(page.rows.length).toBeLessThanOrEqual(most);
    rows.push(...page.rows);
    place = page.next;
  } while (place !== undefined);
  return rows;
}

const groups = fc.shuffledSubarray(["day", "endpoint", "key", "month"] as const);

// Guarantee: whatever pages usage is read in, each row comes once, whole, and in the order of the groups.
test("pages of usage are together what is read at once", async () => {
  const property = fc.asyncProperty(given, groups, fc.integer({ min: 1, max: 7 }), async (all, by, limit) => {
    await write(all);
    const everything: UsageRow[] = [];
    for (const accountId of ["acc", "acc-1", "bert"]) {
      const { rows, next } = await accountUsage(nodes, { accountId, by });
      expect(next).toBe(undefined);
      const paged = await allPages((after) => accountUsage(nodes, { accountId, by, after, limit }), limit);
      expect(paged).toEqual(rows);
      everything.push(...rows.map((row) => ({ account_id: accountId, ...row })));
    }
    const ofAll = (cursor: string | undefined) => allUsage(nodes, { by: [...by, "account"], cursor, limit });
    expect(await allPages(ofAll, limit)).toEqual(everything);
    const requests = everything.reduce((sum, row) => sum + row.requests, 0);
    const last = new Map(
      all.map(({ accountId, month, field, requests: of }) => [`${accountId} ${month} ${field}`, of]),
    );
    expect(requests).toBe([...last.values()].reduce((sum, of) => sum + of, 0));
  });
  await fc.assert(property, { numRuns: 60 });
});

test("a page ends with the month in which it has read enough, and there is a next one", async () => {
  await write([]);
  const fields = Array.from({ length: 15_000 }, (_, at) => [`01 /a k${at}`, "1 10"]).flat();
  for (const month of MONTHS) await redis.hset(usageName(0, "acc", month), ...fields);
  const read = (after: string | undefined) =>
    accountUsage(nodes, { accountId: "acc", by: ["day"], after, limit: 100 });
  const page = await read(undefined);
  expect(page).toMatchObject({ looked: 15_000, rows: [{ day: `${MONTHS[0]}-01`, requests: 15_000 }] });
  expect(page.next).toBeDefined();
  expect((await allPages(read, 100)).map(({ day }) => day)).toEqual(MONTHS.map((month) => `${month}-01`));
});

test("a field that HSCAN returns twice, as during a rehash, counts once", async () => {
  await write([{ accountId: "acc", month: MONTHS[0]!, field: "01 /a k1", requests: 3 }]);
  const twice = new Proxy(redis, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name !== "hscan") return typeof value === "function" ? value.bind(target) : value;
      return async (...args: Parameters<typeof redis.hscan>) => {
        const [cursor, flat] = await target.hscan(...args);
        return [cursor, [...flat, ...flat]];
      };
    },
  });
  const { rows } = await accountUsage(oneNode(twice), { accountId: "acc", by: ["key"], limit: 100 });
  expect(rows).toMatchObject([{ key_id: "k1", requests: 3 }]);
});
