import { ItemError } from "./script.ts";

/** A server that is not itself. */
const PASSING =
  /^(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|CLUSTERDOWN|MOVED|ASK|TRYAGAIN|BUSY|NOSCRIPT)/;

/**
 * What Redis itself refuses a whole call with before anything of it has run, or says of a script that it has run. Other
 * words for a whole call may be those of a proxy, behind which the call may still run.
 */
const REFUSED = /^(OOM|NOPERM|NOAUTH|WRONGPASS|WRONGTYPE|CROSSSLOT) |user_script/;

/** True when the store answered and would answer the same again; false when it was away or not itself. */
export const isFinal = (error: unknown): boolean =>
  error instanceof ItemError
    ? !PASSING.test(error.message)
    : isReply(error) && !PASSING.test(error.message) && REFUSED.test(error.message);

/** What a script meets in its data. Up to Redis 7.0 a missing permission has the same word in front. */
const OF_THE_SCRIPT = /^(ERR (?!The user executing the script)|WRONGTYPE )/;

/**
 * True when the script itself would fail again. Stricter than `isFinal`: a charge is given up for nothing that an
 * operator can mend, such as a permission, a password or memory, and for nothing that is said of a whole call, which
 * may be a proxy's word.
 */
export const wouldFailAgain = (error: unknown): boolean =>
  error instanceof ItemError && OF_THE_SCRIPT.test(error.message);

const isReply = (error: unknown): error is Error => error instanceof Error && error.name === "ReplyError";
