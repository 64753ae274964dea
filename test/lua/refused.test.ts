import { afterAll, beforeAll, expect, test } from "vitest";
import {
  addRefusals,
  type HourlyRefusals,
  refusalsOf,
  topRefusals,
} from "../../src/operations/accounts/refusals.ts";
import { partitionOf, refusalsName } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { refused } from "../../src/scripts/surveys.ts";
import { openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, REFUSED_MUTANTS } from "./mutants.ts";

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** 14:00 of a day that no other test uses. */
const NOW_MS = Date.UTC(2040, 0, 20, 14);
const nodes = () => oneNode(connection.redis);
const add = (refusals: HourlyRefusals[]) => addRefusals(connection, refusals);

// Guarantee: "why did this key get 429 at 14:03 yesterday?" has an answer for eight days.
test("refusals are counted by key, outcome and hour, over all gateways, and shown for eight days", async () => {
  const accountId = randomId("acc");
  const of = (keyId: string, outcome: string, atMs: number, count = 1): HourlyRefusals => ({
    accountId,
    keyId,
    outcome,
    atMs,
    count,
  });
  const yesterday = NOW_MS - DAY_MS;
  await add([
    of("key_1", "rate_limited", yesterday + 3 * 60_000, 7),
    of("key_1", "rate_limited", yesterday + HOUR_MS, 2),
    of("key_1", "daily_limited", yesterday, 1),
    of("key_2", "rate_limited", yesterday, 4),
    of("key_1", "rate_limited", NOW_MS - 8 * DAY_MS, 5),
    of("key_1", "rate_limited", NOW_MS - 8 * DAY_MS - HOUR_MS, 6),
    { ...of("key_3", "rate_limited", yesterday), accountId: `${accountId}x` },
  ]);
  await add([of("key_1", "rate_limited", yesterday, 3)]);
  const { hours, uncounted } = await refusalsOf(nodes(), accountId, NOW_MS);
  expect(hours).toEqual([
    of("key_1", "rate_limited", yesterday + HOUR_MS, 2),
    of("key_1", "rate_limited", yesterday, 10),
    of("key_2", "rate_limited", yesterday, 4),
    of("key_1", "daily_limited", yesterday, 1),
    of("key_1", "rate_limited", NOW_MS - 8 * DAY_MS, 5),
  ]);
  expect(uncounted).toBe(0);
  const ofOne = await refusalsOf(nodes(), accountId, NOW_MS, { keyId: "key_2" });
  expect(ofOne.hours.map(({ keyId }) => keyId)).toEqual(["key_2"]);
});

// Guarantee: what was refused before midnight and written after it, as after an outage, is not shown as refused today.
test("refusals that waited over midnight count for the day on which they were", async () => {
  const ofDay = { keyId: randomId("key"), accountId: randomId("acc"), outcome: "rate_limited" };
  const midnightMs = Date.UTC(2040, 3, 2);
  const later = { ...connection, nowMs: () => midnightMs + HOUR_MS };
  await addRefusals(later, [
    { ...ofDay, atMs: midnightMs - DAY_MS, count: 3 },
    { ...ofDay, atMs: midnightMs - 1, count: 2 },
    { ...ofDay, atMs: midnightMs, count: 1 },
  ]);
  expect(await topRefusals(nodes(), midnightMs - 1, 10)).toEqual([{ ...ofDay, count: 5 }]);
  expect(await topRefusals(nodes(), midnightMs, 10)).toEqual([{ ...ofDay, count: 1 }]);
});

test("refusals of a partition that cannot be written do not keep back those of others", async () => {
  const here = randomId("acc");
  const partition = partitionOf(here, 64);
  const there = times(1000, () => randomId("acc")).find((id) => partitionOf(id, 64) !== partition)!;
  const refusal = { keyId: "key", outcome: "rate_limited", atMs: NOW_MS, count: 1 };
  const name = refusalsName(partition, "2040-01-20");
  await connection.redis.rename(name, `${name}:kept`).catch(() => undefined);
  await connection.redis.set(name, "no hash");
  try {
    await add([here, there].map((accountId) => ({ ...refusal, accountId })));
    const found = await refusalsOf(nodes(), there, NOW_MS);
    expect(found.hours).toHaveLength(1);
  } finally {
    await connection.redis.del(name);
  }
});

// Guarantee: a customer with any number of keys takes bounded memory, and not that of others. A mistake in it shows.
test("the counts are bounded by account and by day", async () => {
  expect(await afterAllRefusals()).toEqual({
    fields: {
      "a 01 k1 x": "2",
      "a 01 k2 x": "1",
      "a 01 * x": "7",
      a: "3",
      "b 02 k1 y": "1",
      "*": "4",
      b: "1",
    },
    expires: true,
  });
});

test.each(inShare(REFUSED_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await afterAllRefusals(mutant)).not.toEqual(await afterAllRefusals());
});

/** Room for two fields of an account and eight in all: five kinds and three counts. */
async function afterAllRefusals(mutant?: Mutant) {
  const folder = mutant && (await plantForTest(mutant));
  const day = randomId("day");
  const name = refusalsName(7, day);
  try {
    const { run } = createScriptRunner(connection.redis, folder === undefined ? {} : { folder });
    const send = (
      ...refusals: [accountId: string, hour: string, keyId: string, outcome: string, count: number][]
    ) =>
      run(refused, {
        partition: 7,
        day,
        refusals: refusals.map(([accountId, hour, keyId, outcome, count]) => ({
          accountId,
          hour,
          keyId,
          outcome,
          count,
        })),
        bounds: { perAccount: 2, perDay: 6 },
      });
    await send(["a", "01", "k1", "x", 1], ["a", "01", "k2", "x", 1]);
    await send(...times(6, (n) => ["a", "01", `k${n + 3}`, "x", 1] as const).map((one) => [...one] as never));
    await send(["a", "01", "k9", "x", 1], ["a", "01", "k1", "x", 1]);
    await send(["b", "02", "k1", "y", 1], ["b", "02", "k2", "y", 1], ["c", "02", "k1", "y", 3]);
    const ttlMs = await connection.redis.pttl(name);
    const expires = ttlMs > 8 * DAY_MS && ttlMs <= 9 * DAY_MS;
    return { fields: await connection.redis.hgetall(name), expires };
  } finally {
    await connection.redis.del(name);
  }
}
