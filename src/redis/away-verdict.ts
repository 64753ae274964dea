import type { Logger } from "../telemetry/log.ts";
import { inStoreWords, isUnreachable } from "./reasons.ts";

/** A verdict older than this is checked again when the next request needs one; that request waits if it is twice as old. */
const VERDICT_MS = 1000;
/** Gateways probe an unusable store once a second. */
const OTHERS_WITHIN_MS = 5000;

/** The result of a probe on its own connection. `refusing`: Redis can be reached, and cannot be used. */
type Verdict = "away" | "refusing" | "usable";

/** Of all primaries: one that takes over has the outages of another behind it, and a number counts once. */
let rounds = 0;

/**
 * A failed call may be the fault of this process or connection: Redis is away only if a probe on its own connection cannot reach it
 * either. Runs only when a request needs it (`fallback_strategy: allow`). Decision 0020.
 */
export function createAwayVerdict(options: { isOpen(): boolean; probe(): Promise<void>; log: Logger }) {
  const { isOpen, probe, log } = options;
  let round = ++rounds;
  let latest: { verdict: Verdict; atMs: number } | undefined;
  let judging: Promise<void> | undefined;
  let overAtMs = Number.NEGATIVE_INFINITY;

  function judge(): Promise<void> {
    judging ??= reachVerdict();
    return judging;
  }

  async function reachVerdict(): Promise<void> {
    const judgedRound = round;
    const failure: unknown = await probe().catch((error: unknown) => error);
    if (round !== judgedRound) return;
    judging = undefined;
    const verdict = failure === undefined ? "usable" : isUnreachable(failure) ? "away" : "refusing";
    if (verdict !== latest?.verdict) report(verdict, inStoreWords(failure));
    latest = { verdict, atMs: performance.now() };
  }

  function report(verdict: Verdict, why: string): void {
    if (verdict === "away") log.error({ why }, "Redis is away: keys seen good pass unmetered");
    else if (verdict === "refusing")
      log.error({ why }, "Redis answers, and cannot be used: nothing passes unmetered");
    else log.warn("Redis answers on a connection of its own: nothing passes unmetered");
  }

  return {
    known: {
      /** The number of the outage once Redis is away: requests of good keys may pass unmetered. Waits for the first verdict. */
      async outage(): Promise<number | undefined> {
        if (!isOpen()) return undefined;
        const ageMs = performance.now() - (latest?.atMs ?? Number.NEGATIVE_INFINITY);
        if (ageMs > 2 * VERDICT_MS) await judge();
        else if (ageMs > VERDICT_MS) void judge();
        return latest?.verdict === "away" ? round : undefined;
      },
      /** True if an outage has ended so lately that other gateways may still hold settlements of it. */
      isJustBack: (): boolean => performance.now() - overAtMs < OTHERS_WITHIN_MS,
    },
    /** @param wasAway false at a start that found the store usable: then an unknown task is none of an outage */
    over(wasAway: boolean): void {
      if (wasAway) overAtMs = performance.now();
      round = ++rounds;
      latest = undefined;
      judging = undefined;
    },
  };
}
