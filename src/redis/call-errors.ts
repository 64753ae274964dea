import { GatewayError } from "../domain/errors.ts";
import type { GateRefusal } from "../domain/fair-gate.ts";
import type { Item } from "../scripts/script-definition.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { TIMED_OUT } from "./deadlines.ts";
import { inStoreWords } from "./reasons.ts";
import { hasMoved, isMoving, isRefusedByStore } from "./script-errors.ts";
import { type FrozenPartitions, frozenError } from "./topology/frozen-partitions.ts";

const RETRY_AFTER_SECONDS = 2;
/** A store that refuses every call is logged this often, not once per request. */
const REFUSED_LOG_EVERY_MS = 10_000;

export interface CallErrorOptions {
  breaker: { trip(why: string): void };
  frozen: Pick<FrozenPartitions, "refuses" | "refusesRead">;
  log: Logger;
  metrics: Metrics;
}

export type CallErrors = ReturnType<typeof createCallErrors>;

/** Makes the errors of calls, counts them, and opens the breaker where the store may be away. */
export function createCallErrors(options: CallErrorOptions) {
  const { breaker, log, metrics } = options;
  let refusedLoggedMs = Number.NEGATIVE_INFINITY;

  function unavailable(reason: string, cause?: unknown): GatewayError {
    metrics.storeFailures.inc({ reason });
    const why = cause === undefined ? "the breaker is open" : inStoreWords(cause);
    return new GatewayError("store_unavailable", `store: ${why}`, {
      cause,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  function notAdmitted(refusal: GateRefusal): GatewayError {
    if (refusal === "closed") return unavailable("open");
    metrics.storeFailures.inc({ reason: "overloaded" });
    const why =
      refusal === "queue_full"
        ? "too many calls of this key wait for the store"
        : "the call waited too long for the store";
    return new GatewayError("overloaded", why, { retryAfterSeconds: 1 });
  }

  function frozen(cause?: unknown): GatewayError {
    metrics.storeFailures.inc({ reason: "frozen" });
    return frozenError(cause);
  }

  /** @param item of the call; without one, it was a plain command */
  function failed(error: unknown, item?: Item): GatewayError {
    // The primary is usable; who has its other partitions goes on.
    if (hasMoved(error)) return unavailable("moved", error);
    if (item && options.frozen.refuses(item.keys[0]!, error)) return frozen(error);
    if (isMoving(error)) {
      // The next round of a read of all partitions leaves this one out.
      options.frozen.refusesRead(error);
      return unavailable("moving", error);
    }
    const message = error instanceof Error ? error.message : String(error);
    if (isRefusedByStore(error)) {
      if (performance.now() - refusedLoggedMs > REFUSED_LOG_EVERY_MS) {
        refusedLoggedMs = performance.now();
        log.error({ why: message }, "the store answers, but refuses; see `tollgate doctor`");
      }
      return unavailable("refused", error);
    }
    breaker.trip(inStoreWords(error));
    return unavailable(message === TIMED_OUT ? "timeout" : "connection", error);
  }

  return { unavailable, notAdmitted, frozen, failed };
}
