import fc from "fast-check";
import { expect, test } from "vitest";
import { type Money, moneyOfUnits, readMoney, sumOfMoney } from "../../../src/domain/money.ts";

test.each([
  ["9.9", "USD", "9.90"],
  ["9.90", "USD", "9.90"],
  ["9.9000", "USD", "9.90"],
  ["0", "USD", "0.00"],
  ["999999999999.99", "EUR", "999999999999.99"],
  ["900", "JPY", "900"],
  ["900.0", "JPY", "900"],
  ["1.005", "KWD", "1.005"],
  ["1.005", "IQD", "1.005"],
  ["3990.5", "HUF", "3990.50"],
  ["9", "COP", "9.00"],
])("%s %s is %s", (amount, currency, expected) => {
  expect(readMoney(amount, currency)).toEqual({ amount: expected, currency });
});

test.each([
  ["9.901", "USD"],
  ["9.1", "JPY"],
  ["-1", "USD"],
  ["+1", "USD"],
  ["1,00", "USD"],
  ["1e3", "USD"],
  ["01", "USD"],
  [".5", "USD"],
  ["5.", "USD"],
  ["", "USD"],
  ["1000000000000", "USD"],
  ["NaN", "USD"],
  ["1", "usd"],
  ["1", "ZZZ"],
])("%s %s is no amount", (amount, currency) => {
  const wrong = /^(usd|ZZZ)$/.test(currency) ? "currency" : "amount";
  expect(readMoney(amount, currency)).toMatchObject({ wrong });
});

// Guarantee: amounts of money are added up exactly, whatever they are and how many.
test("a sum of decimals is exact", () => {
  expect(sumOfMoney([])).toEqual({});
  const tenth: Money = { amount: "0.10", currency: "USD" };
  expect(sumOfMoney(Array.from({ length: 3 }, () => tenth))).toEqual({ USD: "0.30" });
  const mixed = [tenth, { amount: "900", currency: "JPY" }, { amount: "1.005", currency: "KWD" }, tenth];
  expect(Object.entries(sumOfMoney(mixed))).toEqual([
    ["JPY", "900"],
    ["KWD", "1.005"],
    ["USD", "0.20"],
  ]);
  const digits = ["1", "2.5", "0.25", "3"].map((amount) => ({ amount, currency: "USD" }));
  expect(sumOfMoney(digits)).toEqual({ USD: "6.75" });
  const cents = fc.bigInt({ min: 0n, max: 99_999_999_999_999n });
  fc.assert(
    fc.property(fc.array(cents, { minLength: 1, maxLength: 50 }), (all) => {
      const textOf = (one: bigint): string => `${one / 100n}.${String(one % 100n).padStart(2, "0")}`;
      const sum = all.reduce((total, one) => total + one, 0n);
      const amounts = all.map((one) => ({ amount: textOf(one), currency: "USD" }));
      expect(sumOfMoney(amounts)).toEqual({ USD: textOf(sum) });
    }),
  );
});

test.each([
  ["USD", "12.34"],
  ["JPY", "12"],
  ["KWD", "12.345"],
  ["HUF", "12.34"],
])("ten-thousandths of %s are shown with its digits: %s", (currency, shown) => {
  expect(moneyOfUnits(123_450n, currency)).toBe(shown);
});
