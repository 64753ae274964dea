import { isObject } from "../../domain/json.ts";
import { badCursor } from "../../records/cursors.ts";
import type { ListedStatus } from "./task-view.ts";

/** Refunds whose charge comes on a later page, kept in the cursor by a digest. */
export const REFUNDS_MAX = 400;
/** Characters of such a digest. */
export const REFUND_DIGEST = 6;
/** More requests of one partition than become due in the same millisecond. */
const SAME_SCORE_MAX = 10_000_000;

/** Where a page goes on: in a list of the partition by score, or along the account's charges. */
export type Position = ListPosition | ChargePosition;

export interface ListPosition {
  of: "holds" | "polls" | "done";
  /** The score of the last request that was looked at, and how many of that score were. */
  score: string;
  times: number;
}

export interface ChargePosition {
  of: "charges";
  /** As `readHistory` goes on; undefined at the newest entry. */
  at?: string | undefined;
  /** Digests of requests that were refunded because their task failed, and whose charge comes later. */
  refunds: string[];
}

const startOf = (of: ListPosition["of"]): ListPosition => ({ of, score: "-inf", times: 0 });
const CHARGES: ChargePosition = { of: "charges", refunds: [] };

/** Where the first page begins. @param status undefined for all */
export function firstPosition(status: ListedStatus | undefined): Position {
  if (status === "void") return startOf("done");
  if (status === "processing") return startOf("polls");
  return status === "completed" || status === "failed" ? CHARGES : startOf("holds");
}

/** Where the next list begins; undefined after the last one. */
export function nextList({ of }: Position, status: ListedStatus | undefined): Position | undefined {
  if (status !== undefined) return undefined;
  if (of === "holds") return startOf("polls");
  return of === "polls" ? CHARGES : undefined;
}

/** @throws OperatorError for what `listTasks` has not made */
export function readPosition(text: string): Position {
  const { of, score, times, at, refunds } = parsedObject(text);
  if (of === "charges" && at === undefined) return CHARGES;
  if (of === "charges" && typeof at === "string" && areDigests(refunds)) return { of, at, refunds };
  const isScore = typeof score === "string" && /^(-inf|\d{1,16})$/.test(score);
  if ((of === "holds" || of === "polls" || of === "done") && isScore && isCount(times))
    return { of, score, times };
  throw badCursor();
}

/** Empty for what is no JSON object. */
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
