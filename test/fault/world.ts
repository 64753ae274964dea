import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { issueKey } from "../../src/store/accounts.ts";
import { scriptSource, VERBS } from "../../src/store/scripts.ts";
import type { Customer } from "./client.ts";
import { type GatewayProcess, outboxEntries, startGateway, writeGatewayConfigs } from "./gateways.ts";
import type { AccountFacts, ClientEvent, FaultEvent, History, Meta } from "./history.ts";
import { createRandom, type Random } from "./random.ts";
import { createRedisProxy, type RedisProxy } from "./redis-proxy.ts";
import { countOpen, readStore, verifyStore } from "./snapshot.ts";
import { type FaultUpstream, startUpstream } from "./upstream.ts";

export const ROOT = resolve(import.meta.dirname, "../..");
/** Issue 3: after at most 90 s nothing is open any more; looked at for a little longer, to tell late from never. */
const QUIESCENCE_MAX_MS = 100_000;
/** One machine, one clock: only the event loops' delays lie between the stamps. */
const TOLERANCE_MS = 50;

/** What a scenario is run with. */
export interface RunOptions {
  scenario: string;
  seed: number;
  /** Where the history, the journal and the logs go. */
  folder: string;
  /** The source tree whose gateways are run; a mutant's for negative controls. */
  root: string;
  /** Instead of the usual 100 s, where nobody expects quiescence. */
  quiescenceMaxMs?: number;
  progress(line: string): void;
}

export interface World {
  options: RunOptions;
  random: Random;
  redis: Redis;
  redisPid: number;
  proxy: RedisProxy;
  upstream: FaultUpstream;
  /** The living gateway of each slot; undefined while it is being started again. */
  gateways: (GatewayProcess | undefined)[];
  accounts: AccountFacts[];
  client: ClientEvent[];
  faults: FaultEvent[];
  /** A customer with room for anything, but for what is named. */
  givenCustomer(limits?: Partial<AccountFacts>): Promise<Customer>;
  /** Starts a new process in a slot, over the same journal folder. */
  startIn(slot: number): Promise<GatewayProcess>;
  /** SIGKILL to the process of a slot. */
  kill(slot: number, phase: string): void;
  note(kind: string, phase?: string): void;
  /** Waits until nothing is open, reads the store, and puts the history together. */
  finish(): Promise<History>;
  stop(): Promise<void>;
}

const living = new Set<World>();

/** Ends everything that any world has started. */
export async function stopWorlds(): Promise<void> {
  await Promise.all([...living].map((world) => world.stop()));
}

interface WorldOptions {
  /** One more gateway, after the slots, sweeps alone: what the others had claimed when they were killed is then nothing. */
  sweeperApart?: boolean;
  /** Short where timeouts are the point; else so long that a busy machine makes none. */
  commandTimeoutMs?: number;
  /** To the upstream; few where they are the point. */
  connections?: number;
}

/** A Redis of its own behind a fault proxy, an upstream that misbehaves when asked to, and gateways in between. */
export async function createWorld(
  options: RunOptions,
  slots: number,
  { sweeperApart = false, commandTimeoutMs = 2000, connections }: WorldOptions = {},
): Promise<World> {
  const { folder, root, seed, scenario } = options;
  mkdirSync(folder, { recursive: true });
  writeGatewayConfigs(folder, { commandTimeoutMs, connections });
  const startedMs = Date.now();
  const server: RunningRedis = await startRedis({ dir: `${folder}/redis`, persistent: false });
  if (server.pid === undefined)
    throw new Error("Redis must be a process of this machine: install redis-server");
  const redis = new Redis(server.url);
  const proxy = createRedisProxy(server.port, root);
  const upstream = startUpstream();
  const accounts: AccountFacts[] = [];
  const client: ClientEvent[] = [];
  const faults: FaultEvent[] = [];
  const gateways: (GatewayProcess | undefined)[] = [];
  const all: GatewayProcess[] = [];
  let stopped = false;
  let started = 0;

  const world: World = {
    options,
    random: createRandom(seed),
    redis,
    redisPid: server.pid,
    proxy,
    upstream,
    gateways,
    accounts,
    client,
    faults,
    async givenCustomer(wanted = {}) {
      const limits = {
        granted: 10_000_000,
        rateLimit: 1_000_000,
        maxConcurrent: 10_000,
        dailyLimit: 10_000_000,
      };
      const facts = { ...limits, ...wanted };
      const { granted: credits, ...own } = facts;
      const { key, keyId, accountId } = await issueKey(redis, { credits, limits: own });
      accounts.push({ ...facts, accountId, keyId });
      return { key, keyId, accountId };
    },
    async startIn(slot) {
      const name = `g${slot}-${started++}`;
      const redisUrl = await proxy.listen(name);
      const sweeps = !sweeperApart || slot === slots;
      const upstreamUrl = await upstream.listen(name);
      if (stopped) throw new Error("the world was stopped");
      const spawned = (gateway: GatewayProcess): void => {
        all.push(gateway);
        if (stopped) gateway.kill();
      };
      const start = (): Promise<GatewayProcess> => {
        const urls = { redisUrl, upstreamUrl };
        return startGateway({ root, folder, name, ...urls, sweeps, spawned });
      };
      // Once more for one that something else on this machine has ended before it was ready.
      const gateway = await start().catch((error: Error) => {
        faults.push({ kind: "started again", atMs: Date.now(), gateway: name, phase: error.message });
        return start();
      });
      gateways[slot] = gateway;
      return gateway;
    },
    kill(slot, phase) {
      const gateway = gateways[slot];
      if (!gateway) return;
      faults.push({ kind: "kill", atMs: Date.now(), gateway: gateway.name, phase });
      gateway.kill();
      gateways[slot] = undefined;
    },
    note: (kind, phase = "") => void faults.push({ kind, atMs: Date.now(), gateway: "", phase }),
    async finish() {
      const from = Date.now();
      const quiet = await quiescence(world, from + (options.quiescenceMaxMs ?? QUIESCENCE_MAX_MS));
      const meta: Meta = {
        scenario,
        seed,
        startedMs,
        endedMs: Date.now(),
        quiescenceMs: Date.now() - from,
        quiet,
        toleranceMs: TOLERANCE_MS,
        clock: "redis",
        accounts,
        verified: await verifyStore(redis).catch((error: Error) => [`verifyLedger: ${error.message}`]),
      };
      const link = proxy.events.map(({ keys: _keys, ...event }) => event);
      return { meta, client, upstream: upstream.events, link, faults, store: await readStore(redis) };
    },
    async stop() {
      if (stopped) return;
      stopped = true;
      living.delete(world);
      await Promise.all(all.filter(({ alive }) => alive).map((gateway) => gateway.stop()));
      proxy.stop();
      upstream.stop();
      redis.disconnect();
      process.kill(server.pid!, "SIGCONT");
      await server.stop();
    },
  };
  living.add(world);
  await loadScripts(redis, root);
  for (let slot = 0; slot < slots; slot++) gateways.push(undefined);
  await Promise.all(gateways.map((_, slot) => world.startIn(slot)));
  if (sweeperApart) await world.startIn(slots);
  return world;
}

/** So that a fault meant for a script's run does not meet the NOSCRIPT before it. */
async function loadScripts(redis: Redis, root: string): Promise<void> {
  for (const verb of VERBS) await redis.script("LOAD", scriptSource(verb, `${root}/lua`));
}

async function quiescence({ redis, gateways, accounts }: World, deadline: number): Promise<boolean> {
  for (;;) {
    const waiting = await Promise.all(
      gateways.map((gateway) => (gateway?.alive ? outboxEntries(gateway) : Promise.resolve(0))),
    );
    const open = waiting.reduce((sum, entries) => sum + entries, 0) + (await countOpen(redis, accounts));
    if (open === 0) return true;
    if (Date.now() > deadline) return false;
    await pause(250);
  }
}

/** A gateway that lives now, the wanted one if it does; waits while none does. */
export async function anyGateway(world: World, wanted: number): Promise<GatewayProcess> {
  for (;;) {
    const { gateways } = world;
    for (let at = 0; at < gateways.length; at++) {
      const gateway = gateways[(wanted + at) % gateways.length];
      if (gateway?.alive) return gateway;
    }
    await pause(5);
  }
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
