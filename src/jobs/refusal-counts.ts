import type { HourlyRefusals } from "../operations/accounts/refusals.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";

const PAIRS_MAX = 1000;
const FLUSH_EVERY_MS = 5000;
const HOUR_MS = 3_600_000;

/** Counts refusals in memory and adds them to the store every few seconds, so that a refusal writes nothing. */
export function createRefusalCounts(options: {
  add(counts: HourlyRefusals[]): Promise<void>;
  nowMs(): number;
  usable(): boolean;
  log: Logger;
}) {
  let pairs = new Map<string, HourlyRefusals>();

  async function flush(): Promise<void> {
    if (pairs.size === 0 || !options.usable()) return;
    const counts = [...pairs.values()];
    pairs = new Map();
    // Not repeated: a second write could count twice.
    await options.add(counts).catch(notCounted);
  }

  const notCounted = (error: unknown): void => options.log.debug({ err: error }, "refusals not counted");
  const { start, stop } = repeated(flush, { pauseMs: () => FLUSH_EVERY_MS, failed: notCounted });
  return {
    count(keyId: string, accountId: string, outcome: string): void {
      const atMs = options.nowMs();
      const pair = `${keyId} ${outcome} ${Math.floor(atMs / HOUR_MS)}`;
      const counted = pairs.get(pair);
      if (counted) counted.count++;
      else if (pairs.size < PAIRS_MAX) pairs.set(pair, { keyId, accountId, outcome, count: 1, atMs });
    },
    flush,
    start: (): void => start(),
    stop: (): Promise<void> => stop().then(flush),
  };
}
