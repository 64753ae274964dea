/** Scripts also limit the balance to 2^53 - 1, the last exact integer of a double. */
export const CREDITS_MAX = 1_000_000_000_000;

/** Default packages. Spec section 2.7. */
export const CREDIT_PACKAGES: Readonly<Record<string, number>> = {
  basic: 100,
  standard: 200,
  premium: 500,
  enterprise: 1000,
};
