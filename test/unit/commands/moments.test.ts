import { expect, test } from "vitest";
import { futureMs, pastMs } from "../../../src/commands/options.ts";

test.each(["2090-02-31", "2090-02-29T00:00:00Z", "2090-04-31T12:00+02:00", "2090-13-01", "2090-01-32"])(
  "%s is no day, and not taken for another",
  (text) => {
    expect(() => futureMs(text)).toThrow("ISO 8601");
    expect(() => pastMs(text.replace("2090", "2026"))).toThrow("ISO 8601");
  },
);

test("a leap day and the day that a zone's midnight falls on are taken", () => {
  expect(futureMs("2092-02-29")).toBe(Date.UTC(2092, 1, 29));
  expect(futureMs("2090-03-01T01:00:00+02:00")).toBe(Date.UTC(2090, 1, 28, 23));
});
