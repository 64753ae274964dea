import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { oneNode } from "../../../src/redis/store-facts.ts";
import { startRedis } from "../../../src/sandbox/redis.ts";
import { childEnv } from "../../support/child-env.ts";
import { type Customer, generate } from "../client.ts";
import { settlementsWaiting } from "../fleet.ts";
import { isReady, programOf } from "../gateways.ts";
import type { History } from "../history.ts";
import { readStore } from "../snapshot.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface StoresSize {
  /** How often another store stands behind the address, and requests under way each time. */
  returns: number;
  requestsEach: number;
  /** Requests after the store was copied, all within the 30 s whose charges are sent again; 0: none is older. */
  requestsAfterCopy: number;
}

const run = promisify(execFile);
/** Their tasks are made while the other store answers. */
const GENERATION_MS = 800;
const WAIT_MAX_MS = 30_000;
/** An older store is offered requests for so long. */
const REFUSED_MS = 2000;

/**
 * The store is replaced by an empty one while gateways live, and comes back; then it is killed and started again from
 * an older copy, which must be refused until an operator accepts it.
 */
export const stores: Scenario<StoresSize> = {
  name: "stores",
  title: ({ returns, requestsEach, requestsAfterCopy }) =>
    `an empty Redis in place of the store and back, ${returns} times with ${requestsEach} requests under way; ` +
    `Redis killed and started from a copy that lacks ${requestsAfterCopy} requests, and accepted; a Redis without persistence`,
  full: { returns: 8, requestsEach: 60, requestsAfterCopy: 400 },
  short: { returns: 1, requestsEach: 24, requestsAfterCopy: 40 },
  run: runStores,
};

async function runStores(options: RunOptions, size: StoresSize): Promise<History> {
  const { returns, requestsEach, requestsAfterCopy } = size;
  const world = await createWorld(options, 2, { persistent: true, commandTimeoutMs: 500 });
  try {
    const customers = await Promise.all(Array.from({ length: 6 }, () => world.givenCustomer()));
    const other = await startRedis({ dir: join(options.folder, "other-redis"), persistent: false });
    try {
      for (let at = 0; at < returns; at++) {
        await replaceStore(world, customers, other.port, requestsEach, at === 0);
        options.progress(`${at + 1} of ${returns} returns from another store`);
      }
      const redis = new Redis(other.port, "127.0.0.1");
      world.otherStore.push(...(await readStore(oneNode(redis))));
      redis.disconnect();
    } finally {
      await other.stop();
    }
    if (requestsAfterCopy > 0) {
      await runOlder(world, customers, requestsAfterCopy);
      options.progress("an older store was accepted");
    }
    await refuseNotPersistent(world);
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** A load of ordinary requests, `width` at a time. */
async function load(world: World, customers: readonly Customer[], count: number, delayMs = 0): Promise<void> {
  const { random } = world;
  const plan = Array.from({ length: count }, () => ({
    customer: random.pick(customers),
    gateway: random.int(0, 1),
    wish: { lifeMs: random.int(1, 60), fails: random.chance(0.3), delayMs },
  }));
  await Promise.all(
    plan.map(async ({ customer, gateway, wish }) => {
      world.client.push(await generate(world.gateways[gateway]!, customer, wish));
    }),
  );
}

const allReady = async ({ gateways }: World): Promise<boolean> =>
  (await Promise.all(gateways.map((gateway) => isReady(gateway!)))).every((ready) => ready);

/** Another store answers while requests of the first one are upstream; then the first one is back. */
async function replaceStore(
  world: World,
  customers: readonly Customer[],
  otherPort: number,
  count: number,
  isEmpty: boolean,
): Promise<void> {
  const underWay = load(world, customers, count, GENERATION_MS);
  await pause(GENERATION_MS / 2);
  world.note("another store");
  world.proxy.pointTo(otherPort);
  await underWay;
  if (isEmpty) await refuseEmpty(world, customers, otherPort);
  // Customers' keys are unknown there.
  if (await eventually(WAIT_MAX_MS, () => allReady(world))) await load(world, customers, 4);
  else world.note("not reached", "another store is used");
  if ((await settlementsWaiting(world)) === 0)
    world.note("not reached", "settlements wait for their own store");
  world.note("first store back");
  world.proxy.pointTo(world.server.port);
  // A gateway that has not noticed yet is ready, too: what waited is sent when it has.
  const isBack = async (): Promise<boolean> =>
    (await settlementsWaiting(world)) === 0 && (await allReady(world));
  if (!(await eventually(WAIT_MAX_MS, isBack))) world.note("not reached", "the first store is used again");
}

/** Redis is started from a copy; the gateways must refuse it, and send again what they hold once it is accepted. */
async function runOlder(world: World, customers: readonly Customer[], count: number): Promise<void> {
  await load(world, customers, 20);
  const copy = join(world.options.folder, "redis-copy");
  // Written once a second; what comes later is not in the copy.
  await pause(1200);
  world.note("store is copied");
  await world.server.copyData(copy);
  for (let left = count; left > 0; left -= 20) await load(world, customers, Math.min(left, 20));
  // The gateways look once a second at what the store has confirmed.
  await pause(1500);
  await world.server.restartFrom(copy);
  world.note("store is older");
  await loadFor(world, customers, REFUSED_MS);
  const accepted = await accept(world, world.server.port);
  world.note("older store accepted");
  if (!accepted.includes('"accepted":true')) world.note("not reached", `store accept: ${accepted}`);
  if (!(await eventually(WAIT_MAX_MS, () => allReady(world))))
    world.note("not reached", "the accepted store is used");
  await load(world, customers, 20);
}

async function loadFor(world: World, customers: readonly Customer[], forMs: number): Promise<void> {
  const untilMs = Date.now() + forMs;
  while (Date.now() < untilMs) {
    await load(world, customers, 4);
    await pause(100);
  }
}

/** The gateways must refuse a Redis that is empty, and serve from it once it is accepted. */
async function refuseEmpty(world: World, customers: readonly Customer[], port: number): Promise<void> {
  await loadFor(world, customers, REFUSED_MS);
  world.note("empty store accepted");
  const accepted = await accept(world, port);
  if (!accepted.includes('"accepted":true')) world.note("not reached", `store accept: ${accepted}`);
}

/** A gateway that starts must refuse a Redis that would lose everything with a restart. */
async function refuseNotPersistent(world: World): Promise<void> {
  const { redis } = world;
  const slot = world.gateways.length;
  await redis.config("SET", "save", "");
  await redis.config("SET", "appendonly", "no");
  const started = await world.startIn(slot, { allowNoPersistence: false, waitsForStore: false });
  if (await eventually(REFUSED_MS, () => isReady(started)))
    world.note("not reached", "a Redis without persistence is refused");
  await started.stop();
  world.gateways.length = slot;
  await redis.config("SET", "appendonly", "yes");
}

/** An operator's commands. */
async function accept(world: World, port: number): Promise<string> {
  const { root, folder } = world.options;
  const args = [programOf(root, "cli"), "store", "accept", "--json"];
  const env = {
    ...childEnv(),
    REDIS_URL: `redis://127.0.0.1:${port}`,
    TOLLGATE_CONFIG: join(folder, `${world.gateways[0]!.name}.yaml`),
  };
  return run(process.execPath, args, { cwd: folder, env }).then(
    ({ stdout }) => stdout,
    (error: Error) => error.message,
  );
}
