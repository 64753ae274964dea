import { type TObjectOptions, type TProperties, type TSchema, Type } from "typebox";
import Format from "typebox/format";
import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { isMomentMs } from "../../domain/moments.ts";
import { ACCOUNT_ID, capitalized } from "../../domain/operator-texts.ts";
import { CURSOR_CHARS_MAX } from "../../records/cursors.ts";

// typebox's own lets a leap second through, which Unix time does not have.
Format.Set("date-time", (text) => Format.IsDateTime(text) && isMomentMs(Date.parse(text)));

const closed = { additionalProperties: false } as const;

export const object = <Fields extends TProperties>(fields: Fields, options: TObjectOptions = {}) =>
  Type.Object(fields, { ...closed, ...options });
export const titled = <Fields extends TProperties>(title: string, fields: Fields) =>
  object(fields, { title });
export const described = <Fields extends TProperties>(description: string, fields: Fields) =>
  object(fields, { description });
export const optional = Type.Optional;

/** Keywords of a schema beside its type. */
const keywords = (description: string | undefined, example?: unknown) => ({
  ...(description !== undefined && { description }),
  ...(example !== undefined && { examples: [example] }),
});

type Schema<T> = ReturnType<typeof Type.Unsafe<T>>;

/** A schema that also accepts null, which stands for a value that is not set. */
export function nullable<T>(schema: TSchema): Schema<T | null> {
  return Type.Unsafe<T | null>({ ...schema, type: [(schema as { type?: string }).type, "null"] });
}

export const words = (description?: string, example?: string) => Type.String(keywords(description, example));
export const count = (description?: string, example?: number) => Type.Integer(keywords(description, example));
export const number = (description?: string, example?: number) => Type.Number(keywords(description, example));
export const flag = (description?: string, example?: boolean) => Type.Boolean(keywords(description, example));
export const textOrNull = (description?: string, example?: string) =>
  nullable<string>(words(description, example));
export const countOrNull = (description?: string, example?: number) =>
  nullable<number>(count(description, example));
export const oneOf = <const Word extends string>(
  all: readonly Word[],
  description?: string,
  example?: Word,
) => Type.Enum([...all], keywords(description, example));
export const list = <Item extends TSchema>(item: Item, description?: string, example?: unknown[]) =>
  Type.Array(item, keywords(description, example));
/** An object whose names are not known. */
export const open = <Value>(values: object | true, description: string, example?: Value) =>
  Type.Unsafe<Value>({ type: "object", additionalProperties: values, ...keywords(description, example) });

export const bounded = (most: number, description?: string, example?: string) =>
  Type.String({ minLength: 1, maxLength: most, ...keywords(description, example) });
export const upTo = (most: number, description: string, example?: string) =>
  Type.String({ maxLength: most, ...keywords(description, example) });
export const filter = (most: number, description: string) => optional(bounded(most, description));
export const whole = (minimum: number, maximum: number, description?: string, example?: number) =>
  Type.Integer({ minimum, maximum, ...keywords(description, example) });
export const wholeOr = (byDefault: number, minimum: number, maximum: number, description: string) =>
  optional(Type.Integer({ minimum, maximum, default: byDefault, description }));

export const TIME = "2026-10-31T12:00:00.000Z";
export const timed = (description?: string) =>
  Type.String({ format: "date-time", examples: [TIME], ...keywords(description) });
export const timedOrNull = (description?: string) => nullable<string>(timed(description));
export const time = timed();
export const timeOrNull = timedOrNull();
/** A time that most objects do not have; null in examples. */
export const seldomTimed = (description?: string) =>
  nullable<string>(Type.String({ format: "date-time", examples: [null], ...keywords(description) }));
export const seldomTime = seldomTimed();

export const accountId = Type.String({ pattern: ACCOUNT_ID.source, examples: ["acme"] });
export const accountIdOrNull = textOrNull(undefined, "acme");
export const keyId = words(undefined, "key_Rx0dTdT1hDhbmzOa");
export const requestId = words(undefined, "req_mh8p2k0a1b2c3d4e000001");
export const endpoint = words(undefined, "/api/v1/gen2/text-to-video");
export const text = words();
export const credits = whole(0, Number.MAX_SAFE_INTEGER, "Whole credits.", 50);
export const label = bounded(100, "For people.", "backend");
export const source = oneOf(["archive", "redis"], "Where it was read.", "redis");
export const ALWAYS_NULL = "Always null.";

const inWords = (of: string, none: string): string =>
  `${capitalized(of + TIER_LIMITS.map(({ short }) => short).join(", "))}. null: ${none}.`;
export const OF_KEY = inWords("", "that of the tier");
export const OF_ACCOUNT = inWords("over all keys of the account: ", "no limit");

export const limits = (of: string) =>
  described(
    of,
    byLimit(TIER_LIMITS, ({ storedMax, example }) =>
      nullable<number>(whole(0, storedMax, undefined, example.limit)),
    ),
  );

export const caps = byLimit(CAPS, ({ unit, storedMax, example }) =>
  nullable<number>(whole(0, storedMax, `Spend cap: ${unit}. null: none.`, example.limit)),
);
export const newCaps = byLimit(CAPS, ({ name }) => optional(caps[name]));

/** Limits in the body of a call, which may leave any of them out. */
export const newLimits = (of: string) => Type.Partial(limits(of), { ...closed, description: of });

export const pageOf = <Item extends TSchema, More extends TProperties = Record<never, never>>(
  item: Item,
  more?: More,
) =>
  object({
    data: list(item),
    next_cursor: textOrNull("For `cursor`, to get the next page; null after the last one."),
    ...(more as More),
  });

/** Of answers that may come from an archive which lags. */
export const ARCHIVED_UNTIL =
  "What was later may be missing, since the archive waits for it; null if nothing that was asked for is.";

/** In answers about all accounts, while a primary is away. */
export const unread = optional(
  described("Partitions that could not be read, and why; nothing of them is in the answer.", {
    partitions: list(count()),
    why: text,
  }),
);

export const reaches = {
  reaches_back_to: optional(
    timedOrNull(
      "Older ones are not in Redis, and there is no archive: the time of the oldest one that is known.",
    ),
  ),
};

export const LIMIT_DEFAULT = 20;
export const paging = {
  cursor: filter(CURSOR_CHARS_MAX, "`next_cursor` of the page before."),
  limit: wholeOr(LIMIT_DEFAULT, 1, 100, "Rows of a page, at most."),
};

export const period = {
  from: optional(words("A day or a time, itself included.", "2026-10-01")),
  to: optional(words("A day, itself included, or a time, itself not included.", "2026-10-31")),
};

export const metadata = open<Readonly<Record<string, unknown>>>(
  true,
  "An object of your own, at most 50 names and 4 KiB of JSON. Tollgate stores it.",
  { crm_id: "4711" },
);
