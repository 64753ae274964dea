import { refusalsName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

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
