import type { MetricFactory } from "./factory.ts";

/** Outcomes of callbacks to an address that a gateway has made. */
export const CALLBACK_RESULTS = [
  "settled",
  "observed",
  "finished",
  "bound",
  "late",
  "uncollected",
  "conflict",
  "forgotten",
  "waiting",
  "charged_again",
  "uncovered",
  "void",
  "unknown_request",
  "no_task",
  "unknown_task",
  "unconfirmed",
  "unanswered",
] as const;
export type CallbackResult = (typeof CALLBACK_RESULTS)[number];

/** Callbacks that were refused before the store was asked. */
export const CALLBACK_REFUSALS = ["forged", "limited", "overloaded"] as const;

/** Callbacks of the upstream. */
export function callbackMetrics({ counter }: MetricFactory) {
  const callbacks = counter("tollgate_callbacks_total", "Callbacks of the upstream, by what they led to.", [
    "outcome",
  ]);
  for (const outcome of [...CALLBACK_RESULTS, ...CALLBACK_REFUSALS]) callbacks.inc({ outcome }, 0);
  return { callbacks };
}
