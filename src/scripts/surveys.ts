import {
  accountNames,
  type DueList,
  dueFrom,
  dueRange,
  keyNames,
  partitionNames,
  refusalsName,
  requestName,
} from "../records/names.ts";
import type { Script } from "./script-definition.ts";

// Counts of a partition: what is open, what is held, what was refused.

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
  /** How far a hold is past its due time at most; 0 if none is. */
  holdOverdueMs: number;
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
    const [nowMs = 0, dueAtMs = 0, total = 0, seen = 0, held = 0, bound = 0, holdOverdueMs = 0, ...counts] =
      reply.map(Number);
    const open = { held: counts.slice(0, AGES.length), bound: counts.slice(AGES.length) };
    return { nowMs, dueAtMs, total, seen, oldestMs: { held, bound }, holdOverdueMs, open };
  },
};

/** Holds of a partition that are read at one instant: about a millisecond of Redis. */
const HOLDS_AT_ONCE = 150;

interface HoldingCall {
  partition: number;
  accountId: string;
}

/** `held` is what the account says, `holds` what its holds add up to: whole credits. */
type HoldingReply = { outcome: "too_many" } | { outcome: "read"; held: number; holds: number };

export const holding: Script<HoldingCall, HoldingReply> = {
  name: "holding",
  keys: ({ partition, accountId }) => [
    accountNames(partition, accountId).account,
    partitionNames(partition).due,
  ],
  args: ({ partition, accountId }) => [
    accountId,
    HOLDS_AT_ONCE,
    keyNames(partition, "").slots,
    requestName(partition, ""),
  ],
  read([outcome, , held, holds]) {
    if (outcome === "too_many") return { outcome };
    return { outcome: "read", held: Number(held), holds: Number(holds) };
  },
};

/** Kinds of refusals of one account and UTC day that are counted apart; further ones of a kind count together. */
const FIELDS_PER_ACCOUNT = 500;
/** Of one partition and UTC day: about 500 KB. */
const FIELDS_PER_DAY = 5000;
/** Eight days are shown, and today. */
const LIFETIME_MS = 9 * 86_400_000;

interface RefusedCall {
  partition: number;
  /** UTC, as 2030-01-31. */
  day: string;
  /** `hour`: from 00 to 23. */
  refusals: readonly { accountId: string; hour: string; keyId: string; outcome: string; count: number }[];
  /** For tests. */
  bounds?: { perAccount: number; perDay: number };
}

/** Adds refusals of keys to the counts of their partition and UTC day. */
export const refused: Script<RefusedCall, { outcome: "counted" }> = {
  name: "refused",
  keys: ({ partition, day }) => [refusalsName(partition, day)],
  args: ({ refusals, bounds }) => [
    bounds?.perAccount ?? FIELDS_PER_ACCOUNT,
    bounds?.perDay ?? FIELDS_PER_DAY,
    LIFETIME_MS,
    ...refusals.flatMap(({ accountId, hour, keyId, outcome, count }) => [
      accountId,
      hour,
      keyId,
      outcome,
      count,
    ]),
  ],
  read: () => ({ outcome: "counted" }),
};
