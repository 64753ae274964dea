import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import type { Logger } from "../telemetry/log.ts";
import { clientOf, type RedisEndpoint, selectDatabase } from "./client.ts";
import { monotonicMs, type StoreClock } from "./clock.ts";
import type { Deadlines } from "./deadlines.ts";
import { oneNode } from "./nodes.ts";
import { itemOf } from "./script.ts";
import { type ScriptRunner, scriptSource, scriptsOf } from "./script-runner.ts";
import { SCRIPTS } from "./scripts/all.ts";
import { probe } from "./scripts/probe.ts";
import { readFacts, type StoreFacts } from "./store-facts.ts";

const PROBE_NAME = `tg:probe:${randomUUID()}`;

/** Work that has to be done before the store is used. */
export interface Attached {
  /** Called with the store's id at the start, and whenever the facts are read again. */
  identified(storeId: string): Promise<void>;
  /** Part of each probe, after which the breaker closes. @throws to keep it open */
  beforeUse(): Promise<void>;
  /** Called as the breaker closes. @returns why it has to open again at once, if it has to */
  unfinished(): string | undefined;
}

/**
 * The probe of the connection that requests share, and what is fixed for the store.
 * @param options.partitions used at the very first start of a store only
 */
export function createProbe(options: {
  redis: Redis;
  scripts: ScriptRunner;
  clock: StoreClock;
  within: Deadlines["within"];
  partitions: number;
  log: Logger;
}) {
  const { redis, scripts, clock, within, partitions, log } = options;
  const whyNotReady = connectionErrorOf(redis);
  let facts: StoreFacts | undefined;
  let attached: Attached | undefined;

  async function learnFacts(): Promise<void> {
    const isFirst = facts === undefined;
    facts = await within(readFacts(oneNode(redis), partitions));
    if (facts.id !== undefined) await attached?.identified(facts.id);
    else if (isFirst)
      log.warn("the store refuses an id of its own; until it has one, no journal file is taken over");
  }

  return {
    facts: () => facts,
    learnFacts,
    attach(one: Attached): void {
      attached = one;
    },
    unfinished: () => attached?.unfinished(),
    /** @throws Error while the store cannot be used */
    async run(): Promise<void> {
      if (redis.status === "wait" || redis.status === "end") await redis.connect().catch(() => undefined);
      if (redis.status !== "ready") throw whyNotReady();
      await within(selectDatabase(redis));
      const sentAtMs = monotonicMs();
      const { storeNowMs } = await scripts.run(probe, { name: PROBE_NAME });
      clock.learn(storeNowMs, sentAtMs);
      await learnFacts();
      await attached?.beforeUse();
    },
  };
}

/** The latest error of a client since it was last connected. */
function connectionErrorOf(redis: Redis): () => Error {
  const notConnected = (): Error => new Error("not connected");
  let latest = notConnected();
  redis.on("error", (error: Error) => {
    latest = error;
  });
  redis.on("ready", () => {
    latest = notConnected();
  });
  return () => latest;
}

/**
 * Probes Redis on a connection of its own: late replies and queues of the shared one cannot make it fail.
 * @param limits of the time to connect and of the check; a socket's own timer counts the time in which this process stalls
 * @throws Error in Redis's or the system's words
 */
export async function probeOnOwnConnection(
  address: RedisEndpoint & { partitions: number },
  limits: { connecting: Deadlines; command: Deadlines },
): Promise<void> {
  const redis = clientOf(address, { connectTimeout: 0, retryStrategy: () => null, enableReadyCheck: false });
  let failure: Error | undefined;
  redis.on("error", (error: Error) => {
    failure = error;
  });
  try {
    await limits.connecting.within(redis.connect());
    await limits.command.within(checkUsable(redis, address.partitions));
  } catch (error) {
    throw failure ?? error;
  } finally {
    redis.disconnect();
  }
}

/** Checks what the shared connection's probe checks: Redis takes writes and may not evict keys. */
async function checkUsable(redis: Redis, partitions: number): Promise<void> {
  await selectDatabase(redis);
  const { keys, shared, args } = itemOf(probe, { name: PROBE_NAME });
  await redis.eval(scriptSource(probe), keys.length, ...keys, ...shared, ...args);
  await readFacts(oneNode(redis), partitions);
}

/** Loads all scripts and runs one that writes. @returns how many there are @throws what Redis says against it */
export async function tryScripts(redis: Redis): Promise<number> {
  for (const script of SCRIPTS) await redis.script("LOAD", scriptSource(script));
  await scriptsOf(redis).run(probe, { name: PROBE_NAME });
  return SCRIPTS.length;
}
