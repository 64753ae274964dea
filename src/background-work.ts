import { verifyInChild } from "./ledger/child.ts";
import { createLedgerCheck } from "./ledger/regular-check.ts";
import { createSurvey } from "./operator/survey.ts";
import { createSweeper, type SweepSettings } from "./settlement/sweeper.ts";
import type { Connection } from "./store/connection.ts";
import type { Store } from "./store/store.ts";
import { createSurveys } from "./store/survey.ts";
import { createSweeps } from "./store/sweeps.ts";
import type { Logger } from "./telemetry/log.ts";
import type { Metrics } from "./telemetry/metrics.ts";
import type { TaskUpstream } from "./upstream/task-upstreams.ts";

/** A sweeper's claim lasts as long as a poll of the upstream may take, and so much longer for its turn to come. */
const SWEEP_LEASE_SLACK_MS = 15_000;

/** What is read of the config, anew for each step. Times in ms. */
interface WorkSettings extends SweepSettings {
  store: { ledgerCheckIntervalMs: number };
  upstream: { totalTimeoutMs: number };
}

/** The work beside requests, which one process of a gateway does: the sweeper, the check of the ledger, the survey. */
export function createWork(options: {
  connection: Connection;
  store: Store;
  /** Where the ledger is checked. */
  redisUrl: string;
  upstreamOf(tag: string | undefined): TaskUpstream;
  settings(): WorkSettings;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, store, redisUrl, upstreamOf, settings, metrics, log } = options;
  const sweeps = createSweeps(connection, () => settings().upstream.totalTimeoutMs + SWEEP_LEASE_SLACK_MS);
  const sweeper = createSweeper({ store, sweeps, upstreamOf, metrics, log, settings });
  const surveys = createSurveys(connection);
  const survey = createSurvey({
    surveys,
    sweepIntervalMs: () => settings().tasks.sweepIntervalMs,
    metrics,
    log,
  });
  const ledgerCheck = createLedgerCheck({
    turn: surveys.ledgerTurn,
    verify: (signal) => verifyInChild(redisUrl, signal),
    publish: surveys.publishLedger,
    intervalMs: () => settings().store.ledgerCheckIntervalMs,
    metrics,
    log,
  });
  return {
    start(): void {
      sweeper.start();
      ledgerCheck.start();
      survey.start();
    },
    /** The settings have changed: the wait that is under way is as long as the old interval. */
    changed: () => sweeper.start(),
    async stop(): Promise<void> {
      await Promise.all([sweeper.stop(), ledgerCheck.stop(), survey.stop()]);
    },
  };
}
