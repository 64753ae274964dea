import path from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { type PriceTable, priceOf, validateGeneration } from "../../../src/domain/generation.ts";
import { BODIES } from "../../../src/domain/schemas.ts";
import { loadConfig } from "../../support/load-config.ts";
import { configOf } from "../config/support.ts";

const HOST = "https://videos.example.com";
const REFERENCE = loadConfig({ env: {} }).priceLists[0]!.table;
const IMAGE = "https://a.example/x.png";

function price(table: PriceTable, endpoint: GenerationEndpoint, body: Record<string, unknown>): number {
  const result = validateGeneration(endpoint, body, HOST);
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  return priceOf(table, endpoint, result.body);
}

const board = (nFrames: string) => ({ nFrames, shots: [{ Scene: "a", duration: Number(nFrames) }] });

describe("the reference prices, the default", () => {
  test("flat ones", () => {
    expect(price(REFERENCE, "gen2/text-to-video", { prompt: "a" })).toBe(10);
    expect(price(REFERENCE, "gen2/image-to-video", { imageUrl: IMAGE })).toBe(10);
    expect(price(REFERENCE, "gen2/watermark-remove", { videoUrl: `${HOST}/v` })).toBe(10);
  });

  test.each([
    [10, "standard", 150],
    [10, "high", 330],
    [15, "standard", 270],
    [15, "high", 630],
  ] as const)("pro: %d seconds, %s costs %d", (duration, quality, credits) => {
    expect(price(REFERENCE, "gen2-pro/text-to-video", { prompt: "a", duration, quality })).toBe(credits);
    expect(price(REFERENCE, "gen2-pro/image-to-video", { imageUrl: IMAGE, duration, quality })).toBe(credits);
  });

  test("pro: a default that is left out is priced as what is sent for it", () => {
    expect(price(REFERENCE, "gen2-pro/text-to-video", { prompt: "a" })).toBe(150);
    expect(price(REFERENCE, "gen2-pro/image-to-video", { imageUrl: IMAGE, quality: "high" })).toBe(330);
    expect(price(REFERENCE, "gen2-pro/text-to-video", { prompt: "a", duration: 15 })).toBe(270);
  });

  test.each([
    ["10", 150],
    ["15", 270],
    ["25", 270],
  ] as const)("storyboard of %s seconds costs %d", (nFrames, credits) => {
    expect(price(REFERENCE, "gen2-pro/storyboard", board(nFrames))).toBe(credits);
  });
});

test("the overview prices are flat: 100, 200, 50, and the storyboard as in the reference", () => {
  const overview = configOf(`prices: ${path.resolve("config/prices/overview.yaml")}`).priceLists[0]!.table;
  expect(price(overview, "gen2/text-to-video", { prompt: "a" })).toBe(100);
  expect(price(overview, "gen2/image-to-video", { imageUrl: IMAGE })).toBe(100);
  for (const duration of [10, 15])
    for (const quality of ["standard", "high"]) {
      expect(price(overview, "gen2-pro/text-to-video", { prompt: "a", duration, quality })).toBe(200);
      expect(price(overview, "gen2-pro/image-to-video", { imageUrl: IMAGE, duration, quality })).toBe(200);
    }
  expect(price(overview, "gen2/watermark-remove", { videoUrl: `${HOST}/v` })).toBe(50);
  for (const nFrames of ["10", "15", "25"])
    expect(price(overview, "gen2-pro/storyboard", board(nFrames))).toBe(nFrames === "10" ? 150 : 270);
});

test("a price that the table does not have throws rather than being free", () => {
  expect(() => priceOf(REFERENCE, "gen2-pro/text-to-video", { duration: 11, quality: "high" })).toThrow(
    RangeError,
  );
  expect(() => priceOf(REFERENCE, "gen2-pro/text-to-video", {})).toThrow(RangeError);
  expect(() => priceOf(REFERENCE, "gen2-pro/storyboard", { nFrames: "20" })).toThrow(RangeError);
});

test("there are six generation endpoints, each with a body and a price", () => {
  expect(Object.keys(BODIES)).toEqual([...GENERATION_ENDPOINTS]);
  expect(Object.keys(REFERENCE).sort()).toEqual([...GENERATION_ENDPOINTS].sort());
});

// Guarantee: what is priced is exactly what is sent (invariant 7).
test("the text that goes upstream, read again, is the body that was priced and has the same price", () => {
  const text = fc.string({ unit: "grapheme", minLength: 1, maxLength: 50 });
  const some = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
  const ratio = some(fc.constantFrom("16:9", "9:16", "1:1"));
  const pro = { duration: some(fc.constantFrom(10, 15)), quality: some(fc.constantFrom("standard", "high")) };
  const image = fc.webUrl({ validSchemes: ["https"] });
  const shots = fc.array(text, { minLength: 1, maxLength: 5 });
  const bodies: Record<GenerationEndpoint, fc.Arbitrary<object>> = {
    "gen2/text-to-video": fc.record({ prompt: text, negativePrompt: some(text), aspectRatio: ratio }),
    "gen2/image-to-video": fc.record({ imageUrl: image, prompt: some(text), aspectRatio: ratio }),
    "gen2-pro/text-to-video": fc.record({
      prompt: text,
      negativePrompt: some(text),
      aspectRatio: ratio,
      ...pro,
    }),
    "gen2-pro/image-to-video": fc.record({ imageUrl: image, prompt: some(text), ...pro }),
    "gen2/watermark-remove": fc.webPath().map((path) => ({ videoUrl: `${HOST}/${path}` })),
    "gen2-pro/storyboard": fc.tuple(fc.constantFrom("10", "15", "25"), shots).map(([nFrames, scenes]) => ({
      nFrames,
      shots: scenes.map((Scene) => ({ Scene, duration: Number(nFrames) / scenes.length })),
    })),
  };
  for (const endpoint of GENERATION_ENDPOINTS) {
    fc.assert(
      fc.property(bodies[endpoint], (body) => {
        const given: unknown = JSON.parse(JSON.stringify(body));
        const result = validateGeneration(endpoint, given, HOST);
        if (!result.ok) throw new Error(JSON.stringify(result.problems));
        const again: unknown = JSON.parse(result.text);
        expect(again).toEqual(result.body);
        expect(again).toMatchObject(given as object);
        expect(priceOf(REFERENCE, endpoint, again as object)).toBe(priceOf(REFERENCE, endpoint, result.body));
      }),
      { numRuns: 60 },
    );
  }
});
