import { TEST_EVENT } from "../../domain/webhook-events.ts";
import type { Actor } from "../../records/actor.ts";
import { cursorOf, type PageQuery, positionOf, requirePageSize } from "../../records/cursors.ts";
import {
  CALLBACKS_OF,
  callbacksOf,
  type DeliveryState,
  readAddress,
  readDelivery,
  readEvent,
  type StoredDelivery,
} from "../../records/deliveries.ts";
import { endpointNames, eventName, randomId } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { many, membersOf, pairsOf } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { queueDelivery } from "../../scripts/webhooks.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { closedAccount, type Endpoint, readEndpoint } from "./endpoints.ts";

const READ_AT_ONCE = 100;
const LOOKED_AT_MAX = 1000;

export const DELIVERY_STATUSES = ["waiting", "sending", "delivered", "failed"] as const;

/** In place of an endpoint's id: deliveries to the addresses that requests name (`callBackUrl`). */
export const CALLBACK_DELIVERIES = "callback";

/** An endpoint as far as its deliveries are concerned, or all addresses that requests of an account name. */
export type DeliveryTarget = Pick<Endpoint, "endpointId" | "accountId" | "partition">;

export interface Delivery extends StoredDelivery {
  /** As `webhook-id`. */
  eventId: string;
  /** Undefined of a delivery to an address that a request names. */
  endpointId: string | undefined;
  /** That address. */
  url: string | undefined;
  type: string;
  eventAtMs: number;
  status: (typeof DELIVERY_STATUSES)[number];
}

/** @param id of an endpoint, or `callback` @throws OperatorError `not_found` */
export async function deliveryTarget(
  nodes: RedisNodes,
  accountId: string,
  id: string,
): Promise<DeliveryTarget> {
  if (id !== CALLBACK_DELIVERIES) return readEndpoint(nodes, accountId, id);
  const { partition } = await requireAccount(nodes, accountId);
  return { endpointId: callbacksOf(accountId), accountId, partition };
}

/** Newest event first. A page may be short and still have a `next`. @throws OperatorError for a cursor of another list */
export async function listDeliveries(
  nodes: RedisNodes,
  endpoint: DeliveryTarget,
  { status, cursor, limit }: PageQuery & { status?: DeliveryState | undefined },
): Promise<{ deliveries: Delivery[]; next: string | undefined }> {
  requirePageSize(limit);
  const list = ["deliveries", endpoint.endpointId, status];
  let after = positionOf(list, cursor);
  const deliveries: Delivery[] = [];
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX; lookedAt += READ_AT_ONCE) {
    const found = await deliveriesAfter(nodes, endpoint, after);
    for (const { position, delivery } of found) {
      if (deliveries.length === limit) return { deliveries, next: cursorOf(list, after!) };
      after = position;
      if (delivery && (status === undefined || delivery.state === status)) deliveries.push(delivery);
    }
    if (found.length < READ_AT_ONCE) return { deliveries, next: undefined };
  }
  return { deliveries, next: cursorOf(list, after!) };
}

/** @throws OperatorError `not_found` */
async function readOneDelivery(
  nodes: RedisNodes,
  endpoint: DeliveryTarget,
  eventId: string,
): Promise<Delivery> {
  const [delivery] = await readDeliveries(nodes, endpoint, [eventId]);
  if (!delivery) throw noDelivery(endpoint, eventId);
  return delivery;
}

/** With its schedule from the start. One that is sent now is sent again afterwards. @throws OperatorError `not_found`, `webhook_disabled` */
export async function redeliver(
  nodes: RedisNodes,
  endpoint: DeliveryTarget,
  eventId: string,
  actor: Actor,
): Promise<Delivery> {
  await queue(nodes, endpoint, { eventId, actor });
  return readOneDelivery(nodes, endpoint, eventId);
}

/** Sends an event of type `webhook.test` to an endpoint, whatever it has asked for. @throws OperatorError `webhook_disabled`, `account_closed` */
export async function testEndpoint(nodes: RedisNodes, endpoint: Endpoint, actor: Actor): Promise<Delivery> {
  const subject = randomId("test");
  const data = JSON.stringify({ webhook_id: endpoint.endpointId, account_id: endpoint.accountId });
  const eventId = await queue(nodes, endpoint, { eventId: subject, test: { type: TEST_EVENT, data }, actor });
  return readOneDelivery(nodes, endpoint, eventId);
}

/** @returns the id of the event */
async function queue(
  nodes: RedisNodes,
  endpoint: DeliveryTarget,
  what: { eventId: string; test?: { type: string; data: string }; actor: Actor },
): Promise<string> {
  const redis = nodes.of(endpoint.partition);
  nodes.requireWritable?.([redis]);
  const { outcome, eventId } = await scriptsOf(redis).run(queueDelivery, { ...endpoint, ...what });
  switch (outcome) {
    case "queued":
    case "sending":
      return eventId;
    case "closed":
      throw closedAccount(endpoint.accountId);
    case "disabled":
      throw new OperatorError(
        `endpoint ${endpoint.endpointId} is disabled; enable it first`,
        "webhook_disabled",
      );
    case "full":
      throw new OperatorError(
        `too many deliveries of account ${endpoint.accountId} wait; repeat it once some were made`,
        "too_many_deliveries",
      );
    case "missing":
      throw noDelivery(endpoint, what.eventId);
  }
}

const noDelivery = ({ endpointId, accountId }: DeliveryTarget, eventId: string): OperatorError =>
  new OperatorError(
    endpointId === callbacksOf(accountId)
      ? `the requests of account ${accountId} have no delivery ${eventId}`
      : `endpoint ${endpointId} has no delivery ${eventId}`,
    "not_found",
  );

/** The next ones behind a position: `<ms of the event> <event id>`. One may be forgotten while they are read. */
async function deliveriesAfter(
  nodes: RedisNodes,
  endpoint: DeliveryTarget,
  after: string | undefined,
): Promise<{ position: string; delivery: Delivery | undefined }[]> {
  const redis = nodes.of(endpoint.partition);
  const { deliveries } = endpointNames(endpoint.partition, endpoint.endpointId);
  const [atMs = "", eventId = ""] = (after ?? "").split(" ");
  const rank = after === undefined ? -1 : await redis.zrevrank(deliveries, eventId);
  const flat =
    rank === null
      ? await redis.zrevrangebyscore(deliveries, `(${atMs}`, "-inf", "WITHSCORES", "LIMIT", 0, READ_AT_ONCE)
      : await redis.zrevrange(deliveries, rank + 1, rank + READ_AT_ONCE, "WITHSCORES");
  const found = await readDeliveries(nodes, endpoint, membersOf(flat));
  return pairsOf(flat).map(([id, score], at) => ({ position: `${score} ${id}`, delivery: found[at] }));
}

async function readDeliveries(
  nodes: RedisNodes,
  { partition, endpointId }: DeliveryTarget,
  eventIds: readonly string[],
): Promise<(Delivery | undefined)[]> {
  const redis = nodes.of(partition);
  const isCallback = endpointId.startsWith(CALLBACKS_OF);
  const events = await many<(string | null)[], string>(redis, eventIds, (pipe, id) =>
    pipe.hmget(eventName(partition, id), "event", endpointId, "url"),
  );
  const addresses = events.map(([, , text]) => readAddress(isCallback ? text : undefined));
  const leases = await many<string | null, number>(redis, [...eventIds.keys()], (pipe, at) =>
    pipe.zscore(endpointNames(partition, addresses[at]?.queueId ?? endpointId).sending, eventIds[at]!),
  );
  const nowMs = await storeNowMs(redis);
  return eventIds.map((eventId, at) => {
    const [event, text] = events[at]!;
    if (!event || !text) return undefined;
    const stored = readDelivery(text);
    const { type, atMs: eventAtMs } = readEvent(event);
    const isSending = stored.state === "waiting" && Number(leases[at] ?? 0) > nowMs;
    return {
      ...{ ...stored, eventId, type, eventAtMs, status: isSending ? "sending" : stored.state },
      endpointId: isCallback ? undefined : endpointId,
      url: addresses[at]?.url,
    };
  });
}
