import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { priceProblems, unconfirmedPriceChanges } from "../../../src/config/price-changes.ts";
import { loadConfig } from "../../support/load-config.ts";

const reference = loadConfig({ env: {}, file: "config/tollgate.yaml" }).priceLists[0]!.table;

test("a price by duration, quality or frames is compared and named by itself", () => {
  const storyboard = { by_n_frames: { "10": 1501, "15": 2700, "25": 270 } } as const;
  const to = { ...reference, "gen2-pro/storyboard": storyboard };
  const name = "gen2-pro/storyboard.by_n_frames.10";
  expect(unconfirmedPriceChanges(reference, to, {})).toEqual([{ price: name, from: 150, to: 1501 }]);
  expect(unconfirmedPriceChanges(reference, to, { [name]: 1501 })).toEqual([]);
  expect(unconfirmedPriceChanges(to, reference, {})).toEqual([{ price: name, from: 1501, to: 150 }]);
});

test("a flat price in place of several is compared with each of them", () => {
  const price = "gen2-pro/text-to-video";
  const flat = (credits: number) => ({ ...reference, [price]: credits });
  expect(unconfirmedPriceChanges(reference, flat(63), {}), "a tenth of the highest, 630").toEqual([]);
  expect(unconfirmedPriceChanges(reference, flat(62), {})).toEqual([{ price, from: 630, to: 62 }]);
  expect(unconfirmedPriceChanges(reference, flat(1501), {})).toEqual([{ price, from: 150, to: 1501 }]);
});

// Guarantee: an operator who does what the refusal says has a valid file, whatever it confirmed before.
test("what the refusal says to set confirms all changes, in place of what the shipped file has", () => {
  const earlier = "gen2/image-to-video";
  const to = { ...reference, "gen2/text-to-video": 1000, "gen2-pro/text-to-video": 1, [earlier]: 2000 };
  const confirmed = { [earlier]: 2000 };
  const changes = unconfirmedPriceChanges(reference, to, confirmed);
  const problems = priceProblems(changes, { confirmed, file: "tollgate.yaml", pricesFile: "prices.yaml" });
  const [advice, ...others] = problems.filter(({ file }) => file === "tollgate.yaml");
  expect(others).toEqual([]);
  expect(problems.length - 1).toBe(changes.length);
  const [value = ""] = /\{.*\}$/.exec(advice?.message ?? "") ?? [];
  const shipped = readFileSync("config/tollgate.yaml", "utf8");
  const followed = parse(shipped.replace(`${advice?.path}: {}`, `${advice?.path}: ${value}`));
  expect(unconfirmedPriceChanges(reference, to, followed.confirm_price_changes)).toEqual([]);
});
