import { setImmediate as nextTick } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { createTierCounter } from "../../src/operations/keys/tier-counts.ts";
import { createSurveys } from "../../src/operations/store/survey.ts";
import { cliActor } from "../../src/records/actor.ts";
import { digestOf, indexName, keyRef, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { type Connection, createConnection } from "../../src/redis/connection.ts";
import type { Primary } from "../../src/redis/primary.ts";
import { everythingOn } from "../../src/redis/topology/primary-map.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { ENDPOINT, newTask, openStore, randomId, TIERS, taskOf } from "../support/store.ts";
import {
  away,
  expectStoreAway,
  generate,
  PRICE,
  ready,
  readyz,
  sent,
  settled,
  type TestRedis,
} from "../support/store-stage.ts";
import {
  accountOn,
  givenTwoPrimaries,
  PARTITIONS,
  sideOf,
  type TwoPrimaries,
} from "../support/two-primaries.ts";

// A store on two real servers, by a map that the test gives.

let stage: TwoPrimaries;
let gateway: TestGateway;
/** A key of an account on each side, known to the gateway. */
let keys: [IssuedKey, IssuedKey];

/** A primary that is there answers in time on a busy machine, too. */
const TIMEOUT_MS = 1500;
const SIDES = [0, 1] as const;
const NAMES = ["even", "odd"];
const otherThan = (side: number): 0 | 1 => (side === 0 ? 1 : 0);

beforeAll(async () => {
  stage = await givenTwoPrimaries();
  gateway = await givenGateway({
    redisUrl: stage.servers[0].url,
    place: stage.place,
    config: { store: { commandTimeoutMs: TIMEOUT_MS } },
  });
  gateway.redis.disconnect();
  await ready(gateway);
  keys = [await givenKeyOn(0), await givenKeyOn(1)];
  for (const key of keys) await until(async () => (await generate(gateway, key)).status === 200);
});
afterAll(async () => {
  await gateway?.stop();
  await stage?.stop();
});

const givenKeyOn = (side: number): Promise<IssuedKey> =>
  issueKey(
    stage.nodes,
    {
      accountId: accountOn(side),
      credits: 100_000,
      limits: { rate_limit: 10_000, max_concurrent: 10_000, daily_limit: 10_000 },
    },
    cliActor(),
  );

/** A key that the gateway does not know yet, with its account and its entry in the index on these sides. */
async function givenUnknownKey({ account, index }: { account: number; index: number }): Promise<IssuedKey> {
  for (;;) {
    const key = await givenKeyOn(account);
    if (sideOf(indexName(digestOf(key.key))) === index) return key;
  }
}

const balance = async (key: IssuedKey): Promise<number> =>
  (await gateway.request("GET", "/api/v1/credits", { key: key.key })).body.data.balance;

/** Ends the gateway's connection to a primary, which is probed then, and is used again. */
async function reconnected(side: number): Promise<void> {
  const from = gateway.logs.length;
  await stage.servers[side]!.client.call("CLIENT", "KILL", "TYPE", "normal");
  const isUsable = (line: string): boolean =>
    line.includes(`"primary":"${NAMES[side]}"`) && line.includes("the store is usable");
  await until(() => gateway.logs.slice(from).some(isUsable), "the primary to be used again");
}

const served = (key: IssuedKey): Promise<void> =>
  until(async () => (await generate(gateway, key)).status === 200, "the account to be served");

test("accounts of two primaries are served, and each name is on the primary that has it", async () => {
  const before = [await balance(keys[0]), await balance(keys[1])];
  for (const key of keys) {
    const made = await generate(gateway, key);
    expect(made.status).toBe(200);
    const polled = await gateway.request("GET", `/api/v1/tasks/${made.body.data.task_id}`, { key: key.key });
    expect(polled.status).toBe(200);
  }
  expect([await balance(keys[0]), await balance(keys[1])]).toEqual(before.map((credits) => credits - PRICE));
  expect(await stage.misplaced()).toEqual([]);
  expect(sideOf(META), "the first side is the one without tg:meta").toBe(1);
});

const AWAY = {
  hangs: { begin: (server: TestRedis) => server.pause(), end: (server: TestRedis) => server.resume() },
  "is killed": {
    begin: (server: TestRedis) => server.kill(),
    end: (server: TestRedis) => server.startAgain(),
  },
};
const CASES = SIDES.flatMap((side) =>
  Object.entries(AWAY).map(([how, away]) => ({ side, name: NAMES[side]!, how, away })),
);

// Guarantee: a primary that is away stops its own accounts alone.
test.each(CASES)("the $name primary $how: its accounts get 503, and come back by themselves", async (one) => {
  const { side, name } = one;
  const server = stage.servers[side];
  const [gone, there] = [keys[side], keys[otherThan(side)]];
  const unknown = await givenUnknownKey({ account: otherThan(side), index: otherThan(side) });
  const unfound = await givenUnknownKey({ account: otherThan(side), index: side });
  const logged = gateway.logs.length;
  await one.away.begin(server);
  try {
    const [refused, answered] = await Promise.all([generate(gateway, gone), generate(gateway, there)]);
    expectStoreAway(refused);
    expect(answered.status).toBe(200);
    for (const path of ["/api/v1/credits", "/api/v1/tasks/none", "/api/v1/nowhere"])
      expectStoreAway(await gateway.request("GET", path, { key: gone.key }));
    expect(await balance(there)).toEqual(expect.any(Number));
    expect((await generate(gateway, unknown)).status, "a key that is looked up now").toBe(200);
    expectStoreAway(await generate(gateway, unfound));
    const opened = gateway.logs.slice(logged).filter((line) => line.includes("requests no longer wait"));
    expect(opened.map((line) => JSON.parse(line).primary)).toEqual([name]);
    await reconnected(otherThan(side));
    expect((await generate(gateway, there)).status, "after a probe of its own").toBe(200);
    expect(await readyz(gateway), "some accounts are served").toBe(200);
    expect(await gateway.metric("tollgate_store_up ")).toEqual(["tollgate_store_up 0"]);
  } finally {
    await one.away.end(server);
  }
  await served(gone);
  await settled(gateway);
  expect(await gateway.metric("tollgate_store_up ")).toEqual(["tollgate_store_up 1"]);
});

test("while all primaries hang the gateway is not ready", async () => {
  for (const server of stage.servers) server.pause();
  try {
    for (const key of keys) expectStoreAway(await generate(gateway, key));
    await away(gateway);
  } finally {
    for (const server of stage.servers) server.resume();
  }
  await ready(gateway);
  for (const key of keys) await served(key);
});

// Guarantee: a charge is posted once, also if its primary went away after the admission; nobody else waits for it.
test.each(SIDES)("a charge that side %i cannot take waits for it alone", async (side) => {
  const [gone, there] = [keys[side], keys[otherThan(side)]];
  const before = await balance(gone);
  const posted = sent(gateway).length;
  const slow = generate(gateway, gone, "A boat [sandbox: delay=1s]");
  await until(() => sent(gateway).length > posted, "the generation to be sent");
  stage.servers[side].pause();
  try {
    expect((await slow).status).toBe(200);
    expect(await gateway.metric("tollgate_store_outbox_entries ")).toEqual([
      "tollgate_store_outbox_entries 1",
    ]);
    await reconnected(otherThan(side));
    expect((await generate(gateway, there)).status).toBe(200);
    expect(await gateway.metric("tollgate_store_outbox_entries ")).toEqual([
      "tollgate_store_outbox_entries 1",
    ]);
  } finally {
    stage.servers[side].resume();
  }
  await settled(gateway);
  await served(gone);
  expect(await balance(gone)).toBe(before - 2 * PRICE);
  expect(await stage.misplaced()).toEqual([]);
});

// With `allow` only the accounts of the primary that is away pass unmetered.
test("with allow an account passes unmetered while its own primary is away", async () => {
  const allowing = await givenGateway({
    redisUrl: stage.servers[0].url,
    place: stage.place,
    config: { store: { commandTimeoutMs: TIMEOUT_MS, fallbackStrategy: "allow" } },
  });
  allowing.redis.disconnect();
  try {
    // Ready means that one of the primaries is in use.
    await ready(allowing);
    for (const key of keys) await until(async () => (await generate(allowing, key)).status === 200);
    stage.servers[0].pause();
    const replies = [await generate(allowing, keys[0]), await generate(allowing, keys[1])];
    expect(replies.map(({ status }) => status)).toEqual([200, 200]);
    expect(replies.map(({ headers }) => headers.get("x-gateway-degraded"))).toEqual(["store", null]);
  } finally {
    stage.servers[0].resume();
    await allowing.stop();
  }
});

describe("the store below the gateway", () => {
  let connection: Connection;
  afterEach(() => connection?.close());

  const opened = async (commandTimeoutMs: number): Promise<void> => {
    connection = createConnection({
      redisUrl: stage.servers[0].url,
      commandTimeoutMs,
      partitions: PARTITIONS,
      allowNoPersistence: true,
      place: stage.place,
      log: createLogger("silent"),
      metrics: createMetrics(),
    });
    await connection.usable();
  };

  // Guarantee: figures of a part are said to be of a part.
  test("what is due on one primary is found and counted while another hangs", async () => {
    await opened(TIMEOUT_MS);
    for (const partition of [2, 3])
      await stage.nodes.of(partition).zadd(partitionNames(partition).due, 1, "req_of_nobody");
    const sweeps = createSweeps(connection, () => 1000);
    const { take } = createSurveys(connection);
    const whole = await take();
    expect(whole.unreadPartitions).toBe(0);
    stage.servers[0].pause();
    try {
      expect([...(await sweeps.due()).holds]).toEqual([3]);
      expect([sweeps.isUsable(2), sweeps.isUsable(3)]).toEqual([false, true]);
      const part = await take();
      expect(part.unreadPartitions).toBe(PARTITIONS / 2);
      expect(part.open.held[0]).toBeLessThanOrEqual(whole.open.held[0]!);
    } finally {
      stage.servers[0].resume();
    }
    await connection.usable();
    expect([...(await sweeps.due()).holds].sort()).toEqual([2, 3]);
    for (const partition of [2, 3])
      await stage.nodes.of(partition).zrem(partitionNames(partition).due, "req_of_nobody");
  });

  test("keys by tier count with the last figures of a primary that is away, and who never read it says so", async () => {
    await opened(TIMEOUT_MS);
    const tier = "counted";
    for (const side of SIDES)
      for (let n = 0; n <= side; n++)
        await issueKey(stage.nodes, { accountId: accountOn(side), tier }, cliActor());
    const counter = createTierCounter(connection);
    await counter.sum();
    expect(await counter.sum()).toMatchObject({ keys: { [tier]: 3 }, unread: 0 });
    stage.servers[0].pause();
    try {
      expect(await counter.sum()).toMatchObject({ keys: { [tier]: 3 }, unread: 0 });
      const other = await createTierCounter(connection).sum();
      expect(other).toMatchObject({ keys: { [tier]: 2 }, unread: PARTITIONS / 2 });
    } finally {
      stage.servers[0].resume();
    }
    await connection.usable();
  });

  // As after a failover: the odd primary has a copy of the account and takes its partition over.
  test("a primary that is replaced is left at once, and its unanswered charge is posted where its partition is now", async () => {
    await opened(60_000);
    const { settlements, ...store } = openStore(connection);
    const accountId = accountOn(0);
    const partition = partitionOf(accountId, PARTITIONS);
    const copies = { ...stage.nodes, of: () => stage.servers[1].client };
    const { keyId } = await issueKey(copies, { accountId, credits: 100 }, cliActor());
    const key = keyRef(keyId, accountId, partition);
    const generation = {
      requestId: randomId("req"),
      key,
      price: 10,
      endpoint: ENDPOINT,
      holdMs: 60_000,
      retentionMs: 3_600_000,
    };
    const [even, odd] = connection.primaries() as [Primary, Primary];
    stage.servers[0].pause();
    try {
      const read = store.credits(key, TIERS);
      const bound = store.bind(generation, newTask(taskOf(generation)));
      // Calls go out at the end of a tick.
      await nextTick();
      await nextTick();
      connection.replaceMap(everythingOn(odd));
      await expect(read).rejects.toMatchObject({ refusal: { name: "store_unavailable" } });
      expect(await bound).toBeUndefined();
      await until(() => settlements.outbox.size() === 0, "the charge to be posted");
      expect(await store.credits(key, TIERS)).toMatchObject({ balance: 90, totalUsed: 10 });
      expect(even.redis.status).toBe("end");
      expect(even.breaker.isOpen).toBe(true);
      expect((await connection.metrics.storeUp.get()).values).toMatchObject([{ value: 1 }]);
    } finally {
      stage.servers[0].resume();
      await settlements.close();
    }
  });
});
