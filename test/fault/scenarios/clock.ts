import { createSettlements } from "../../../src/settlement/deferred-settlements.ts";
import { createHolds, type Holds } from "../../../src/settlement/holds.ts";
import { type Connection, createConnection } from "../../../src/store/connection.ts";
import { digestOf, type KeyRef } from "../../../src/store/names.ts";
import { createStore, type Store } from "../../../src/store/store.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { PRICE, TEXT_TO_VIDEO } from "../client.ts";
import type { ClientEvent, History } from "../history.ts";
import type { Random } from "../random.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface ClockSize {
  rounds: number;
}

const LIFETIMES = { holdMs: 10_000, retentionMs: 3_600_000 };
const MADE = { maxAgeMs: 3_600_000, upstream: "" };
const STORES = 3;
const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const TIERS = { standard: { rateLimit: 20, maxConcurrent: 3, dailyLimit: 500 } };
const CODES: Record<string, number> = { admitted: 200, rate_limited: 2001, daily_limited: 2003 };

/**
 * Steps of the store's clock. The clock of a Redis cannot be set without the machine's, so this runs the store's
 * operations, from three connections at once, with the time passed in as tests may; the scripts are the same.
 */
export const clock: Scenario<ClockSize> = {
  name: "clock",
  title: ({ rounds }) =>
    `${rounds} rounds of admissions from ${STORES} stores at once while their clock steps by ±1 s, ±61 s, ±1 h and over ` +
    "midnight (time passed in to the scripts: the clock of Redis itself cannot be set)",
  full: { rounds: 4000 },
  short: { rounds: 150 },
  run: runClock,
};

/** A key, and its own clock as it must be by now: never behind an admission. */
interface Watched {
  key: KeyRef;
  clockMs: number;
}

async function runClock(options: RunOptions, { rounds }: ClockSize): Promise<History> {
  const world = await createWorld(options, 0);
  let nowMs = Date.UTC(2031, 4, 6, 23, 50);
  const connections = Array.from({ length: STORES }, () =>
    createConnection({
      redisUrl: `redis://127.0.0.1:${world.redis.options.port}`,
      commandTimeoutMs: 10_000,
      partitions: 4,
      nowMs: () => nowMs,
      log: createLogger("silent"),
      metrics: createMetrics(),
    }),
  );
  try {
    await Promise.all(connections.map(({ breaker }) => breaker.closed()));
    const stores = connections.map((connection) => openStore(connection));
    const watched = await givenKeys(world, stores[0]!);
    for (let round = 0; round < rounds; round++) {
      nowMs = step(world.random, nowMs);
      await burst(world, stores, watched, { nowMs, round });
    }
    const history = await world.finish();
    return { ...history, meta: { ...history.meta, clock: "stepped", toleranceMs: 0 } };
  } finally {
    await Promise.all(connections.map((connection) => connection.close()));
    await world.stop();
  }
}

function openStore(connection: Connection): Store & Holds {
  const settlements = createSettlements(connection, { log: createLogger("silent") });
  return { ...createStore(connection), ...createHolds(connection, settlements) };
}

async function givenKeys(world: World, store: Store): Promise<Watched[]> {
  const limits = [{ rateLimit: 5 }, { rateLimit: 20 }, { rateLimit: 20, dailyLimit: 60 }, { dailyLimit: 25 }];
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

/** Some admissions of some keys at one moment, from all stores at once. */
async function burst(
  world: World,
  stores: (Store & Holds)[],
  watched: Watched[],
  { nowMs, round }: { nowMs: number; round: number },
): Promise<void> {
  const planned = Array.from({ length: world.random.int(1, 12) }, (_, each) => ({
    subject: world.random.pick(watched),
    store: stores[each % stores.length]!,
    requestId: `req_${round}_${each}`,
  }));
  const admitted = new Set<Watched>();
  await Promise.all(
    planned.map(async ({ subject, store, requestId }) => {
      const atMs = Math.max(nowMs, subject.clockMs);
      const { key } = subject;
      const generation = { requestId, key, price: PRICE, endpoint: TEXT_TO_VIDEO, ...LIFETIMES };
      const { outcome, state } = await store.admit(generation, TIERS);
      world.client.push(eventOf(key, requestId, atMs, CODES[outcome] ?? 500, state));
      if (outcome !== "admitted") return;
      admitted.add(subject);
      const taskId = `task_${requestId}`;
      await store.bind(generation, { taskId, data: "{}", pollMs: 1000, ...MADE });
      const task = {
        taskId,
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
    left: "",
    error: "",
  };
}
