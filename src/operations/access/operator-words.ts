import { hostsIn } from "../../domain/redis-address.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { inStoreWords, storeReason } from "../../redis/reasons.ts";

/** Errors of a store, in words for operators. */
export const operatorWords =
  (redisUrl: string) =>
  (error: unknown, isConnected: boolean): Error => {
    const place = hostsIn(redisUrl);
    // Redis's own words, or those of a broken connection.
    if (isConnected) return new Error(`Redis at ${place}: ${inStoreWords(error)}`, { cause: error });
    const { why, advice = "see Redis's log, and that REDIS_URL is right" } = storeReason(error);
    return new OperatorError(`Redis at ${place} cannot be used (${why}); ${advice}`);
  };
