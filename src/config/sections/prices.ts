import { Type } from "typebox";
import { momentMs } from "../../domain/moments.ts";
import { ruled } from "../setting-types.ts";

const file = Type.String({
  minLength: 1,
  description: "Price file, relative to the config file.",
});

const ZONED = /T.*(?:Z|[+-]\d\d:?\d\d)$/;

const timeRule = (text: string): string | undefined =>
  ZONED.test(text) && momentMs(text) !== undefined
    ? undefined
    : "must be a time with its zone, such as 2026-12-01T00:00:00Z";

const list = Type.Object(
  {
    from: Type.Optional(
      ruled(
        Type.String({
          description: "From when on it is in force, itself included; only the first may be left out.",
        }),
        timeRule,
      ),
    ),
    file,
  },
  { additionalProperties: false },
);

export const pricesSchema = Type.Union(
  [file, Type.Array(list, { minItems: 1, maxItems: 100, description: "Price files that begin at a time." })],
  {
    description:
      "Price file, relative to the config file; or a list of { from, file }, each in force from its time on, by the clock of Redis. " +
      "If it is left out, the reference set that ships with Tollgate.",
  },
);
