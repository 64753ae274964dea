import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { Config } from "../config/config.ts";
import type { Settlements } from "../durability/deferred-settlements.ts";
import type { PublicPort } from "../gateway/listener.ts";
import type { Upstreams } from "../gateway/upstreams.ts";
import type { createWork } from "../jobs/background-work.ts";
import type { Connection } from "../redis/connection.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Tracing } from "../telemetry/trace.ts";

const LAST_HEAD_MS = 1000;

export interface Drained {
  clean: boolean;
  cutRequests: number;
  cutAnswers: number;
}

interface Parts {
  publicPort: PublicPort;
  work: ReturnType<typeof createWork> | undefined;
  counts: { stop(): Promise<void> };
  tracing: Tracing;
  upstreams: Upstreams;
  connection: Connection;
  settlements: Settlements;
}

export async function drainGateway(
  parts: Parts,
  config: () => Config,
  { metrics, log }: { metrics: Metrics; log: Logger },
): Promise<Drained> {
  const { publicPort, work, counts, tracing, upstreams, connection, settlements } = parts;
  const { listener } = publicPort;
  const { drainDelayMs, drainTimeoutMs } = config().server;
  log.info("draining: readiness is red, answers close their connections");
  await delay(drainDelayMs);
  log.info("draining: no new requests, those under way finish");
  const closed = once(listener, "close").then(publicPort.idle);
  listener.close();
  listener.closeIdleConnections();
  const lastHeads = setTimeout(() => listener.closeConnectionsWithoutResponses(), LAST_HEAD_MS);
  const deadline = performance.now() + drainTimeoutMs;
  const clean = await inTime(closed, deadline);
  clearTimeout(lastHeads);
  const cutRequests = clean ? 0 : ((await metrics.inFlight.get()).values[0]?.value ?? 0);
  const cutAnswers = clean ? 0 : publicPort.unflushedResponses();
  if (!clean) listener.closeAllConnections();
  if (work) await inTime(work.stop(), deadline + 1000);
  await inTime(Promise.all([counts.stop(), tracing.stop()]), deadline + 1000);
  // Before the store and its journal: a later upstream response would not be charged.
  await inTime(upstreams.close(), deadline + 1000);
  if (!clean) await inTime(closed, deadline + 1500);
  // A hung store never answers the last command.
  await inTime(connection.close().then(settlements.close), deadline + 2000);
  return { clean, cutRequests, cutAnswers };
}

async function inTime(work: Promise<unknown>, deadline: number): Promise<boolean> {
  const ended = new AbortController();
  const late = delay(Math.max(0, deadline - performance.now()), false, { signal: ended.signal }).catch(
    () => false,
  );
  const inTime = await Promise.race([work.then(() => true), late]);
  ended.abort();
  return inTime;
}
