import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Redis } from "ioredis";
import { createSettlements } from "../src/durability/deferred-settlements.ts";
import { rollUp } from "../src/jobs/rollup-work.ts";
import { type IssuedKey, issueKey, type KeyOptions } from "../src/operations/keys/issue-key.ts";
import { cliActor } from "../src/records/actor.ts";
import { createConnection } from "../src/redis/connection.ts";
import { oneNode } from "../src/redis/store-facts.ts";
import { createHolds } from "../src/settlement/holds.ts";
import { createStore } from "../src/settlement/store.ts";
import { createSweeps } from "../src/settlement/sweeps.ts";
import { createLogger } from "../src/telemetry/log.ts";
import { createMetrics } from "../src/telemetry/metrics.ts";
import { inMemory } from "../test/support/memory-journal.ts";
import { YARDSTICK, yardstickTree } from "./yardstick.ts";

/** A checkout whose gateway is measured. */
export interface Tree {
  /** As tables name it. */
  name: string;
  root: string;
  /** Makes a key by the checkout's own code, so that its own encoding is read. */
  issueKey(redis: Redis, options?: KeyOptions): Promise<IssuedKey>;
}

export const OUR_TREE: Tree = {
  name: "gateway",
  root: resolve(import.meta.dirname, ".."),
  issueKey: (redis, options) => issueKey(oneNode(redis), options, cliActor()),
};

/** @throws Error where the history is not there, as in a shallow clone */
export async function openYardstick(): Promise<Tree> {
  const root = yardstickTree();
  const accounts: { issueKey: Tree["issueKey"] } = await import(
    pathToFileURL(resolve(root, "src/store/accounts.ts")).href
  );
  const clientOf = ownClients();
  return {
    name: YARDSTICK,
    root,
    issueKey: (redis, { limits = {}, ...options } = {}) =>
      accounts.issueKey(clientOf(redis), { ...options, limits: inCamelCase(limits) }),
  };
}

/** The yardstick calls limits `rateLimit` and so on. */
const inCamelCase = (limits: NonNullable<KeyOptions["limits"]>): typeof limits =>
  Object.fromEntries(
    Object.entries(limits).map(([name, value]) => [
      name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
      value,
    ]),
  );

/** The yardstick defines its scripts on a client by name, where ours may have others: it has clients of its own. */
function ownClients(): (redis: Redis) => Redis {
  const clients = new WeakMap<Redis, Redis>();
  return (redis) => {
    const known = clients.get(redis);
    if (known) return known;
    const own = redis.duplicate();
    clients.set(redis, own);
    redis.once("end", () => own.disconnect());
    return own;
  };
}

/** Longer than anything that is measured here may take. */
const COMMAND_TIMEOUT_MS = 30_000;
const LEASE_MS = 60_000;

export type OpenStore = Awaited<ReturnType<typeof openStore>>;

/**
 * The store's operations as a gateway uses them.
 * @param nowMs a clock of our own; without one Redis has it
 */
export async function openStore(redisUrl: string, nowMs?: () => number) {
  const log = createLogger("silent");
  const connection = createConnection({
    redisUrl,
    commandTimeoutMs: COMMAND_TIMEOUT_MS,
    partitions: 64,
    log,
    metrics: createMetrics(),
    nowMs,
  });
  await connection.usable();
  const settlements = createSettlements(connection, { log, ...inMemory });
  return {
    store: { ...createStore(connection), ...createHolds(connection, settlements) },
    sweeps: createSweeps(connection, () => LEASE_MS, nowMs),
    /** Counts ended tasks and the ledger in the usage of accounts, as gateways do every second. */
    rollUp: (partition: number): Promise<unknown> => rollUp(connection.of(partition).run, { partition }),
    close: connection.close,
  };
}
