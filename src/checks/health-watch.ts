import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Check } from "./check.ts";

const EVERY_MS = 60_000;
/** A gateway that starts has other work. */
const FIRST_MS = 30_000;

export interface HealthReport {
  /** Unix ms. */
  checkedAtMs: number;
  checks: readonly Check[];
}

/** Runs the checks once a minute, whoever asks meanwhile. */
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
    /** At most a minute old; before the first round it waits for one. */
    report: (): Promise<HealthReport> => (latest ? Promise.resolve(latest) : run()),
  };
}
