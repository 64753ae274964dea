import { afterEach, beforeEach, expect, test } from "vitest";
import { acceptStore } from "../../src/store/acceptance.ts";
import { openMarksFile } from "../../src/store/marks-file.ts";
import { META, partitionNames, requestName } from "../../src/store/names.ts";
import type { Settlement } from "../../src/store/outbox.ts";
import { createStoreMarks } from "../../src/store/store-marks.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

const STORE = "the-store";
const NOW_MS = 1_800_000_000_000;
const log = createLogger("silent");

let redis: TestRedis;
let sent: string[];
let marks: ReturnType<typeof createStoreMarks>;
beforeEach(async () => {
  redis = await givenRedis();
  sent = [];
  marks = createStoreMarks({
    file: openMarksFile(undefined, log),
    nowMs: () => NOW_MS,
    sendAgain: async ({ requestId }) => void sent.push(requestId),
    changed: () => undefined,
    log,
  });
});
afterEach(() => redis.stop());

/** A charge that the store has confirmed a moment ago, and has lost since. */
function givenLostCharge(until: Partial<Settlement> = { settleWithinMs: 60_000 }): void {
  const charge: Settlement = {
    requestId: "r1",
    storeId: STORE,
    atMs: NOW_MS,
    ...until,
    verb: "bind",
    keys: [requestName(0, "r1")],
    args: ["", "", "r1", "a1", "k1", 10, "/", "t1"],
  };
  marks.confirmed(charge, ["bound"]);
}

const compare = (): Promise<void> => marks.requireNotOlder(redis.client, STORE);
const OLDER = "older than what it confirmed";

// Guarantee: a store that has forgotten what it confirmed is not served from until an operator accepts it.
test("an older store without memory to write down what it lacks is refused all the same, and sent the charge once", async () => {
  givenLostCharge();
  await redis.client.config("SET", "maxmemory", "1");
  for (let probe = 0; probe < 3; probe++) await expect(compare()).rejects.toThrow(OLDER);
  expect(sent).toEqual(["r1"]);
  await redis.client.config("SET", "maxmemory", "0");
  await expect(compare()).rejects.toThrow(OLDER);
  expect(JSON.parse((await redis.client.hget(META, "older"))!)).toMatchObject({
    charges: [{ requestId: "r1", accountId: "a1", credits: 10 }],
  });
  await redis.client.hset(META, "epoch", 1);
  await compare();
  await compare();
  expect(sent).toEqual(["r1"]);
});

test("a charge that was replayed from a journal is sent again as any other", async () => {
  givenLostCharge({ untilMs: NOW_MS + 1 });
  await expect(compare()).rejects.toThrow(OLDER);
  expect(sent).toEqual(["r1"]);
});

test("what was found before an acceptance, and written down after it, refuses nothing", async () => {
  await redis.client.hset(META, "epoch", 5, "older", JSON.stringify({ epoch: 4, missing: [], charges: [] }));
  await compare();
  await redis.client.hset(META, "older", JSON.stringify({ epoch: 5, missing: [], charges: [] }));
  await expect(compare()).rejects.toThrow(OLDER);
});

test("an acceptance ends the refusal also when the store's clock was put back since the one before", async () => {
  const tomorrowMs = Date.now() + 86_400_000;
  await redis.client.hset(META, "epoch", tomorrowMs);
  await compare();
  await redis.client.hdel(META, "epoch");
  await expect(compare()).rejects.toThrow(OLDER);
  await acceptStore(redis.client, undefined);
  await compare();
});

test("a newer copy in the place of an older store is used without an acceptance", async () => {
  givenLostCharge();
  await expect(compare()).rejects.toThrow(OLDER);
  await redis.client.flushall();
  await redis.client.hset(requestName(0, "r1"), "state", "bound");
  await compare();
});

test("a ledger that ends before what is known of it is seen at the next look", async () => {
  const { ledger } = partitionNames(1);
  await redis.client.xadd(ledger, "5-0", "account_id", "a1", "type", "consume", "amount", "-10");
  expect(await marks.learn(redis.client, STORE, 2)).toBe(true);
  expect(await marks.learn(redis.client, STORE, 2)).toBe(true);
  await redis.client.del(ledger);
  expect(await marks.learn(redis.client, STORE, 2)).toBe(false);
  await redis.client.xadd(ledger, "4-9", "account_id", "a1", "type", "consume", "amount", "-10");
  expect(await marks.learn(redis.client, STORE, 2)).toBe(false);
  await expect(compare()).rejects.toThrow(OLDER);
});
