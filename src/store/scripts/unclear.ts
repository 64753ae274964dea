import { idempotencyName } from "../names.ts";
import type { Script } from "../script-definition.ts";

/** How the upstream left open whether it made a task. */
export type UnknownOutcome = "unclear" | "timed_out";

export interface UnclearCall {
  partition: number;
  requestId: string;
  idempotencyDigest: string;
  unknown: UnknownOutcome;
}

/** Notes for repeats with the same Idempotency-Key that the outcome of the first request is unknown. */
export const unclear: Script<UnclearCall, { outcome: "noted" | "missing" }> = {
  name: "unclear",
  isBatched: false,
  keys: ({ partition, idempotencyDigest }) => [idempotencyName(partition, idempotencyDigest)],
  args: ({ requestId, unknown }) => [requestId, unknown],
  read: ([outcome]) => ({ outcome: outcome as "noted" | "missing" }),
};
