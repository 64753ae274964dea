/** The longest delay of the schedule: a receiver cannot keep a message waiting for ever. */
const RETRY_AFTER_S_MAX = 86_400;

/**
 * Seconds or a date (RFC 9110 10.2.3).
 * @returns seconds to wait, from 1 to a day; undefined if the receiver did not say, or said nothing that makes sense
 */
export function retryAfterS(header: string | string[] | undefined, nowMs: number): number | undefined {
  const text = (Array.isArray(header) ? header[0] : header)?.trim();
  if (text === undefined || text === "") return undefined;
  const seconds = /^\d{1,15}$/.test(text) ? Number(text) : secondsUntil(text, nowMs);
  if (seconds === undefined) return undefined;
  return Math.min(Math.max(seconds, 1), RETRY_AFTER_S_MAX);
}

/** `Sun, 06 Nov 1994 08:49:37 GMT`; `Date.parse` alone takes a great deal more. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

function secondsUntil(date: string, nowMs: number): number | undefined {
  const atMs = HTTP_DATE.test(date) ? Date.parse(date) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.ceil((atMs - nowMs) / 1000);
}
