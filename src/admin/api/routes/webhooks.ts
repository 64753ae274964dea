import { durationMs } from "../../../config/setting-types.ts";
import {
  deliveryTarget,
  listDeliveries,
  redeliver,
  testEndpoint,
} from "../../../operations/webhooks/deliveries.ts";
import {
  deleteEndpoint,
  type Endpoint,
  listEndpoints,
  patchEndpoint,
  readEndpoint,
  registerEndpoint,
  resealSecrets,
  rotateSecret,
} from "../../../operations/webhooks/endpoints.ts";
import type { RedisNodes } from "../../../redis/store-facts.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { type Answer, type ApiCall, operation, page } from "../route.ts";
import type { OperationSettings } from "../services.ts";
import { deliveryShown, webhookShown } from "../shown.ts";
import {
  DeletedWebhook,
  Delivery,
  deliveryStatus,
  NewWebhook,
  Reseal,
  SecretRotation,
  Webhook,
  WebhookChanges,
} from "../webhook-schemas.ts";

const OVERLAP_DEFAULT = "24h";

type Named = Pick<ApiCall, "params">;
type Settings = Pick<OperationSettings, "webhooks">;

async function endpointOf(nodes: RedisNodes, { params }: Named, { webhooks }: Settings): Promise<Endpoint> {
  await webhooks();
  return readEndpoint(nodes, params.account!, params.webhook!);
}

async function targetOf(nodes: RedisNodes, { params }: Named, { webhooks }: Settings) {
  await webhooks();
  return deliveryTarget(nodes, params.account!, params.webhook!);
}

interface Shown {
  endpoint: Endpoint;
  secret?: string;
}

const answer =
  (status: Answer["status"]) =>
  ({ endpoint, secret }: Shown): Answer => ({
    status,
    body: webhookShown(endpoint, secret),
    revision: endpoint.revision,
  });

export const registrationOfWebhook = operation("POST /accounts/{account}/webhooks", {
  scope: "webhooks:write",
  name: "createWebhook",
  summary: "Register an endpoint",
  description:
    "Its messages are signed as [Standard Webhooks](https://www.standardwebhooks.com) has it, with the secret, which is in the answer once. " +
    "The address must be https and public. Of a closed account, and without `WEBHOOK_SECRET_KEY`, it is 409.",
  body: NewWebhook,
  answers: { 201: { description: "The endpoint, with its secret.", schema: Webhook } },
  refusals: [409],
  operate: async (nodes, { params, body, actor }, { webhooks }) =>
    registerEndpoint(nodes, params.account!, body, actor, await webhooks()),
  answer: answer(201),
});

export const listOfWebhooks = operation("GET /accounts/{account}/webhooks", {
  scope: "webhooks:write",
  name: "listWebhooks",
  summary: "List the endpoints of an account",
  description: "In the order of their registration, all on one page.",
  answers: { 200: { description: "Endpoints, without their secrets.", schema: t.pageOf(Webhook) } },
  refusals: [409],
  async operate(nodes, { params }, { webhooks }) {
    await webhooks();
    return listEndpoints(nodes, params.account!);
  },
  answer: (endpoints) => page(endpoints.map((endpoint) => webhookShown(endpoint))),
});

export const readingOfWebhook = operation("GET /accounts/{account}/webhooks/{webhook}", {
  scope: "webhooks:write",
  name: "readWebhook",
  summary: "Read an endpoint",
  description: "With how many deliveries wait, and how many were dropped since too many waited.",
  answers: { 200: { description: "The endpoint.", schema: Webhook } },
  refusals: [409],
  operate: async (nodes, call, settings) => ({ endpoint: await endpointOf(nodes, call, settings) }),
  answer: answer(200),
});

export const changeOfWebhook = operation("PATCH /accounts/{account}/webhooks/{webhook}", {
  scope: "webhooks:write",
  name: "changeWebhook",
  summary: "Change, disable or enable an endpoint",
  description:
    "What is left out stays. Nothing is sent to a disabled endpoint, and no new events are kept for it; what waits goes out once it is " +
    "enabled again.",
  body: WebhookChanges,
  takesIfMatch: true,
  answers: { 200: { description: "The endpoint as it is now.", schema: Webhook } },
  refusals: [409, 412],
  async operate(nodes, call, settings) {
    const { body, actor, ifRevisions } = call;
    const endpoint = await endpointOf(nodes, call, settings);
    await patchEndpoint(nodes, endpoint, body, actor, { rules: await settings.webhooks(), ifRevisions });
    return { endpoint: await endpointOf(nodes, call, settings) };
  },
  answer: answer(200),
});

export const deletionOfWebhook = operation("DELETE /accounts/{account}/webhooks/{webhook}", {
  scope: "webhooks:write",
  name: "deleteWebhook",
  ends: () => true,
  summary: "Delete an endpoint",
  description: "At once, with its deliveries, also those that wait.",
  answers: { 200: { description: "Which one is gone.", schema: DeletedWebhook } },
  refusals: [409],
  async operate(nodes, call, settings) {
    const endpoint = await endpointOf(nodes, call, settings);
    await deleteEndpoint(nodes, endpoint, call.actor);
    return endpoint;
  },
  answer: ({ endpointId }) => ({ status: 200, body: { id: endpointId, deleted: true } }),
});

export const rotationOfSecret = operation("POST /accounts/{account}/webhooks/{webhook}/rotate-secret", {
  scope: "webhooks:write",
  name: "rotateWebhookSecret",
  summary: "Replace the secret of an endpoint",
  description:
    "The new one is in the answer once. Both sign each message for `overlap` (24h unless you say). Secrets of an overlap that has not " +
    "ended, up to three, sign on as long: repeat the call if its answer was lost. Of two calls at the same time one may be 412.",
  body: SecretRotation,
  answers: { 200: { description: "The endpoint, with its new secret.", schema: Webhook } },
  refusals: [409, 412],
  async operate(nodes, call, settings) {
    const overlapMs = durationMs(call.body.overlap ?? OVERLAP_DEFAULT) ?? 0;
    const endpoint = await endpointOf(nodes, call, settings);
    const secret = await rotateSecret(nodes, endpoint, overlapMs, call.actor, await settings.webhooks());
    return { endpoint: await endpointOf(nodes, call, settings), secret };
  },
  answer: answer(200),
});

export const testOfWebhook = operation("POST /accounts/{account}/webhooks/{webhook}/test", {
  scope: "webhooks:write",
  name: "testWebhook",
  summary: "Send a test message",
  description:
    "Of type `webhook.test`, whatever events the endpoint gets. Its delivery tells what came of it, and is retried as any other.",
  answers: { 201: { description: "The delivery, which is due at once.", schema: Delivery } },
  refusals: [409],
  operate: async (nodes, call, settings) =>
    testEndpoint(nodes, await endpointOf(nodes, call, settings), call.actor),
  answer: (delivery) => ({ status: 201, body: deliveryShown(delivery) }),
});

export const listOfDeliveries = operation("GET /accounts/{account}/webhooks/{webhook}/deliveries", {
  scope: "webhooks:write",
  name: "listDeliveries",
  summary: "List what an endpoint got",
  description:
    "Newest event first. `callback` in place of the endpoint lists those to the `callBackUrl` of the account's requests. Kept for 7 days: those that wait, and the last 1,000 that ended. With `status` a page may have fewer rows.",
  query: t.object({ status: t.optional(deliveryStatus), ...t.paging }),
  answers: { 200: { description: "Deliveries.", schema: t.pageOf(Delivery) } },
  refusals: [409],
  async operate(nodes, call, settings) {
    const { status, cursor, limit = t.LIMIT_DEFAULT } = call.query;
    return listDeliveries(nodes, await targetOf(nodes, call, settings), { status, cursor, limit });
  },
  answer: ({ deliveries, next }) => page(deliveries.map(deliveryShown), next),
});

export const redeliveryOf = operation(
  "POST /accounts/{account}/webhooks/{webhook}/deliveries/{delivery}/redeliver",
  {
    scope: "webhooks:write",
    name: "redeliver",
    summary: "Deliver again",
    description:
      "At once, and with its retries from the first one on, as long as the event is kept: 7 days from when it was. Under the same `webhook-id`. One that is sent at this moment is sent again afterwards. Of a closed account it is 409. " +
      "`callback` in place of the endpoint: a delivery to the `callBackUrl` of a request.",
    answers: { 200: { description: "The delivery as it is now.", schema: Delivery } },
    refusals: [409],
    operate: async (nodes, call, settings) =>
      redeliver(nodes, await targetOf(nodes, call, settings), call.params.delivery!, call.actor),
    answer: (delivery) => ({ status: 200, body: deliveryShown(delivery) }),
  },
);

export const resealingOfSecrets = operation("POST /webhooks/reseal", {
  scope: "webhooks:write",
  name: "resealWebhookSecrets",
  summary: "Seal all secrets with the present key",
  description:
    "After `WEBHOOK_SECRET_KEY` was changed and the one before was set as `WEBHOOK_SECRET_KEY_PREVIOUS`. Afterwards that is needed no " +
    "more, unless `failed` names endpoints. For a token of all accounts. May be repeated.",
  answers: { 200: { description: "What was done.", schema: Reseal } },
  refusals: [409],
  async operate(nodes, { grantee, actor }, { webhooks }) {
    requireAllAccounts(grantee);
    return resealSecrets(nodes, actor, await webhooks());
  },
  answer: ({ failed, ...counts }) => ({
    status: 200,
    body: {
      ...counts,
      failed: failed.map(({ endpointId: id, accountId }) => ({ id, accountId })),
    },
  }),
});

export const webhookRoutes = [
  registrationOfWebhook,
  listOfWebhooks,
  readingOfWebhook,
  changeOfWebhook,
  deletionOfWebhook,
  rotationOfSecret,
  testOfWebhook,
  listOfDeliveries,
  redeliveryOf,
  resealingOfSecrets,
];
