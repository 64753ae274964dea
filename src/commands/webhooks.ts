import {
  changeOfWebhook,
  deletionOfWebhook,
  listOfDeliveries,
  listOfWebhooks,
  readingOfWebhook,
  redeliveryOf,
  registrationOfWebhook,
  resealingOfSecrets,
  rotationOfSecret,
  testOfWebhook,
} from "../admin/api/routes/webhooks.ts";
import { WEBHOOK_EVENT_TYPES } from "../domain/webhook-events.ts";
import { ACCOUNT, flat, listed, operationCommand } from "./operation-command.ts";
import { group } from "./options.ts";
import { listing, paint } from "./terminal.ts";

const WEBHOOK = { ...ACCOUNT, "<webhook-id>": "the endpoint's id, we_..." };
const TARGET = {
  ...ACCOUNT,
  "<webhook-id>": "the endpoint's id, we_..., or callback: the callBackUrl of requests",
};
const EVENTS = `what it is told of, with commas: ${WEBHOOK_EVENT_TYPES.join(", ")}`;

const withSecret = (answer: () => object) => {
  const json = flat(answer());
  return {
    json,
    text: `${listing(json)}\n${paint("yellow", "Keep the secret now: it is not shown again.")}`,
  };
};

export const webhooksCommand = group(
  "webhooks",
  "endpoints that an account's events are sent to, and what they got",
  [
    operationCommand(registrationOfWebhook, {
      name: "create",
      about: "register an endpoint; its secret is shown once",
      arguments: { ...ACCOUNT, "<url>": "a public https address" },
      options: { "--events <list>": EVENTS, "--label <text>": "what it is for" },
      show: (_, __, answer) => withSecret(answer),
    }),
    operationCommand(listOfWebhooks, {
      name: "list",
      about: "the endpoints of an account",
      arguments: ACCOUNT,
      show: listed(
        "webhooks",
        {
          ID: "id",
          STATUS: ({ status, disabled_reason: reason }) => (reason ? `${status} (${reason})` : status),
          ...{ WAITING: "waiting", DROPPED: "dropped", URL: "url" },
        },
        ["URL"],
      ),
    }),
    operationCommand(readingOfWebhook, {
      name: "show",
      about: "an endpoint, what waits for it and what was dropped",
      arguments: WEBHOOK,
    }),
    operationCommand(changeOfWebhook, {
      name: "set",
      about: "change, disable or enable an endpoint",
      arguments: WEBHOOK,
      options: {
        "--url <url>": "another address",
        "--events <list>": EVENTS,
        "--label <text|none>": "what it is for",
        "--status <status>": "disabled: nothing is sent; what waits goes out once it is enabled again",
      },
    }),
    operationCommand(deletionOfWebhook, {
      name: "delete",
      about: "delete an endpoint with its deliveries",
      arguments: WEBHOOK,
      show: ({ endpointId }) => ({ text: `Endpoint ${endpointId} is deleted.` }),
    }),
    operationCommand(rotationOfSecret, {
      name: "rotate-secret",
      about: "replace the secret of an endpoint; the new one is shown once",
      arguments: WEBHOOK,
      options: { "--overlap <duration>": "how long the old one goes on to sign (default: 24h)" },
      show: (_, __, answer) => withSecret(answer),
    }),
    operationCommand(testOfWebhook, {
      name: "test",
      about: "send a message of type webhook.test",
      arguments: WEBHOOK,
    }),
    operationCommand(listOfDeliveries, {
      name: "deliveries",
      about: "what an endpoint, or the callBackUrl of requests, got, newest first",
      arguments: TARGET,
      options: {
        "--status <status>": "only these",
        "--limit <n>": "rows of a page",
        "--after <cursor>": "go on behind an earlier page",
      },
      show: listed(
        "deliveries",
        {
          ...{ ID: "id", TYPE: "type", AT: "event_at", STATUS: "status", ATTEMPTS: "attempts" },
          ANSWERED: ({ response_status: status, response }) => status ?? response ?? "",
          URL: "url",
        },
        ["URL", "ANSWERED", "TYPE"],
      ),
    }),
    operationCommand(redeliveryOf, {
      name: "redeliver",
      about: "deliver an event again, at once",
      arguments: { ...TARGET, "<delivery>": "the delivery's id, evt_..." },
    }),
    operationCommand(resealingOfSecrets, {
      name: "reseal",
      about: "seal all secrets with the present WEBHOOK_SECRET_KEY; exit 1 if no key opens one",
      show: ({ looked, resealed, failed }, _, answer) => ({
        json: { ...answer() },
        text: [
          `${looked} endpoints, ${resealed} secrets sealed anew.`,
          ...(failed.length === 0
            ? ["WEBHOOK_SECRET_KEY_PREVIOUS is needed no more."]
            : [
                `No key at hand opens the secrets of ${failed.length}: ${failed.map(({ endpointId }) => endpointId).join(", ")}.`,
                "Set WEBHOOK_SECRET_KEY_PREVIOUS to the key that sealed them and repeat, or rotate them:",
                ...failed.map(
                  ({ accountId, endpointId }) => `tollgate webhooks rotate-secret ${accountId} ${endpointId}`,
                ),
              ]),
        ].join("\n"),
        ok: failed.length === 0,
      }),
    }),
  ],
);
