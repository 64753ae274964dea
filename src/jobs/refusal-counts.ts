import type { HourlyRefusals } from "../operations/accounts/refusals.ts";
import type { Logger } from "../telemetry/log.ts";

/** Combinations of key, reason and hour that are counted between two writes. Keys that are refused often are among the first. */
const PAIRS_MAX = 1000;
const FLUSH_EVERY_MS = 5000;
const HOUR_MS = 3_600_000;

/**
 * Counts refusals of known keys in memory and adds them to the store every few seconds: a refusal itself writes
 * nothing. While the store is away they wait; what comes beyond the bound is not counted.
 * @param options.add adds counts to those of all gateways
 * @param options.usable false while the store is away
 */
export function createRefusalCounts(options: {
  add(counts: HourlyRefusals[]): Promise<void>;
  /** The store's clock, Unix ms. */
  nowMs(): number;
  usable(): boolean;
  log: Logger;
}) {
  let pairs = new Map<string, HourlyRefusals>();
  let current: Promise<void> = Promise.resolve();

  async function flush(): Promise<void> {
    if (pairs.size === 0 || !options.usable()) return;
    const counts = [...pairs.values()];
    pairs = new Map();
    // Not tried again: it may have counted, and twice is worse than not at all.
    await options
      .add(counts)
      .catch((error: unknown) => options.log.debug({ err: error }, "refusals not counted"));
  }

  let timer: NodeJS.Timeout | undefined;
  return {
    /** Counts one refusal; `outcome` is the name in the error table. */
    count(keyId: string, accountId: string, outcome: string): void {
      const atMs = options.nowMs();
      const pair = `${keyId} ${outcome} ${Math.floor(atMs / HOUR_MS)}`;
      const counted = pairs.get(pair);
      if (counted) counted.count++;
      else if (pairs.size < PAIRS_MAX) pairs.set(pair, { keyId, accountId, outcome, count: 1, atMs });
    },
    flush,
    start(): void {
      timer = setInterval(() => {
        current = flush();
      }, FLUSH_EVERY_MS).unref();
    },
    /** Writes what is left. */
    async stop(): Promise<void> {
      clearInterval(timer);
      await current;
      await flush();
    },
  };
}
