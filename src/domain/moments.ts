/** A day such as 2026-10-31, or a time of ISO 8601 with its zone. */
const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/;
const DAY_CHARS = "2026-10-31".length;
/** The last moment of a year of four digits: neither ISO 8601 nor PostgreSQL takes a later one as it is written here. */
export const MOMENT_MS_MAX = Date.parse("9999-12-31T23:59:59.999Z");

/**
 * Unix ms of an ISO 8601 day or time; undefined for what is none. A leap second is none: Unix time does not have it.
 * @param text a day is its first moment
 */
export function momentMs(text: string): number | undefined {
  const atMs = MOMENT.test(text) && isDay(text.slice(0, DAY_CHARS)) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : atMs;
}

/** Whether a text is a day that its month has: to `Date`, 31 February is 3 March. */
export function isDay(text: string): boolean {
  const atMs = text.length === DAY_CHARS ? Date.parse(text) : Number.NaN;
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(text);
}

/** Whether a number is a time that can be stored and shown: whole ms from 1970 to the year 9999. */
export const isMomentMs = (atMs: number): boolean =>
  Number.isInteger(atMs) && atMs >= 0 && atMs <= MOMENT_MS_MAX;
