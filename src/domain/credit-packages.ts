/** Scripts also limit the balance to 2^53 - 1, the last exact integer of a double. */
export const CREDITS_MAX = 1_000_000_000_000;

export interface CreditPackage {
  credits: number;
  /** A decimal with all digits of the currency; undefined where none is set. */
  price?: string | undefined;
  currency?: string | undefined;
}

/** Default packages. Spec section 2.7. */
export const CREDIT_PACKAGES: Readonly<Record<string, CreditPackage>> = {
  basic: { credits: 100, price: "9.90", currency: "USD" },
  standard: { credits: 200, price: "14.90", currency: "USD" },
  premium: { credits: 500, price: "39.90", currency: "USD" },
  enterprise: { credits: 1000, price: "69.90", currency: "USD" },
};
