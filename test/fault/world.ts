import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { issueKey } from "../../src/store/accounts.ts";
import { oneNode } from "../../src/store/nodes.ts";
import { scriptSource } from "../../src/store/script-runner.ts";
import { SCRIPTS } from "../../src/store/scripts/all.ts";
import { holdPort } from "../support/held-port.ts";
import type { Customer } from "./client.ts";
import {
  type GatewayProcess,
  type GatewaySettings,
  logFileOf,
  outboxEntries,
  startGateway,
  writeGatewayConfig,
} from "./gateways.ts";
import type { AccountFacts, ClientEvent, FaultEvent, History, Meta, StoreEntry } from "./history.ts";
import { createRandom, type Random } from "./random.ts";
import { createRedisProxy, type RedisProxy } from "./redis-proxy.ts";
import { countOpen, readStore, verifyStore } from "./snapshot.ts";
import { FaultUpstream } from "./upstream.ts";

export const ROOT = resolve(import.meta.dirname, "../..");
/** After at most 90 s nothing is open any more; looked at for a little longer, to tell late from never. */
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
  /** The store behind the proxy; its data on disk only where the scenario wants it. */
  server: StoreServer;
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
  startIn(slot: number, own?: OwnSettings): Promise<GatewayProcess>;
  /** Changes the config file of the gateway of a slot, which reads it again by itself. */
  reconfigure(slot: number, own: Partial<GatewaySettings>): void;
  /** What another store, which stood behind the same address for a while, holds; read when it has gone. */
  otherStore: StoreEntry[];
  /** Records that the store has forgotten by the end, as it must. */
  forgotten: StoreEntry[];
  /** How far the store's clock was stepped ahead of this machine's at most, ms. */
  clockAheadMs: number;
  /** SIGKILL to the process of a slot. */
  kill(slot: number, phase: string): void;
  note(kind: string, phase?: string): void;
  /** Waits until nothing is open, reads the store, and puts the history together. */
  finish(): Promise<History>;
  stop(): Promise<void>;
}

/** A Redis that can be killed, and started again from other data, at the same port. */
export interface StoreServer {
  pid(): number;
  port: number;
  /** Copies its append-only files. */
  copyData(to: string): Promise<void>;
  /** SIGKILL, then a start from a copy of its data. */
  restartFrom(copy: string): Promise<void>;
  stop(): Promise<void>;
}

/** What one gateway has of its own. */
export interface OwnSettings extends Partial<GatewaySettings> {
  /** Where its log goes. */
  log?: string;
}

async function startStore(dir: string, persistent: boolean): Promise<StoreServer> {
  // Held while no server listens there: a gateway that looks for it meets nobody else.
  const { port, release } = await holdPort();
  let server: RunningRedis = await startRedis({ dir, persistent, port });
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
    async restartFrom(copy) {
      process.kill(pid(), "SIGKILL");
      await server.ended;
      await rm(data, { recursive: true });
      await cp(copy, data, { recursive: true });
      server = await startRedis({ dir, persistent, port });
    },
    async stop() {
      process.kill(pid(), "SIGCONT");
      await server.stop();
      release();
    },
  };
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
  /** Of tasks; so long that none ends for it, unless it is the point. */
  maxAgeMs?: number;
  /** The store has its data on disk. */
  persistent?: boolean;
}

const MAX_AGE_MS = 7_200_000;

/** A Redis of its own behind a fault proxy, an upstream that misbehaves when asked to, and gateways in between. */
export async function createWorld(
  options: RunOptions,
  slots: number,
  worldOptions: WorldOptions = {},
): Promise<World> {
  const { folder, root, seed } = options;
  mkdirSync(folder, { recursive: true });
  const startedMs = Date.now();
  const server = await startStore(join(folder, "redis"), worldOptions.persistent ?? false);
  const redis = new Redis(server.port, "127.0.0.1");
  // Stores come and go here: what was lost with a connection is seen by what is read afterwards.
  redis.on("error", () => undefined);
  const parts = {
    proxy: createRedisProxy(server.port, root),
    upstream: new FaultUpstream(),
    gateways: Array.from({ length: slots }, (): GatewayProcess | undefined => undefined),
    faults: [] as FaultEvent[],
  };
  const { proxy, upstream, gateways, faults } = parts;
  const fleet = createFleet(options, slots, worldOptions, parts);
  const accounts: AccountFacts[] = [];

  const world: World = {
    options,
    random: createRandom(seed),
    redis,
    server,
    ...parts,
    accounts,
    client: [],
    otherStore: [],
    forgotten: [],
    clockAheadMs: 0,
    givenCustomer: (wanted = {}) => issueCustomer(redis, accounts, wanted),
    startIn: fleet.startIn,
    reconfigure: fleet.reconfigure,
    kill(slot, phase) {
      const gateway = gateways[slot];
      if (!gateway) return;
      faults.push({ kind: "kill", atMs: Date.now(), gateway: gateway.name, phase });
      gateway.kill();
      gateways[slot] = undefined;
    },
    note: (kind, phase = "") => void faults.push({ kind, atMs: Date.now(), gateway: "", phase }),
    finish: () => historyOf(world, fleet.settingsOf, startedMs),
    async stop() {
      if (!living.delete(world)) return;
      await fleet.stop();
      proxy.stop();
      upstream.stop();
      redis.disconnect();
      await server.stop();
    },
  };
  living.add(world);
  await loadScripts(redis, root);
  await Promise.all(gateways.map((_, slot) => world.startIn(slot)));
  if (worldOptions.sweeperApart) await world.startIn(slots);
  return world;
}

async function issueCustomer(redis: Redis, accounts: AccountFacts[], wanted: Partial<AccountFacts>) {
  const limits = {
    granted: 10_000_000,
    rateLimit: 1_000_000,
    maxConcurrent: 10_000,
    dailyLimit: 10_000_000,
  };
  const facts = { ...limits, ...wanted };
  const { granted: credits, ...own } = facts;
  const { key, keyId, accountId } = await issueKey(oneNode(redis), { credits, limits: own });
  accounts.push({ ...facts, accountId, keyId });
  return { key, keyId, accountId };
}

/** The gateways of a world, each with a name, a config file and a log of its own. */
function createFleet(
  { folder, root }: RunOptions,
  slots: number,
  { sweeperApart = false, commandTimeoutMs = 2000, connections, maxAgeMs = MAX_AGE_MS }: WorldOptions,
  { proxy, upstream, gateways, faults }: Pick<World, "proxy" | "upstream" | "gateways" | "faults">,
) {
  const all: GatewayProcess[] = [];
  const settingsOf = new Map<string, GatewaySettings>();
  let started = 0;
  let stopped = false;

  function configure(name: string, settings: GatewaySettings): void {
    settingsOf.set(name, settings);
    writeGatewayConfig(folder, name, settings);
  }
  const spawned = (gateway: GatewayProcess): void => {
    all.push(gateway);
    if (stopped) gateway.kill();
  };
  async function startIn(slot: number, { log, ...own }: OwnSettings = {}): Promise<GatewayProcess> {
    const name = `g${slot}-${started++}`;
    const redisUrl = await proxy.listen(name);
    configure(name, {
      commandTimeoutMs,
      sweeps: !sweeperApart || slot === slots,
      journal: join(folder, "journal"),
      upstreamUrl: await upstream.listen(slot, name),
      maxAgeMs,
      connections,
      ...own,
    });
    if (stopped) throw new Error("the world was stopped");
    const start = (): Promise<GatewayProcess> => startGateway({ root, folder, name, redisUrl, log, spawned });
    // Once more for one that something else on this machine has ended before it was ready.
    const gateway = await start().catch((error: Error) => {
      faults.push({ kind: "started again", atMs: Date.now(), gateway: name, phase: error.message });
      return start();
    });
    gateways[slot] = gateway;
    return gateway;
  }
  return {
    settingsOf,
    startIn,
    reconfigure(slot: number, own: Partial<GatewaySettings>): void {
      const { name } = gateways[slot]!;
      configure(name, { ...settingsOf.get(name)!, ...own });
    },
    async stop(): Promise<void> {
      stopped = true;
      await Promise.all(all.filter(({ alive }) => alive).map((gateway) => gateway.stop()));
    },
  };
}

/** Waits until nothing is open, reads the store, and puts the history together. */
async function historyOf(
  world: World,
  settingsOf: ReadonlyMap<string, GatewaySettings>,
  startedMs: number,
): Promise<History> {
  const { options, redis, proxy, upstream, accounts, client, faults } = world;
  const { scenario, seed, folder, quiescenceMaxMs = QUIESCENCE_MAX_MS } = options;
  const from = Date.now();
  const quiet = await quiescence(world, from + quiescenceMaxMs);
  const meta: Meta = {
    scenario,
    seed,
    startedMs,
    endedMs: Date.now(),
    quiescenceMs: Date.now() - from,
    quiet,
    toleranceMs: TOLERANCE_MS,
    clockAheadMs: world.clockAheadMs,
    clock: "redis",
    accounts,
    maxAgesMs: Object.fromEntries([...settingsOf].map(([name, { maxAgeMs }]) => [name, maxAgeMs])),
    verified: await verifyStore(redis).catch((error: Error) => [`verifyLedger: ${error.message}`]),
  };
  const link = proxy.events.map(({ keys: _keys, ...event }) => event);
  faults.push(...saidInLogs(folder, [...settingsOf.keys()]));
  const store = await readStore(redis);
  const names = new Set(store.map(({ name }) => name));
  const forgotten = world.forgotten.filter(({ name }) => !names.has(name));
  const { otherStore } = world;
  return { meta, client, upstream: upstream.events, link, faults, store, forgotten, otherStore };
}

/** So that a fault meant for a script's run does not meet the NOSCRIPT before it. */
async function loadScripts(redis: Redis, root: string): Promise<void> {
  for (const script of SCRIPTS) await redis.script("LOAD", scriptSource(script, `${root}/lua`));
}

/** Lines of the gateways' logs that name a settlement which is not made, or may not be. */
const SAID: readonly [kind: string, msg: string][] = [
  ["given up", "a settlement is too old to be sent; settle it by hand"],
  ["only in memory", "the journal cannot be written; a crash now loses this charge"],
];

function saidInLogs(folder: string, names: readonly string[]): FaultEvent[] {
  const files = names.map((name) => ({ gateway: name, file: logFileOf(folder, name) }));
  return files
    .filter(({ file }) => existsSync(file))
    .flatMap(({ gateway, file }) => {
      const lines = readFileSync(file, "utf8").split("\n");
      return SAID.flatMap(([kind, msg]) =>
        lines
          .filter((line) => line.includes(`"msg":"${msg}"`))
          .map((line) => JSON.parse(line) as { request_id: string; time: number })
          .map(({ request_id, time }) => ({ kind, gateway, phase: request_id, atMs: time })),
      );
    });
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

/** As `within`, of what is asked for elsewhere. */
export async function eventually(ms: number, condition: () => Promise<boolean>): Promise<boolean> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline) return false;
    await pause(50);
  }
  return true;
}
