import type { Refusal as RefusalOfTable } from "../domain/errors.ts";
import type { Refusal } from "../operations/accounts/refusal-log.ts";
import type { HourlyRefusals } from "../operations/accounts/refusals.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";

const PAIRS_MAX = 1000;
const FLUSH_EVERY_MS = 5000;
const HOUR_MS = 3_600_000;

/** Refusals that are kept one by one between two flushes. */
const LOGGED_MAX = 1000;

interface RefusedRequest {
  keyId: string | undefined;
  accountId: string | undefined;
  requestId: string;
  shownId: string;
}

/** Counts refusals in memory and adds them to the store every few seconds, so that a refusal writes nothing. */
export function createRefusalCounts(options: {
  add(counts: HourlyRefusals[]): Promise<void>;
  addSingle(refusals: Refusal[]): Promise<void>;
  nowMs(): number;
  usable(): boolean;
  log: Logger;
}) {
  let pairs = new Map<string, HourlyRefusals>();
  let single: Refusal[] = [];

  async function flush(): Promise<void> {
    if (pairs.size === 0 || !options.usable()) return;
    const counts = [...pairs.values()];
    const refusals = single;
    pairs = new Map();
    single = [];
    // Not repeated: a second write could count twice.
    await Promise.all([options.add(counts), options.addSingle(refusals)]).catch(notCounted);
  }

  const notCounted = (error: unknown): void => options.log.debug({ err: error }, "refusals not counted");
  const { start, stop } = repeated(flush, { pauseMs: () => FLUSH_EVERY_MS, failed: notCounted });
  return {
    count(request: RefusedRequest, outcome: string, refused: RefusalOfTable | undefined): void {
      const { keyId = "", accountId = "", requestId, shownId } = request;
      const atMs = options.nowMs();
      if (single.length < LOGGED_MAX) {
        const { limit, used, retryAfterSeconds } = refused ?? {};
        single.push({ atMs, accountId, keyId, outcome, limit, used, retryAfterSeconds, requestId, shownId });
      }
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
