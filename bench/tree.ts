import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Redis } from "ioredis";
import type { Tiers } from "../src/domain/limits.ts";
import type { createSettlements } from "../src/durability/deferred-settlements.ts";
import type { rollUp } from "../src/jobs/rollup-work.ts";
import type { IssuedKey, issueKey, KeyOptions } from "../src/operations/keys/issue-key.ts";
import { cliActor } from "../src/records/actor.ts";
import type { keyRef, partitionOf } from "../src/records/names.ts";
import type { Connection, createConnection } from "../src/redis/connection.ts";
import type { Primary } from "../src/redis/primary.ts";
import type { oneNode, RedisNodes } from "../src/redis/store-facts.ts";
import type { createHolds, Holds } from "../src/settlement/holds.ts";
import type { Store } from "../src/settlement/store.ts";
import type { createSweeps, Sweeps } from "../src/settlement/sweeps.ts";
import type { createLogger } from "../src/telemetry/log.ts";
import type { createMetrics } from "../src/telemetry/metrics.ts";
import { inMemory } from "../test/support/memory-journal.ts";

/** A source tree whose gateway is measured: keys are made by its own code, so that its own encoding is read. */
export interface Tree {
  /** As tables name it. */
  name: string;
  root: string;
  issueKey(redis: Redis, options?: KeyOptions): Promise<IssuedKey>;
  /** As `issueKey`, on the servers of a store; earlier trees know one server only. */
  issueKeyOn: typeof issueKey;
  partitionOf: typeof partitionOf;
  keyRef: typeof keyRef;
  /**
   * The store's operations as the tree's gateway uses them.
   * @param nowMs a clock of our own; without one Redis has it
   */
  openStore(redisUrl: string, nowMs?: () => number): Promise<OpenStore>;
}

export interface OpenStore {
  store: Store & Omit<Holds, "bind"> & Pick<EarlierStore, "bind">;
  sweeps: Sweeps;
  /** Counts ended tasks and the ledger in the usage of accounts, as gateways do every second. Earlier releases have none. */
  rollUp(partition: number): Promise<unknown>;
  close(): Promise<void>;
}

/** Earlier releases have one breaker. */
type EarlierConnection = Partial<Pick<Primary, "breaker">>;

const isUsable = (connection: Connection & EarlierConnection): Promise<void> =>
  connection.breaker?.closed() ?? connection.usable();

/** Longer than anything that is measured here may take. */
const COMMAND_TIMEOUT_MS = 30_000;
const LEASE_MS = 60_000;

/** In earlier releases the store had all operations, took the clock, and wanted the tiers with a BIND. */
interface EarlierStore {
  bind(...call: [...Parameters<Holds["bind"]>, Tiers]): ReturnType<Holds["bind"]>;
  /** `voidHold` by its earlier name. */
  giveBack?: Holds["voidHold"];
}
type CreateStore = (connection: Connection, nowMs?: () => number) => Store & Pick<EarlierStore, "giveBack">;

/** Files of a tree, by room and name; in earlier releases they lay in store or settlement, and one had another name. */
function filesOf(root: string) {
  const inTree = (room: string, ...files: string[]): string | undefined =>
    [room, "store/", "settlement/"]
      .flatMap((folder) => files.map((file) => join(root, "src", folder, file)))
      .find((path) => existsSync(path));
  return {
    has: (room: string, file: string): boolean => inTree(room, file) !== undefined,
    async load<T>(room: string, ...files: string[]): Promise<T> {
      const path = inTree(room, ...files);
      if (path === undefined) throw new Error(`${root} has no ${files.join(" or ")} in src/${room}`);
      return import(pathToFileURL(path).href);
    },
  };
}

/** Earlier trees call limits `rateLimit` and so on. */
export const inBothSpellings = <Limits extends object>(limits: Limits): Limits =>
  Object.fromEntries(
    Object.entries(limits).flatMap(([name, value]) => [
      [name, value],
      [name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()), value],
    ]),
  ) as Limits;

/** Loads what the benchmark needs of a checkout; its `node_modules` must be there. */
export async function openTree(name: string, folder: string): Promise<Tree> {
  const root = resolve(folder);
  const { load, has } = filesOf(root);
  const keys = await load<{ issueKey: typeof issueKey }>("operations/keys/", "issue-key.ts", "accounts.ts");
  // In earlier releases a key was made through a client.
  const nodes = has("redis/", "nodes.ts")
    ? await load<{ oneNode: typeof oneNode }>("redis/", "nodes.ts")
    : undefined;
  const names = await load<{ partitionOf: typeof partitionOf; keyRef: typeof keyRef }>(
    "records/",
    "names.ts",
  );
  const connections = await load<{ createConnection: typeof createConnection }>("redis/", "connection.ts");
  const stores = await load<{ createStore: CreateStore }>("settlement/", "store.ts");
  const settling = has("settlement/", "holds.ts")
    ? {
        ...(await load<{ createHolds: typeof createHolds }>("settlement/", "holds.ts")),
        ...(await load<{ createSettlements: typeof createSettlements }>(
          "durability/",
          "deferred-settlements.ts",
        )),
      }
    : undefined;
  const sweeping = await load<{ createSweeps: typeof createSweeps }>("settlement/", "sweeps.ts");
  const rolling = has("ledger/", "rolling-up.ts")
    ? await load<{ rollUp: typeof rollUp }>("ledger/", "rolling-up.ts")
    : undefined;
  const logs = await load<{ createLogger: typeof createLogger }>("telemetry/", "log.ts");
  const metrics = await load<{ createMetrics: typeof createMetrics }>("telemetry/", "metrics.ts");
  const ownClient = clientsOfOneTree();
  return {
    name,
    root,
    issueKey(redis, options) {
      const own = ownClient(redis);
      const { limits = {}, ...others } = options ?? {};
      const wanted = { ...others, limits: inBothSpellings(limits) };
      return keys.issueKey(nodes ? nodes.oneNode(own) : (own as unknown as RedisNodes), wanted, cliActor());
    },
    issueKeyOn: (redis, { limits = {}, ...options } = {}, ...more) =>
      keys.issueKey(redis, { ...options, limits: inBothSpellings(limits) }, ...more),
    partitionOf: names.partitionOf,
    keyRef: names.keyRef,
    async openStore(redisUrl, nowMs) {
      const connection = connections.createConnection({
        redisUrl,
        commandTimeoutMs: COMMAND_TIMEOUT_MS,
        partitions: 64,
        log: logs.createLogger("silent"),
        metrics: metrics.createMetrics(),
        nowMs,
      });
      await isUsable(connection);
      const { giveBack, ...store } = stores.createStore(connection, nowMs);
      const log = logs.createLogger("silent");
      const holds = settling?.createHolds(
        connection,
        settling.createSettlements(connection, { log, ...inMemory }),
      );
      return {
        store: { ...store, ...(giveBack && { voidHold: giveBack }), ...holds } as OpenStore["store"],
        sweeps: sweeping.createSweeps(connection, () => LEASE_MS, nowMs),
        rollUp: async (partition) => rolling?.rollUp(connection.of(partition).run, { partition }),
        close: connection.close,
      };
    },
  };
}

/** Scripts are defined on a client by name, and those of another tree may take other names: each tree has clients of its own. */
function clientsOfOneTree(): (redis: Redis) => Redis {
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
