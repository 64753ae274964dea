import { setTimeout } from "node:timers/promises";
import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { chargesWaitingIn } from "../durability/outbox/journal-files.ts";
import { type KnownHere, verifyLedger } from "../ledger/verify.ts";
import type { Verification } from "../ledger/verify-run.ts";
import { createSurveys } from "../operations/store/survey.ts";
import type { RedisEndpoint } from "../redis/client.ts";
import type { Connection } from "../redis/connection.ts";
import { onOwnNodes } from "../redis/open-nodes.ts";
import type { Primary } from "../redis/primary.ts";
import { StoreError } from "../redis/reasons.ts";
import { repeated } from "../redis/repeated-work.ts";
import { isPersistent, memoryOf, readInfo, replicasOnline } from "../redis/server-info.ts";
import { type RedisNodes, storedFacts } from "../redis/store-facts.ts";
import type { Store } from "../settlement/store.ts";
import { Sweeper, type SweepSettings } from "../settlement/sweeper.ts";
import { createSweeps } from "../settlement/sweeps.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { WebhookWorkSettings } from "../webhooks/webhook-work.ts";
import { createLedgerCheck, createSurvey } from "./regular-check.ts";
import { createRollup } from "./rollup-work.ts";

/** Added to the longest upstream poll: its time in the queue. */
const SWEEP_LEASE_SLACK_MS = 15_000;

interface WorkSettings extends SweepSettings {
  store: RedisEndpoint & {
    ledgerCheckIntervalMs: number;
    journal: string;
    confirm?: { replicas: number } | undefined;
  };
  archive: { url: string | undefined; intervalMs: number; keepMs: number };
  upstream: { totalTimeoutMs: number };
  webhooks: WebhookWorkSettings;
}

export function createWork(options: {
  connection: Connection;
  store: Store;
  upstreamOf(tag: string | undefined): TaskUpstream;
  settings(): WorkSettings;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, store, upstreamOf, settings, metrics, log } = options;
  const sweeps = createSweeps(connection, () => settings().upstream.totalTimeoutMs + SWEEP_LEASE_SLACK_MS);
  const sweeper = new Sweeper({ store, sweeps, upstreamOf, metrics, log, settings });
  const surveys = createSurveys(connection);
  const survey = createSurvey({
    surveys,
    sweepIntervalMs: () => settings().tasks.sweepIntervalMs,
    metrics,
    log,
  });
  const redisFigures = createRedisFigures({
    connection,
    replicasWanted: () => settings().store.confirm?.replicas ?? 0,
    metrics,
    log,
  });
  const { url: archiveUrl } = settings().archive;
  const ledgerCheck = createLedgerCheck({
    lease: surveys.ledgerLease,
    verify(signal) {
      const { journal: folder, ...endpoint } = settings().store;
      return verifyBeside(endpoint, signal, { folder, waiting: () => chargesWaitingIn(folder) });
    },
    verifyArchive:
      archiveUrl === undefined
        ? undefined
        : (signal) => verifyArchiveBeside(settings().store, archiveUrl, signal),
    publish: surveys.publishLedger,
    intervalMs: () => settings().store.ledgerCheckIntervalMs,
    metrics,
    log,
  });
  const rollup = createRollup({ connection, metrics, log });
  const parts = [sweeper, ledgerCheck, survey, redisFigures, archiveOf(options), rollup, webhooksOf(options)];
  return {
    start(): void {
      for (const part of parts) part.start();
    },
    changed: () => sweeper.start(),
    stop: async (): Promise<void> => void (await Promise.all(parts.map((part) => part.stop()))),
  };
}

type Options = Parameters<typeof createWork>[0];

/** The client for PostgreSQL is loaded only if there is an archive. */
function archiveOf({ connection, settings, metrics, log }: Options): Work {
  const { url } = settings().archive;
  if (url === undefined) return loadedWork(undefined);
  const intervalMs = (): number => settings().archive.intervalMs;
  const keepMs = (): number => settings().archive.keepMs;
  return loadedWork(async () => {
    const { createArchiveWork } = await import("../archive/copier.ts");
    return createArchiveWork({ url, connection, intervalMs, keepMs, metrics, log });
  });
}

/** Their modules are loaded only with WEBHOOK_SECRET_KEY. */
function webhooksOf({ connection, settings, metrics, log }: Options): Work {
  if (settings().webhooks.secretKey === undefined) return loadedWork(undefined);
  return loadedWork(async () => {
    const { createWebhookWork } = await import("../webhooks/webhook-work.ts");
    return createWebhookWork({ connection, settings: () => settings().webhooks, metrics, log });
  });
}

interface Work {
  start(): void;
  stop(): Promise<void>;
}

/** Work whose modules are loaded when it starts. @param load undefined where there is none */
function loadedWork(load: (() => Promise<Work>) | undefined): Work {
  let work: Promise<Work> | undefined;
  return {
    start(): void {
      work = load?.();
      void work?.then(({ start }) => start());
    },
    stop: async (): Promise<void> => (await work)?.stop(),
  };
}

const COMMAND_TIMEOUT_MS = 10_000;
const STATEMENT_MS = 60_000;
/** A core has three quarters of its time for requests. */
const REST_TIMES = 3;
const REST_MAX_MS = 200;

/** Verifies in the gateway's process, page by page with rests, on a separate connection. Decision 0064. */
export const verifyBeside = (
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  here: KnownHere,
): Promise<Verification> =>
  withNodes(endpoint, signal, (nodes) => verifyLedger(nodes, { here, rest: restsOf(signal) }));

export async function verifyArchiveBeside(
  endpoint: RedisEndpoint,
  archiveUrl: string,
  signal: AbortSignal,
): Promise<ArchiveVerification> {
  const { connectArchive } = await import("../archive/archive-connection.ts");
  const { identifyFor } = await import("../archive/identity.ts");
  const { verifyArchive } = await import("../archive/verify-archive.ts");
  const { query, close } = connectArchive(archiveUrl, { statementMs: STATEMENT_MS, most: 1 });
  signal.addEventListener("abort", close, { once: true });
  try {
    return await withNodes(endpoint, signal, async (nodes) => {
      await identifyFor(nodes, query);
      return verifyArchive(nodes, query, { rest: restsOf(signal) });
    });
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

function withNodes<T>(
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<T> {
  return onOwnNodes(
    endpoint,
    COMMAND_TIMEOUT_MS,
    async (nodes) => {
      // A new reader fixes the partitions of an empty store: this one may have lost its data.
      if ((await storedFacts(nodes)).id === undefined)
        throw new StoreError("Redis is empty", "bring back this Redis with its data");
      return work(nodes);
    },
    signal,
  );
}

function restsOf(signal: AbortSignal): () => Promise<void> {
  let sinceMs = performance.now();
  return async () => {
    const workedMs = performance.now() - sinceMs;
    await setTimeout(Math.min(REST_MAX_MS, REST_TIMES * workedMs), undefined, { signal });
    sinceMs = performance.now();
  };
}

const FIGURES_EVERY_MS = 60_000;
const FIGURES_FIRST_MS = 2000;
const ONE_SERVER = "redis";

/** Shows of each primary what `tollgate doctor` warns of: its clock, its memory, whether it keeps its data, and its replicas. */
export function createRedisFigures(options: {
  connection: Pick<Connection, "primaries">;
  replicasWanted(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, replicasWanted, metrics, log } = options;
  const perPrimary = [
    metrics.redisClockAhead,
    metrics.redisMemory,
    metrics.redisMemoryMax,
    metrics.redisPersistent,
    metrics.redisReplicas,
  ];

  async function show(primary: Primary): Promise<void> {
    const labels = { primary: primary.name ?? ONE_SERVER };
    const info = readInfo(await primary.command((redis) => redis.info()));
    const { used, all } = memoryOf(info);
    metrics.redisClockAhead.set(labels, (primary.nowMs() - Date.now()) / 1000);
    metrics.redisMemory.set(labels, used);
    metrics.redisMemoryMax.set(labels, all);
    metrics.redisPersistent.set(labels, isPersistent(info) ? 1 : 0);
    metrics.redisReplicas.set(labels, replicasOnline(info));
  }

  async function look(): Promise<void> {
    const shown = await Promise.allSettled(
      connection.primaries().map(async (primary) => {
        await show(primary);
        return primary.name ?? ONE_SERVER;
      }),
    );
    const names = new Set(shown.map((each) => (each.status === "fulfilled" ? each.value : undefined)));
    for (const gauge of perPrimary)
      for (const { labels } of (await gauge.get()).values)
        if (!names.has(String(labels.primary))) gauge.remove({ primary: String(labels.primary) });
    metrics.redisReplicasWanted.set(replicasWanted());
  }

  const { start, stop } = repeated(look, {
    pauseMs: () => FIGURES_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "figures of Redis not read"),
  });
  return { start: (): void => start(FIGURES_FIRST_MS), look, stop };
}
