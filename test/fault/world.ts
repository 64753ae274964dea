import { cp, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { createScriptReader, scriptSource } from "../../src/redis/script-source.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { SCRIPTS } from "../../src/scripts/all.ts";
import { holdPort } from "../support/held-port.ts";
import { createFleet, type Fleet, type FleetOptions, type RunOptions } from "./fleet.ts";
import type { StoreEntry } from "./history.ts";
import { createRedisProxy, type RedisProxy } from "./redis-proxy.ts";

export type { RunOptions } from "./fleet.ts";

export const ROOT = resolve(import.meta.dirname, "../..");

/** A fleet over a store behind fault proxies. */
export interface ProxiedWorld extends Fleet {
  proxy: Pick<RedisProxy, "steer">;
  stop(): Promise<void>;
}

/** A fleet over one Redis behind a fault proxy. */
export interface World extends ProxiedWorld {
  redis: Redis;
  /** The store behind the proxy; its data on disk only where the scenario wants it. */
  server: StoreServer;
  proxy: RedisProxy;
  /** Content of another store that stood behind the same address for a while; read when it has gone. */
  otherStore: StoreEntry[];
  /** Records that the store has forgotten by the end, as it must. */
  forgotten: StoreEntry[];
  /** How far the store's clock was stepped ahead of this machine's at most, ms. */
  clockAheadMs: number;
}

/** A Redis that can be killed, and started again from other data, at the same port. */
export interface StoreServer {
  pid(): number;
  port: number;
  /** Copies its append-only files. */
  copyData(to: string): Promise<void>;
  /** SIGKILL, then a start from its own data, which keeps all that it has answered. */
  restart(downMs: number): Promise<void>;
  /** SIGKILL, then a start from a copy of its data. */
  restartFrom(copy: string): Promise<void>;
  stop(): Promise<void>;
}

async function startStore(dir: string, persistent: boolean): Promise<StoreServer> {
  // Held while no server listens there: a gateway that looks for it meets nobody else.
  const { port, release } = await holdPort();
  // By default Redis answers up to two seconds before it writes while the disk is slow, so that SIGKILL loses what was told.
  const options = { dir, persistent, port, args: persistent ? ["--appendfsync", "always"] : [] };
  let server: RunningRedis = await startRedis(options);
  const pid = (): number => {
    if (server.pid === undefined)
      throw new Error("Redis must be a process of this machine: install redis-server");
    return server.pid;
  };
  const data = join(dir, "appendonlydir");
  pid();
  return {
    pid,
    port,
    copyData: (to) => cp(data, to, { recursive: true }),
    async restart(downMs) {
      process.kill(pid(), "SIGKILL");
      await server.ended;
      await pause(downMs);
      server = await startRedis(options);
    },
    async restartFrom(copy) {
      process.kill(pid(), "SIGKILL");
      await server.ended;
      await rm(data, { recursive: true });
      await cp(copy, data, { recursive: true });
      server = await startRedis(options);
    },
    async stop() {
      process.kill(pid(), "SIGCONT");
      await server.stop();
      release();
    },
  };
}

const living = new Set<ProxiedWorld>();

/** Ends everything that any world has started. */
export async function stopWorlds(): Promise<void> {
  await Promise.all([...living].map((world) => world.stop()));
}

/** Ends along with all others, however its campaign ends. */
export function endsWithAll<W extends ProxiedWorld>(world: W): W {
  const stop = world.stop;
  world.stop = async () => {
    if (living.delete(world)) await stop();
  };
  living.add(world);
  return world;
}

interface WorldOptions extends FleetOptions {
  /** The store has its data on disk. */
  persistent?: boolean;
}

/** A Redis of its own behind a fault proxy, an upstream that misbehaves when asked to, and gateways in between. */
export async function createWorld(
  options: RunOptions,
  slots: number,
  { persistent = false, ...fleetOptions }: WorldOptions = {},
): Promise<World> {
  const { folder, root } = options;
  const server = await startStore(join(folder, "redis"), persistent);
  const redis = new Redis(server.port, "127.0.0.1");
  // Stores come and go here: what was lost with a connection is seen by what is read afterwards.
  redis.on("error", () => undefined);
  const proxy = createRedisProxy(server.port, root);
  const fleet = createFleet(options, slots, fleetOptions, {
    listen: proxy.listen,
    nodes: async () => oneNode(redis),
    linkEvents: () => proxy.events.map(({ keys: _keys, args: _args, ...event }) => event),
  });
  const world: World = endsWithAll({
    ...fleet,
    redis,
    server,
    proxy,
    otherStore: [],
    forgotten: [],
    clockAheadMs: 0,
    finish: () => fleet.finish(world),
    async stop() {
      await fleet.stopGateways();
      proxy.stop();
      redis.disconnect();
      await server.stop();
    },
  });
  await loadScripts(redis, root);
  await fleet.startAll();
  return world;
}

/** By tree. */
const scriptTexts = new Map<string, string[]>();

/** So that a fault meant for a script's run does not meet the NOSCRIPT before it. */
export async function loadScripts(redis: Redis, root: string): Promise<void> {
  const read = createScriptReader(`${root}/lua`);
  const texts = scriptTexts.get(root) ?? SCRIPTS.map((script) => scriptSource(script, { read }));
  scriptTexts.set(root, texts);
  await Promise.all(texts.map((text) => redis.script("LOAD", text)));
}

/** Resolves once the condition holds; false when that takes too long. */
export async function within(ms: number, condition: () => boolean): Promise<boolean> {
  const deadline = Date.now() + ms;
  while (!condition()) {
    if (Date.now() > deadline) return false;
    await pause(1);
  }
  return true;
}

/** As `within`, of what is asked for elsewhere. */
export async function eventually(ms: number, condition: () => Promise<boolean>): Promise<boolean> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline) return false;
    await pause(50);
  }
  return true;
}
