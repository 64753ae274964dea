const DECIMAL = /^(\d{1,2})(?:\.(\d{1,2}))?$/;
const HUNDREDTHS_MAX = 1000;

export const MULTIPLIER_RULE = "price_multiplier must be a number from 0.01 to 10 with two decimals at most";

/** As it is stored, such as `0.8`; undefined for what is no multiplier. */
export function multiplierText(value: number): string | undefined {
  const text = String(value);
  const hundredths = hundredthsOf(text);
  return hundredths !== undefined && hundredths >= 1 && hundredths <= HUNDREDTHS_MAX ? text : undefined;
}

function hundredthsOf(text: string): number | undefined {
  const [, whole, part = ""] = DECIMAL.exec(text) ?? [];
  return whole === undefined ? undefined : Number(whole) * 100 + Number(part.padEnd(2, "0"));
}

/** Rounded up to a whole credit, in integers; lua/include/price.lua does the same. @param multiplier as it is stored */
export function multipliedPrice(price: number, multiplier: string): number {
  const hundredths = BigInt(hundredthsOf(multiplier) ?? 100);
  return Number((BigInt(price) * hundredths + 99n) / 100n);
}
