import type { Statement } from "../../src/ledger/statement-sums.ts";

/** The closing by all other numbers of a statement. */
export const closingOf = (one: Omit<Statement, "amounts_paid">): number =>
  one.opening +
  (one.purchases + one.trials + one.goodwill) -
  one.charges +
  one.refunds +
  one.adjustments -
  one.reversals;
