import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type PriceList,
  type PriceTable,
  priceListAt,
  pricesAround,
} from "../../../src/domain/generation.ts";
import { multipliedPrice, multiplierText } from "../../../src/domain/money.ts";

describe("a price multiplier", () => {
  test.each([
    [10, "0.1", 1],
    [3, "0.1", 1],
    [10, "0.3", 3],
    [10, "0.33", 4],
    [100, "0.07", 7],
    [100, "0.29", 29],
    [1000, "0.55", 550],
    [1, "0.01", 1],
    [150, "0.8", 120],
    [7, "10", 70],
    [1_000_000_000, "9.99", 9_990_000_000],
  ])("makes of %i times %s %i, rounded up and exact", (price, multiplier, expected) => {
    expect(multipliedPrice(price, multiplier)).toBe(expected);
  });

  test("is a number with two decimals at most, from 0.01 to 10", () => {
    for (const value of [0.01, 0.29, 0.8, 1, 1.1, 9.99, 10])
      expect(multiplierText(value)).toBe(String(value));
    for (const value of [0, 0.009, 0.001, -1, 10.01, 11, 0.123, Number.NaN, Number.POSITIVE_INFINITY, 1e21])
      expect(multiplierText(value)).toBeUndefined();
  });
});

const listOf = (fromMs: number, name: string, credits: number): PriceList => ({
  ...{ fromMs, name, file: `/${name}` },
  table: { "gen2/text-to-video": credits } as unknown as PriceTable,
});
const LISTS = [listOf(0, "old", 10), listOf(1_000_000, "new", 12), listOf(2_000_000, "newer", 15)];
const around = (atMs: number, lists = LISTS) => pricesAround(lists, "gen2/text-to-video", {}, atMs);

describe("price lists", () => {
  test("begin at the very millisecond, and the first is in force before its time", () => {
    expect(
      [-1, 0, 999_999, 1_000_000, 1_999_999, 2_000_000].map((at) => priceListAt(LISTS, at).name),
    ).toEqual([...["old", "old", "old", "new", "new", "newer"]]);
  });

  test("a single list says nothing but the price; several name theirs, and what begins within a minute", () => {
    expect(around(5, [LISTS[0]!])).toEqual({ price: 10 });
    expect(around(5)).toEqual({ price: 10, prices: "10 old" });
    expect(around(939_999)).toEqual({ price: 10, prices: "10 old" });
    expect(around(940_000)).toEqual({ price: 10, prices: "10 old 1000000 12 new" });
    expect(around(1_000_000)).toEqual({ price: 12, prices: "10 old 1000000 12 new" });
    expect(around(1_059_999)).toEqual({ price: 12, prices: "10 old 1000000 12 new" });
    expect(around(1_060_000)).toEqual({ price: 12, prices: "12 new" });
  });

  // Guarantee: whatever a gateway takes for the time, within a minute, the clock of Redis decides which list is in force.
  test("what is sent to ADMIT has the list in force a minute around", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 3_000_000 }),
        fc.integer({ min: -59_999, max: 59_999 }),
        (atMs, off) => {
          const { prices = "" } = around(atMs + off);
          const words = `0 ${prices}`.matchAll(/(\d+) (\d+) (\S+)/g);
          const names = Array.from(words, ([, from, , name]) => ({ from: Number(from), name }));
          expect(names.findLast(({ from }) => from <= atMs)?.name).toBe(priceListAt(LISTS, atMs).name);
        },
      ),
    );
  });
});
