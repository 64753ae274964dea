import {
  createWebhook,
  deleteWebhook,
  patchWebhook,
  redeliver,
  rotateWebhookSecret,
  testWebhook,
} from "../api.js";
import { ask } from "../dialogs.js";
import { given, labelField, overlapField, textOrNull } from "../fields.js";
import { WEBHOOK_EVENTS } from "../webhook-events.js";

const URL_LENGTH_MAX = 2048;
const SECRET_HINT =
  "It is shown this once, and its receiver verifies with it: hand it over safely now. If it is lost, rotate the secret.";

/** @param {{ url: string, events: readonly string[], label: string | null }} endpoint @returns {Field[]} */
const endpointFields = ({ url, events, label }) => [
  {
    name: "url",
    label: "Address",
    hint: "https, at a public address, without user and password.",
    value: url,
    lengthMax: URL_LENGTH_MAX,
    check: (value) =>
      URL.canParse(value) ? undefined : "must be an address such as https://example.com/webhooks",
  },
  {
    name: "events",
    label: "Events",
    type: "checks",
    value: events.join(),
    options: Object.entries(WEBHOOK_EVENTS).map(([type, told]) => [type, `${type}: ${told}`]),
    check: (value) => (value ? undefined : "are missing: tick at least one"),
  },
  labelField(label, "the customer's system"),
];

/** @param {Record<string, string>} values */
const endpointBody = ({ url, events, label }) => ({
  url,
  events: (events ?? "").split(","),
  label: textOrNull(label),
});

/** @param {Webhook} made @param {string} said @returns {Done} */
const secretMade = ({ secret, confirmed }, said) => ({
  said,
  confirmed,
  shownOnce: secret ? { label: "The secret", value: secret, hint: SECRET_HINT } : undefined,
});

/** @param {string} account */
export const askRegister = (account) =>
  ask({
    title: `Register an endpoint of ${account}`,
    lines: ["It gets a signed message for each event. Its secret is shown once."],
    fields: endpointFields({ url: "", events: Object.keys(WEBHOOK_EVENTS), label: null }),
    verb: "Register it",
    async run(values) {
      const made = await createWebhook(account, given(endpointBody(values)));
      return secretMade(made, `Endpoint ${made.id} of account ${account} is registered.`);
    },
  });

/** @param {Webhook} endpoint @param {string | null} etag */
export const askEditWebhook = (endpoint, etag) =>
  ask({
    title: `Edit endpoint ${endpoint.id}`,
    lines: ["Messages that wait go to the new address."],
    fields: endpointFields(endpoint),
    verb: "Save",
    run: (values) => patchWebhook(endpoint, endpointBody(values), etag),
    said: `Endpoint ${endpoint.id} is changed.`,
  });

/** @param {Webhook} endpoint */
export const askTestMessage = (endpoint) =>
  ask({
    title: "Send a test message?",
    lines: [`A signed message of type webhook.test goes to ${endpoint.url} at once.`],
    verb: "Send it",
    async run() {
      const { id, confirmed } = await testWebhook(endpoint);
      return { said: `Test message ${id} is on its way. Refresh to see what came of it.`, confirmed };
    },
  });

/** @param {Webhook} endpoint */
export const askRotateSecret = (endpoint) =>
  ask({
    title: "Rotate the secret?",
    lines: [
      `Endpoint ${endpoint.id} gets a new secret. Messages are signed with both for a while, so that its receiver can change over.`,
    ],
    fields: [overlapField("The old one goes on to sign for another", "24h")],
    verb: "Rotate it",
    danger: true,
    async run({ overlap }) {
      const made = await rotateWebhookSecret(endpoint, { overlap });
      return secretMade(made, `Endpoint ${endpoint.id} has a new secret.`);
    },
  });

const STATUS_LINES = {
  disabled:
    "Nothing is sent to it, and no new events are kept for it. What waits goes out once it is enabled again.",
  enabled: "New events are sent to it, and what waits goes out at once.",
};

/** @param {Webhook} endpoint @param {string | null} etag @param {"enabled" | "disabled"} status */
export const askWebhookStatus = (endpoint, etag, status) =>
  ask({
    title: status === "enabled" ? "Enable this endpoint?" : "Disable this endpoint?",
    lines: [`${endpoint.url}, of account ${endpoint.account_id}.`, STATUS_LINES[status]],
    verb: status === "enabled" ? "Enable it" : "Disable it",
    danger: status === "disabled",
    run: () => patchWebhook(endpoint, { status }, etag),
    said: `Endpoint ${endpoint.id} is ${status}.`,
  });

/** @param {Webhook} endpoint */
export const askDeleteWebhook = (endpoint) =>
  ask({
    title: "Delete this endpoint?",
    lines: [
      `${endpoint.url}, of account ${endpoint.account_id}, with its secret and its deliveries, also those that wait. This cannot be undone.`,
    ],
    verb: "Delete it",
    danger: true,
    run: () => deleteWebhook(endpoint).then(() => ({})),
    said: `Endpoint ${endpoint.id} is deleted.`,
  });

/** @param {Pick<Webhook, "account_id" | "id"> & { url?: string }} endpoint @param {Delivery} delivery */
export const askRedeliver = (endpoint, { id, type, url }) =>
  ask({
    title: "Deliver this again?",
    lines: [
      `${type}, ${id}, goes to ${url ?? endpoint.url} at once, under the same webhook-id. A receiver that has seen it ignores it.`,
    ],
    verb: "Deliver it",
    run: () => redeliver(endpoint, id),
    said: `Delivery ${id} is on its way. Refresh to see what came of it.`,
  });
