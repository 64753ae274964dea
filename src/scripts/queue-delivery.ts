import { type Actor, actorText } from "../records/actor.ts";
import { endpointNames, eventName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface QueueDeliveryCall {
  partition: number;
  accountId: string;
  endpointId: string;
  /** Of a test, what tells it from others. */
  eventId: string;
  /** Of a test; undefined to send an event again. */
  test?: { type: string; data: string };
  actor: Actor;
}

type QueuedDelivery = "queued" | "sending" | "closed" | "disabled" | "full" | "missing";

export const queueDelivery: Script<QueueDeliveryCall, { outcome: QueuedDelivery; eventId: string }> = {
  name: "queue-delivery",
  keys: ({ partition, endpointId, eventId }) => [
    endpointNames(partition, endpointId).endpoint,
    eventName(partition, eventId),
  ],
  args: ({ accountId, endpointId, eventId, actor, test }) => [
    ...[accountId, endpointId, eventId, actorText(actor), test?.type ?? "", test?.data ?? ""],
  ],
  read: ([outcome, , eventId]) => ({
    outcome: outcome as QueuedDelivery,
    eventId: String(eventId ?? ""),
  }),
};
