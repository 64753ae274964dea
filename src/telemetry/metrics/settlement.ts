import type { MetricFactory } from "./factory.ts";

/** Outcomes in `tollgate_settlements_total`. All series exist from the start, so that the first of a kind is seen. */
export const SETTLEMENTS = [
  "bound",
  "late",
  "uncollected",
  "conflict",
  "forgotten",
  "void",
  "finished",
  "refunded",
  "gone",
  "expired",
] as const;

export function settlementMetrics({ counter, gauge }: MetricFactory) {
  return {
    settlements: counter(
      "tollgate_settlements_total",
      "Holds and tasks settled by this gateway, by outcome.",
      ["outcome"],
      SETTLEMENTS,
    ),
    tasksEndedUnanswered: counter(
      "tollgate_tasks_ended_unanswered_total",
      "Tasks ended as failed at twice their maximum age because the upstream never answered about them.",
    ),
    holds: gauge("tollgate_holds", "Holds of this gateway whose upstream exchange is in progress."),
    creditsConsumed: counter("tollgate_credits_consumed_total", "Credits charged for bound tasks."),
    creditsRefunded: counter("tollgate_credits_refunded_total", "Credits refunded for failed tasks."),
    creditsUncollected: counter(
      "tollgate_credits_uncollected_total",
      "Credits not charged for tasks whose charge came after their hold was void: the balance was too low, a repeat with the same Idempotency-Key may be charged, or the store had removed the request.",
    ),
    sweeps: counter("tollgate_sweeper_items_total", "Items processed by the sweeper, by kind and outcome.", [
      "kind",
      "outcome",
    ]),
    sweepSeconds: gauge(
      "tollgate_sweep_duration_seconds",
      "Duration of this gateway's last sweep over all partitions.",
      { aggregator: "max" },
    ),
  };
}
