import type { Connection } from "../redis/connection.ts";
import type { Binding } from "../scripts/holds.ts";
import type { Voided } from "../scripts/uncharged-holds.ts";
import type { Logger } from "../telemetry/log.ts";
import { madeOnce } from "../telemetry/metrics/series.ts";
import type { Charge } from "./outbox/outbox-queues.ts";

const FORGOTTEN =
  "the store has forgotten this request, and may have charged it; it is not charged: look for it in the ledger";
const NOT_CHARGED_AGAIN =
  "a primary has lost an answered charge, and it cannot be made again: bill it by hand, or write it off";

/** Notes what the store has answered, to this gateway or to one that ended. @param confirmed keeps charges that the store may lose */
export function createSettlementResults(
  { metrics }: Connection,
  confirmed: (charge: Charge, outcome: Binding) => void,
  log: Logger,
) {
  const counts = createSettlementCounts(metrics);

  /** Was answered before, and sent again because a primary changed or its gateway ended. */
  function replayed(charge: Charge, outcome: Binding): void {
    if (charge.unpaid && outcome === "uncollected") return;
    metrics.replayedCharges.inc({ outcome });
    if (outcome !== "bound" && outcome !== "late")
      log.error({ ...fieldsOf(charge), outcome }, NOT_CHARGED_AGAIN);
  }

  return {
    charged(charge: Charge, outcome: Binding): void {
      if (charge.replay) replayed(charge, outcome);
      else {
        counts.charged(charge, outcome);
        if (outcome === "forgotten") log.error(fieldsOf(charge), FORGOTTEN);
      }
      // Last: it marks what was uncollected, of which a repeat says nothing new.
      confirmed(charge, outcome);
    },
    voided: counts.voided,
  };
}

export function createSettlementCounts(metrics: Connection["metrics"]) {
  const settlements = madeOnce((outcome) => metrics.settlements.series({ outcome }));
  const consumed = metrics.creditsConsumed.series();
  return {
    charged({ call: { price } }: Charge, outcome: Binding): void {
      settlements(outcome).pending++;
      if (outcome === "bound" || outcome === "late") consumed.pending += price;
      if (outcome === "uncollected" || outcome === "forgotten") metrics.creditsUncollected.inc(price);
    },
    voided(outcome: Voided["outcome"]): void {
      if (outcome === "void") settlements(outcome).pending++;
    },
  };
}

const fieldsOf = ({ call: { requestId, key, price, task } }: Charge) => ({
  request_id: requestId,
  account_id: key.accountId,
  price,
  task_id: task.taskId,
});
