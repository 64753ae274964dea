/** Credits of the packages that customers buy, where the configuration names no others. Spec section 2.7. */
export const CREDIT_PACKAGES: Readonly<Record<string, number>> = {
  basic: 100,
  standard: 200,
  premium: 500,
  enterprise: 1000,
};
