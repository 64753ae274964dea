import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { keyRef, partitionOf } from "../../../src/records/names.ts";
import { setKeyFields } from "../../support/stored-records.ts";
import { type Customer, generate, poll } from "../client.ts";
import { REFUSES, SERVES } from "../criteria-unmetered.ts";
import { settlementsWaiting } from "../fleet.ts";
import { isReady, metricValues } from "../gateways.ts";
import type { History } from "../history.ts";
import { copySources, type Patch } from "../tree.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface UnmeteredSize {
  /** In each outage, over all customers. */
  requests: number;
  outages: number;
}

/** Gateways read the figures of Redis often: once a minute in the product. */
export const FREQUENT_FIGURES: readonly Patch[] = [
  {
    file: "src/jobs/background-work.ts",
    from: "const FIGURES_EVERY_MS = 60_000;",
    to: "const FIGURES_EVERY_MS = 300;",
  },
];
const FIGURES = [
  "memory_used_bytes",
  "memory_max_bytes",
  "persistent",
  "clock_ahead_seconds",
  "replicas_online",
];
const MAX_MEMORY_BYTES = 2 ** 28;

/**
 * Gateways with `store.fallback_strategy: allow`. Redis stands still and tasks are made meanwhile, through both gateways; one of
 * these is killed before Redis goes on. Then Redis refuses the gateways, and nothing may pass. The figures of Redis go with it and
 * come back.
 */
export const unmetered: Scenario<UnmeteredSize> = {
  name: "unmetered",
  title: ({ requests, outages }) =>
    `allow: Redis stands still ${outages} times under ${requests} requests, a gateway is killed meanwhile; ` +
    "then Redis refuses the gateways",
  full: { requests: 120, outages: 2 },
  short: { requests: 40, outages: 1 },
  run: runUnmetered,
};

const WAIT_MAX_MS = 30_000;
/** Some ten times what it takes. */
const FIGURES_MAX_MS = 4000;
/** Long enough that the key is seen good before, on a busy machine too. */
const KEY_ENDS_AFTER_MS = 4000;
const PASSWORD = "another";

async function runUnmetered(options: RunOptions, { requests, outages }: UnmeteredSize): Promise<History> {
  const root = copySources(options.root, join(options.folder, "frequent-tree"), FREQUENT_FIGURES);
  const world = await createWorld({ ...options, root }, 2, {
    commandTimeoutMs: 800,
    fallbackStrategy: "allow",
  });
  try {
    await world.redis.config("SET", "maxmemory", MAX_MEMORY_BYTES);
    await world.redis.config("SET", "appendonly", "yes");
    await showFigures(world);
    const wide = await Promise.all(Array.from({ length: 4 }, () => world.givenCustomer()));
    const capped = await world.givenCustomer({ monthly_credits: 30 });
    const made: Made[] = [];
    for (let outage = 0; outage < outages; outage++) {
      const ending = await givenEndingCustomer(world);
      const customers = [...wide, capped, ending];
      await seeAll(world, customers);
      made.push(...(await makeWhileAway(world, customers, requests, outage === 0)));
      await findAll(world, made);
      options.progress(`${outage + 1} of ${outages} outages`);
    }
    await refuse(world, wide);
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** A customer whose key ends in the coming outage. */
async function givenEndingCustomer({ redis, accounts, givenCustomer }: World): Promise<Customer> {
  const customer = await givenCustomer();
  const { keyId, accountId } = customer;
  const partitions = Number(await redis.hget("tg:meta", "partitions"));
  const endsAtMs = Date.now() + KEY_ENDS_AFTER_MS;
  const { key } = keyRef(keyId, accountId, partitionOf(accountId, partitions)).names;
  await setKeyFields(redis, key, { expires_at: endsAtMs });
  accounts.find((one) => one.keyId === keyId)!.endsAtMs = endsAtMs;
  return customer;
}

/** Each gateway sees each key good. */
async function seeAll({ gateways, client }: World, customers: readonly Customer[]): Promise<void> {
  for (const gateway of gateways)
    for (const customer of customers) client.push(await generate(gateway!, customer, { lifeMs: 10 }));
}

/** A task that was made while Redis was away. */
interface Made {
  customer: Customer;
  taskId: string;
}

/** @returns what passed */
async function makeWhileAway(
  world: World,
  customers: readonly Customer[],
  count: number,
  kills: boolean,
): Promise<Made[]> {
  const { random, server, gateways, accounts } = world;
  const passed: Made[] = [];
  const make = async (customer: Customer): Promise<void> => {
    const at = random.int(0, 1);
    const event = await generate(gateways[at]!, customer, {
      lifeMs: random.int(1, 60),
      fails: random.chance(0.3),
    });
    world.client.push(event);
    if (!event.degraded || event.status !== 200) return;
    passed.push({ customer, taskId: event.taskId });
    // The other gateway finds it in the journal.
    world.client.push(await poll(gateways[1 - at]!, customer, event.taskId));
  };
  world.note("Redis stands still");
  process.kill(server.pid(), "SIGSTOP");
  try {
    for (let left = count; left > 0; left -= customers.length) await Promise.all(customers.map(make));
    const lastEndMs = Math.max(...accounts.map(({ endsAtMs = 0 }) => endsAtMs));
    await pause(Math.max(0, lastEndMs + 200 - Date.now()));
    await Promise.all([...customers, ...customers].map(make));
    if (
      !(await eventually(FIGURES_MAX_MS, async () =>
        (await figures(world)).every(({ length }) => length === 0),
      ))
    )
      world.note("not reached", "the figures of a Redis that is away are removed");
    if (kills) world.kill(0, "with unmetered tasks in its journal");
  } finally {
    process.kill(server.pid(), "SIGCONT");
  }
  world.note("Redis goes on");
  if (kills) await world.startIn(0);
  if (!(await eventually(WAIT_MAX_MS, () => isSettled(world))))
    world.note("not reached", "the store is used again");
  await showFigures(world);
  if (passed.length < count / 2) world.note("not reached", `only ${passed.length} of ${count} passed`);
  return passed;
}

/** The gateway's figures of Redis. */
const figures = ({ gateways }: World): Promise<number[][]> =>
  Promise.all(FIGURES.map((name) => metricValues(gateways[1]!, `tollgate_redis_${name}`)));

/** A gateway shows what Redis is set to. */
async function showFigures(world: World): Promise<void> {
  const areShown = async (): Promise<boolean> => {
    const shown = await figures(world);
    const [[used = 0] = [], [most] = [], [persistent] = []] = shown;
    return (
      shown.every(({ length }) => length === 1) && used > 0 && most === MAX_MEMORY_BYTES && persistent === 1
    );
  };
  if (!(await eventually(FIGURES_MAX_MS, areShown)))
    world.note("not reached", "the figures of Redis are shown");
}

const isSettled = async (world: World): Promise<boolean> =>
  (await settlementsWaiting(world)) === 0 && (await allAre(world, true));

const allAre = async ({ gateways }: World, ready: boolean): Promise<boolean> =>
  (await Promise.all(gateways.map((gateway) => isReady(gateway!)))).every((one) => one === ready);

/** Each gateway finds what any of them has made; an ended key finds nothing. */
async function findAll({ gateways, client }: World, made: readonly Made[]): Promise<void> {
  for (const gateway of gateways)
    await Promise.all(
      made.map(async ({ customer, taskId }) => void client.push(await poll(gateway!, customer, taskId))),
    );
}

/** Redis wants another password, so it answers all gateways with an error. */
async function refuse(world: World, customers: readonly Customer[]): Promise<void> {
  const { redis } = world;
  await redis.config("SET", "requirepass", PASSWORD);
  await redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  if (!(await eventually(WAIT_MAX_MS, () => allAre(world, false))))
    world.note("not reached", "Redis refuses");
  world.note(REFUSES);
  for (const gateway of world.gateways)
    for (const customer of customers) world.client.push(await generate(gateway!, customer, {}));
  world.note(SERVES);
  await redis.config("SET", "requirepass", "");
  if (!(await eventually(WAIT_MAX_MS, () => allAre(world, true)))) world.note("not reached", SERVES);
}
