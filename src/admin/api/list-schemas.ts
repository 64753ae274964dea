import { type TSchema, Type } from "typebox";
import { CURSOR_CHARS_MAX } from "../../records/cursors.ts";
import { closed, nullable, text, time } from "./field-schemas.ts";

/** A list in pages. */
export const pageOf = <Item extends TSchema>(item: Item) =>
  Type.Object(
    {
      data: Type.Array(item),
      next_cursor: nullable<string>(
        Type.String({ description: "For `cursor`, to get the next page; null after the last one." }),
      ),
    },
    closed,
  );

/** What a list over all accounts lacks while a primary is away. */
export const mayLack = {
  unread: Type.Optional(
    Type.Object(
      { partitions: Type.Array(Type.Integer()), why: text },
      { additionalProperties: false, description: "Nothing of these partitions is in the list." },
    ),
  ),
};

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
