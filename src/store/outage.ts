import type { Logger } from "../telemetry/log.ts";
import { inStoreWords } from "./reasons.ts";

/** A verdict older than this is checked again when the next request needs one. */
const VERDICT_MS = 1000;

/**
 * Whether Redis is away. An open breaker means that a call failed, which may be the fault of this process or of one
 * connection. Redis counts as away only after a probe on its own connection has failed too. Decision 0036.
 * The probe runs only when a request needs its result: with `fallback_strategy: allow`.
 */
export function createOutage(options: { isOpen(): boolean; probe(): Promise<void>; log: Logger }) {
  const { isOpen, probe, log } = options;
  /** Counts the times that the breaker was open. */
  let round = 1;
  let verdict: { isAway: boolean; atMs: number } | undefined;
  let judging: Promise<void> | undefined;

  /** One probe at a time. */
  function judge(): Promise<void> {
    judging ??= reachVerdict();
    return judging;
  }

  async function reachVerdict(): Promise<void> {
    const judgedRound = round;
    const why = await probe().then(() => undefined, inStoreWords);
    if (round !== judgedRound) return;
    judging = undefined;
    const isAway = why !== undefined;
    if (isAway && !verdict?.isAway) log.error({ why }, "Redis is away: keys seen good pass unmetered");
    else if (!isAway && verdict?.isAway !== false)
      log.warn("Redis answers on a connection of its own: nothing passes unmetered");
    verdict = { isAway, atMs: performance.now() };
  }

  return {
    /** The number of the outage, once it is clear that Redis is away; else undefined. Waits for the first verdict. */
    async current(): Promise<number | undefined> {
      if (!isOpen()) return undefined;
      if (!verdict) await judge();
      else if (performance.now() - verdict.atMs > VERDICT_MS) void judge();
      return verdict?.isAway ? round : undefined;
    },
    /** The breaker has closed. */
    over(): void {
      round++;
      verdict = undefined;
      judging = undefined;
    },
  };
}
