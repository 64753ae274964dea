import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { GatewayError } from "../domain/errors.ts";
import type { Findings } from "../ledger/fold.ts";
import type { Verification } from "../ledger/verify-run.ts";
import {
  type LedgerReport,
  SURVEY_LIFETIME_MS,
  type Survey,
  type Surveys,
} from "../operations/store/survey.ts";
import { repeated } from "../redis/repeated-work.ts";
import { AGES, OPEN_STATES } from "../scripts/surveys.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LOGGED_MAX = 20;
const LOOK_EVERY_MS = 10_000;
/** Of the interval: from the start, when code is not compiled and caches are empty, to the first look, and from a check that failed to the next. */
const SOON_SHARE = 1 / 12;
const SOON_MAX_MS = 3_600_000;

const soonMs = (intervalMs: number): number =>
  Math.min(SOON_MAX_MS, Math.max(LOOK_EVERY_MS, SOON_SHARE * intervalMs));

interface CheckOptions {
  /** True for one gateway at a time. A lease that is held becomes no longer than `intervalMs`. */
  lease(intervalMs: number): Promise<boolean>;
  verify(signal: AbortSignal): Promise<Verification>;
  verifyArchive?: ((signal: AbortSignal) => Promise<ArchiveVerification>) | undefined;
  publish(report: LedgerReport): Promise<void>;
  /** Over all gateways; 0 for none. */
  intervalMs(): number;
  metrics: Metrics;
  log: Logger;
}

/** In one gateway at a time. A violation is logged and changes nothing. */
export function createLedgerCheck(options: CheckOptions) {
  const { metrics, log } = options;

  async function check(): Promise<void> {
    const intervalMs = options.intervalMs();
    metrics.ledgerCheckInterval.set(intervalMs / 1000);
    if (intervalMs === 0 || !(await options.lease(intervalMs))) return;
    const result = await options.verify(signal).catch(async (error: unknown) => {
      if (!signal.aborted) metrics.ledgerCheckFailures.inc();
      await options.lease(soonMs(intervalMs)).catch(() => undefined);
      throw error;
    });
    const { accounts, entries, credits, unread } = result;
    const violations = logViolations(log, result, "the ledger does not balance");
    if (unread) {
      // Numbers of a part would look like a smaller ledger.
      metrics.ledgerCheckFailures.inc();
      log.warn({ ...unread, accounts, entries }, "the ledger could not be verified as a whole");
      return;
    }
    const ofArchive = await checkArchive(options, signal);
    const report: LedgerReport = { atMs: Date.now(), violations, credits, ...ofArchive };
    showLedger(metrics, report);
    log.info({ accounts, entries, violations }, "ledger verified");
    await options.publish(report);
  }

  const { signal, start, stop } = repeated(check, {
    pauseMs: () => LOOK_EVERY_MS,
    failed(error) {
      if (signal.aborted) return;
      // The breaker reports an unavailable store.
      const isAway = error instanceof GatewayError && error.refusal.name === "store_unavailable";
      if (isAway) log.debug("the ledger is not verified while the store is away");
      else log.warn({ err: error }, "the ledger could not be verified");
    },
  });
  return {
    start(): void {
      // Until the first look, 0 would say that checks are off.
      metrics.ledgerCheckInterval.set(options.intervalMs() / 1000);
      start(soonMs(options.intervalMs()));
    },
    check,
    stop,
  };
}

async function checkArchive(
  { verifyArchive, metrics, log }: CheckOptions,
  signal: AbortSignal,
): Promise<Pick<LedgerReport, "archiveViolations">> {
  try {
    const result = await verifyArchive?.(signal);
    if (!result) return {};
    const violations = logViolations(log, result, "the archive and the store differ");
    if (result.unread) return {};
    const { entries, accounts, keys } = result;
    log.info({ entries, accounts, keys, violations }, "archive verified");
    return { archiveViolations: violations };
  } catch (error) {
    if (signal.aborted) throw error;
    metrics.ledgerCheckFailures.inc();
    log.warn({ err: error }, "the archive could not be verified");
    return {};
  }
}

function logViolations(log: Logger, { violations, unlisted = 0 }: Findings, message: string): number {
  for (const violation of violations.slice(0, LOGGED_MAX)) log.error(violation, message);
  return violations.length + unlisted;
}

function showLedger(metrics: Metrics, { atMs, violations, credits, archiveViolations }: LedgerReport): void {
  if (archiveViolations !== undefined) metrics.archiveViolations.set(archiveViolations);
  metrics.ledgerViolations.set(violations);
  metrics.ledgerCheckedAt.set(atMs / 1000);
  for (const [type, amount] of Object.entries(credits)) metrics.ledgerCredits.set({ type }, amount);
}

const COUNT_EVERY_MS = 10_000;
const LOOK_EVERY_MIN_MS = 5000;

/** Shows open requests by age, overdue work and the last ledger check. One gateway counts for all. Decision 0016. */
export function createSurvey(options: {
  surveys: Surveys;
  sweepIntervalMs(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { surveys, metrics, log } = options;
  let shownMs = Number.NEGATIVE_INFINITY;
  /** By a monotonic clock. */
  let newestMs = performance.now();
  let newestAtMs = 0;

  async function look(): Promise<void> {
    try {
      const survey = await count();
      if (survey) show(survey);
      else forget();
      const ledger = await surveys.latestLedger();
      if (ledger) showLedger(metrics, ledger);
    } finally {
      metrics.surveyAge.set((performance.now() - newestMs) / 1000);
    }
  }

  /** If no lease can be taken (Redis is full or unavailable), each gateway counts for itself. */
  async function count(): Promise<Survey | undefined> {
    try {
      if (!(await surveys.lease(COUNT_EVERY_MS))) return await surveys.latest();
    } catch {
      return surveys.take();
    }
    const survey = await surveys.take();
    await surveys
      .publish(survey)
      .catch((error: unknown) => log.debug({ err: error }, "survey not published"));
    return survey;
  }

  function show(survey: Survey): void {
    shownMs = performance.now();
    if (survey.atMs !== newestAtMs) newestMs = shownMs;
    newestAtMs = survey.atMs;
    showSurvey(metrics, survey);
  }

  function forget(): void {
    for (const gauge of [metrics.openRequests, metrics.openRequestsOldest]) gauge.reset();
    metrics.sweeperLag.remove();
  }

  const { start, stop } = repeated(look, {
    pauseMs: () => Math.max(LOOK_EVERY_MIN_MS, options.sweepIntervalMs()),
    failed(error) {
      log.debug({ err: error }, "survey interrupted");
      if (performance.now() - shownMs > SURVEY_LIFETIME_MS) forget();
    },
  });
  return { start: (): void => start(options.sweepIntervalMs()), look, stop };
}

function showSurvey(metrics: Metrics, survey: Survey): void {
  const { open, oldestMs, holdOverdueMs, overdueMs, unreadPartitions } = survey;
  metrics.surveyUnread.set(unreadPartitions);
  metrics.sweeperLag.set(overdueMs / 1000);
  metrics.holdsOverdue.set(holdOverdueMs / 1000);
  for (const state of OPEN_STATES) {
    metrics.openRequestsOldest.set({ state }, oldestMs[state] / 1000);
    for (const [band, [age]] of AGES.entries()) {
      metrics.openRequests.set({ state, age }, Math.round(open[state][band] ?? 0));
    }
  }
}
