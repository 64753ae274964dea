import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { keyNames, keyRef, partitionNames, requestName } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { addMoney } from "../support/account-money.ts";
import { givenLargeAccount } from "../support/large-account.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, type Stage, times } from "../support/store.ts";
import { changeCounters, setKeyFields } from "../support/stored-records.ts";
import { changeRequest } from "../support/stored-requests.ts";

// Sums of the ledger check over slices of an account that changes: credits that are held, with HOLDING or, where the partition
// has too many holds for that, slice by slice; and the open requests of a key.

const KEYS = 120;
/** By their ids: keys of one millisecond come in the order of these. */
const [FIRST_KEY, LAST_KEY] = [1, 99];
const ACCOUNT_ID = "many";

let server: OwnStore;
let stage: Stage;
let large: Awaited<ReturnType<typeof givenLargeAccount>>;
beforeAll(async () => {
  server = await openOwnStore();
});
afterAll(() => server?.stop());

beforeEach(async () => {
  await server.empty();
  stage = createStage(server.connection, { clock: "redis", partition: 0 });
  // Each key has a hold of 10 credits.
  large = await givenLargeAccount(stage.redis, ACCOUNT_ID, 1, { keys: KEYS, tasks: 1, held: 1000 });
  for (const number of [FIRST_KEY, LAST_KEY])
    await setKeyFields(stage.redis, keyOf(number).names.key, { max_concurrent: 1000, rate_limit: 1000 });
});

const keyOf = (number: number) => keyRef(large.keyId(number), ACCOUNT_ID, 0);
const addHeld = (credits: number) => addMoney(stage.redis, keyOf(FIRST_KEY).names.account, "held", credits);
const recharge = () => stage.recharge(keyOf(FIRST_KEY), 1, `more-${Math.random()}`);
/** In the last slice of the account. */
const lateHold = () => stage.admit(stage.request(keyOf(LAST_KEY), { price: 10 }));

/** More holds in the partition than HOLDING reads. */
const givenManyHolds = () =>
  stage.redis.zadd(large.due, ...times(200, (at) => [Date.now() + 600_000, `other-${at}`]).flat());

/** @param rest runs between slices, with how many rests were before @returns what is said about the credits that are held */
async function heldWrongly(rest: (nth: number) => Promise<unknown> = async () => {}): Promise<string[]> {
  let rests = 0;
  const { violations } = await verifyLedger(oneNode(stage.redis), {
    accountIds: [ACCOUNT_ID],
    rest: async () => void (await rest(rests++)),
  });
  return violations.filter(({ invariant }) => invariant === "held").map(({ message }) => message);
}

// Guarantee: an account is called wrong if it holds something else than its open holds come to, and only then.
test.each([false, true])(
  "what a changing account holds is judged at one instant; many holds: %s",
  async (isMany) => {
    if (isMany) await givenManyHolds();
    // It does not change any more while it is added up again.
    const begun = async (nth: number) => nth < 3 && recharge();
    expect(await heldWrongly(begun)).toEqual([]);
    // A hold that came after the first slice makes up for what is wrong.
    const madeUp = async (nth: number) => nth === 1 && lateHold();
    await addHeld(10);
    const [held] = [KEYS * 10 + 10];
    expect(await heldWrongly(madeUp)).toEqual([`stored ${held + 10}, its open holds make ${held}`]);
  },
);

test("a hold that is not due as one counts, though HOLDING does not see it", async () => {
  await stage.redis.zrem(partitionNames(0).due, large.requestId(7, 1));
  expect(await heldWrongly(async (nth) => nth < 3 && recharge())).toEqual([]);
});

test("only what is held is added up", async () => {
  await givenManyHolds();
  const bound = stage.request(keyOf(FIRST_KEY), { price: 10 });
  await stage.admit(bound);
  await stage.bind(bound);
  expect(await heldWrongly(async (nth) => nth < 3 && recharge())).toEqual([]);
});

test("an account that changes during each reading is not judged", async () => {
  await givenManyHolds();
  expect(await heldWrongly(lateHold)).toEqual([]);
});

// Guarantee: a hold that is given back behind a slice and made anew before another one is not taken for two.
test("a sum that only one reading finds wrong is not believed", async () => {
  await givenManyHolds();
  let rests = 0;
  await heldWrongly(async (nth) => {
    rests = nth + 1;
    await (nth < 3 && recharge());
  });
  expect(rests).toBeGreaterThan(3);
  for (let moved = 3; moved < rests; moved++) {
    const early = stage.request(keyOf(FIRST_KEY), { price: 10 });
    await stage.admit(early);
    const move = async () => {
      await stage.void(early, "unsent");
      await lateHold();
    };
    expect(
      await heldWrongly((nth) => (nth < 3 ? recharge() : nth === moved ? move() : Promise.resolve())),
    ).toEqual([]);
  }
});

// Guarantee: a key with many open requests is called wrong if more of them were admitted than its limit, and only then.
test("of a key in several slices the open requests of its own that were admitted are counted", async () => {
  const long = await givenLargeAccount(stage.redis, "long", 1, { keys: 1, tasks: 150, held: 0 });
  const { key } = keyNames(0, long.keyId(1));
  const changes = [{ key_id: large.keyId(1) }, { reason: "late" }, { state: "void" }];
  for (const [at, change] of changes.entries())
    await changeRequest(stage.redis, requestName(0, long.requestId(1, at + 1)), change);
  for (const [limit, expected] of [
    [147, []],
    [146, [`${long.keyId(1)}: 147 open at a time, 146 were allowed`]],
  ] as const) {
    await changeCounters(stage.redis, key, { limits: `1000 ${limit} 1000` });
    const { violations } = await verifyLedger(oneNode(stage.redis), { accountIds: ["long"] });
    const found = violations.map(({ message }) => message).filter((text) => text.includes("at a time"));
    expect(found).toEqual(expected);
  }
});
