import { createSettlements } from "../../../src/durability/deferred-settlements.ts";
import { createTaskIds } from "../../../src/durability/task-ids.ts";
import { digestOf, type KeyRef } from "../../../src/records/names.ts";
import { type Connection, createConnection } from "../../../src/redis/connection.ts";
import { itemOf } from "../../../src/redis/script-runner.ts";
import { oneNode } from "../../../src/redis/store-facts.ts";
import type { Generation } from "../../../src/scripts/holds.ts";
import type { Run } from "../../../src/scripts/script-definition.ts";
import { createHolds, type Holds } from "../../../src/settlement/holds.ts";
import { createStore, type Store } from "../../../src/settlement/store.ts";
import { createSweeps } from "../../../src/settlement/sweeps.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { inMemory } from "../../support/memory-journal.ts";
import { PRICE, TEXT_TO_VIDEO } from "../client.ts";
import type { ClientEvent, History } from "../history.ts";
import type { Random } from "../random.ts";
import { readStore } from "../snapshot.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface ClockSize {
  rounds: number;
  /** How many rounds lie between two times when all that has ended is collected early. */
  collectEvery: number;
}

const LIFETIMES = { holdMs: 10_000, retentionMs: 3_600_000 };
const MADE = { maxAgeMs: 3_600_000, upstream: "" };
const STORES = 3;
const PARTITIONS = 4;
const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
/** Beyond the retention of all that was admitted while the clock was a day or an hour ahead. */
const AHEAD_MS = 30 * 24 * HOUR_MS;
const COLLECTED_AT_ONCE = 100;
const DAY_MS = 24 * HOUR_MS;
const TIERS = { standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 } };
const CODES: Record<string, number> = { admitted: 200, rate_limited: 2001, daily_limited: 2003 };

/**
 * Steps of the store's clock. The clock of a Redis cannot be set without the machine's, so this runs the store's
 * operations, from three connections at once, with the time passed in as tests may; the scripts are the same.
 */
export const clock: Scenario<ClockSize> = {
  name: "clock",
  title: ({ rounds, collectEvery }) =>
    `${rounds} rounds of admissions from ${STORES} stores at once while their clock steps by ±1 s, ±61 s, ±1 h and over ` +
    `midnight; every ${collectEvery} rounds it is ahead beyond the retention, all that has ended is collected, it steps back, ` +
    "and the BINDs of these rounds are sent again " +
    "(time passed in to the scripts: the clock of Redis itself cannot be set)",
  full: { rounds: 4000, collectEvery: 500 },
  short: { rounds: 150, collectEvery: 50 },
  run: runClock,
};

/** A key, and its own clock as it must be by now: never behind an admission. */
interface Watched {
  key: KeyRef;
  clockMs: number;
}

async function runClock(options: RunOptions, { rounds, collectEvery }: ClockSize): Promise<History> {
  const world = await createWorld(options, 0);
  let nowMs = Date.UTC(2031, 4, 6, 23, 50);
  const connections = Array.from({ length: STORES }, () =>
    createConnection({
      redisUrl: `redis://127.0.0.1:${world.redis.options.port}`,
      commandTimeoutMs: 10_000,
      partitions: PARTITIONS,
      allowNoPersistence: true,
      nowMs: () => nowMs,
      log: createLogger("silent"),
      metrics: createMetrics(),
    }),
  );
  try {
    await Promise.all(connections.map(({ usable }) => usable()));
    const stores = connections.map((connection) => openStore(connection));
    const watched = await givenKeys(world, stores[0]!);
    let charged: Generation[] = [];
    for (let round = 0; round < rounds; round++) {
      nowMs = step(world.random, nowMs);
      charged.push(...(await burst(world, stores, watched, { nowMs, round })));
      if ((round + 1) % collectEvery > 0) continue;
      await collectAll(world, connections[0]!, nowMs + AHEAD_MS);
      await sendAgain(connections[0]!, charged);
      charged = [];
    }
    const history = await world.finish();
    return { ...history, meta: { ...history.meta, clock: "stepped", toleranceMs: 0 } };
  } finally {
    await Promise.all(connections.map((connection) => connection.close()));
    await world.stop();
  }
}

function openStore(connection: Connection): Store & Holds {
  const settlements = createSettlements(connection, { log: createLogger("silent"), ...inMemory });
  return { ...createStore(connection), ...createHolds(connection, settlements) };
}

async function givenKeys(world: World, store: Store): Promise<Watched[]> {
  const limits = [
    { rate_limit: 5 },
    { rate_limit: 20 },
    { rate_limit: 20, daily_limit: 60 },
    { daily_limit: 25 },
  ];
  const customers = await Promise.all(limits.map((own) => world.givenCustomer(own)));
  const keys = await Promise.all(customers.map(({ key }) => store.lookup(digestOf(key), TIERS)));
  return keys.map((key) => ({ key: key!, clockMs: 0 }));
}

/** Mostly time just passes; else it steps, to and fro. */
function step(random: Random, nowMs: number): number {
  if (random.chance(0.75)) return nowMs + random.int(0, 5 * SECOND_MS);
  const midnightMs = Math.ceil(nowMs / DAY_MS) * DAY_MS;
  const steps = [SECOND_MS, 61 * SECOND_MS, HOUR_MS].flatMap((ms) => [ms, -ms]);
  const to = [
    ...steps.map((ms) => nowMs + ms),
    midnightMs + random.int(-2000, 2000),
    midnightMs - DAY_MS - 1,
  ];
  return random.pick(to);
}

const newTask = ({ requestId }: Generation) => ({
  taskId: `task_${requestId}`,
  data: "{}",
  pollMs: 1000,
  ...MADE,
});

/** Collects all that has ended, at a time when the clock says so. */
async function collectAll(world: World, connection: Connection, nowMs: number): Promise<void> {
  const records = (await readStore(oneNode(world.redis))).filter(({ name }) => name.includes(":request:"));
  world.forgotten.push(...records);
  const only = connection.of(0);
  const run: Run = async (script, call) => {
    const [reply] = await only.scripts.send(script, [itemOf(script, call, String(nowMs))]);
    if (reply instanceof Error) throw reply;
    return script.read(reply!, call);
  };
  const sweeps = createSweeps(
    { ...connection, of: () => ({ ...only, run }) },
    () => SECOND_MS,
    () => nowMs,
  );
  let total = 0;
  for (let partition = 0; partition < PARTITIONS; partition++) {
    let looked: number;
    do {
      const found = await sweeps.collect(partition, LIFETIMES.retentionMs, COLLECTED_AT_ONCE);
      looked = found.looked;
      total += found.collected;
    } while (looked === COLLECTED_AT_ONCE);
  }
  if (total < records.length) world.note("not reached", `${records.length - total} records are collected`);
}

/** A journal whose gateway lost the replies of these BINDs comes back. */
async function sendAgain(connection: Connection, charged: readonly Generation[]): Promise<void> {
  const tasks = createTaskIds(connection);
  for (const generation of charged) await tasks.bind({ ...generation, task: newTask(generation) });
}

/**
 * Some admissions of some keys at one moment, from all stores at once.
 * @returns those that were charged
 */
async function burst(
  world: World,
  stores: (Store & Holds)[],
  watched: Watched[],
  { nowMs, round }: { nowMs: number; round: number },
): Promise<Generation[]> {
  const planned = Array.from({ length: world.random.int(1, 12) }, (_, each) => ({
    subject: world.random.pick(watched),
    store: stores[each % stores.length]!,
    requestId: `req_${round}_${each}`,
  }));
  const admitted = new Set<Watched>();
  const charged: Generation[] = [];
  await Promise.all(
    planned.map(async ({ subject, store, requestId }) => {
      const atMs = Math.max(nowMs, subject.clockMs);
      const { key } = subject;
      const generation: Generation = { requestId, key, price: PRICE, endpoint: TEXT_TO_VIDEO, ...LIFETIMES };
      const { outcome, state } = await store.admit(generation, TIERS);
      world.client.push(eventOf(key, requestId, atMs, CODES[outcome] ?? 500, state));
      if (outcome !== "admitted") return;
      admitted.add(subject);
      charged.push(generation);
      await store.bind(generation, newTask(generation));
      const task = {
        taskId: newTask(generation).taskId,
        requestId,
        creatorKeyId: key.keyId,
        fresh: false,
        status: "",
        data: "",
        createdAtMs: 0,
      };
      const { partition, accountId } = key;
      await store.observe(
        { partition, accountId, task },
        { status: "completed", data: "{}" },
        { refundFailed: true, pollMs: 1000, maxAgeMs: 3_600_000, tiers: TIERS },
      );
    }),
  );
  for (const subject of admitted) subject.clockMs = Math.max(nowMs, subject.clockMs);
  return charged;
}

function eventOf(
  { accountId, keyId }: KeyRef,
  requestId: string,
  atMs: number,
  code: number,
  { active, remaining }: { active: number; remaining: number },
): ClientEvent {
  return {
    kind: "generate",
    accountId,
    keyId,
    gateway: "",
    sentMs: atMs,
    endedMs: atMs,
    status: code > 1000 ? 429 : code,
    code,
    requestId,
    taskId: `task_${requestId}`,
    taskStatus: "",
    video: "",
    idempotencyKey: "",
    replayed: false,
    active,
    remaining,
    retryAfterSeconds: 0,
    left: "",
    error: "",
  };
}
