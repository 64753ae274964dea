const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/;
const DAY_CHARS = "2026-10-31".length;
/** Neither ISO 8601 nor PostgreSQL takes a later one in this form. */
export const MOMENT_MS_MAX = Date.parse("9999-12-31T23:59:59.999Z");

/** Unix ms; undefined for invalid text and for leap seconds, which Unix time lacks. */
export function momentMs(text: string): number | undefined {
  const atMs = MOMENT.test(text) && isDay(text.slice(0, DAY_CHARS)) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : atMs;
}

/** To `Date`, 31 February is 3 March. */
export function isDay(text: string): boolean {
  const atMs = text.length === DAY_CHARS ? Date.parse(text) : Number.NaN;
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(text);
}

export const isMomentMs = (atMs: number): boolean =>
  Number.isInteger(atMs) && atMs >= 0 && atMs <= MOMENT_MS_MAX;
