import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, test } from "vitest";
import { openJournal } from "../../src/durability/outbox/journal.ts";
import { lineOf } from "../../src/durability/outbox/journal-lines.ts";
import { META } from "../../src/records/names.ts";
import { createConnection } from "../../src/redis/connection.ts";
import { oneNode, readFacts } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { startFaultProxy } from "../support/fault-proxy.ts";
import {
  createStage,
  newTask,
  onOneServer,
  openConnection,
  openStore,
  TIERS,
  taskOf,
} from "../support/store.ts";
import { COMMAND_TIMEOUT_MS, givenRedis, type TestRedis } from "../support/store-stage.ts";
import { until } from "../support/until.ts";

const RULES = { partitions: 64, allowNoPersistence: true };

let other: TestRedis;
let folder: string;
beforeAll(async () => {
  other = await givenRedis();
});
afterAll(() => other.stop());
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-two-stores-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Longer than any test: half of it is how long a settlement may wait. */
const HOUR = { retentionMs: 3_600_000 };

const journalText = async (folder: string): Promise<string> => {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".ndjson"));
  return (await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")))).join("");
};

/** The store's side of a gateway on this journal folder, once it is usable. */
async function givenConnection(redisUrl: string, logs: string[] = [], commandTimeoutMs = 5000) {
  const log = createLogger("warn", { write: (line) => void logs.push(line) });
  const journal = await openJournal(folder, log);
  const opened = createConnection({
    redisUrl,
    commandTimeoutMs,
    partitions: 64,
    allowNoPersistence: true,
    log,
    metrics: createMetrics(),
  });
  const store = openStore(opened, { journal, log });
  const { settlements } = store;
  const connection = onOneServer(opened);
  await connection.breaker.closed();
  const close = (): Promise<void> => connection.close().then(settlements.close);
  return { connection, store, settlements, close };
}

/** Charges by the metrics of this gateway. */
async function counted({ connection }: Awaited<ReturnType<typeof givenConnection>>) {
  const { settlements, creditsConsumed } = connection.metrics;
  const bound = (await settlements.get()).values.find(({ labels }) => labels.outcome === "bound");
  return { bound: bound?.value, consumed: (await creditsConsumed.get()).values[0]?.value };
}

// Guarantee: a charge reaches the store to which it is owed; at any other it would be a request that nobody made.
test("a gateway of another Redis leaves a dead gateway's charges to one of the right Redis", async () => {
  const owed = await openConnection();
  const stage = createStage(owed, { clock: "redis" });
  const key = await stage.givenKey();
  const generation = stage.request(key);
  await stage.admit(generation);
  const { deferred } = await stage.unsent(() => stage.bind(generation));
  const file = join(folder, `${hostname()}.closed.0123abcd.ndjson`);
  const text = lineOf({ ...deferred!, storeId: owed.known.facts?.id });
  await writeFile(file, text);

  const logs: string[] = [];
  const wrong = await givenConnection(other.url, logs);
  expect(await readFile(file, "utf8")).toBe(text);
  expect(logs.filter((line) => line.includes("of another store"))).toHaveLength(1);
  expect(await other.client.keys(`*${generation.requestId}*`)).toEqual([]);

  const right = await givenConnection(inject("redisUrl"));
  expect(await stage.credits(key)).toMatchObject({ balance: 990, totalUsed: 10 });
  expect(await stage.held(key)).toBe(0);
  expect(await counted(right)).toEqual({ bound: 1, consumed: 10 });
  expect(await counted(wrong)).toEqual({ bound: 0, consumed: 0 });
  await Promise.all([wrong, right, owed].map((connection) => connection.close()));
  expect(await readdir(folder)).toEqual([]);
});

// Guarantee: what the metrics count as charged was charged, and once; whoever sends it.
test("a charge that the store had confirmed before it lost it is not counted again", async () => {
  const owed = await openConnection();
  const stage = createStage(owed, { clock: "redis" });
  const generation = stage.request(await stage.givenKey());
  await stage.admit(generation);
  const { deferred } = await stage.unsent(() => stage.bind(generation));
  const line = lineOf({ ...deferred!, storeId: owed.known.facts?.id, replay: true });
  await writeFile(join(folder, `${hostname()}.closed.0123abcd.ndjson`), line);
  const gateway = await givenConnection(inject("redisUrl"));
  expect(await stage.held(generation.key)).toBe(0);
  expect(await counted(gateway)).toEqual({ bound: 0, consumed: 0 });
  await Promise.all([gateway, owed].map((connection) => connection.close()));
});

// Guarantee: an answered charge that Redis has lost and that cannot be made again is told, also without replicas.
test("a charge that Redis has lost and that the balance does not cover any more is named in the log and counted", async () => {
  const owed = await openConnection();
  const stage = createStage(owed, { clock: "redis" });
  const key = await stage.givenKey({ credits: 10 });
  const [lost, next] = [stage.request(key), stage.request(key)];
  await stage.admit(lost);
  const { deferred } = await stage.unsent(() => stage.bind(lost));
  await stage.void(lost, "refused");
  await stage.givenTask(next);
  const line = lineOf({ ...deferred!, storeId: owed.known.facts?.id, replay: true });
  await writeFile(join(folder, `${hostname()}.closed.0123abcd.ndjson`), line);
  const logs: string[] = [];
  const gateway = await givenConnection(inject("redisUrl"), logs);
  expect(await stage.credits(key)).toMatchObject({ balance: 0, totalUsed: 10 });
  const logLine = logs.find((text) => text.includes("a primary has lost an answered charge"));
  expect(JSON.parse(logLine ?? "{}")).toMatchObject({
    request_id: lost.requestId,
    outcome: "uncollected",
    price: 10,
  });
  const { values } = await gateway.connection.metrics.replayedCharges.get();
  expect(values.find(({ labels }) => labels.outcome === "uncollected")?.value).toBe(1);
  await Promise.all([gateway, owed].map((connection) => connection.close()));
});

// Guarantee: a charge whose record was collected while Redis's clock was ahead is not made again, and somebody is told.
test("a journal charges no request again that Redis has forgotten", async () => {
  const owed = await openConnection();
  const stage = createStage(owed, { clock: "redis" });
  const key = await stage.givenKey();
  const generation = stage.request(key, HOUR);
  await stage.admit(generation);
  const { calls, deferred } = await stage.unsent(() => stage.bind(generation));
  if (deferred?.script !== "bind") throw new Error("no BIND was deferred");
  expect((await stage.arrive(calls[0]!))[0]).toBe("bound");
  await stage.observe(generation, "completed");
  const ahead = createStage(owed, { partition: stage.partition });
  ahead.clock.nowMs = Date.now() + 24 * HOUR.retentionMs;
  expect(await ahead.sweeps.collect(stage.partition, 0, 10)).toMatchObject({ collected: 1 });

  const line = lineOf({ ...deferred, storeId: owed.known.facts?.id, atMs: Date.now() });
  await writeFile(join(folder, `${hostname()}.closed.0123abcd.ndjson`), line);
  const logs: string[] = [];
  const gateway = await givenConnection(inject("redisUrl"), logs);
  expect(await stage.credits(key)).toMatchObject({ balance: 990, totalUsed: 10 });
  const logLine = logs.find((text) => text.includes("the store has forgotten this request"));
  expect(JSON.parse(logLine ?? "{}")).toMatchObject({
    request_id: generation.requestId,
    account_id: key.accountId,
    task_id: taskOf(generation),
    price: 10,
  });
  const { values } = await gateway.connection.metrics.creditsUncollected.get();
  expect(values[0]?.value).toBe(10);
  await Promise.all([gateway, owed].map((connection) => connection.close()));
  expect(await readdir(folder)).toEqual([]);
});

// Guarantee: while another Redis answers at the same address, nothing of this one's is sent there, in memory as on disk.
test("charges of a live gateway wait for the Redis that admitted them while another answers at its address", async () => {
  const first = await givenRedis();
  const proxy = await startFaultProxy(first.port);
  const { connection, store, settlements, close } = await givenConnection(proxy.url, [], COMMAND_TIMEOUT_MS);
  try {
    const stage = createStage(await openConnection(first.url), { clock: "redis", partition: 3 });
    const waiting = stage.request(await stage.givenKey(), HOUR);
    const running = stage.request(await stage.givenKey(), HOUR);
    for (const generation of [waiting, running]) await store.admit(generation, TIERS);
    const bind = (generation: Generation): Promise<unknown> =>
      store.bind(generation, newTask(taskOf(generation)));

    // One waits when the other Redis appears; one comes from its upstream while that is there.
    await proxy.steer({ connections: "refuse" });
    expect(await bind(waiting)).toBeUndefined();
    proxy.pointTo(other.port);
    // An operator has accepted it.
    await readFacts(oneNode(other.client), RULES);
    await other.client.hset(META, "accepted_at", Date.now());
    await proxy.heal();
    await connection.breaker.closed();
    expect(await bind(running)).toBeUndefined();
    expect(connection.breaker.isOpen, "what waits for another store keeps nobody out").toBe(false);
    for (const { requestId } of [waiting, running])
      expect(await other.client.keys(`*${requestId}*`)).toEqual([]);
    const { values } = await connection.metrics.outboxOfOtherStores.get();
    expect(values[0]?.value).toBe(2);

    // A settlement of the other Redis is made there meanwhile, and clears none of the first one's.
    const there = createStage(await openConnection(other.url), { clock: "redis", partition: 4 });
    const generation = there.request(await there.givenKey(), HOUR);
    await store.admit(generation, TIERS);
    proxy.strike("drop_reply", "bind");
    expect(await bind(generation)).toBeUndefined();
    await connection.breaker.closed();
    expect(await there.credits(generation.key)).toMatchObject({ balance: 990 });
    await there.connection.close();
    const text = await journalText(folder);
    expect(text).toContain(waiting.requestId);
    expect(text).toContain(running.requestId);
    expect(text).not.toContain(generation.requestId);

    proxy.pointTo(first.port);
    await until(() => !connection.breaker.isOpen && settlements.outbox.size() === 0);
    for (const { key } of [waiting, running])
      expect(await stage.credits(key)).toMatchObject({ balance: 990, totalUsed: 10 });
    expect(await journalText(folder)).toBe("");
    await stage.connection.close();
  } finally {
    await close();
    await proxy.stop();
    await first.stop();
  }
});

test("what waits says to which store it is owed", async () => {
  const { connection, settlements, close } = await givenConnection(other.url);
  const stage = createStage(connection, { clock: "redis" });
  const generation = stage.request(await stage.givenKey());
  await stage.admit(generation);
  const { deferred } = await stage.unsent(() => stage.bind(generation));
  other.pause();
  let text: string;
  try {
    await settlements.defer(deferred!);
    text = await journalText(folder);
  } finally {
    other.resume();
  }
  const { id } = await readFacts(oneNode(other.client), RULES);
  expect(id).toEqual(expect.any(String));
  const { requestId } = generation;
  expect(JSON.parse(text)).toMatchObject({ store: id, call: { requestId }, untilMs: expect.any(Number) });
  await connection.breaker.closed();
  await close();
});

test("a store has one id for ever, which a gateway only reads", async () => {
  const ids = await Promise.all(Array.from({ length: 5 }, () => readFacts(oneNode(other.client), RULES)));
  expect(new Set(ids.map(({ id }) => id)).size).toBe(1);
  expect(ids[0]!.id).toMatch(/^[0-9a-f-]{36}$/);
  const { id } = await readFacts(oneNode(other.client), RULES);
  expect(id).toMatch(/^[0-9a-f-]{36}$/);
  await other.client.config("SET", "maxmemory", "1");
  try {
    expect((await readFacts(oneNode(other.client), RULES)).id, "it reads only what is there").toBe(id);
  } finally {
    await other.client.config("SET", "maxmemory", "0");
  }
});
