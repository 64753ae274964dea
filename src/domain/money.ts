const CODES: ReadonlySet<string> = new Set(Intl.supportedValuesOf("currency"));
const DECIMAL = /^(?<whole>0|[1-9]\d{0,11})(?:\.(?<part>\d{1,4}))?$/;

/** An amount of money: a decimal such as 9.90 with all digits of its currency, never a floating-point number. */
export interface Money {
  amount: string;
  /** ISO 4217. */
  currency: string;
}

/** @returns what is wrong, in words */
export function readMoney(amount: string, currency: string): Money | { problem: string } {
  if (!CODES.has(currency))
    return { problem: `${JSON.stringify(currency)} is no currency of ISO 4217, such as USD` };
  const digits = digitsOf(currency);
  const example = digits === 0 ? "9" : `9.${"9".padEnd(digits, "0")}`;
  const { whole, part = "" } = DECIMAL.exec(amount)?.groups ?? {};
  const given = part.replace(/0+$/, "");
  if (whole === undefined || given.length > digits)
    return { problem: `an amount of ${currency} is a decimal text such as "${example}", not negative` };
  return { amount: digits === 0 ? whole : `${whole}.${given.padEnd(digits, "0")}`, currency };
}

/** Digits behind the point. */
function digitsOf(currency: string): number {
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat("en", {
    style: "currency",
    currency,
  }).resolvedOptions();
  return maximumFractionDigits;
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
