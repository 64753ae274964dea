import { retrySeconds } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import type { Admission } from "../scripts/holds.ts";
import type { RequestContext } from "./http-exchange.ts";
import { evictInvalidKey, refuseBarred } from "./inspect-key.ts";
import { rateLimited, recordAffordable, rememberGoodKey } from "./key-memory.ts";
import { refuseRestricted } from "./restricted-keys.ts";

const CONCURRENCY_WAIT_SECONDS = 10;
/** A slot or an account that waits for unknown outcomes may be free earlier: an operator can release them. */
const CLEARED_WAIT_MAX_SECONDS = 3600;
const IN_PROGRESS_WAIT_MAX_SECONDS = 10;
/** @param price by the price list @param calledAtMs by the clock of the over-limit cache @returns the refusal to answer */
export function refuseAdmission(
  context: RequestContext,
  admission: Exclude<Admission, { outcome: "admitted" | "replayed" }>,
  price: number,
  calledAtMs: number,
): Refusal {
  const { gateway, key } = context;
  if (admission.outcome === "unknown_key") return evictInvalidKey(context);
  rememberGoodKey(
    context,
    admission,
    admission.outcome === "account_suspended" ? admission.status : "active",
  );
  switch (admission.outcome) {
    case "restricted": {
      const detail = "the restrictions of the key change too often";
      return (
        refuseRestricted(context, admission.restrictions) ??
        refuse("store_unavailable", { retryAfterSeconds: 1, detail })
      );
    }
    case "account_suspended":
      return refuseBarred(admission.status);
    case "rate_limited": {
      const { state, tier, limitOf, retryAfterMs: waitMs } = admission;
      gateway.overLimit.put(key.keyId, { state, tier, limitOf, calledAtMs, waitMs });
      return rateLimited({ state, limitOf, retryAfterSeconds: retrySeconds(waitMs) });
    }
    case "daily_limited": {
      const { limit, used, limitOf } = admission;
      return refuse("daily_limited", {
        retryAfterSeconds: retrySeconds(admission.retryAfterMs),
        limit,
        used,
        limitOf,
      });
    }
    case "concurrency_limited": {
      const { concurrentLimit: limit, active: used } = admission.state;
      const { limitOf, clearedInMs } = admission;
      const common = { limit, used, limitOf };
      return clearedInMs === 0
        ? refuse("concurrency_limited", { ...common, retryAfterSeconds: CONCURRENCY_WAIT_SECONDS })
        : refuse("concurrency_limited", { ...common, ...clearedUp(clearedInMs), text: BEING_CLEARED_UP });
    }
    case "outcomes_unknown":
      return refuse("outcomes_unknown", clearedUp(admission.retryAfterMs));
    case "insufficient_credits": {
      recordAffordable(context, price, false);
      const text = `Insufficient credits: this request costs ${admission.price ?? price}, the balance is ${admission.balance}`;
      return refuse("insufficient_credits", { text, balance: admission.balance });
    }
    case "spend_capped": {
      recordAffordable(context, price, false);
      const { cap: limit, spent: used } = admission;
      const text = `Monthly credits of this API key exceeded: this request costs ${admission.price ?? price}, ${used} of ${limit} are used`;
      return refuse("spend_capped", { text, limit, used });
    }
    case "idempotency_mismatch":
      return refuse("idempotency_mismatch");
    case "idempotency_in_progress":
      return inProgress(admission);
    case "stale":
    case "void": {
      const detail = `admission is ${admission.outcome}`;
      return refuse("store_unavailable", { retryAfterSeconds: 1, detail });
    }
  }
}

const BEING_CLEARED_UP =
  "Too many concurrent tasks: earlier requests got no answer from the video generation service and are being cleared up";

const clearedUp = (waitMs: number) => ({
  retryAfterSeconds: Math.min(CLEARED_WAIT_MAX_SECONDS, retrySeconds(waitMs)),
});

type InProgress = Extract<Admission, { outcome: "idempotency_in_progress" }>;

/** The first request will soon be answered, or its outcome is unknown until its hold ends. */
function inProgress({ retryAfterMs, dueAtMs, unknown }: InProgress): Refusal {
  const waitSeconds = retrySeconds(retryAfterMs);
  if (unknown === undefined) {
    const retryAfterSeconds = Math.min(IN_PROGRESS_WAIT_MAX_SECONDS, waitSeconds);
    return refuse("idempotency_in_progress", { retryAfterSeconds });
  }
  const answer = unknown === "timed_out" ? "no answer in time" : "no clear answer";
  const text =
    `The first request with this Idempotency-Key got ${answer} from the video generation service; ` +
    `its outcome is known at ${new Date(dueAtMs).toISOString()} at the latest`;
  return refuse("idempotency_in_progress", { text, retryAfterSeconds: waitSeconds });
}
