import { type TObjectOptions, type TProperties, type TSchema, Type } from "typebox";
import Format from "typebox/format";
import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { isMomentMs } from "../../domain/moments.ts";
import { ACCOUNT_ID, capitalized } from "../../domain/operator-texts.ts";
import { CURSOR_CHARS_MAX } from "../../records/cursors.ts";

// typebox's own lets a leap second through, which Unix time does not have.
Format.Set("date-time", (text) => Format.IsDateTime(text) && isMomentMs(Date.parse(text)));

const closed = { additionalProperties: false } as const;

/** An object that has these fields and no others. */
export const object = <Fields extends TProperties>(fields: Fields, options: TObjectOptions = {}) =>
  Type.Object(fields, { ...closed, ...options });
export const titled = <Fields extends TProperties>(title: string, fields: Fields) =>
  object(fields, { title });
export const described = <Fields extends TProperties>(description: string, fields: Fields) =>
  object(fields, { description });

type Schema<T> = ReturnType<typeof Type.Unsafe<T>>;

/** A schema that also accepts null, which stands for a value that is not set. */
export function nullable<T>(schema: TSchema): Schema<T | null> {
  return Type.Unsafe<T | null>({ ...schema, type: [(schema as { type?: string }).type, "null"] });
}

const about = (description: string | undefined) => (description === undefined ? {} : { description });
export const words = (description?: string) => Type.String(about(description));
export const count = (description?: string) => Type.Integer(about(description));
export const textOrNull = (description?: string) => nullable<string>(words(description));
export const countOrNull = (description?: string) => nullable<number>(count(description));

export const accountId = Type.String({ pattern: ACCOUNT_ID.source, examples: ["acme"] });
export const time = Type.String({ format: "date-time", examples: ["2026-10-31T12:00:00.000Z"] });
export const timeOrNull = nullable<string>(time);
export const text = words();
export const credits = Type.Integer({
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "Whole credits.",
});
export const label = Type.String({ minLength: 1, maxLength: 100, description: "For people." });

const inWords = (of: string, none: string): string =>
  `${capitalized(of + TIER_LIMITS.map(({ short }) => short).join(", "))}. null: ${none}.`;
export const OF_KEY = inWords("", "that of the tier");
export const OF_ACCOUNT = inWords("over all keys of the account: ", "no limit");

/** Limits of an account or a key. */
export const limits = (of: string) =>
  described(
    of,
    byLimit(TIER_LIMITS, ({ storedMax }) =>
      nullable<number>(Type.Integer({ minimum: 0, maximum: storedMax })),
    ),
  );

export const caps = byLimit(CAPS, ({ unit, storedMax }) =>
  nullable<number>(
    Type.Integer({ minimum: 0, maximum: storedMax, description: `Spend cap: ${unit}. null: none.` }),
  ),
);
export const newCaps = byLimit(CAPS, ({ name }) => Type.Optional(caps[name]));

/** Limits in the body of a call, which may leave any of them out. */
export const newLimits = (of: string) => Type.Partial(limits(of), { ...closed, description: of });

/** A list in pages. */
export const pageOf = <Item extends TSchema>(item: Item) =>
  object({
    data: Type.Array(item),
    next_cursor: textOrNull("For `cursor`, to get the next page; null after the last one."),
  });

/** In answers about all accounts, while a primary is away. */
export const unread = Type.Optional(
  described("Partitions that could not be read, and why; nothing of them is in the answer.", {
    partitions: Type.Array(count()),
    why: text,
  }),
);

/** How far back a list reaches. */
export const reaches = {
  reaches_back_to: Type.Optional(
    nullable<string>({
      ...time,
      description:
        "Older ones are not in Redis, and there is no archive: the time of the oldest one that is known.",
    }),
  ),
};

/** The parameters of a list in pages. */
export const paging = {
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: CURSOR_CHARS_MAX,
      description: "`next_cursor` of the page before.",
    }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 20, description: "Rows of a page, at most." }),
  ),
};
export const LIMIT_DEFAULT = 20;

/** Query names of lists that begin and end at a time. */
export const period = {
  from: Type.Optional(
    Type.String({ description: "A day or a time, itself included.", examples: ["2026-10-01"] }),
  ),
  to: Type.Optional(
    Type.String({
      description: "A day, itself included, or a time, itself not included.",
      examples: ["2026-10-31"],
    }),
  ),
};

export const metadata = Type.Unsafe<Readonly<Record<string, unknown>>>({
  type: "object",
  additionalProperties: true,
  description: "An object of your own, at most 50 names and 4 KiB of JSON. Tollgate stores it.",
});
