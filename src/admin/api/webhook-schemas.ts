import { Type } from "typebox";
import { OVERLAP } from "../../domain/operator-texts.ts";
import { WEBHOOK_EVENT_TYPES } from "../../domain/webhook-events.ts";
import { DELIVERY_STATUSES } from "../../operations/webhooks/deliveries.ts";
import { ENDPOINT_STATUSES } from "../../operations/webhooks/endpoints.ts";
import { DELIVERY_STATES } from "../../records/deliveries.ts";
import {
  accountId,
  count,
  countOrNull,
  label,
  nullable,
  object,
  text,
  textOrNull,
  time,
  timeOrNull,
  titled,
  words,
} from "./field-schemas.ts";

const url = Type.String({
  minLength: 1,
  maxLength: 2048,
  description: "A public https address without user and password. Redirects are not followed.",
  examples: ["https://shop.example.com/webhooks"],
});
const events = Type.Array(Type.Enum([...WEBHOOK_EVENT_TYPES]), {
  minItems: 1,
  maxItems: 20,
  description: "What it is told of. A new endpoint: of all, unless you say.",
});
const endpointStatus = Type.Enum([...ENDPOINT_STATUSES]);

export const Webhook = titled("Webhook", {
  id: text,
  account_id: accountId,
  url: text,
  events: Type.Array(text),
  label: nullable<string>(label),
  status: endpointStatus,
  disabled_reason: nullable<string>(
    Type.String({
      description:
        "gone: it answered 410. failing: all tries of five days have failed. null while it is enabled.",
    }),
  ),
  created_at: time,
  both_sign_until: timeOrNull,
  failing_since: timeOrNull,
  delivered_at: timeOrNull,
  waiting: count("Deliveries that wait for a try."),
  dropped: count("Events that it never got since too many waited."),
  dropped_at: timeOrNull,
  secret: Type.Optional(words("With which its messages are signed. Only in the answer that makes it.")),
});

export const NewWebhook = object({ url, events: Type.Optional(events), label: Type.Optional(label) });

export const WebhookChanges = object(
  {
    url: Type.Optional(url),
    events: Type.Optional(events),
    label: Type.Optional(nullable<string>(label)),
    status: Type.Optional(endpointStatus),
  },
  { minProperties: 1 },
);

export const DeletedWebhook = object({
  id: Type.String({ examples: ["we_9yKq2m4vTz0aRx0d"] }),
  deleted: Type.Boolean({ examples: [true] }),
});

export const SecretRotation = object({
  overlap: Type.Optional(
    Type.String({
      pattern: OVERLAP.source,
      default: "24h",
      description: "How long the old secret goes on to sign, such as 24h; 0s ends it at once.",
    }),
  ),
});

export const deliveryStatus = Type.Enum([...DELIVERY_STATES], {
  description: "waiting: also those that are sent at this moment.",
});

export const Delivery = titled("Delivery", {
  id: words("As `webhook-id`: the same over all tries."),
  webhook_id: words("Of the endpoint; `callback` of a delivery to the `callBackUrl` of a request."),
  url: textOrNull("The `callBackUrl` that the request named; null for an endpoint."),
  type: text,
  event_at: time,
  status: Type.Enum([...DELIVERY_STATUSES]),
  attempts: count("Tries so far, also those of earlier deliveries by hand."),
  next_attempt_at: timeOrNull,
  last_attempt_at: timeOrNull,
  ended_at: timeOrNull,
  response_status: countOrNull("HTTP status of the last answer; null where none came."),
  response: textOrNull("The beginning of the last answer, or what went wrong."),
  response_ms: countOrNull("How long the last try took."),
});

export const Reseal = titled("Reseal", {
  looked: count("Endpoints."),
  resealed: count("Endpoints whose secret was sealed anew."),
  failed: Type.Array(object({ id: text, account_id: accountId }), {
    description: "Endpoints whose secret no key at hand opens: rotate it.",
  }),
});
