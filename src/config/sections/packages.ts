import { Type } from "typebox";
import { isObject } from "../../domain/json.ts";
import { CREDIT_PACKAGES, CREDITS_MAX, type CreditPackage, readMoney } from "../../domain/money.ts";
import type { BrokenRule } from "../validate.ts";

const credits = Type.Integer({
  minimum: 1,
  maximum: CREDITS_MAX,
  description: "Credits.",
  "x-expects": "a whole number of credits",
});

const DEFAULT_CURRENCY = "USD";

const priced = Type.Object(
  {
    credits,
    price: Type.Optional(
      Type.String({ description: 'What it costs, such as "9.90".', "x-expects": 'a text such as "9.90"' }),
    ),
    currency: Type.Optional(
      Type.String({ description: `Of the price, by ISO 4217; ${DEFAULT_CURRENCY} when left out.` }),
    ),
  },
  { additionalProperties: false },
);

export const packagesSchema = Type.Object(
  {},
  {
    description:
      "Packages of credits that customers buy, by name: how many credits each has, and its price. For grants by name. If it is " +
      "given, the list must be complete.",
    default: { ...CREDIT_PACKAGES },
    additionalProperties: false,
    maxProperties: 64,
    patternProperties: { "^[a-z][a-z0-9_-]{0,31}$": Type.Union([credits, priced]) },
    "x-keys": "is not a package name: at most 32 of a-z, 0-9, _ and -, beginning with a letter",
  },
);

export function packageProblems(packages: unknown): BrokenRule[] {
  if (!isObject(packages)) return [];
  return Object.entries(packages).flatMap(([name, value]) => {
    if (!isObject(value) || typeof value.price !== "string") return [];
    const { currency = DEFAULT_CURRENCY } = value;
    if (typeof currency !== "string") return [];
    const money = readMoney(value.price, currency);
    if (!("problem" in money)) return [];
    return [
      { keys: ["packages", name, money.wrong === "currency" ? "currency" : "price"], message: money.problem },
    ];
  });
}

/** No prototype: a package may be named `constructor`. */
export function toPackages(packages: object): Readonly<Record<string, CreditPackage>> {
  const named = Object.entries(packages as Record<string, number | CreditPackage>).map(([name, value]) => [
    name,
    packageOf(value),
  ]);
  return Object.assign(Object.create(null), Object.fromEntries(named));
}

function packageOf(value: number | CreditPackage): CreditPackage {
  if (typeof value === "number") return { credits: value };
  const { credits, price, currency = DEFAULT_CURRENCY } = value;
  if (price === undefined) return { credits };
  const money = readMoney(price, currency);
  return "problem" in money ? { credits } : { credits, price: money.amount, currency };
}
