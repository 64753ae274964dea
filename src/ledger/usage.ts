export const USAGE_COLUMNS = {
  day: "day",
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
type UsageCounts = Record<(typeof USAGE_COUNTS)[number], number>;

export interface UsageRow extends UsageCounts {
  day?: string;
  account_id?: string;
  endpoint?: string;
  key_id?: string;
}

/** These members as numbers; 0 for one that is missing. */
export const numbersOf = <Name extends string>(
  names: readonly Name[],
  row: { [Member in Name]?: number | string | null | undefined } = {},
) => Object.fromEntries(names.map((name) => [name, Number(row[name] ?? 0)])) as Record<Name, number>;

/** Rounded half up. */
export const runSeconds = (boundAtMs: number, endedAtMs: number): number =>
  Math.round(Math.max(0, endedAtMs - boundAtMs) / 1000);

export const dayText = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10);

export const dayStartMs = (day: string): number => Date.parse(`${day}T00:00:00Z`);

export function monthBounds(month: string): { first: string; next: string } {
  const [year = 0, number = 0] = month.split("-").map(Number);
  return { first: `${month}-01`, next: dayText(Date.UTC(year, number, 1)) };
}

interface UsagePlace {
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
      rows.add({ day, account_id: place.accountId, endpoint: place.endpoint, key_id: place.keyId }, counts);
    },
    rows: rows.all,
  };
}

export function createUsageRows(by: readonly UsageGroup[]) {
  const rows = new Map<string, UsageRow>();
  return {
    add(values: Omit<UsageRow, keyof UsageCounts>, counts: Partial<UsageCounts>): void {
      const group = Object.fromEntries(by.map((name) => [USAGE_COLUMNS[name], values[USAGE_COLUMNS[name]]]));
      const id = JSON.stringify(group);
      const row = rows.get(id) ?? { ...group, ...numbersOf(USAGE_COUNTS) };
      rows.set(id, row);
      for (const name of USAGE_COUNTS) row[name] += counts[name] ?? 0;
    },
    all: (): UsageRow[] => [...rows.values()].sort((one, other) => compare(one, other, by)),
  };
}

function compare(one: UsageRow, other: UsageRow, by: readonly UsageGroup[]): number {
  for (const name of by) {
    const [a = "", b = ""] = [one[USAGE_COLUMNS[name]], other[USAGE_COLUMNS[name]]];
    if (a !== b) return a < b ? -1 : 1;
  }
  return 0;
}

export function totalOf(rows: readonly UsageCounts[]): UsageCounts {
  const total = numbersOf(USAGE_COUNTS);
  for (const row of rows) for (const name of USAGE_COUNTS) total[name] += row[name];
  return total;
}
