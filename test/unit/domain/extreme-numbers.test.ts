import path from "node:path";
import { describe, expect, test } from "vitest";
import { loadPrices } from "../../../src/config/price-lists.ts";
import type { GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { priceOf } from "../../../src/domain/generation.ts";
import { parseJson } from "../../../src/domain/json.ts";
import { EXTREME_NUMBERS, NO_NUMBERS } from "../../support/extreme-numbers.ts";
import { ALL, MINIMAL, PRO_I2V, PRO_T2V, STORYBOARD, validate } from "./generation-stage.ts";

const prices = loadPrices(path.resolve("config/prices/reference.yaml"));
const TEXTS = [...EXTREME_NUMBERS.map(([text]) => text), ...NO_NUMBERS, "null"];

/** The members of all bodies that hold a number, or look as if they did. */
const NUMBERED = ["duration", "quality", "nFrames", "shots", "price", "credits", "n_frames"];

/** The minimal body with this text as a member, written by hand: JSON.stringify has no such numbers. */
function withMember(endpoint: GenerationEndpoint, name: string, text: string): string {
  const members = Object.entries(MINIMAL[endpoint]).filter(([own]) => own !== name);
  return `{${[...members.map(([own, value]) => `"${own}":${JSON.stringify(value)}`), `"${name}":${text}`]}}`;
}

/** Either what is sent upstream and its price, or what is refused. */
function validated(endpoint: GenerationEndpoint, body: string) {
  const parsed = parseJson(body);
  if (!parsed.ok) return { refused: [parsed.message] };
  const valid = validate(endpoint, parsed.value);
  if (!valid.ok) return { refused: valid.problems.map(({ message }) => message) };
  return { sent: JSON.parse(valid.text), price: priceOf(prices, endpoint, valid.body) };
}

// Guarantee: a number of any size is priced as what it is, or refused by the name of its parameter.
describe.each(ALL)("%s", (endpoint) => {
  test.each(NUMBERED)("any text as %s", (name) => {
    for (const text of TEXTS) {
      const { refused, price, sent } = validated(endpoint, withMember(endpoint, name, text));
      if (refused) {
        expect(refused[0], text).toMatch(new RegExp(`^${name}\\b|^the body is not valid JSON$`));
        for (const message of refused) expect(message, text).not.toMatch(/NaN|Infinity|-0\b/);
      } else {
        const { sent: plain, price: least } = validated(endpoint, JSON.stringify(MINIMAL[endpoint]));
        expect([price, sent], text).toEqual([least, plain]);
      }
    }
  });
});

test.each([PRO_T2V, PRO_I2V] as const)(
  "%s: a duration of 10 or 15 has their price, however it is written",
  (endpoint) => {
    for (const [seconds, credits] of [
      ["10", 150],
      ["15", 270],
    ] as const)
      for (const text of [seconds, `${seconds}.0`, `${seconds}0e-1`, `0.${seconds}E2`])
        expect(validated(endpoint, withMember(endpoint, "duration", text))).toMatchObject({
          price: credits,
          sent: { duration: Number(seconds) },
        });
  },
);

describe("the duration of a shot", () => {
  const board = (...durations: string[]): string => {
    const shots = durations.map((text) => `{"Scene":"a","duration":${text}}`);
    return withMember(STORYBOARD, "shots", `[${shots}]`);
  };

  test.each(TEXTS)("%s", (text) => {
    for (const body of [board(text), board("10", text)]) {
      const { refused, price, sent } = validated(STORYBOARD, body);
      if (refused) {
        expect(refused[0]).toMatch(/^shots\b|^the body is not valid JSON$/);
        for (const message of refused) expect(message).not.toMatch(/NaN|Infinity|-0\b/);
      } else {
        expect(price).toBe(150);
        const sum = sent.shots.reduce(
          (seconds: number, shot: { duration: number }) => seconds + shot.duration,
          0,
        );
        expect(Math.abs(sum - 10)).toBeLessThan(0.051);
      }
    }
  });

  test("what is no number is not counted", () => {
    for (const text of ["true", '"10"', "[10]", "1e309", "null"]) {
      expect(validated(STORYBOARD, board("10", text)).refused).toEqual([
        "shots[1].duration must be a number",
      ]);
    }
  });
});
