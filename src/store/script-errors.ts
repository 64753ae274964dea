import { ItemError } from "./script.ts";

/** Errors of a server that starts, fails over or moves slots: the same call may succeed later. */
const TRANSIENT =
  /^(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|CLUSTERDOWN|MOVED|ASK|TRYAGAIN|BUSY|NOSCRIPT)/;

/**
 * Errors by which Redis itself refuses a whole call before anything of it has run, or reports a script that has run. Other
 * errors of a whole call may be a proxy's, behind which the call may still run.
 */
const REFUSED = /^(OOM|NOPERM|NOAUTH|WRONGPASS|WRONGTYPE|CROSSSLOT) |user_script/;

/** True when the store has refused a call and would refuse it again; false when it was away, or the error is transient. */
export const isRefusedByStore = (error: unknown): boolean =>
  error instanceof ItemError
    ? !TRANSIENT.test(error.message)
    : isReply(error) && !TRANSIENT.test(error.message) && REFUSED.test(error.message);

/** Errors of a script in its data. Up to Redis 7.0 a missing permission begins with the same code. */
const OF_THE_SCRIPT = /^(ERR (?!The user executing the script)|WRONGTYPE )/;

/**
 * True when the script itself would fail again. Stricter than `isRefusedByStore`: a charge is not given up for anything that
 * an operator can mend, such as a permission, a password or memory, nor for an error of a whole call, which may be a proxy's.
 */
export const wouldFailAgain = (error: unknown): boolean =>
  error instanceof ItemError && OF_THE_SCRIPT.test(error.message);

const isReply = (error: unknown): error is Error => error instanceof Error && error.name === "ReplyError";
