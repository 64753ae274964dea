import { isObject } from "../../domain/json.ts";
import { badCursor } from "../../records/cursors.ts";
import { dueRange } from "../../records/due-times.ts";
import type { ListedStatus } from "./task-view.ts";

/** Digests of refunds in a cursor whose charges come on a later page. */
export const REFUNDS_MAX = 400;
export const REFUND_DIGEST = 6;
/** More than become due in one millisecond. */
const SAME_SCORE_MAX = 10_000_000;

/** In a list of the partition by score, or along the account's charges. */
export type Position = ListPosition | ChargePosition;

export interface ListPosition {
  of: "holds" | "polls" | "done";
  /** The last score, and how many requests of that score were read. */
  score: string;
  times: number;
}

export interface ChargePosition {
  of: "charges";
  /** Undefined at the newest entry. */
  at?: string | undefined;
  /** Requests of failed tasks whose charge comes later. */
  refunds: string[];
}

const startOf = (of: ListPosition["of"]): ListPosition => ({
  of,
  score: of === "done" ? "-inf" : dueRange(of)[0],
  times: 0,
});
const CHARGES: ChargePosition = { of: "charges", refunds: [] };

export function firstPosition(status: ListedStatus | undefined): Position {
  if (status === "void") return startOf("done");
  if (status === "processing") return startOf("polls");
  return status === "completed" || status === "failed" ? CHARGES : startOf("holds");
}

export function nextList({ of }: Position, status: ListedStatus | undefined): Position | undefined {
  if (status !== undefined) return undefined;
  if (of === "holds") return startOf("polls");
  return of === "polls" ? CHARGES : undefined;
}

/** @throws OperatorError for an invalid position */
export function readPosition(text: string): Position {
  const { of, score, times, at, refunds } = parsedObject(text);
  if (of === "charges" && at === undefined) return CHARGES;
  if (of === "charges" && typeof at === "string" && areDigests(refunds)) return { of, at, refunds };
  const isScore = typeof score === "string" && /^(-inf|\d{1,16})$/.test(score);
  if ((of === "holds" || of === "polls" || of === "done") && isScore && isCount(times))
    return { of, score, times };
  throw badCursor();
}

function parsedObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

const isCount = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= SAME_SCORE_MAX;

const areDigests = (value: unknown): value is string[] =>
  Array.isArray(value) &&
  value.length <= REFUNDS_MAX &&
  value.every((one) => typeof one === "string" && one.length <= REFUND_DIGEST);
