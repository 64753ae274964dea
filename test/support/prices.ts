import type { PriceList, PriceTable } from "../../src/domain/prices.ts";

/** The lists of a configuration with one price file. */
export const priceListsOf = (table: object): PriceList[] => [
  { fromMs: 0, name: "test.yaml", file: "/test.yaml", table: table as PriceTable },
];
