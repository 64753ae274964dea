const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/;
const DAY_CHARS = "2026-10-31".length;
/** Neither ISO 8601 nor PostgreSQL takes a later one in this form. */
export const MOMENT_MS_MAX = Date.parse("9999-12-31T23:59:59.999Z");

/** Unix ms; undefined for invalid text and for leap seconds, which Unix time lacks. */
export function momentMs(text: string): number | undefined {
  const atMs = MOMENT.test(text) && isDay(text.slice(0, DAY_CHARS)) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : atMs;
}

export const DAY_MS = 86_400_000;

export const dayText = (atMs: number): string => new Date(atMs).toISOString().slice(0, DAY_CHARS);

/** A UTC day as it is written; `isDay` also asks whether the calendar has it. */
export const DAY = /^\d{4}-\d\d-\d\d$/;

/** To `Date`, 31 February is 3 March. */
export function isDay(text: string): boolean {
  const atMs = DAY.test(text) ? Date.parse(text) : Number.NaN;
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(text);
}

export const isMomentMs = (atMs: number): boolean =>
  Number.isInteger(atMs) && atMs >= 0 && atMs <= MOMENT_MS_MAX;

const DATE = /^(\d{4})-(\d\d)(?:-(\d\d))?(?!\d)/;

/** Why a date is not in the calendar, such as `2026-02 has no day 30`; undefined if it is there, or is no date at all. */
export function calendarProblem(text: string): string | undefined {
  const [, year, month, day] = DATE.exec(text) ?? [];
  if (month === undefined) return undefined;
  if (month < "01" || month > "12") return `${year} has no month ${month}`;
  const days = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  return day !== undefined && (day < "01" || Number(day) > days)
    ? `${year}-${month} has no day ${day}`
    : undefined;
}

export const TIME_RULE = "a time with its zone such as 2026-10-31T12:00:00Z";

/** Why a text is no time with its zone, and what may be meant; undefined for what resembles no time. */
export function timeProblem(text: string): string | undefined {
  const problem = calendarProblem(text);
  if (problem !== undefined) return problem;
  if (isDay(text)) return `${text} is a day, which begins in UTC at ${text}T00:00:00Z`;
  return momentMs(`${text}Z`) === undefined ? undefined : `${text} has no zone; in UTC it is ${text}Z`;
}

const MONTH = /^\d{4}-(0[1-9]|1[0-2])$/;

export const isMonth = (text: string): boolean => MONTH.test(text);

/** Months since January 1970; lua/include/clock.lua has the same. */
export function monthOf(ms: number): number {
  const date = new Date(ms);
  return (date.getUTCFullYear() - 1970) * 12 + date.getUTCMonth();
}
