import fc from "fast-check";
import type { Statement } from "../../src/ledger/statement-sums.ts";
import type { GivenEntry } from "./ledger-entries.ts";

/** The closing by all other numbers of a statement. */
export const closingOf = (one: Omit<Statement, "amounts_paid">): number =>
  one.opening +
  (one.purchases + one.trials + one.goodwill) -
  one.charges +
  one.refunds +
  one.adjustments -
  one.reversals;

const KINDS = ["purchase", "trial", "goodwill", "charge", "refund", "up", "down", "reversal"] as const;

/** A random entry, in words. */
export interface RandomEntry {
  kind: (typeof KINDS)[number];
  credits: number;
  /** Paid for a purchase. */
  cents: number;
  keyId: string;
  accountId: string;
  atMs: number;
}

/** Any entry of `acc` or `other`, in these months and those between them, often at a month's first or last millisecond. @param months in order */
export function randomEntries(months: readonly string[]): fc.Arbitrary<RandomEntry> {
  const begins = months.map((month) => Date.parse(`${month}-01T00:00:00Z`));
  const last = new Date(begins.at(-1)!);
  const endMs = Date.UTC(last.getUTCFullYear(), last.getUTCMonth() + 1, 1);
  return fc.record({
    kind: fc.constantFrom(...KINDS),
    credits: fc.integer({ min: 1, max: 1000 }),
    cents: fc.integer({ min: 0, max: 9999 }),
    keyId: fc.constantFrom("key_1", "key_2"),
    accountId: fc.constantFrom("acc", "acc", "other"),
    atMs: fc.oneof(
      fc.integer({ min: begins[0]!, max: endMs - 1 }),
      fc.constantFrom(...begins),
      fc.constantFrom(...begins.slice(1).map((ms) => ms - 1), endMs - 1),
    ),
  });
}

/** In the order of their times. */
export const givenEntries = (all: readonly RandomEntry[]): GivenEntry[] =>
  [...all].sort((one, other) => one.atMs - other.atMs).map(givenEntry);

/** As the gateway would write it. @param number makes its task, request or reference its own */
export function givenEntry(one: RandomEntry, number: number): GivenEntry {
  const { kind, credits, cents, keyId, accountId, atMs } = one;
  const base = { accountId, atMs };
  const request = {
    taskId: `task_${number}`,
    requestId: `req_${number}`,
    keyId,
    endpoint: "gen2/text-to-video",
  };
  const paid = { amount_paid: (cents / 100).toFixed(2), currency: cents % 2 === 0 ? "USD" : "EUR" };
  switch (kind) {
    case "charge":
      return { ...base, ...request, amount: -credits };
    case "refund":
      return { ...base, ...request, amount: credits, type: "recharge", reason: "refund" };
    case "up":
      return { ...base, amount: credits, reason: "by hand" };
    case "down":
      return { ...base, amount: -credits, reason: "by hand" };
    case "reversal":
      return { ...base, amount: -credits, reason: "money back", kind };
    case "purchase":
      return { ...base, amount: credits, reference: `o-${number}`, details: JSON.stringify(paid) };
    default:
      return { ...base, amount: credits, reference: `o-${number}`, kind };
  }
}
