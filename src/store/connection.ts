import { randomUUID } from "node:crypto";
import { Redis, type RedisOptions } from "ioredis";
import { GatewayError } from "../domain/errors.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createBatcher } from "./batcher.ts";
import { createBreaker, STARTING } from "./breaker.ts";
import { createDeadlines, TIMED_OUT } from "./deadlines.ts";
import { createFairQueue } from "./fair-queue.ts";
import { scriptSource } from "./lua.ts";
import { META } from "./names.ts";
import { createOutage, probeOnOwnConnection } from "./outage.ts";
import { inStoreWords } from "./reasons.ts";
import { clockOf, type Item, itemOf, type Reply, type Run, type ScriptFile } from "./script.ts";
import { isFinal } from "./script-errors.ts";
import { createScriptRunner } from "./script-runner.ts";
import { probe } from "./scripts/probe.ts";

const RETRY_AFTER_SECONDS = 2;
const FACTS_EVERY_MS = 15_000;
/** A store that answers but refuses is said so in the log, not once per request. */
const REFUSED_LOG_EVERY_MS = 10_000;
const NOT_CONNECTED = "not connected";

export interface ConnectionOptions {
  redisUrl: string;
  /** Certificates, PEM, that a `rediss://` server is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
  commandTimeoutMs: number;
  /** Used at the very first start of a store; later the store's own number counts. */
  partitions: number;
  /** A clock for the scripts instead of the store's, Unix ms; for tests. */
  nowMs?: (() => number) | undefined;
  log: Logger;
  metrics: Metrics;
}

/** An ioredis client that never queues, never resends, and gives up after the command timeout. */
export const createClient = (redisUrl: string, commandTimeoutMs: number, tlsCa?: string): Redis =>
  clientOf(redisUrl, tlsCa, {
    commandTimeout: commandTimeoutMs,
    connectTimeout: connectTimeoutMs(commandTimeoutMs),
  });

const connectTimeoutMs = (commandTimeoutMs: number): number => Math.max(1000, commandTimeoutMs);

function clientOf(
  redisUrl: string,
  tlsCa: string | undefined,
  options: Pick<RedisOptions, "commandTimeout" | "connectTimeout" | "retryStrategy" | "enableReadyCheck">,
): Redis {
  const { protocol } = new URL(redisUrl);
  return new Redis(redisUrl, {
    ...(protocol === "rediss:" ? { tls: tlsCa === undefined ? {} : { ca: tlsCa } } : {}),
    lazyConnect: true,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => Math.min(50 * attempt, 1000),
    reconnectOnError: (error) => error.message.startsWith("READONLY"),
    noDelay: true,
    keepAlive: 10_000,
    disableClientInfo: true,
    // A silent Redis must not keep a process alive that has let go of it.
    disconnectTimeout: 200,
    ...options,
  });
}

/** What has work to do before the store is used. */
export interface Attached {
  /** Told the store's id at the start, and again at each look. */
  identified(storeId: string): Promise<void>;
  /** Part of each probe, after which the breaker closes. @throws to keep it open */
  beforeUse(): Promise<void>;
  /** Asked as the breaker closes: why it has to open again at once. */
  unfinished(): string | undefined;
}

/** What `tg:meta` and INFO say of a store. */
export interface StoreFacts {
  /** Tells it from all other stores; a copy of it has the same. Missing while an older store has no memory to spare. */
  id: string | undefined;
  partitions: number;
  cluster: boolean;
}

/**
 * Reads, and at the very first start fixes, what is fixed for a store; refuses a store that may forget.
 * @throws Error in words that say what to change
 */
export async function readFacts(redis: Redis, partitions: number): Promise<StoreFacts> {
  const [memory, cluster] = await Promise.all([redis.info("memory"), isCluster(redis)]);
  const policy = /^maxmemory_policy:(\S+)/m.exec(memory)?.[1];
  if (policy !== undefined && policy !== "noeviction") {
    throw new Error(
      `Redis has maxmemory-policy ${policy} and may evict money and limits; set \`maxmemory-policy noeviction\``,
    );
  }
  const [fixed, id] = await Promise.all([
    fixedOnce(redis, "partitions", partitions),
    fixedOnce(redis, "id", randomUUID()).catch((error: unknown) => {
      // A store of an earlier release that has no memory to spare settles and answers all the same.
      if (!isFinal(error)) throw error;
      return undefined;
    }),
  ]);
  return { id, partitions: Number(fixed), cluster };
}

/** A field of `tg:meta`. Written if missing only: a store without memory to spare must still pass for usable. */
async function fixedOnce(redis: Redis, field: string, value: string | number): Promise<string> {
  const known = await redis.hget(META, field);
  if (known !== null) return known;
  await redis.hsetnx(META, field, value);
  return (await redis.hget(META, field))!;
}

/** Whether the server is a node of a Redis Cluster: tasks have other names there. */
export const isCluster = async (redis: Redis): Promise<boolean> =>
  /^cluster_enabled:1/m.test(await redis.info("cluster"));

/**
 * The connection to the store with its breaker, and its clock. `run` runs one script; it throws
 * GatewayError `store_unavailable` at once while the breaker is open, and after the command timeout at the latest.
 */
export function createConnection(options: ConnectionOptions) {
  const { log, metrics, commandTimeoutMs } = options;
  /** Instead of ioredis's own timers, which count the time in which this process stood still. */
  const deadlines = createDeadlines(commandTimeoutMs);
  const connecting = createDeadlines(connectTimeoutMs(commandTimeoutMs));
  const redis = clientOf(options.redisUrl, options.tlsCa, {
    connectTimeout: connectTimeoutMs(commandTimeoutMs),
  });
  const scripts = createScriptRunner(redis, { within: deadlines.within });
  const probeName = `tg:probe:${randomUUID()}`;
  let attached: Attached | undefined;
  let facts: StoreFacts | undefined;
  const queue = createFairQueue({
    deadlines,
    changed: (waiting) => metrics.storeWaiting.set(waiting),
    refused(why) {
      metrics.storeFailures.inc({ reason: "overloaded" });
      return new GatewayError("overloaded", why, { retryAfterSeconds: 1 });
    },
  });
  const batched = createBatcher({
    send: timed,
    failure: failed,
    clustered: () => facts?.cluster ?? false,
  });
  /** Redis time minus this process's monotonic clock; a hint for `not_after`, never a decision. */
  let offsetMs = 0;
  let refusedLoggedMs = Number.NEGATIVE_INFINITY;
  /** Why there is no connection. */
  let lastError = new Error(NOT_CONNECTED);

  /** The store's clock as well as this process knows it, Unix ms. */
  const nowMs = (): number => options.nowMs?.() ?? Math.floor(monotonicMs() + offsetMs);

  const breaker = createBreaker({
    log,
    reconnect: () => redis.disconnect(true),
    changed(open) {
      metrics.storeUp.set(open ? 0 : 1);
      if (open) queue.rejectAll(() => unavailable("open", undefined));
      else outage.over();
      const unfinished = open ? undefined : attached?.unfinished();
      if (unfinished !== undefined) breaker.trip(unfinished);
    },
    async probe() {
      if (redis.status === "wait" || redis.status === "end") await redis.connect().catch(() => undefined);
      if (redis.status !== "ready") throw lastError;
      await deadlines.within(selectDatabase(redis));
      const sentAtMs = monotonicMs();
      const { storeNowMs } = await scripts.run(probe, { name: probeName });
      learn(storeNowMs, sentAtMs);
      await learnFacts();
      await attached?.beforeUse();
    },
  });
  metrics.storeUp.set(0);
  const outage = createOutage({
    isOpen: breaker.isOpen,
    probe: () => probeOnOwnConnection(openProbe(), { connecting, command: deadlines }, checkUsable),
    log,
  });

  /** A connection for one probe. `connecting` limits its time: a socket's own timer counts our standing still. */
  const openProbe = (): Redis =>
    clientOf(options.redisUrl, options.tlsCa, {
      connectTimeout: 0,
      retryStrategy: () => null,
      enableReadyCheck: false,
    });

  /** What the probe of the shared connection asks, too: whether Redis takes writes and may not evict. */
  async function checkUsable(own: Redis): Promise<void> {
    await selectDatabase(own);
    const { keys, shared, args } = itemOf(probe, { name: probeName });
    await own.eval(scriptSource(probe), keys.length, ...keys, ...shared, ...args);
    await readFacts(own, options.partitions);
  }

  /** Whatever changed under us counts from now on. */
  async function learnFacts(): Promise<void> {
    const isFirst = facts === undefined;
    facts = await deadlines.within(readFacts(redis, options.partitions));
    if (facts.id !== undefined) await attached?.identified(facts.id);
    else if (isFirst)
      log.warn("the store refuses an id of its own; until it has one, no journal file is taken over");
  }
  /** The script ran between then and now. A reply that was read late is no reason to take our clock for wrong. */
  const learn = (storeNowMs: number, sentAtMs: number): void => {
    offsetMs = Math.min(storeNowMs - sentAtMs, Math.max(storeNowMs - monotonicMs(), offsetMs));
  };
  redis.on("error", (error: Error) => {
    lastError = error;
  });
  redis.on("ready", () => {
    lastError = new Error(NOT_CONNECTED);
  });
  redis.on("close", () => breaker.trip("the connection closed"));
  breaker.trip(STARTING);
  // A policy that is changed under us is as bad as one that was there at the start.
  const watch = setInterval(() => {
    if (breaker.isOpen()) return;
    const before = facts?.id;
    learnFacts().then(
      () => {
        if (facts?.id !== before) breaker.trip("the store has another id");
      },
      (error: unknown) => breaker.trip(inStoreWords(error)),
    );
  }, FACTS_EVERY_MS).unref();
  function unavailable(reason: string, cause: unknown): GatewayError {
    metrics.storeFailures.inc({ reason });
    const why = cause === undefined ? "the breaker is open" : inStoreWords(cause);
    return new GatewayError("store_unavailable", `store: ${why}`, {
      cause,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  /** Throws at once while the breaker is open. */
  function requireUsable(): void {
    if (breaker.isOpen()) throw unavailable("open", undefined);
  }

  /** Sends one item of a script. */
  function send(script: ScriptFile, item: Item): Promise<Reply> {
    if (breaker.isOpen()) return Promise.reject(unavailable("open", undefined));
    queue.begun();
    if (script.isBatched) return batched(script, item);
    return timed(script, [item]).then(
      ([reply]) => reply as Reply,
      (error: unknown) => {
        throw failed(error);
      },
    );
  }

  /** Runs one script. */
  const run: Run = (script, call) =>
    send(script, itemOf(script, call, now())).then((reply) => script.read(reply, call));
  const now = (): string => (options.nowMs ? String(options.nowMs()) : "");

  return {
    redis,
    scripts,
    breaker,
    metrics,
    commandTimeoutMs,
    facts: () => facts,
    nowMs,
    requireUsable,
    run,
    /** Requests wait here, before they call, while too much is under way. */
    queue,
    /** Runs one plain command under the same breaker. */
    async command<T>(run: (redis: Redis) => Promise<T>): Promise<T> {
      requireUsable();
      queue.begun();
      try {
        return await deadlines.within(run(redis));
      } catch (error) {
        throw failed(error);
      } finally {
        queue.ended(1);
      }
    },
    /** Which outage this is, if Redis is away: then requests of keys seen good may pass unmetered. */
    outage: outage.current,
    /** Limits the time of a command on `redis`, as that of a call. */
    within: deadlines.within,
    attach(one: Attached): void {
      attached = one;
    },
    async close(): Promise<void> {
      clearInterval(watch);
      breaker.stop();
      if (redis.status === "ready") await deadlines.within(redis.quit()).catch(() => redis.disconnect());
      else redis.disconnect();
    },
  };

  /** One call for the items that wait together; what it takes is counted once. */
  async function timed(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]> {
    const startedMs = performance.now();
    try {
      const replies = await scripts.send(script, items);
      const first = replies.find((reply) => Array.isArray(reply));
      if (script.isBatched && first) learn(clockOf(first), performance.timeOrigin + startedMs);
      return replies;
    } finally {
      queue.ended(items.length);
      metrics.storeSeconds.observe({ script: script.name }, (performance.now() - startedMs) / 1000);
    }
  }

  function failed(error: unknown): GatewayError {
    const message = error instanceof Error ? error.message : String(error);
    if (isFinal(error)) {
      if (performance.now() - refusedLoggedMs > REFUSED_LOG_EVERY_MS) {
        refusedLoggedMs = performance.now();
        log.error({ why: message }, "the store answers, but refuses; see `tollgate doctor`");
      }
      return unavailable("refused", error);
    }
    breaker.trip(inStoreWords(error));
    return unavailable(message === TIMED_OUT ? "timeout" : "connection", error);
  }
}

export type Connection = ReturnType<typeof createConnection>;

/** A database that cannot be selected leaves a connection in database 0, which may be somebody else's money. */
async function selectDatabase(redis: Redis): Promise<void> {
  if (redis.options.db) await redis.select(redis.options.db);
}

/** Unix ms by a clock that never steps. */
function monotonicMs(): number {
  return performance.timeOrigin + performance.now();
}
