import { readEvent, type StoredEvent } from "../records/deliveries.ts";
import { webhookNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

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
  /** Tries of its schedule that have failed. */
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
  read: ([, unopened, ...rows], { partition }) => ({
    unopened: Number(unopened),
    deliveries: (rows as Row[]).map(
      ([endpointId, eventId, lane, lease, tries, dueAt, url, event, ...secrets]): LeasedDelivery => ({
        ...{ partition, endpointId, eventId, lane, dueAt, url },
        lease: Number(lease),
        tries: Number(tries),
        event: readEvent(event),
        secrets: secrets.filter((secret) => secret !== ""),
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
