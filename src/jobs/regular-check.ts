import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { GatewayError } from "../domain/errors.ts";
import type { Verification } from "../ledger/verify-run.ts";
import type { LedgerReport } from "../operations/store/survey.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LOGGED_MAX = 20;
/** How often a gateway looks whether it is its turn. */
const LOOK_EVERY_MS = 10_000;
/**
 * A gateway looks first after this share of the interval: in its first minutes its code is not compiled and its memory of keys is empty, so
 * a check costs its customers most.
 */
const FIRST_LOOK = 1 / 12;
const FIRST_LOOK_MAX_MS = 3_600_000;

/**
 * Verifies the ledger every so often, in one of all gateways at a time, and shows the result as a metric. A violation
 * is a bug or a change of the store by hand: it is logged as an error, and changes nothing.
 * @param options.publish lets the other gateways report it too
 * @param options.turn whether it is this gateway's turn
 * @param options.verify checks all invariants, until the signal ends it
 * @param options.verifyArchive compares the archive with the store, where there is one, after the ledger
 * @param options.intervalMs between two checks, over all gateways; 0 turns them off
 */
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
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();
  const ending = new AbortController();

  async function check(): Promise<void> {
    const intervalMs = options.intervalMs();
    metrics.ledgerCheckInterval.set(intervalMs / 1000);
    if (intervalMs === 0 || !(await options.turn(intervalMs))) return;
    const result = await options.verify(ending.signal).catch((error: unknown) => {
      if (!ending.signal.aborted) metrics.ledgerCheckFailures.inc();
      throw error;
    });
    const { accounts, entries, credits, unread } = result;
    for (const violation of result.violations.slice(0, LOGGED_MAX))
      log.error(violation, "the ledger does not balance");
    if (unread) {
      // The figures of a part would look like those of a ledger that has shrunk.
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

  /** What is wrong with the archive; nothing if it could not be compared as a whole, whose lag says why. */
  async function checkArchive(): Promise<Pick<LedgerReport, "archiveViolations">> {
    try {
      const result = await options.verifyArchive?.(ending.signal);
      for (const violation of result?.violations.slice(0, LOGGED_MAX) ?? [])
        log.error(violation, "the archive and the store differ");
      if (!result || result.unread) return {};
      const { entries, accounts, keys } = result;
      const archiveViolations = result.violations.length + (result.unlisted ?? 0);
      log.info({ entries, accounts, keys, violations: archiveViolations }, "archive verified");
      return { archiveViolations };
    } catch (error) {
      if (ending.signal.aborted) throw error;
      metrics.ledgerCheckFailures.inc();
      log.warn({ err: error }, "the archive could not be verified");
      return {};
    }
  }

  const schedule = (afterMs: number): void => {
    if (ending.signal.aborted) return;
    timer = setTimeout(() => {
      current = check()
        .catch((error: unknown) => {
          if (ending.signal.aborted) return;
          // While the store is away its breaker says so, and the next look is in some seconds.
          const isAway = error instanceof GatewayError && error.refusal.name === "store_unavailable";
          if (isAway) log.debug("the ledger is not verified while the store is away");
          else log.warn({ err: error }, "the ledger could not be verified");
        })
        .finally(() => schedule(LOOK_EVERY_MS));
    }, afterMs);
  };

  return {
    start(): void {
      schedule(Math.min(FIRST_LOOK_MAX_MS, Math.max(LOOK_EVERY_MS, FIRST_LOOK * options.intervalMs())));
    },
    check,
    async stop(): Promise<void> {
      ending.abort();
      clearTimeout(timer);
      await current;
    },
  };
}

/** Every gateway shows what the latest check found, not only the one whose turn it was. */
export function showLedger(
  metrics: Metrics,
  { atMs, violations, credits, archiveViolations }: LedgerReport,
): void {
  if (archiveViolations !== undefined) metrics.archiveViolations.set(archiveViolations);
  metrics.ledgerViolations.set(violations);
  metrics.ledgerCheckedAt.set(atMs / 1000);
  for (const [type, amount] of Object.entries(credits)) metrics.ledgerCredits.set({ type }, amount);
}
