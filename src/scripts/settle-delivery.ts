import { endpointNames, eventName } from "../records/names.ts";
import type { LeasedDelivery } from "./lease-deliveries.ts";
import type { Script } from "./script-definition.ts";

interface SettleDeliveryCall {
  delivery: Pick<LeasedDelivery, "partition" | "endpointId" | "eventId" | "lease" | "dueAt" | "url">;
  result: "delivered" | "failed" | "gone";
  /** When the next try comes, ms from now; undefined after the last one. */
  retryMs: number | undefined;
  /** Undefined where no answer came. */
  status: number | undefined;
  answer: string;
  tookMs: number;
  perEndpoint: number;
  /** How long an endpoint may fail until it is disabled. */
  disableMs: number;
}

type SettledDelivery = "delivered" | "again" | "retried" | "failed" | "disabled" | "fenced";

/** An endpoint that answers slower shares the budget of retries. */
const SLOW_MS = 3000;
/** An endpoint that has failed only a few times, days apart, is not disabled. */
const FAILURES_MIN = 10;

/** Records what came of a try. `moreIsDue`: the endpoint has another delivery to make now. */
export const settleDelivery: Script<SettleDeliveryCall, { outcome: SettledDelivery; moreIsDue: boolean }> = {
  name: "settle-delivery",
  isBatched: true,
  keys: ({ delivery: { partition, endpointId, eventId } }) => [
    endpointNames(partition, endpointId).endpoint,
    eventName(partition, eventId),
  ],
  args: ({ delivery, result, retryMs, status, answer, tookMs, perEndpoint, disableMs }) => [
    ...[delivery.endpointId, delivery.eventId, perEndpoint, delivery.lease, result, retryMs ?? ""],
    ...[status ?? 0, answer.replaceAll("\0", ""), Math.round(tookMs), SLOW_MS, FAILURES_MIN, disableMs],
    ...[delivery.dueAt, delivery.url],
  ],
  read: ([outcome, , more]) => ({ outcome: outcome as SettledDelivery, moreIsDue: Number(more) === 1 }),
};
