import { type DueList, dueFrom, dueRange } from "../records/due-times.ts";
import { partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Ages of open requests, closed: a name, and the ms at which the next one begins. */
export const AGES = [
  ["<1m", 60_000],
  ["1m-5m", 5 * 60_000],
  ["5m-30m", 30 * 60_000],
  [">=30m", Number.POSITIVE_INFINITY],
] as const;
export const OPEN_STATES = ["held", "bound"] as const;
export type OpenState = (typeof OPEN_STATES)[number];

interface SurveyCall {
  list: DueList;
  partition: number;
  /** The place in the list of the first that is looked at, and how many are. */
  first: number;
  most: number;
}

interface SurveyedRequests {
  nowMs: number;
  /** When the first of the list is due; now if the list is empty. */
  dueAtMs: number;
  total: number;
  seen: number;
  /** Age of the oldest of each state; 0 without any. */
  oldestMs: Record<OpenState, number>;
  /** How many of each state and age, in the order of AGES. */
  open: Record<OpenState, number[]>;
}

export const survey: Script<SurveyCall, SurveyedRequests> = {
  name: "survey",
  keys: ({ partition }) => [partitionNames(partition).due],
  args({ list, partition, first, most }) {
    const ages = AGES.slice(0, -1).map(([, endMs]) => endMs);
    return [dueFrom(list), dueRange(list)[1], first, most, requestName(partition, ""), ...ages];
  },
  read(reply) {
    const [nowMs = 0, dueAtMs = 0, total = 0, seen = 0, held = 0, bound = 0, ...counts] = reply.map(Number);
    const open = { held: counts.slice(0, AGES.length), bound: counts.slice(AGES.length) };
    return { nowMs, dueAtMs, total, seen, oldestMs: { held, bound }, open };
  },
};
