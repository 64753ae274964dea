import { dayText } from "../domain/moments.ts";

export const USAGE_COLUMNS = {
  day: "day",
  month: "month",
  account: "account_id",
  endpoint: "endpoint",
  key: "key_id",
} as const;
export type UsageGroup = keyof typeof USAGE_COLUMNS;

/** Days are by UTC, such as 2026-10-31, both inclusive. */
export interface UsageSelection {
  accountId?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
  by: readonly UsageGroup[];
}

export const USAGE_COUNTS = ["requests", "credits", "refunds", "completed", "failed", "seconds"] as const;
export type UsageCounts = Record<(typeof USAGE_COUNTS)[number], number>;

export interface UsageRow extends UsageCounts {
  day?: string;
  month?: string;
  account_id?: string;
  endpoint?: string;
  key_id?: string;
}

/** These members as numbers; 0 for one that is missing. */
export const numbersOf = <Name extends string>(
  names: readonly Name[],
  row: { [Member in Name]?: number | string | null | undefined } = {},
) => Object.fromEntries(names.map((name) => [name, Number(row[name] ?? 0)])) as Record<Name, number>;

const NO_COUNTS = numbersOf(USAGE_COUNTS);

/** Rounded half up. */
export const runSeconds = (boundAtMs: number, endedAtMs: number): number =>
  Math.round(Math.max(0, endedAtMs - boundAtMs) / 1000);

export const dayStartMs = (day: string): number => Date.parse(`${day}T00:00:00Z`);

export function monthBounds(month: string): { first: string; next: string } {
  const [year = 0, number = 0] = month.split("-").map(Number);
  return { first: `${month}-01`, next: dayText(Date.UTC(year, number, 1)) };
}

export interface UsagePlace {
  atMs: number;
  accountId: string;
  endpoint: string;
  keyId: string;
}

export function createUsageTotals({ accountId, from, to, by }: UsageSelection) {
  const rows = createUsageRows(by);
  return {
    add(place: UsagePlace, counts: Partial<UsageCounts>): void {
      const day = dayText(place.atMs);
      if (accountId !== undefined && place.accountId !== accountId) return;
      if ((from !== undefined && day < from) || (to !== undefined && day > to)) return;
      rows.add(
        { day, account_id: place.accountId, endpoint: place.endpoint, key_id: place.keyId },
        () => counts,
      );
    },
    rows: rows.all,
  };
}

const MONTH_CHARS = "2026-10".length;

/** Values of the groups, a line each, so that the order of the texts is that of the rows. */
type RowPlace = string;

interface RowsSelection {
  /** Rows up to this place are left out. */
  after?: RowPlace | undefined;
  /** Of further rows it is only known that there are any. */
  limit?: number | undefined;
}

/** Rows that are kept for one that is shown, so that they are sorted seldom. */
const KEPT_FACTOR = 4;

/** Rows of these groups. A month is that of the day, if the values have no month. */
export function createUsageRows(
  by: readonly UsageGroup[],
  { after = "", limit = Number.MAX_SAFE_INTEGER }: RowsSelection = {},
) {
  const rows = new Map<RowPlace, UsageRow>();
  /** Rows behind it are not shown. */
  let last: RowPlace | undefined;
  const places = (): RowPlace[] => [...rows.keys()].sort();

  function forgetLast(): void {
    const known = places();
    last = known[limit]!;
    for (const place of known.slice(limit + 1)) rows.delete(place);
  }

  return {
    /** @param countsOf called if the row is shown; without counts there is none */
    add(values: Omit<UsageRow, keyof UsageCounts>, countsOf: () => Partial<UsageCounts> | undefined): void {
      let place = "";
      for (const name of by) place += `${groupValue(name, values) ?? ""}\n`;
      if ((after !== "" && place <= after) || (last !== undefined && place > last)) return;
      const counts = countsOf();
      if (counts === undefined) return;
      let row = rows.get(place);
      if (row === undefined) {
        if (rows.size > KEPT_FACTOR * limit) forgetLast();
        row = { ...NO_COUNTS };
        for (const name of by) row[USAGE_COLUMNS[name]] = groupValue(name, values) ?? "";
        rows.set(place, row);
      }
      for (const name of USAGE_COUNTS) row[name] += counts[name] ?? 0;
    },
    hasEnough: () => rows.size > limit,
    all: (): UsageRow[] => places().map((place) => rows.get(place)!),
    /** The first rows, and behind which place the next ones are, if there are any. */
    page(): { rows: UsageRow[]; next: RowPlace | undefined } {
      const shown = places().slice(0, limit);
      return {
        rows: shown.map((place) => rows.get(place)!),
        next: rows.size > limit ? shown.at(-1) : undefined,
      };
    },
  };
}

const groupValue = (name: UsageGroup, values: Omit<UsageRow, keyof UsageCounts>): string | undefined =>
  name === "month" && values.month === undefined
    ? values.day?.slice(0, MONTH_CHARS)
    : values[USAGE_COLUMNS[name]];

export function totalOf(rows: readonly UsageCounts[]): UsageCounts {
  const total = numbersOf(USAGE_COUNTS);
  for (const row of rows) for (const name of USAGE_COUNTS) total[name] += row[name];
  return total;
}
