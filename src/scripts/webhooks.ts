import { type Actor, actorText } from "../records/actor.ts";
import { readEvent, type StoredEvent } from "../records/deliveries.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { accountNames, endpointNames, eventName, webhookNames, webhooksName } from "../records/names.ts";
import type { EndpointRecord } from "../records/records.ts";
import { fieldsAndValues } from "./keys.ts";
import type { Script } from "./script-definition.ts";

// Endpoints, and the deliveries to them.

interface WebhookCall {
  partition: number;
  accountId: string;
  endpointId: string;
  action: "webhook.create" | "webhook.patch" | "webhook.rotate_secret" | "webhook.reseal" | "webhook.delete";
  /** Nothing is changed if the record has another revision. */
  ifRevisions?: readonly number[] | undefined;
  /** How many an account may have; for a new one. */
  endpointsMax?: number;
  /** How long the secret before goes on to sign; for another secret. */
  overlapMs?: number;
  /** Null removes a field. */
  fields?: Readonly<Record<string, string | null>>;
  actor: Actor;
}

type WebhookReply =
  | { outcome: "created" | "changed" | "unchanged"; record: EndpointRecord }
  | { outcome: "deleted" | "full" | "closed" | "stale" | "missing" };

export const webhook: Script<WebhookCall, WebhookReply> = {
  name: "webhook",
  keys: ({ partition, accountId, endpointId }) => [
    accountNames(partition, accountId).account,
    endpointNames(partition, endpointId).endpoint,
    webhooksName(partition, accountId),
  ],
  args: ({ accountId, endpointId, action, ifRevisions = [], actor, endpointsMax, overlapMs, fields }) => [
    ...[accountId, endpointId, action, ifRevisions.join(), actorText(actor)],
    ...[endpointsMax ?? 0, overlapMs ?? 0, ...fieldsAndValues(fields ?? {})],
  ],
  read([outcome, , record]) {
    switch (outcome) {
      case "created":
      case "changed":
      case "unchanged":
        return { outcome, record: recordOf(record as string[]) };
      default:
        return { outcome: outcome as "deleted" | "full" | "closed" | "stale" | "missing" };
    }
  },
};

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

/** First tries of endpoints that answer, and all others: each has a budget of its own. */
export type Lane = "first" | "retry";

interface LeaseDeliveriesCall {
  partition: number;
  /** How many of each lane are leased at most. */
  firstMax: number;
  retryMax: number;
  /** How many deliveries of one endpoint may be under way. */
  perEndpoint: number;
  /** Longer than a try may take. */
  leaseMs: number;
  /** The beginnings of secrets that the caller can open. */
  keys: readonly string[];
}

interface Leased {
  /** By the store's clock, Unix ms. */
  nowMs: number;
  deliveries: LeasedDelivery[];
  /** Endpoints whose deliveries were left for others, since the caller cannot open their secret. */
  unopened: number;
}

/** A delivery that this gateway has to send before its lease ends. */
export interface LeasedDelivery {
  partition: number;
  /** The endpoint's id, or the queue of the origin of an address that a request names. */
  endpointId: string;
  eventId: string;
  lane: Lane;
  /** Its number, which goes with the result. */
  lease: number;
  tries: number;
  /** When it was due, Unix ms as stored. It goes with the result, too. */
  dueAt: string;
  url: string;
  event: StoredEvent;
  /** Sealed; the current one first. */
  secrets: string[];
}

/** Leases deliveries that are due. Two calls never lease the same one at a time. */
export const leaseDeliveries: Script<LeaseDeliveriesCall, Leased> = {
  name: "lease-deliveries",
  keys: ({ partition }) => [webhookNames(partition).first, webhookNames(partition).retry],
  args: ({ firstMax, retryMax, perEndpoint, leaseMs, keys }) => [
    ...[firstMax, retryMax, perEndpoint, leaseMs, keys.join(" ")],
  ],
  read: ([nowMs, unopened, ...rows], { partition }) => ({
    nowMs: Number(nowMs),
    unopened: Number(unopened),
    deliveries: (rows as Row[]).map(
      ([endpointId, eventId, lane, lease, tries, dueAt, url, event, ...secrets]): LeasedDelivery => ({
        ...{ partition, endpointId, eventId, lane, dueAt, url },
        lease: Number(lease),
        tries: Number(tries),
        event: readEvent(event),
        secrets: secrets.flatMap((sealed) => sealed.split(" ").filter((secret) => secret !== "")),
      }),
    ),
  }),
};

type Row = [
  endpointId: string,
  eventId: string,
  lane: Lane,
  lease: string,
  tries: string,
  dueAt: string,
  url: string,
  event: string,
  ...secrets: string[],
];

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

interface CleanDeliveriesCall {
  partition: number;
  keepMs: number;
  most: number;
}

/** Forgets old deliveries, and those of deleted endpoints. `isMore`: another call has something to do. */
export const cleanDeliveries: Script<CleanDeliveriesCall, { cleaned: number; isMore: boolean }> = {
  name: "clean-deliveries",
  keys: ({ partition }) => [webhookNames(partition).clean],
  args: ({ keepMs, most }) => [keepMs, most],
  read: ([, , cleaned, more]) => ({ cleaned: Number(cleaned ?? 0), isMore: Number(more) === 1 }),
};
