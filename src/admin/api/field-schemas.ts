import { type TSchema, Type } from "typebox";
import Format from "typebox/format";
import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { isMomentMs } from "../../domain/moments.ts";
import { ACCOUNT_ID } from "../../domain/operator-texts.ts";
import { capitalized } from "../../domain/visible-text.ts";

// typebox's own lets a leap second through, which Unix time does not have.
Format.Set("date-time", (text) => Format.IsDateTime(text) && isMomentMs(Date.parse(text)));

/** The options of an object that has these fields and no others. */
export const closed = { additionalProperties: false } as const;

type Schema<T> = ReturnType<typeof Type.Unsafe<T>>;

/** A schema that also accepts null, which stands for a value that is not set. */
export function nullable<T>(schema: TSchema): Schema<T | null> {
  return Type.Unsafe<T | null>({ ...schema, type: [(schema as { type?: string }).type, "null"] });
}

export const accountId = Type.String({ pattern: ACCOUNT_ID.source, examples: ["acme"] });
export const time = Type.String({ format: "date-time", examples: ["2026-10-31T12:00:00.000Z"] });
export const text = Type.String();
export const credits = Type.Integer({
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "Whole credits.",
});
export const label = Type.String({ minLength: 1, maxLength: 100, description: "For people." });

/** What limits are of, and what null means. */
const inWords = (of: string, none: string): string =>
  `${capitalized(of + TIER_LIMITS.map(({ short }) => short).join(", "))}. null: ${none}.`;
export const OF_KEY = inWords("", "that of the tier");
export const OF_ACCOUNT = inWords("over all keys of the account: ", "no limit");

/** Limits of an account or a key. */
export const limits = (of: string) =>
  Type.Object(
    byLimit(TIER_LIMITS, ({ storedMax }) =>
      nullable<number>(Type.Integer({ minimum: 0, maximum: storedMax })),
    ),
    { ...closed, description: of },
  );

export const caps = byLimit(CAPS, ({ unit, storedMax }) =>
  nullable<number>(
    Type.Integer({ minimum: 0, maximum: storedMax, description: `Spend cap: ${unit}. null: none.` }),
  ),
);
export const newCaps = byLimit(CAPS, ({ name }) => Type.Optional(caps[name]));

/** Limits in the body of a call, which may leave any of them out. */
export const newLimits = (of: string) => Type.Partial(limits(of), { ...closed, description: of });
