import type { Config } from "../config/config.ts";
import type { ConfigProblem } from "../config/problems.ts";
import { droppedTiers, missingTiers, tierProblems } from "../config/tiers-in-use.ts";
import { printedName } from "../config/yaml-file.ts";
import type { Tiers } from "../domain/limits.ts";
import type { TierCounter, TierCounts } from "../operations/keys/tier-counts.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LOOK_EVERY_MS = 5000;

export type TierUse = ReturnType<typeof createTierUse>;

/** Keys by tier, in memory, so that a reload is judged at once. Decision 0015. */
export function createTierUse(options: {
  counter: TierCounter;
  config(): Config;
  file: string;
  metrics: Metrics;
  log: Logger;
}) {
  const { counter, config, metrics, log } = options;
  let latest: TierCounts | undefined;
  const report = createTierReport(metrics, log);

  async function look(): Promise<void> {
    if (await counter.lease(LOOK_EVERY_MS)) await publish();
    latest = (await counter.latest()) ?? latest;
    if (latest) report(latest.keys, config().tiers);
  }

  /** A gateway that started while a primary was unavailable knows less than others, whose sum stays. */
  async function publish(): Promise<void> {
    const [sum, before] = [await counter.sum(), await counter.latest()];
    if (!before || sum.unread <= before.unread) await counter.publish(sum);
  }

  const { start, stop } = repeated(look, {
    pauseMs: () => LOOK_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "keys by tier not read"),
  });
  return {
    start: (): void => start(0),
    stop,
    look,
    known: (): TierCounts | null => latest ?? null,
    /** Tiers in use that `next` drops. Unknown numbers refuse nothing. */
    refuses(next: Config, before: Config): ConfigProblem[] {
      const dropped = Object.keys(before.tiers).filter((tier) => !Object.hasOwn(next.tiers, tier));
      if (dropped.length === 0) return [];
      const { keys = {}, unread = 0 } = latest ?? {};
      if (!latest || unread > 0) {
        const unknown = latest ? { unread_partitions: unread } : {};
        log.warn(
          { dropped, ...unknown },
          "it is not fully known whether keys use the tiers that are dropped",
        );
      }
      const inUse = droppedTiers(missingTiers(keys, next.tiers), before.tiers);
      return tierProblems(inUse, { keysByTier: keys, tiers: next.tiers, file: printedName(options.file) });
    },
  };
}

/** @returns shows keys by tier, and logs those whose tier is unknown each time that they differ */
function createTierReport(metrics: Metrics, log: Logger) {
  let reported = "[]";
  return (keysByTier: TierCounts["keys"], tiers: Tiers): void => {
    const missing = missingTiers(keysByTier, tiers);
    metrics.tierKeys.reset();
    metrics.tierKeys.set(
      { tier: "other" },
      missing.reduce((sum, { keys }) => sum + keys, 0),
    );
    for (const tier of Object.keys(tiers)) metrics.tierKeys.set({ tier }, keysByTier[tier] ?? 0);
    const words = JSON.stringify(missing);
    if (missing.length > 0 && words !== reported)
      log.error(
        { keys_by_tier: Object.fromEntries(missing.map(({ tier, keys }) => [tier, keys])) },
        "keys use tiers that the configuration does not name; they have the limits of standard",
      );
    reported = words;
  };
}
