import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type PricedBody, type PriceTable, priceOf } from "../domain/generation.ts";
import type { ConfigProblem } from "./problems.ts";

const FACTOR_MAX = 10;

const BODIES: readonly PricedBody[] = [10, 15].flatMap((duration) =>
  ["standard", "high"].flatMap((quality) =>
    ["10", "15", "25"].map((nFrames) => ({ duration, quality, nFrames })),
  ),
);

interface LargePriceChange {
  /** An endpoint, or such as `gen2-pro/storyboard.by_n_frames.10`. */
  readonly price: string;
  readonly from: number;
  readonly to: number;
}

/** Unconfirmed changes above the factor, compared by what a customer pays. @param confirmed price to new credits */
export function unconfirmedPriceChanges(
  from: PriceTable,
  to: PriceTable,
  confirmed: Readonly<Record<string, number>>,
): LargePriceChange[] {
  const found = new Map<string, LargePriceChange>();
  for (const endpoint of GENERATION_ENDPOINTS) {
    for (const body of BODIES) {
      const change = {
        price: nameOf(to, endpoint, body),
        from: priceOf(from, endpoint, body),
        to: priceOf(to, endpoint, body),
      };
      const isLarge = change.to > change.from * FACTOR_MAX || change.from > change.to * FACTOR_MAX;
      const isConfirmed = Object.hasOwn(confirmed, change.price) && confirmed[change.price] === change.to;
      if (isLarge && !isConfirmed) found.set(change.price, change);
    }
  }
  return [...found.values()];
}

/** One problem per price, and one with the value of `confirm_price_changes` that confirms all. */
export function priceProblems(
  changes: readonly LargePriceChange[],
  options: { confirmed: Readonly<Record<string, number>>; file: string; pricesFile: string },
): ConfigProblem[] {
  if (changes.length === 0) return [];
  const { confirmed, file, pricesFile } = options;
  const all = { ...confirmed, ...Object.fromEntries(changes.map(({ price, to }) => [price, to])) };
  const entries = Object.entries(all).map(([price, credits]) => `"${price}": ${credits}`);
  return [
    ...changes.map(({ price, from, to }) => ({
      file: pricesFile,
      path: price,
      message: `changes more than tenfold, from ${from} to ${to} credits`,
    })),
    {
      file,
      path: "confirm_price_changes",
      message: `if you mean these prices, set this to { ${entries.join(", ")} }`,
    },
  ];
}

function nameOf(table: PriceTable, endpoint: GenerationEndpoint, body: PricedBody): string {
  const price = table[endpoint];
  if (typeof price === "number") return endpoint;
  return "by_n_frames" in price
    ? `${endpoint}.by_n_frames.${body.nFrames}`
    : `${endpoint}.by_duration_and_quality.${body.duration}.${body.quality}`;
}
