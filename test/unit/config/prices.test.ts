import path from "node:path";
import { expect, test } from "vitest";
import { loadPrices } from "../../../src/config/price-lists.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { type PricedBody, priceOf } from "../../../src/domain/generation.ts";

/** Endpoint, body, reference figure, overview figure. */
const CELLS: readonly [GenerationEndpoint, PricedBody, reference: number, overview: number][] = [
  ["gen2/text-to-video", {}, 10, 100],
  ["gen2/image-to-video", {}, 10, 100],
  ["gen2-pro/text-to-video", { duration: 10, quality: "standard" }, 150, 200],
  ["gen2-pro/text-to-video", { duration: 10, quality: "high" }, 330, 200],
  ["gen2-pro/text-to-video", { duration: 15, quality: "standard" }, 270, 200],
  ["gen2-pro/text-to-video", { duration: 15, quality: "high" }, 630, 200],
  ["gen2-pro/image-to-video", { duration: 10, quality: "standard" }, 150, 200],
  ["gen2-pro/image-to-video", { duration: 10, quality: "high" }, 330, 200],
  ["gen2-pro/image-to-video", { duration: 15, quality: "standard" }, 270, 200],
  ["gen2-pro/image-to-video", { duration: 15, quality: "high" }, 630, 200],
  ["gen2/watermark-remove", {}, 10, 50],
  ["gen2-pro/storyboard", { nFrames: "10" }, 150, 150],
  ["gen2-pro/storyboard", { nFrames: "15" }, 270, 270],
  ["gen2-pro/storyboard", { nFrames: "25" }, 270, 270],
];

const reference = loadPrices(path.resolve("config/prices/reference.yaml"));
const overview = loadPrices(path.resolve("config/prices/overview.yaml"));

test.each(CELLS)(
  "%s with %j costs what the price lists say",
  (endpoint, body, referenceCredits, overviewCredits) => {
    expect(priceOf(reference, endpoint, body)).toBe(referenceCredits);
    expect(priceOf(overview, endpoint, body)).toBe(overviewCredits);
  },
);

test("both price files name the six endpoints and nothing else", () => {
  expect(Object.keys(reference).sort()).toEqual([...GENERATION_ENDPOINTS].sort());
  expect(Object.keys(overview).sort()).toEqual([...GENERATION_ENDPOINTS].sort());
});
