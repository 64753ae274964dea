import { createRedisFigures } from "../admin/redis-figures.ts";
import type { ArchiveWork } from "../archive/archive-work.ts";
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
import type { WebhookWork, WebhookWorkSettings } from "../webhooks/webhook-work.ts";
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
  const archive = createArchive(options);
  const rollup = createRollup({ connection, metrics, log });
  const webhooks = createWebhooks(options);
  return {
    start(): void {
      sweeper.start();
      ledgerCheck.start();
      survey.start();
      redisFigures.start();
      archive.start();
      rollup.start();
      webhooks.start();
    },
    changed: () => sweeper.start(),
    async stop(): Promise<void> {
      const parts = [sweeper, ledgerCheck, survey, redisFigures, archive, rollup, webhooks];
      await Promise.all(parts.map((part) => part.stop()));
    },
  };
}

/** The client for PostgreSQL is loaded only if there is an archive. */
function createArchive({
  connection,
  settings,
  metrics,
  log,
}: Pick<Parameters<typeof createWork>[0], "connection" | "settings" | "metrics" | "log">) {
  const { url } = settings().archive;
  let work: Promise<ArchiveWork> | undefined;
  return {
    start(): void {
      if (url === undefined) return;
      work = import("../archive/archive-work.ts").then(({ createArchiveWork }) => {
        const intervalMs = (): number => settings().archive.intervalMs;
        const keepMs = (): number => settings().archive.keepMs;
        const created = createArchiveWork({ url, connection, intervalMs, keepMs, metrics, log });
        created.start();
        return created;
      });
    },
    stop: async (): Promise<void> => (await work)?.stop(),
  };
}

/** Their modules are loaded only with WEBHOOK_SECRET_KEY. */
function createWebhooks({
  connection,
  settings,
  metrics,
  log,
}: Pick<Parameters<typeof createWork>[0], "connection" | "settings" | "metrics" | "log">) {
  let work: Promise<WebhookWork> | undefined;
  return {
    start(): void {
      if (settings().webhooks.secretKey === undefined) return;
      work = import("../webhooks/webhook-work.ts").then(({ createWebhookWork }) => {
        const created = createWebhookWork({ connection, settings: () => settings().webhooks, metrics, log });
        created.start();
        return created;
      });
    },
    stop: async (): Promise<void> => (await work)?.stop(),
  };
}
