import type { Verification } from "../store/ledger.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LOGGED_MAX = 20;
/** How often a gateway looks whether it is its turn. */
const LOOK_EVERY_MS = 10_000;

/**
 * Verifies the books every so often, in one of all gateways at a time, and shows the result as a metric. A violation
 * is a bug or somebody's hand in the store: it is logged as an error, and changes nothing.
 * @param options.verify checks all invariants if it is this gateway's turn; undefined when it is not
 * @param options.intervalMs between two checks, over all gateways; 0 turns them off
 */
export function createLedgerCheck(options: {
  verify(intervalMs: number): Promise<Verification | undefined>;
  intervalMs(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { metrics, log } = options;
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();
  let stopped = false;

  async function check(): Promise<void> {
    const result = options.intervalMs() > 0 ? await options.verify(options.intervalMs()) : undefined;
    if (!result) return;
    metrics.ledgerViolations.set(result.violations.length);
    metrics.ledgerCheckedAt.set(Date.now() / 1000);
    for (const violation of result.violations.slice(0, LOGGED_MAX))
      log.error(violation, "the books do not balance");
    const { accounts, entries, violations } = result;
    log.info({ accounts, entries, violations: violations.length }, "ledger verified");
  }

  const schedule = (): void => {
    if (stopped) return;
    timer = setTimeout(() => {
      current = check()
        .catch((error: unknown) => log.warn({ err: error }, "the ledger could not be verified"))
        .finally(schedule);
    }, LOOK_EVERY_MS);
  };

  return {
    start: schedule,
    check,
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      await current;
    },
  };
}
