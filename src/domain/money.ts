const CODES: ReadonlySet<string> = new Set(Intl.supportedValuesOf("currency"));
const DECIMAL = /^(?<whole>0|[1-9]\d{0,11})(?:\.(?<part>\d{1,4}))?$/;

/** An amount of money: a decimal such as 9.90 with all digits of its currency, never a floating-point number. */
export interface Money {
  amount: string;
  /** ISO 4217. */
  currency: string;
}

export function readMoney(
  amount: string,
  currency: string,
): Money | { problem: string; wrong: "amount" | "currency" } {
  if (!CODES.has(currency)) {
    const problem = `${JSON.stringify(currency)} is no currency of ISO 4217, such as USD`;
    return { problem, wrong: "currency" };
  }
  const digits = digitsOf(currency);
  const example = digits === 0 ? "9" : `9.${"9".padEnd(digits, "0")}`;
  const { whole, part = "" } = DECIMAL.exec(amount)?.groups ?? {};
  const given = part.replace(/0+$/, "");
  if (whole === undefined || given.length > digits) {
    const problem = `an amount of ${currency} is a decimal text such as "${example}", not negative`;
    return { problem, wrong: "amount" };
  }
  return { amount: digits === 0 ? whole : `${whole}.${given.padEnd(digits, "0")}`, currency };
}

/** By ISO 4217; all others have two. `Intl` follows CLDR, which has none for HUF, COP and others, and changes with Node. */
const CURRENCIES_BY_DIGITS = {
  0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
  3: "BHD IQD JOD KWD LYD OMR TND",
  4: "CLF UYW",
};

function digitsOf(currency: string): number {
  const found = Object.entries(CURRENCIES_BY_DIGITS).find(([, codes]) => codes.includes(currency));
  return Number(found?.[0] ?? 2);
}

/** By currency, in the order of their codes. Exact, whatever the amounts. */
export function sumOfMoney(amounts: Iterable<Money>): Record<string, string> {
  const sums = new Map<string, { units: bigint; digits: number }>();
  for (const { amount, currency } of amounts) {
    const [whole = "", part = ""] = amount.split(".");
    const { units, digits } = sums.get(currency) ?? { units: 0n, digits: 0 };
    const most = Math.max(digits, part.length);
    const added = BigInt(whole + part.padEnd(most, "0"));
    sums.set(currency, { units: units * 10n ** BigInt(most - digits) + added, digits: most });
  }
  const sorted = [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(
    sorted.map(([currency, { units, digits }]) => [currency, decimal(units, digits)]),
  );
}

/** The most that a currency has behind the point. */
const DIGITS_MAX = 4;

/** @param units ten-thousandths of the currency */
export const moneyOfUnits = (units: bigint, currency: string): string => {
  const digits = digitsOf(currency);
  return decimal(units / 10n ** BigInt(DIGITS_MAX - digits), digits);
};

function decimal(units: bigint, digits: number): string {
  const text = String(units).padStart(digits + 1, "0");
  return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

const MULTIPLIER = /^(\d{1,2})(?:\.(\d{1,2}))?$/;
const HUNDREDTHS_MAX = 1000;

export const MULTIPLIER_RULE =
  "price_multiplier must be a number from 0.01 to 10 with two decimals at most, such as 0.8 for 80 percent of the list price";

/** As it is stored, such as `0.8`; undefined for what is no multiplier. */
export function multiplierText(value: number): string | undefined {
  const text = String(value);
  const hundredths = hundredthsOf(text);
  return hundredths !== undefined && hundredths >= 1 && hundredths <= HUNDREDTHS_MAX ? text : undefined;
}

function hundredthsOf(text: string): number | undefined {
  const [, whole, part = ""] = MULTIPLIER.exec(text) ?? [];
  return whole === undefined ? undefined : Number(whole) * 100 + Number(part.padEnd(2, "0"));
}

/** Rounded up to a whole credit, in integers; lua/include/price.lua does the same. @param multiplier as it is stored */
export function multipliedPrice(price: number, multiplier: string): number {
  const hundredths = BigInt(hundredthsOf(multiplier) ?? 100);
  return Number((BigInt(price) * hundredths + 99n) / 100n);
}

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
