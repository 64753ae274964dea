import { expect, test } from "vitest";
import { loadConfig } from "../../../src/config/config.ts";
import { unconfirmedPriceChanges } from "../../../src/config/price-changes.ts";

const reference = loadConfig({ env: {}, file: "config/tollgate.yaml" }).prices;

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
