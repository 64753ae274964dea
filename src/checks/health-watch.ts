import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Check } from "./check.ts";

/** They take some 50 ms of CPU, a tenth of what an idle gateway may use in a minute. */
const EVERY_MS = 5 * 60_000;
/** Whoever asks gets none that are older. */
const FRESH_MS = 60_000;
/** A gateway that starts has other work. */
const FIRST_MS = 30_000;

export interface HealthReport {
  /** Unix ms. */
  checkedAtMs: number;
  checks: readonly Check[];
}

/** Runs the checks every five minutes, and for those who ask once a minute at most. */
export function createHealthWatch(options: {
  checks(): Promise<Check[]>;
  shown(checks: readonly Check[]): void;
  log: Logger;
}) {
  let latest: HealthReport | undefined;
  let current: Promise<HealthReport> | undefined;

  async function look(): Promise<HealthReport> {
    const checks = await options.checks();
    latest = { checkedAtMs: Date.now(), checks };
    options.shown(checks);
    return latest;
  }

  function run(): Promise<HealthReport> {
    current ??= look().finally(() => {
      current = undefined;
    });
    return current;
  }

  const { start, stop } = repeated(run, {
    pauseMs: () => EVERY_MS,
    failed: (error) => options.log.warn({ err: error }, "health: the checks could not run"),
  });
  return {
    start: (): void => start(FIRST_MS),
    stop,
    /** At most a minute old. */
    report: (): Promise<HealthReport> =>
      latest && Date.now() - latest.checkedAtMs < FRESH_MS ? Promise.resolve(latest) : run(),
  };
}
