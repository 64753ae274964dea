import { type Money, sumOfMoney } from "../domain/money.ts";
import { detailsOf, type EntryKind, kindOf, type LedgerEntry } from "../records/ledger-entries.ts";
import { dayStartMs } from "./usage.ts";

/** opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals = closing. */
export const STATEMENT_NUMBERS = [
  "opening",
  "purchases",
  "trials",
  "goodwill",
  "charges",
  "refunds",
  "adjustments",
  "reversals",
  "closing",
] as const;

/** An account's UTC month, in credits. */
export interface Statement extends Record<(typeof STATEMENT_NUMBERS)[number], number> {
  /** Payments for purchases, a decimal by currency. */
  amounts_paid: Record<string, string>;
}

/** Which number an entry of a kind adds to, and its sign there. */
export const COLUMNS = {
  purchase: ["purchases", 1],
  trial: ["trials", 1],
  goodwill: ["goodwill", 1],
  charge: ["charges", -1],
  refund: ["refunds", 1],
  adjustment: ["adjustments", 1],
  reversal: ["reversals", -1],
} as const satisfies Record<EntryKind, readonly [keyof Statement, 1 | -1]>;

export type CreditColumn = (typeof COLUMNS)[EntryKind][0];

export const changeOf = (credits: Record<CreditColumn, number>): number =>
  Object.values(COLUMNS).reduce((sum, [name, sign]) => sum + sign * credits[name], 0);

export const emptyStatement = (balance: number): Statement => ({
  ...{ opening: balance, purchases: 0, trials: 0, goodwill: 0, charges: 0, refunds: 0 },
  ...{ adjustments: 0, reversals: 0, closing: balance, amounts_paid: {} },
});

/** Adds up entries of one account, in any order. */
export function createStatement({ fromMs, toMs }: { fromMs: number; toMs: number }) {
  const sums = emptyStatement(0);
  const paid: Money[] = [];
  let [total, later] = [0, 0];
  const addPaid = (entry: LedgerEntry): void => {
    const { amount_paid: money, currency } = detailsOf(entry);
    if (money !== undefined && currency !== undefined) paid.push({ amount: money, currency });
  };
  return {
    addPaid,
    /** Sums of a UTC day, without what was paid. */
    addDay(day: string, credits: Record<CreditColumn, number>): void {
      const dayMs = dayStartMs(day);
      if (dayMs >= toMs) later += changeOf(credits);
      if (dayMs < fromMs || dayMs >= toMs) return;
      for (const [name] of Object.values(COLUMNS)) sums[name] += credits[name];
      total += changeOf(credits);
    },
    add(entry: LedgerEntry): void {
      const { atMs, amount } = entry;
      if (atMs >= toMs) later += amount;
      if (atMs < fromMs || atMs >= toMs) return;
      const [name, sign] = COLUMNS[kindOf(entry)];
      sums[name] += sign * amount;
      total += amount;
      addPaid(entry);
    },
    end(balance: number): Statement {
      const closing = balance - later;
      return { ...sums, opening: closing - total, closing, amounts_paid: sumOfMoney(paid) };
    },
  };
}
