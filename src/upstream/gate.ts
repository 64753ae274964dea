import { GATE_REFUSALS, type GateObserver, type GateRefusal } from "../domain/fair-gate.ts";
import type { Metrics } from "../telemetry/metrics.ts";

// The pool's own queue has no bound, and the time that each request has for its answer runs in it: above capacity every request
// would be sent too late to be answered. A gate keeps requests out until a connection is free. Decision 0032.

/** The outcome of a request that the gate refused. @param limit the connections that it waited for, in words */
export function overloaded(refusal: GateRefusal, limit: string): { outcome: "overloaded"; detail: string } {
  switch (refusal) {
    case "queue_full":
      return { outcome: "overloaded", detail: `all of the ${limit} are in use, and as many requests wait` };
    case "waited_too_long":
      return { outcome: "overloaded", detail: `none of the ${limit} was free in time` };
    case "closed":
      return { outcome: "overloaded", detail: "the gateway stops" };
  }
}

/** Counts in the metrics what happens at the gate for one kind of request. */
export function observeGate(
  metrics: Pick<Metrics, "upstreamWaiting" | "upstreamWaitSeconds" | "upstreamOverloaded">,
  kind: "generate" | "poll",
): GateObserver {
  const { upstreamWaiting, upstreamWaitSeconds, upstreamOverloaded } = metrics;
  // All series exist from the start, so that the first refusal is seen.
  upstreamWaiting.inc({ kind }, 0);
  for (const reason of GATE_REFUSALS) upstreamOverloaded.inc({ kind, reason }, 0);
  return {
    waiting: (change) => upstreamWaiting.inc({ kind }, change),
    waited: (ms) => upstreamWaitSeconds.observe({ kind }, ms / 1000),
    refused: (reason) => upstreamOverloaded.inc({ kind, reason }),
  };
}
