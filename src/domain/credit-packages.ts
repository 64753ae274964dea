/** Credits of the packages that customers buy. */
export const CREDIT_PACKAGES: Readonly<Record<string, number>> = {
  basic: 100,
  standard: 200,
  premium: 500,
  enterprise: 1000,
};
