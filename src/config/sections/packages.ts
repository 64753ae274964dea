import { Type } from "typebox";
import { CREDIT_PACKAGES, CREDITS_MAX } from "../../domain/credit-packages.ts";

export const packagesSchema = Type.Object(
  {},
  {
    description:
      "Packages of credits that customers buy, by name, and how many credits each has: for grants by name. If it is given, " +
      "the list must be complete.",
    default: { ...CREDIT_PACKAGES },
    additionalProperties: false,
    maxProperties: 64,
    patternProperties: {
      "^[a-z][a-z0-9_-]{0,31}$": Type.Integer({
        minimum: 1,
        maximum: CREDITS_MAX,
        description: "Credits.",
        "x-expects": "a whole number of credits",
      }),
    },
    "x-keys": "is not a package name: at most 32 of a-z, 0-9, _ and -, beginning with a letter",
  },
);

/** No prototype: a package may be named `constructor`. */
export const toPackages = (packages: object): Readonly<Record<string, number>> =>
  Object.assign(Object.create(null), packages);
