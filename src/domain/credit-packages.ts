/**
 * The most credits of one grant, adjustment or cap. The scripts also bound the balance with all that may yet be refunded by 2^53 - 1,
 * the last integer that a double holds exactly; sums of the ledger reach it after thousands of the largest amounts.
 */
export const CREDITS_MAX = 1_000_000_000_000;

/** Credits of the packages that customers buy, where the configuration names no others. Spec section 2.7. */
export const CREDIT_PACKAGES: Readonly<Record<string, number>> = {
  basic: 100,
  standard: 200,
  premium: 500,
  enterprise: 1000,
};
