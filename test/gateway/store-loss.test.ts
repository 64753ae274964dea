import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { SentCharge } from "../../src/durability/losses/confirmed-charges.ts";
import { LastConfirmedFile } from "../../src/durability/losses/last-confirmed.ts";
import { createLossDetector } from "../../src/durability/losses/loss-detector.ts";
import { listMissing } from "../../src/durability/losses/missing-entries.ts";
import { openRecentEntries, readRecentEntries } from "../../src/durability/losses/recent-entries.ts";
import { createOperatorSession } from "../../src/operations/access/operator-session.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { acceptStore } from "../../src/operations/store/operator-loss.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyRef, META, partitionNames, requestName } from "../../src/records/names.ts";
import { readsOfAll } from "../../src/redis/partition-reads.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { newTask } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { changeRequest } from "../support/stored-requests.ts";

const STORE = "the-store";
const NOW_MS = 1_800_000_000_000;
const log = createLogger("silent");

let redis: TestRedis;
let sent: string[];
/** Limited in their time. */
let commands = 0;
let detector: ReturnType<typeof createLossDetector>;
let folder: string;
beforeEach(async () => {
  redis = await givenRedis();
  folder = await mkdtemp(join(tmpdir(), "tollgate-loss-"));
  sent = [];
  detector = createDetector(50_000);
});

const createDetector = (
  chargesMax: number,
  { survivesFailover = false, lastConfirmed = new LastConfirmedFile(undefined, log) } = {},
) =>
  createLossDetector({
    policy: { survivesFailover, othersWithinMs: 0, chargesMax },
    lastConfirmed,
    recent: openRecentEntries(folder, log),
    folder,
    sendAgain: async ({ call }) => void sent.push(call.requestId),
    changed: () => undefined,
    log,
  });
afterEach(async () => {
  await redis.stop();
  await rm(folder, { recursive: true });
});

/** A charge that the store has confirmed a moment ago, and has lost since. */
function givenLostCharge(changes: Partial<SentCharge> = {}, requestId = "r1"): void {
  const until = "untilMs" in changes ? changes : { settleWithinMs: 60_000, ...changes };
  const charge: SentCharge = {
    storeId: STORE,
    atMs: NOW_MS,
    ...until,
    call: {
      requestId,
      key: keyRef("k1", "a1", 0),
      price: 10,
      endpoint: "/",
      retentionMs: 3_600_000,
      task: newTask("t1"),
    },
  };
  detector.charged(charge, "bound");
}

/** The only part of the store. */
const part = () => ({
  redis: redis.client,
  within: <T>(work: Promise<T>): Promise<T> => {
    commands++;
    return work;
  },
  has: () => true,
  nowMs: () => NOW_MS,
  meta: { redis: redis.client, isAway: false },
});
const compare = (): Promise<void> => detector.requireComplete(part(), STORE, async () => undefined);
const OLDER = "older than what it confirmed";

// Guarantee: a store that has forgotten what it confirmed is not served from until an operator accepts it.
test("an older store without memory to write down what it lacks is refused all the same, and sent the charge once", async () => {
  givenLostCharge();
  await redis.client.config("SET", "maxmemory", "1");
  for (let probe = 0; probe < 3; probe++) await expect(compare()).rejects.toThrow(OLDER);
  expect(sent).toEqual(["r1"]);
  await redis.client.config("SET", "maxmemory", "0");
  await expect(compare()).rejects.toThrow(OLDER);
  expect(JSON.parse((await redis.client.hget(META, "loss"))!)).toMatchObject({
    charges: [{ requestId: "r1", accountId: "a1", credits: 10 }],
  });
  await redis.client.hset(META, "accepted_at", 1);
  await compare();
  await compare();
  expect(sent).toEqual(["r1"]);
});

// Guarantee: charges of the last 30 s are sent again, however many; what is older makes room.
test("30 s of 1,250 charges a second are kept, and looked for in parts that each have the time of a command", async () => {
  const rate = 1250;
  const ago = (seconds: number, requestId: string): void =>
    givenLostCharge({ atMs: NOW_MS - seconds * 1000, untilMs: NOW_MS + 60_000 }, requestId);
  for (let second = 59; second >= 0; second--)
    for (let at = 0; at < rate; at++) ago(second, `${second} s ago, ${at}`);
  commands = 0;
  await expect(compare()).rejects.toThrow(OLDER);
  const bySecond = Map.groupBy(sent, (requestId) => Number(requestId.split(" ")[0]));
  for (let second = 0; second < 30; second++) expect(bySecond.get(second)?.length).toBe(rate);
  expect(sent.length).toBeLessThanOrEqual(50_000);
  expect(commands).toBeGreaterThan(sent.length / 2000);
});

// Guarantee: memory is bounded, and what is dropped is the oldest.
test("of more charges than may be kept, the newest are", async () => {
  detector = createDetector(8);
  for (let at = 0; at < 20; at++) givenLostCharge({}, `r${at}`);
  await expect(compare()).rejects.toThrow(OLDER);
  expect(sent.length).toBeLessThanOrEqual(8);
  expect(sent).toEqual(Array.from({ length: sent.length }, (_, at) => `r${20 - sent.length + at}`));
  expect(sent.length).toBeGreaterThanOrEqual(6);
});

test("a charge that was replayed from a journal is sent again as any other", async () => {
  givenLostCharge({ untilMs: NOW_MS + 1 });
  await expect(compare()).rejects.toThrow(OLDER);
  expect(sent).toEqual(["r1"]);
});

// Guarantee: a store's clock that is put back takes no charge out of those that are sent again.
test("a charge after the store's clock was put back is sent again as any other", async () => {
  givenLostCharge({ atMs: NOW_MS + 3_600_000 }, "before");
  givenLostCharge({}, "after");
  await expect(compare()).rejects.toThrow(OLDER);
  expect(sent).toContain("after");
});

test("what was found before an acceptance, and written down after it, refuses nothing", async () => {
  await redis.client.hset(
    META,
    "accepted_at",
    5,
    "loss",
    JSON.stringify({ acceptedAt: 4, missing: [], charges: [] }),
  );
  await compare();
  await redis.client.hset(META, "loss", JSON.stringify({ acceptedAt: 5, missing: [], charges: [] }));
  await expect(compare()).rejects.toThrow(OLDER);
});

test("an acceptance ends the refusal also when the store's clock was put back since the one before", async () => {
  const tomorrowMs = Date.now() + 86_400_000;
  await redis.client.hset(META, "accepted_at", tomorrowMs);
  await compare();
  await redis.client.hdel(META, "accepted_at");
  await expect(compare()).rejects.toThrow(OLDER);
  await acceptStore(oneNode(redis.client), undefined, []);
  await compare();
});

// Guarantee: an operator accepts what was listed, and nothing else.
test("a loss that is reported while another one is accepted is not accepted with it", async () => {
  const report = (ledger: string) => {
    const loss = { acceptedAt: 0, ledgers: [ledger], missing: [], charges: [] };
    return redis.client.hset(META, "loss", JSON.stringify(loss));
  };
  await report("tg:{p01}:ledger");
  const nodes = oneNode(redis.client);
  // Read after the losses.
  const waiting = Object.assign([], {
    [Symbol.iterator]() {
      void report("tg:{p02}:ledger");
      return [].values();
    },
  });
  await expect(acceptStore(nodes, undefined, waiting)).rejects.toThrow("another loss meanwhile");
  expect(await redis.client.hexists(META, "accepted_at")).toBe(0);
  await acceptStore(nodes, undefined, []);
  await compare();
});

test("a newer copy in the place of an older store is used without an acceptance", async () => {
  givenLostCharge();
  await expect(compare()).rejects.toThrow(OLDER);
  await redis.client.flushall();
  await changeRequest(redis.client, requestName(0, "r1"), { state: "bound" });
  await compare();
});

test("a ledger that ends before what is known of it is seen at the next look", async () => {
  const { ledger } = partitionNames(1);
  await redis.client.xadd(ledger, "5-0", "account_id", "a1", "type", "consume", "amount", "-10");
  expect(await detector.readNewEntries(part(), STORE, 2)).toBe(true);
  expect(await detector.readNewEntries(part(), STORE, 2)).toBe(true);
  await redis.client.del(ledger);
  for (let reads = 0; reads < 3; reads++) expect(await detector.readNewEntries(part(), STORE, 2)).toBe(false);
  await redis.client.xadd(ledger, "4-9", "account_id", "a1", "type", "consume", "amount", "-10");
  expect(await detector.readNewEntries(part(), STORE, 2)).toBe(false);
  await expect(compare()).rejects.toThrow(OLDER);
});

// Guarantee: nothing is written to a store that may yet be replaced by a newer copy.
test("the console reads an older store and does not write to it", async () => {
  givenLostCharge();
  await expect(compare()).rejects.toThrow(OLDER);
  const session = createOperatorSession({ redisUrl: redis.url, partitions: 1, allowNoPersistence: true });
  try {
    expect(await session.run((nodes) => nodes.ofName(META).hexists(META, "loss"))).toBe(1);
    const grant = session.write((nodes) => grantCredits(nodes, "a1", 5, "invoice 1", cliActor()));
    await expect(grant).rejects.toThrow("tollgate store accept");
    await acceptStore(oneNode(redis.client), undefined, []);
    await expect(session.write(async () => "done")).resolves.toEqual({
      result: "done",
      confirmed: undefined,
    });
  } finally {
    session.close();
  }
});

/** Writes so many charges to the ledger of partition 0. */
async function givenCharges(count: number): Promise<void> {
  const { ledger } = partitionNames(0);
  const pipe = redis.client.pipeline();
  for (let at = 0; at < count; at++)
    pipe.xadd(ledger, "*", "account_id", "a1", "type", "consume", "amount", "-10", "request_id", `r${at}`);
  await pipe.exec();
}

const learn = (): Promise<boolean> => detector.readNewEntries(part(), STORE, 1);
const lost = () => listMissing(readsOfAll(oneNode(redis.client)), readRecentEntries(folder, STORE, 0));

// Guarantee: an operator is told of each charge and grant that is known to be lost, and of which times it is not known.
test("all entries since the last look are learned, whoever wrote them", async () => {
  const { ledger } = partitionNames(0);
  await learn();
  await givenCharges(200);
  await learn();
  await givenCharges(50);
  await learn();
  await redis.client.del(ledger);
  const complete = await lost();
  expect(complete.entries.map(({ requestId }) => requestId)).toHaveLength(250);
  expect(complete.entries[0]).toMatchObject({
    ledger,
    kind: "charge",
    accountId: "a1",
    credits: 10,
    requestId: "r0",
  });
  expect(complete.unknownBeforeMs.size).toBe(0);
});

test("of more entries than may be read the latest are, and the list says from when on it is complete", async () => {
  const { ledger } = partitionNames(0);
  await givenCharges(1);
  await detector.readNewEntries(part(), STORE, 64);
  await givenCharges(300);
  expect(await detector.readNewEntries(part(), STORE, 64)).toBe(true);
  await givenCharges(1);
  await detector.readNewEntries(part(), STORE, 64);
  const [last] = await redis.client.xrevrange(ledger, "+", "-", "COUNT", 1);
  await redis.client.xtrim(ledger, "MAXLEN", 0);
  const { entries, knownUntilMs, unknownBeforeMs } = await lost();
  expect(entries.length).toBeGreaterThan(60);
  expect(entries.length).toBeLessThan(100);
  expect(knownUntilMs).toBe(Number(last![0].split("-")[0]));
  expect(unknownBeforeMs.get(ledger)).toBe(entries[1]!.atMs);
});

test("over the time no more is read than so many entries a look", async () => {
  const { ledger } = partitionNames(0);
  await learn();
  for (let look = 0; look < 40; look++) {
    await givenCharges(1000);
    expect(await learn()).toBe(true);
  }
  const [last] = await redis.client.xrevrange(ledger, "+", "-", "COUNT", 1);
  await redis.client.del(ledger);
  const { entries, knownUntilMs, unknownBeforeMs } = await lost();
  expect(knownUntilMs).toBe(Number(last![0].split("-")[0]));
  expect(entries.length).toBeGreaterThan(5000);
  expect(entries.length).toBeLessThan(5000 + 40 * 250 + 40);
  expect(unknownBeforeMs.get(ledger)).toBeDefined();
});

test("a ledger that lacks its last known entry is seen also if others have written since", async () => {
  const { ledger } = partitionNames(0);
  await givenCharges(2);
  await learn();
  const [last] = await redis.client.xrevrange(ledger, "+", "-", "COUNT", 1);
  await redis.client.xdel(ledger, last![0]);
  await givenCharges(1);
  expect(await learn()).toBe(false);
  expect((await lost()).entries.map(({ id }) => id)).toEqual([last![0]]);
});

/** The rule with replicas: nobody else sends anything again. */
function givenReplicas() {
  let isOnReplicas = true;
  const lastConfirmed = new LastConfirmedFile(undefined, log);
  const losses = createDetector(100, { survivesFailover: true, lastConfirmed });
  const replicated = { ...part(), confirmed: async () => isOnReplicas };
  return {
    away: (): void => {
      isOnReplicas = false;
    },
    learn: () => losses.readNewEntries(replicated, STORE, 2),
    compare: (has: (name: string) => boolean = () => true): Promise<void> =>
      losses.requireComplete({ ...replicated, has }, STORE, async () => undefined),
    end: (partition: number) => lastConfirmed.of(STORE).entries.get(partitionNames(partition).ledger)?.id,
  };
}

const charge = (partition: number, id: string, requestId: string, type = "consume") => {
  const fields = ["account_id", "a1", "type", type, "amount", "-10", "request_id", requestId];
  return redis.client.xadd(partitionNames(partition).ledger, id, ...fields);
};

// Guarantee: with replicas, a failover is an alarm only if a charge or grant is gone that replicas had.
test("of a store with replicas only what they have is compared later, and not what a poll repeats", async () => {
  const replicas = givenReplicas();
  await charge(0, "5-0", "r1");
  await redis.client.xadd(
    partitionNames(0).ledger,
    "5-1",
    "account_id",
    "a1",
    "type",
    "recharge",
    "reason",
    "refund",
  );
  expect(await replicas.learn()).toBe(true);
  expect(replicas.end(0)).toBe("5-0");
  await redis.client.xdel(partitionNames(0).ledger, "5-1");
  expect(await replicas.learn()).toBe(false);
  await replicas.compare();
  expect(await replicas.learn()).toBe(true);
  replicas.away();
  await charge(0, "6-0", "r2");
  expect(await replicas.learn()).toBe(true);
  expect(replicas.end(0)).toBe("5-0");
  await redis.client.xdel(partitionNames(0).ledger, "6-0");
  await replicas.compare();
});

test("a charge that was made again under another id is not lost, and an id that another charge has hides no loss", async () => {
  const replicas = givenReplicas();
  const { ledger } = partitionNames(0);
  await charge(0, "5-0", "r1");
  await replicas.learn();
  await redis.client.del(ledger);
  await charge(0, "5-0", "r2");
  await changeRequest(redis.client, requestName(0, "r1"), { state: "bound" });
  await replicas.compare();
  expect(replicas.end(0)).toBeUndefined();
  await replicas.learn();
  await redis.client.del(ledger);
  await charge(0, "5-0", "r3");
  await expect(replicas.compare()).rejects.toThrow(OLDER);
});

test("a loss on one primary refuses no part of the store that is on another", async () => {
  const replicas = givenReplicas();
  await charge(0, "5-0", "r1");
  await charge(1, "5-0", "r2");
  await replicas.learn();
  await redis.client.del(partitionNames(0).ledger);
  const isOn = (partition: number) => (name: string) => name === partitionNames(partition).ledger;
  await expect(replicas.compare(isOn(0))).rejects.toThrow(OLDER);
  await replicas.compare(isOn(1));
  await redis.client.del(partitionNames(1).ledger);
  await expect(replicas.compare(isOn(1))).rejects.toThrow(OLDER);
  const { missing } = JSON.parse((await redis.client.hget(META, "loss"))!);
  expect(missing.map(({ requestId }: { requestId: string }) => requestId).sort()).toEqual(["r1", "r2"]);
});

test("a loss that another gateway has reported refuses its primary, also with replicas, until it is accepted", async () => {
  const replicas = givenReplicas();
  const isOn = (partition: number) => (name: string) => name === partitionNames(partition).ledger;
  const loss = { acceptedAt: 0, missing: [], charges: [], ledgers: [partitionNames(0).ledger] };
  await redis.client.hset(META, "loss", JSON.stringify(loss));
  await expect(replicas.compare(isOn(0))).rejects.toThrow(OLDER);
  await replicas.compare(isOn(1));
  await redis.client.hset(META, "accepted_at", 1);
  await replicas.compare(isOn(0));
});

test("a probe that fails after it has learned of an acceptance does not bring the loss back", async () => {
  givenLostCharge();
  await expect(compare()).rejects.toThrow(OLDER);
  await acceptStore(oneNode(redis.client), undefined, []);
  let left = 3;
  const failing = {
    ...part(),
    within: <T>(work: Promise<T>): Promise<T> => (left-- > 0 ? work : Promise.reject(new Error("away"))),
  };
  await expect(detector.requireComplete(failing, STORE, async () => undefined)).rejects.toThrow("away");
  await compare();
});
