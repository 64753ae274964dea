import { defaultConfig } from "../../src/config/config.ts";
import type { PriceList, PriceTable } from "../../src/domain/generation.ts";

/** The lists of a configuration with one price file. @param changes to the default prices */
export const priceListsOf = (changes: object): PriceList[] => {
  const { table } = defaultConfig().config.priceLists[0]!;
  return [
    { fromMs: 0, name: "test.yaml", file: "/test.yaml", table: { ...table, ...changes } as PriceTable },
  ];
};
