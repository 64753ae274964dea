import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { multipliedPrice } from "../../src/domain/money.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { detailsOf, LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { type KeyRef, requestName } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Admission, Generation } from "../../src/scripts/holds.ts";
import { changeAccount, changeMoney } from "../support/account-money.ts";
import {
  createStage,
  NOON_MS,
  openConnection,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { readRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, PRICE_MUTANTS } from "./mutants.ts";

// Price of a request: an account's multiplier, and price lists that begin at a time.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const multiply = (stage: Stage, key: KeyRef, multiplier: string) =>
  changeAccount(stage.redis, key.names.account, { price_multiplier: multiplier });
const priceIn = (admission: Admission): number | undefined =>
  "price" in admission ? admission.price : undefined;
const chargesOf = async (stage: Stage, key: KeyRef) => {
  const entries = await readLedger(stage.redis, key.partition, LEDGER_START);
  const own = entries.filter(({ accountId, endpoint }) => accountId === key.accountId && endpoint !== "");
  return own.map((entry) => [entry.amount, detailsOf(entry)]);
};

describe("a price multiplier", () => {
  test.each(["0.01", "0.07", "0.1", "0.29", "0.33", "0.55", "0.8", "1.1", "2.5", "9.99", "10"])(
    "of %s makes the same price as the quote, rounded up to a whole credit",
    async (multiplier) => {
      const stage = createStage(connection);
      const key = await stage.givenKey({ credits: 100_000, rate_limit: 100, max_concurrent: 100 });
      await multiply(stage, key, multiplier);
      for (const price of [1, 3, 7, 10, 100, 150, 630]) {
        const generation = stage.request(key, { price });
        const expected = multipliedPrice(price, multiplier);
        expect(priceIn(await stage.admit(generation)), `${price}`).toBe(expected);
        const record = await readRequest(stage.redis, requestName(key.partition, generation.requestId));
        expect(record.price).toBe(String(expected));
      }
    },
  );

  test("is fixed at admission, named in the entry, and refunded as it was charged", async () => {
    const stage = createStage(connection);
    const key = await stage.givenKey({ credits: 100 });
    await multiply(stage, key, "0.8");
    const generation = stage.request(key, { price: 11 });
    expect(priceIn(await stage.admit(generation))).toBe(9);
    await multiply(stage, key, "5");
    expect(await stage.bind(generation)).toBe("bound");
    expect(await chargesOf(stage, key)).toEqual([[-9, { list_price: 11, multiplier: "0.8" }]]);
    expect(await stage.credits(key)).toMatchObject({ balance: 91, totalUsed: 9 });
    await stage.observe(generation, "failed");
    expect(await stage.credits(key)).toMatchObject({ balance: 100, totalUsed: 0 });
    const nodes = oneNode(stage.redis);
    expect(await verifyLedger(nodes, { accountIds: [key.accountId] })).toMatchObject({ ok: true });
  });

  test("decides whether the credits and the cap of a key cover a request, and a refusal says that price", async () => {
    const stage = createStage(connection);
    const key = await stage.givenKey({ credits: 20 });
    await setKeyFields(stage.redis, key.names.key, { monthly_credits: 24 });
    await multiply(stage, key, "2");
    expect(await stage.admit(stage.request(key, { price: 11 }))).toMatchObject({
      ...{ outcome: "insufficient_credits", balance: 20, price: 22 },
    });
    expect(await stage.admit(stage.request(key, { price: 13 }))).toMatchObject({
      ...{ outcome: "spend_capped", cap: 24, spent: 0, price: 26 },
    });
    expect(await stage.admit(stage.request(key, { price: 10 }))).toMatchObject({
      outcome: "admitted",
      price: 20,
    });
  });

  test("of 1 stores nothing, and a reply says no price", async () => {
    const stage = createStage(connection);
    const key = await stage.givenKey({ credits: 100 });
    const admission = await stage.admit(stage.request(key, { price: 10 }));
    expect(admission).not.toHaveProperty("price");
    expect(admission).not.toHaveProperty("shadow");
    await stage.bind(stage.request(key, { price: 10 }));
    expect(
      (await chargesOf(stage, key)).every(([, details]) => Object.keys(details as object).length === 0),
    ).toBe(true);
  });
});

describe("price lists", () => {
  const BEGIN_MS = NOON_MS + 5000;
  const PRICES = `10 old.yaml ${BEGIN_MS} 12 new.yaml ${BEGIN_MS + 10} 15 newer.yaml`;

  // Guarantee: the clock of Redis decides, so two gateways whose clocks differ charge the same at the very millisecond.
  test("begin at the very millisecond of Redis, whatever the gateways take for the time", async () => {
    const stage = createStage(connection);
    const key = await stage.givenKey({ credits: 1000, rate_limit: 100, max_concurrent: 100 });
    const seen: [number, number | undefined][] = [];
    for (const offset of [-1, 0, 9, 10, 5000]) {
      stage.clock.nowMs = BEGIN_MS + offset;
      for (const estimate of [10, 15]) {
        const generation = stage.request(key, { price: estimate, prices: PRICES });
        seen.push([offset, priceIn(await stage.admit(generation))]);
        await stage.bind(generation);
      }
    }
    expect(seen).toEqual([
      ...[
        [-1, 10],
        [-1, 10],
        [0, 12],
        [0, 12],
        [9, 12],
        [9, 12],
      ],
      ...[
        [10, 15],
        [10, 15],
        [5000, 15],
        [5000, 15],
      ],
    ]);
    expect((await chargesOf(stage, key)).slice(0, 4)).toEqual([
      ...times(2, () => [-10, { list_price: 10, price_list: "old.yaml" }]),
      ...times(2, () => [-12, { list_price: 12, price_list: "new.yaml" }]),
    ]);
  });

  test("and a multiplier apply together, and a repeated ADMIT answers the price of the first", async () => {
    const stage = createStage(connection);
    const key = await stage.givenKey({ credits: 1000 });
    await multiply(stage, key, "0.5");
    stage.clock.nowMs = BEGIN_MS;
    const generation = stage.request(key, { price: 10, prices: PRICES });
    expect(priceIn(await stage.admit(generation))).toBe(6);
    stage.clock.nowMs = BEGIN_MS + 100;
    expect(priceIn(await stage.admit(generation))).toBe(6);
    await stage.bind(generation);
    expect(await chargesOf(stage, key)).toEqual([
      [-6, { list_price: 12, multiplier: "0.5", price_list: "new.yaml" }],
    ]);
  });
});

/** Prices of requests, in replies and records. */
async function played(mutant?: Mutant): Promise<unknown> {
  const folder = mutant && (await plantForTest(mutant));
  const scripts = createScriptRunner(connection.redis, folder === undefined ? {} : { folder });
  const stage = createStage(connection, { scripts });
  const key = await stage.givenKey({ credits: 1000, rate_limit: 100, max_concurrent: 100 });
  await setKeyFields(stage.redis, key.names.key, { monthly_credits: 90 });
  const seen: unknown[] = [];
  const admit = async (generation: Generation): Promise<void> => {
    const admission = await stage.admit(generation);
    seen.push([admission.outcome, priceIn(admission) ?? "-"]);
  };
  stage.clock.nowMs = NOON_MS + 5000;
  const prices = `10 a ${NOON_MS + 5000} 20 b ${NOON_MS + 5001} 30 c`;
  for (const [multiplier, price, list] of [
    [undefined, 10, undefined],
    ["0.29", 100, undefined],
    ["0.55", 3, undefined],
    [undefined, 10, prices],
  ] as const) {
    if (multiplier) await multiply(stage, key, multiplier);
    else await changeAccount(stage.redis, key.names.account, { price_multiplier: null });
    const generation = stage.request(key, { price, prices: list });
    await admit(generation);
    await admit(generation);
    await stage.bind(generation);
  }
  await multiply(stage, key, "3");
  await admit(stage.request(key, { price: 13 }));
  await changeMoney(stage.redis, key.names.account, { balance: 1 });
  await admit(stage.request(key, { price: 5 }));
  return { seen, charges: await chargesOf(stage, key) };
}

test("what a request costs follows multiplier and list", async () => {
  expect(await played()).toEqual({
    seen: [
      ...[
        ["admitted", "-"],
        ["admitted", "-"],
        ["admitted", 29],
        ["admitted", 29],
        ["admitted", 2],
        ["admitted", 2],
      ],
      ...[
        ["admitted", 20],
        ["admitted", 20],
        ["spend_capped", 39],
        ["insufficient_credits", 15],
      ],
    ],
    charges: [
      [-10, {}],
      [-29, { list_price: 100, multiplier: "0.29" }],
      [-2, { list_price: 3, multiplier: "0.55" }],
      [-20, { list_price: 20, price_list: "b" }],
    ],
  });
});

// Guarantee: a mistake in what a request costs shows.
test.each(inShare(PRICE_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const found = await played(mutant).catch((error: Error) => error.message);
  expect(found).not.toEqual(await played());
  expect(String(found)).not.toContain("compiling script");
});
