import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createBreaker, STARTING } from "./breaker.ts";
import { createCalls } from "./calls.ts";
import { clientOf, connectTimeoutMs, type RedisEndpoint } from "./client.ts";
import { createStoreClock } from "./clock.ts";
import { createDeadlines } from "./deadlines.ts";
import { createOutage } from "./outage.ts";
import { createProbe, probeOnOwnConnection } from "./probes.ts";
import { inStoreWords } from "./reasons.ts";
import { createScriptRunner } from "./script-runner.ts";

const FACTS_EVERY_MS = 15_000;

export interface ConnectionOptions extends RedisEndpoint {
  commandTimeoutMs: number;
  /** Used at the very first start of a store; later the store's own number counts. */
  partitions: number;
  /** A clock for the scripts instead of the store's, Unix ms; for tests. */
  nowMs?: (() => number) | undefined;
  log: Logger;
  metrics: Metrics;
}

/**
 * The connection to the store with its breaker, and its clock. `run` runs one script; it throws
 * GatewayError `store_unavailable` at once while the breaker is open, and after the command timeout at the latest.
 */
export function createConnection(options: ConnectionOptions) {
  const { log, metrics, commandTimeoutMs, partitions } = options;
  const connectTimeout = connectTimeoutMs(commandTimeoutMs);
  /** Instead of ioredis's own timers, which count the time in which this process stalls. */
  const limits = { command: createDeadlines(commandTimeoutMs), connecting: createDeadlines(connectTimeout) };
  const { within } = limits.command;
  const redis = clientOf(options, { connectTimeout });
  const scripts = createScriptRunner(redis, { within });
  const clock = createStoreClock(options.nowMs);
  const probe = createProbe({ redis, scripts, clock, within, partitions, log });
  const breaker = createBreaker({
    log,
    reconnect: () => redis.disconnect(true),
    probe: probe.run,
    changed(open) {
      metrics.storeUp.set(open ? 0 : 1);
      if (open) rejectWaiting();
      else outage.over();
      const unfinished = open ? undefined : probe.unfinished();
      if (unfinished !== undefined) breaker.trip(unfinished);
    },
  });
  const { rejectWaiting, ...calls } = createCalls({
    redis,
    scripts,
    breaker,
    clock,
    log,
    metrics,
    deadlines: limits.command,
    clustered: () => probe.facts()?.cluster ?? false,
  });
  const outage = createOutage({
    isOpen: breaker.isOpen,
    probe: () => probeOnOwnConnection(options, limits),
    log,
  });
  metrics.storeUp.set(0);
  redis.on("close", () => breaker.trip("the connection closed"));
  breaker.trip(STARTING);
  const watch = setInterval(() => {
    if (!breaker.isOpen()) void recheckFacts();
  }, FACTS_EVERY_MS).unref();

  /** A store that is replaced, or whose policy is changed, under an open connection is found here. */
  async function recheckFacts(): Promise<void> {
    const before = probe.facts()?.id;
    try {
      await probe.learnFacts();
      if (probe.facts()?.id !== before) breaker.trip("the store has another id");
    } catch (error) {
      breaker.trip(inStoreWords(error));
    }
  }

  return {
    redis,
    scripts,
    breaker,
    metrics,
    commandTimeoutMs,
    facts: probe.facts,
    nowMs: clock.nowMs,
    ...calls,
    /** Which outage this is, if Redis is away: then requests of keys seen good may pass unmetered. */
    outage: outage.current,
    /** Limits the time of a command on `redis`, as that of a call. */
    within,
    attach: probe.attach,
    async close(): Promise<void> {
      clearInterval(watch);
      breaker.stop();
      if (redis.status === "ready") await within(redis.quit()).catch(() => redis.disconnect());
      else redis.disconnect();
    },
  };
}

export type Connection = ReturnType<typeof createConnection>;
