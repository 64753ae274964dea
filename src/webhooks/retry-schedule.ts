const JITTER_SHARE = 0.1;

/**
 * How long the next try waits, ms; undefined after the last one. A receiver that asks for more time gets it.
 * @param failed tries so far, this one included
 * @param retriesMs the delay after each failed try
 * @param askedMs what the receiver asked for
 */
export function nextTryAfterMs(
  failed: number,
  retriesMs: readonly number[],
  askedMs = 0,
): number | undefined {
  const scheduledMs = retriesMs[failed - 1];
  if (scheduledMs === undefined) return undefined;
  return Math.ceil(Math.max(scheduledMs, askedMs) * (1 + JITTER_SHARE * Math.random()));
}
