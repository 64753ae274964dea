import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { GatewayError } from "../domain/errors.ts";
import type { Verification } from "../ledger/verify-run.ts";
import type { LedgerReport } from "../operations/store/survey.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LOGGED_MAX = 20;
const LOOK_EVERY_MS = 10_000;
/** Later than the start, when code is not compiled and caches are empty. */
const FIRST_LOOK = 1 / 12;
const FIRST_LOOK_MAX_MS = 3_600_000;

/** In one gateway at a time. A violation is logged and changes nothing. @param options.intervalMs over all gateways; 0 for none */
export function createLedgerCheck(options: {
  turn(intervalMs: number): Promise<boolean>;
  verify(signal: AbortSignal): Promise<Verification>;
  verifyArchive?: ((signal: AbortSignal) => Promise<ArchiveVerification>) | undefined;
  publish(report: LedgerReport): Promise<void>;
  intervalMs(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { metrics, log } = options;

  async function check(): Promise<void> {
    const intervalMs = options.intervalMs();
    metrics.ledgerCheckInterval.set(intervalMs / 1000);
    if (intervalMs === 0 || !(await options.turn(intervalMs))) return;
    const result = await options.verify(signal).catch((error: unknown) => {
      if (!signal.aborted) metrics.ledgerCheckFailures.inc();
      throw error;
    });
    const { accounts, entries, credits, unread } = result;
    for (const violation of result.violations.slice(0, LOGGED_MAX))
      log.error(violation, "the ledger does not balance");
    if (unread) {
      // Numbers of a part would look like a smaller ledger.
      metrics.ledgerCheckFailures.inc();
      log.warn({ ...unread, accounts, entries }, "the ledger could not be verified as a whole");
      return;
    }
    const violations = result.violations.length + (result.unlisted ?? 0);
    const report: LedgerReport = { atMs: Date.now(), violations, credits, ...(await checkArchive()) };
    showLedger(metrics, report);
    log.info({ accounts, entries, violations }, "ledger verified");
    await options.publish(report);
  }

  async function checkArchive(): Promise<Pick<LedgerReport, "archiveViolations">> {
    try {
      const result = await options.verifyArchive?.(signal);
      for (const violation of result?.violations.slice(0, LOGGED_MAX) ?? [])
        log.error(violation, "the archive and the store differ");
      if (!result || result.unread) return {};
      const { entries, accounts, keys } = result;
      const archiveViolations = result.violations.length + (result.unlisted ?? 0);
      log.info({ entries, accounts, keys, violations: archiveViolations }, "archive verified");
      return { archiveViolations };
    } catch (error) {
      if (signal.aborted) throw error;
      metrics.ledgerCheckFailures.inc();
      log.warn({ err: error }, "the archive could not be verified");
      return {};
    }
  }

  const { signal, start, stop } = repeated(check, {
    pauseMs: () => LOOK_EVERY_MS,
    failed(error) {
      if (signal.aborted) return;
      // The breaker reports an unavailable store; the next attempt follows soon.
      const isAway = error instanceof GatewayError && error.refusal.name === "store_unavailable";
      if (isAway) log.debug("the ledger is not verified while the store is away");
      else log.warn({ err: error }, "the ledger could not be verified");
    },
  });
  return {
    start(): void {
      start(Math.min(FIRST_LOOK_MAX_MS, Math.max(LOOK_EVERY_MS, FIRST_LOOK * options.intervalMs())));
    },
    check,
    stop,
  };
}

export function showLedger(
  metrics: Metrics,
  { atMs, violations, credits, archiveViolations }: LedgerReport,
): void {
  if (archiveViolations !== undefined) metrics.archiveViolations.set(archiveViolations);
  metrics.ledgerViolations.set(violations);
  metrics.ledgerCheckedAt.set(atMs / 1000);
  for (const [type, amount] of Object.entries(credits)) metrics.ledgerCredits.set({ type }, amount);
}
