import { createHash } from "node:crypto";
import { OperatorError } from "./operator-error.ts";

const DIGEST_BYTES = 9;
/** Of a cursor, at most. The longest is that of a list of tasks, with the refunds whose charge is still to come. */
export const CURSOR_CHARS_MAX = 6000;

export interface PageQuery {
  /** Where an earlier page ended; undefined for the first page. */
  cursor?: string | undefined;
  limit: number;
}

export interface Period {
  fromMs?: number | undefined;
  /** Exclusive. */
  toMs?: number | undefined;
}

/** A position under a digest of it, the list and its filters, so that no other list takes it. No secret. @param list its name and filters */
export const cursorOf = (list: readonly unknown[], position: string): string =>
  Buffer.concat([digestOf(list, position), Buffer.from(position)]).toString("base64url");

/** The position in a cursor that `cursorOf` made for the same list; none without a cursor. @throws OperatorError */
export function positionOf<Cursor extends string | undefined>(
  list: readonly unknown[],
  cursor: Cursor,
): Cursor extends string ? string : string | undefined;
export function positionOf(list: readonly unknown[], cursor: string | undefined): string | undefined {
  if (cursor === undefined) return undefined;
  const bytes = Buffer.from(cursor.slice(0, CURSOR_CHARS_MAX), "base64url");
  const position = bytes.subarray(DIGEST_BYTES).toString();
  if (bytes.length > DIGEST_BYTES && cursorOf(list, position) === cursor) return position;
  throw badCursor();
}

export const badCursor = (): OperatorError =>
  new OperatorError("the cursor is not one of an earlier page of this list", "invalid", "cursor");

const digestOf = (list: readonly unknown[], position: string): Buffer =>
  createHash("sha256")
    .update(JSON.stringify([...list.map((part) => part ?? null), position]))
    .digest()
    .subarray(0, DIGEST_BYTES);

export function requirePageSize(limit: number): void {
  if (!Number.isInteger(limit) || limit < 1 || limit > 100)
    throw new OperatorError("limit must be a whole number from 1 to 100", "invalid", "limit");
}
