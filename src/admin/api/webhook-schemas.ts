import { Type } from "typebox";
import { WEBHOOK_EVENT_TYPES } from "../../domain/webhook-events.ts";
import { DELIVERY_STATUSES } from "../../operations/webhooks/deliveries.ts";
import { ENDPOINT_STATUSES } from "../../operations/webhooks/endpoints.ts";
import { DELIVERY_STATES } from "../../records/deliveries.ts";
import { overlapOf } from "./account-schemas.ts";
import * as t from "./field-schemas.ts";

const ID = "we_9yKq2m4vTz0aRx0d";
const url = t.bounded(
  2048,
  "A public https address without user and password. Redirects are not followed.",
  "https://shop.example.com/webhooks",
);
const events = Type.Array(t.oneOf(WEBHOOK_EVENT_TYPES), {
  minItems: 1,
  maxItems: 20,
  description: "What it is told of. A new endpoint: of all, unless you say.",
});
const endpointStatus = t.oneOf(ENDPOINT_STATUSES, undefined, "enabled");

export const Webhook = t.titled("Webhook", {
  id: t.words(undefined, ID),
  account_id: t.accountId,
  url: t.words(undefined, "https://shop.example.com/webhooks"),
  events: t.list(t.text, undefined, ["task.completed", "task.failed"]),
  label: t.nullable<string>(t.label),
  status: endpointStatus,
  disabled_reason: t.textOrNull(
    "gone: it answered 410. failing: all tries of five days have failed. null while it is enabled.",
  ),
  created_at: t.time,
  both_sign_until: t.seldomTime,
  failing_since: t.seldomTime,
  delivered_at: t.timeOrNull,
  waiting: t.count("Deliveries that wait for a try.", 0),
  dropped: t.count("Events that it never got since too many waited.", 0),
  dropped_at: t.seldomTime,
  secret: t.optional(t.words("With which its messages are signed. Only in the answer that makes it.")),
});

export const NewWebhook = t.object({ url, events: t.optional(events), label: t.optional(t.label) });

export const WebhookChanges = t.object(
  {
    url: t.optional(url),
    events: t.optional(events),
    label: t.optional(t.nullable<string>(t.label)),
    status: t.optional(endpointStatus),
  },
  { minProperties: 1 },
);

export const DeletedWebhook = t.object({ id: t.words(undefined, ID), deleted: t.flag(undefined, true) });

export const SecretRotation = overlapOf(
  "How long the old secret goes on to sign, such as 24h; 0s ends it at once.",
);

export const deliveryStatus = t.oneOf(DELIVERY_STATES, "waiting: also those that are sent at this moment.");

export const Delivery = t.titled("Delivery", {
  id: t.words("As `webhook-id`: the same over all tries.", "evt_req_mh8p2k0a1b2c3d4e000001_task_completed"),
  webhook_id: t.words("Of the endpoint; `callback` of a delivery to the `callBackUrl` of a request.", ID),
  url: t.textOrNull("The `callBackUrl` that the request named; null for an endpoint."),
  type: t.words(undefined, "task.completed"),
  event_at: t.time,
  status: t.oneOf(DELIVERY_STATUSES, undefined, "delivered"),
  attempts: t.count("Tries so far, also those of earlier deliveries by hand.", 1),
  next_attempt_at: t.seldomTime,
  last_attempt_at: t.timeOrNull,
  ended_at: t.timeOrNull,
  response_status: t.countOrNull("HTTP status of the last answer; null where none came.", 200),
  response: t.textOrNull("The beginning of the last answer, or what went wrong.", "ok"),
  response_ms: t.countOrNull("How long the last try took.", 84),
});

export const Reseal = t.titled("Reseal", {
  looked: t.count("Endpoints.", 211),
  resealed: t.count("Endpoints whose secret was sealed anew.", 211),
  failed: t.list(
    t.object({ id: t.text, account_id: t.accountId }),
    "Endpoints whose secret no key at hand opens: rotate it.",
    [],
  ),
});
