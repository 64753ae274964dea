import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { loadPrices } from "../../../src/config/price-lists.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { type PricedBody, type PriceTable, priceOf } from "../../../src/domain/generation.ts";
import { configOf, errorOf, givenFiles } from "./support.ts";

/** Numbers as YAML has them, and the whole number that they are. */
const SCALARS: readonly (readonly [text: string, whole: number | undefined])[] = [
  ["10", 10],
  ["+10", 10],
  ["10.0", 10],
  ["1e1", 10],
  ["0xA", 10],
  ["0o12", 10],
  ["1000000000", 1e9],
  ["1000000001", 1e9 + 1],
  ["1e12", 1e12],
  ["1000000000001", 1e12 + 1],
  ["0", 0],
  ["-0", 0],
  ["-10", -10],
  ["0.1", undefined],
  ["9007199254740991", 2 ** 53 - 1],
  ["9007199254740993", undefined],
  ["9223372036854775808", undefined],
  ["18446744073709551616", undefined],
  ["1e308", undefined],
  ["-1e308", undefined],
  ["1e309", undefined],
  ["1".repeat(400), undefined],
  [".inf", undefined],
  ["-.inf", undefined],
  [".nan", undefined],
  ["NaN", undefined],
  ["Infinity", undefined],
  ['"10"', undefined],
  ["'1e1'", undefined],
  ["1_000", undefined],
  ["10n", undefined],
  ["true", undefined],
  ["null", undefined],
  ["~", undefined],
  ["[]", undefined],
  ["[10]", undefined],
  ["{}", undefined],
];

const PRICES = readFileSync(path.resolve("config/prices/reference.yaml"), "utf8");

/** The reference prices with the first number behind this line replaced. */
function withPrice(line: string, text: string): string {
  const at = PRICES.indexOf(line);
  return PRICES.slice(0, at) + PRICES.slice(at).replace(/\b\d{2,3}\b(?=[ ,}\n])/, () => text);
}

/** All prices that customers can be charged. */
const charged = (table: PriceTable): number[] =>
  GENERATION_ENDPOINTS.flatMap((endpoint) =>
    [10, 15].flatMap((duration) =>
      ["standard", "high"].flatMap((quality) =>
        ["10", "15", "25"].map((nFrames) => priceOf(table, endpoint, { duration, quality, nFrames })),
      ),
    ),
  );

/** Where a price is, and a body that costs it. */
const PLACES: readonly (readonly [string, GenerationEndpoint, PricedBody])[] = [
  ["gen2/text-to-video", "gen2/text-to-video", {}],
  ["gen2/watermark-remove", "gen2/watermark-remove", {}],
  [
    "gen2-pro/text-to-video.by_duration_and_quality.10.standard",
    "gen2-pro/text-to-video",
    { duration: 10, quality: "standard" },
  ],
  ["gen2-pro/storyboard.by_n_frames.10", "gen2-pro/storyboard", { nFrames: "10" }],
];

describe.each(PLACES)("a price file: %s", (place, endpoint, body) => {
  test.each(SCALARS)("%s", (text, whole) => {
    const file = givenFiles({ "prices.yaml": withPrice(`${endpoint}:`, text) });
    if (whole !== undefined && whole >= 1 && whole <= 1e9) {
      const table = loadPrices(file);
      expect(priceOf(table, endpoint, body)).toBe(whole);
      for (const price of charged(table)) expect(Number.isSafeInteger(price) && price > 0).toBe(true);
    } else {
      const { problems } = errorOf(() => loadPrices(file));
      expect([...new Set(problems.map(({ path }) => path))]).toEqual([place]);
    }
  });
});

interface Setting {
  name: string;
  least: number;
  most: number;
  yaml(text: string): string;
  read(config: ReturnType<typeof configOf>): unknown;
}
const tier = (name: string, most: number, read: Setting["read"]): Setting => {
  const limits = { rate_limit: "5", max_concurrent: "5", daily_limit: "5" };
  return {
    name: `tiers.standard.${name}`,
    least: 1,
    most,
    yaml(text) {
      const lines = Object.entries({ ...limits, [name]: text }).map(
        ([each, value]) => `    ${each}: ${value}\n`,
      );
      return `tiers:\n  standard:\n${lines.join("")}`;
    },
    read,
  };
};
const SETTINGS: Setting[] = [
  {
    name: "packages.small.credits",
    least: 1,
    most: 1e12,
    yaml: (text) => `packages:\n  small:\n    credits: ${text}\n`,
    read: ({ packages }) => packages.small?.credits,
  },
  {
    name: "confirm_price_changes.gen2/text-to-video",
    least: 1,
    most: 1e9,
    yaml: (text) => `confirm_price_changes:\n  gen2/text-to-video: ${text}\n`,
    read: ({ confirmedPrices }) => confirmedPrices["gen2/text-to-video"],
  },
  tier("rate_limit", 100_000, ({ tiers }) => tiers.standard?.rate_limit),
  tier("max_concurrent", 10_000, ({ tiers }) => tiers.standard?.max_concurrent),
  tier("daily_limit", 1e9, ({ tiers }) => tiers.standard?.daily_limit),
  {
    name: "tasks.unknown_outcomes_per_account",
    least: 1,
    most: 1000,
    yaml: (text) => `tasks:\n  unknown_outcomes_per_account: ${text}\n`,
    read: ({ tasks }) => tasks.unknownOutcomesPerAccount,
  },
];

// Guarantee: a number in a file is used as what it is, or the file is refused and the setting named.
describe.each(SETTINGS)("the config file: $name", ({ name, least, most, yaml, read }) => {
  test.each(SCALARS)("%s", (text, whole) => {
    if (whole !== undefined && whole >= least && whole <= most) {
      expect(read(configOf(yaml(text)))).toBe(whole);
    } else {
      const { problems } = errorOf(() => configOf(yaml(text)));
      expect([...new Set(problems.map(({ path }) => path))]).toEqual([name]);
      expect(problems[0]?.message).toMatch(/^must be /);
    }
  });
});
