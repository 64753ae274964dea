const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** How long after each failed try the next one comes, ms; the first try comes at once. Decision 0074. */
const RETRY_AFTER_MS = [
  5 * SECOND_MS,
  5 * MINUTE_MS,
  30 * MINUTE_MS,
  2 * HOUR_MS,
  5 * HOUR_MS,
  10 * HOUR_MS,
  14 * HOUR_MS,
  20 * HOUR_MS,
  24 * HOUR_MS,
];
const JITTER_SHARE = 0.2;
/** A receiver can ask for no more than this. */
const RETRY_AFTER_MAX_MS = 24 * HOUR_MS;

/**
 * How long the next try waits, ms; undefined after the last one.
 * @param tries that have failed, this one included
 * @param retryAfterS what the receiver asked for
 * @param pace divides all waits: 1 but in tests
 */
export function nextTryAfterMs(
  tries: number,
  retryAfterS: number | undefined,
  pace: number,
): number | undefined {
  const scheduledMs = RETRY_AFTER_MS[tries - 1];
  if (scheduledMs === undefined) return undefined;
  const jitteredMs = scheduledMs * (1 + JITTER_SHARE * Math.random());
  const askedMs = Math.min(RETRY_AFTER_MAX_MS, (retryAfterS ?? 0) * SECOND_MS);
  return Math.ceil(Math.max(jitteredMs, askedMs) / pace);
}
