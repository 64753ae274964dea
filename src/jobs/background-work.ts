import { createRedisFigures } from "../admin/redis-figures.ts";
import { chargesWaitingIn } from "../durability/outbox/journal-files.ts";
import { createSurveys } from "../operations/store/survey.ts";
import type { RedisEndpoint } from "../redis/client.ts";
import type { Connection } from "../redis/connection.ts";
import type { Store } from "../settlement/store.ts";
import { createSweeper, type SweepSettings } from "../settlement/sweeper.ts";
import { createSweeps } from "../settlement/sweeps.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { WebhookWorkSettings } from "../webhooks/webhook-work.ts";
import { createLedgerCheck } from "./regular-check.ts";
import { createRollup } from "./rollup-work.ts";
import { createSurvey } from "./survey-work.ts";
import { verifyArchiveBeside, verifyBeside } from "./verify-beside.ts";

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
  const sweeper = createSweeper({ store, sweeps, upstreamOf, metrics, log, settings });
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
    turn: surveys.ledgerTurn,
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
    const { createArchiveWork } = await import("../archive/archive-work.ts");
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
