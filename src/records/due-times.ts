/** The lists of a partition in which requests fall due: holds to void, tasks to poll. */
export const DUE_LISTS = ["holds", "polls"] as const;
export type DueList = (typeof DUE_LISTS)[number];

/** `due` has holds by their end and, behind them, tasks by their next poll and this (Unix ms). As in lua/include/due.lua. */
const TASKS_FROM = 1e15;

/** The score from which on `due` has the requests of a list. */
export const dueFrom = (list: DueList): number => (list === "holds" ? 0 : TASKS_FROM);

/** The first and the last score of a list, as Redis takes them. */
export const dueRange = (list: DueList): [from: string, to: string] =>
  list === "holds" ? ["-inf", `(${TASKS_FROM}`] : [`${TASKS_FROM}`, "+inf"];

/** Of a score in `due`: the list, and when the request is due (Unix ms). */
export function dueTime(score: number): { list: DueList; atMs: number } {
  return score < TASKS_FROM ? { list: "holds", atMs: score } : { list: "polls", atMs: score - TASKS_FROM };
}
