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

/** Prices that are in force from a time on. */
export interface PriceList {
  readonly fromMs: number;
  /** Its file's name without the folder; no two lists have the same, and it has no space. */
  readonly name: string;
  /** The whole path. */
  readonly file: string;
  readonly table: PriceTable;
}

/** @param lists oldest first; the first is in force before its time, too */
export function priceListAt(lists: readonly PriceList[], atMs: number): PriceList {
  let found = lists[0]!;
  for (const list of lists) if (list.fromMs <= atMs) found = list;
  return found;
}

/** How far a gateway's estimate of the store's clock may be off. */
const CLOCK_SLACK_MS = 60_000;

/** Also what ADMIT picks from by the store's clock: the list in force a minute ago, and those that begin within a minute (price.lua). */
export function pricesAround(
  lists: readonly PriceList[],
  endpoint: GenerationEndpoint,
  body: PricedBody,
  atMs: number,
): { price: number; prices?: string } {
  if (lists.length === 1) return { price: priceOf(lists[0]!.table, endpoint, body) };
  const price = priceOf(priceListAt(lists, atMs).table, endpoint, body);
  const before = priceListAt(lists, atMs - CLOCK_SLACK_MS);
  const around = lists.filter(
    ({ fromMs }) =>
      fromMs > atMs - CLOCK_SLACK_MS && fromMs <= atMs + CLOCK_SLACK_MS && fromMs > before.fromMs,
  );
  const words = (list: PriceList): string => `${priceOf(list.table, endpoint, body)} ${list.name}`;
  const later = around.filter((list) => list !== before).map((list) => `${list.fromMs} ${words(list)}`);
  return { price, prices: [words(before), ...later].join(" ") };
}
