import type { GenerationEndpoint } from "./endpoints.ts";

export type Price =
  | number
  | { readonly by_duration_and_quality: Readonly<Record<"10" | "15", Readonly<Record<Quality, number>>>> }
  | { readonly by_n_frames: Readonly<Record<"10" | "15" | "25", number>> };

type Quality = "standard" | "high";

export type PriceTable = Readonly<Record<GenerationEndpoint, Price>>;

export interface PricedBody {
  duration?: number;
  quality?: string;
  nFrames?: string;
}

/** @throws RangeError when validation and price table disagree */
export function priceOf(table: PriceTable, endpoint: GenerationEndpoint, body: PricedBody): number {
  const price = table[endpoint];
  if (typeof price === "number") return price;
  const credits =
    "by_n_frames" in price
      ? price.by_n_frames[body.nFrames as "10"]
      : price.by_duration_and_quality[`${body.duration}` as "10"]?.[body.quality as Quality];
  if (credits === undefined) throw new RangeError(`no price for ${endpoint}`);
  return credits;
}
