import {
  createWebhook,
  deleteWebhook,
  patchWebhook,
  redeliver,
  rotateWebhookSecret,
  testWebhook,
} from "../api.js";
import { ask } from "../dialogs.js";
import {
  accountLink,
  actions,
  asking,
  badge,
  code,
  factList,
  heading,
  html,
  leaveFor,
  link,
  moment,
  note,
  tile,
  tiles,
} from "../dom.js";
import { given, labelField, overlapField, textOrNull } from "../fields.js";
import { count, momentText } from "../format.js";
import { hrefTo } from "../location.js";
import { CALLBACK, partRequests, viewRequests } from "../requests.js";
import { choiceOf, filtered, NONE_SO_FAR, pagedTable, table } from "../table.js";
import { WEBHOOK_EVENTS } from "../webhook-events.js";

const SHOWN_URL_CHARS = 80;
const SHOWN_ANSWER_CHARS = 120;

const DELIVERY_STATUSES = choiceOf("all", ["waiting", "delivered", "failed"]);

/** The endpoints of an account; what can be done to one is on its own page. @param {string} id @param {Context} context @returns {Promise<Content>} */
export async function showWebhooks(id, { place, again }) {
  const { data } = await partRequests.webhooks(place).page;
  return [
    actions(
      asking("Register endpoint …", () => askRegister(id), again),
      link(hrefTo(["webhook", id, CALLBACK]), "Deliveries to callBackUrl"),
    ),
    table(
      "Webhook endpoints",
      [
        { title: "Address", header: true, wrap: true, cell: webhookLink },
        { title: "Label", wrap: true, of: (one) => one.label },
        { title: "Events", wrap: true, cell: (one) => one.events.join(", ") },
        { title: "State", of: (one) => one.status, as: badge },
        { title: "Delivered", of: (one) => one.delivered_at, as: moment },
        { title: "Failing since", of: (one) => one.failing_since, as: moment },
        { title: "Waiting", numeric: true, of: (one) => one.waiting, as: count },
        { title: "Dropped", numeric: true, of: (one) => one.dropped, as: count },
      ],
      data,
      "It has none.",
    ),
  ];
}

/** @param {Webhook} endpoint */
function webhookLink({ account_id, id, url }) {
  const shown = url.length > SHOWN_URL_CHARS ? `${url.slice(0, SHOWN_URL_CHARS)}…` : url;
  return link(hrefTo(["webhook", account_id, id]), shown);
}

/** One endpoint, with what it got. @param {Context} context @returns {Promise<Content>} */
export async function showWebhook({ place, again }) {
  const { endpoint: reading, deliveries } = viewRequests.webhook(place);
  if (!reading) return showCallbacks(place.args[0] ?? "", deliveries, again);
  const { value: endpoint, etag } = await reading;
  return [
    heading(["Endpoint ", code(endpoint.id)], again, badge(endpoint.status)),
    endpoint.label && html`<p class="subtitle">${endpoint.label}</p>`,
    troubleNote(endpoint),
    endpointTiles(endpoint),
    endpointActions(endpoint, etag, again),
    factList([
      ["Account", accountLink(endpoint.account_id)],
      ["Address", code(endpoint.url)],
      ["Events", endpoint.events.join(", ")],
      ["Created", moment(endpoint.created_at)],
      ["Delivered", endpoint.delivered_at && moment(endpoint.delivered_at)],
      ["Old secret signs until", endpoint.both_sign_until && moment(endpoint.both_sign_until)],
    ]),
    await deliveriesPart(endpoint, deliveries, again),
  ];
}

/** Deliveries to the `callBackUrl` addresses of an account's requests. @param {string} account @param {Listing} deliveries @param {() => void} again @returns {Promise<Content>} */
const showCallbacks = async (account, deliveries, again) => [
  heading("Deliveries to callBackUrl", again),
  factList([["Account", accountLink(account)]]),
  await deliveriesPart({ account_id: account, id: CALLBACK, status: "enabled" }, deliveries, again),
];

const DISABLED_WORDS = {
  gone: "It is disabled: it answered 410, which asks for no more messages.",
  failing: "It is disabled: all its tries of the last days have failed.",
  operator: "It is disabled by an operator.",
};

/** @param {Webhook} endpoint */
function troubleNote({ disabled_reason: reason, failing_since: since }) {
  if (reason) return note(DISABLED_WORDS[/** @type {keyof typeof DISABLED_WORDS} */ (reason)] ?? reason);
  return since && note(["All tries have failed since ", moment(since), "."]);
}

/** @param {Webhook} endpoint */
const endpointTiles = ({ waiting, dropped, dropped_at }) =>
  tiles(
    tile("Waiting", count(waiting), "for a try"),
    tile(
      "Dropped",
      count(dropped),
      dropped_at ? `the last one ${momentText(dropped_at)}` : "ever",
      dropped > 0,
    ),
  );

/** @param {Webhook} endpoint @param {string | null} etag @param {() => void} again */
function endpointActions(endpoint, etag, again) {
  const isEnabled = endpoint.status === "enabled";
  const leave = () => leaveFor(hrefTo(["account", endpoint.account_id, "webhooks"]));
  return actions(
    isEnabled && asking("Send test …", () => askTestMessage(endpoint), again, "primary"),
    asking("Edit …", () => askEditWebhook(endpoint, etag), again),
    asking("Rotate secret …", () => askRotateSecret(endpoint), again),
    isEnabled
      ? asking("Disable …", () => askWebhookStatus(endpoint, etag, "disabled"), again)
      : asking("Enable …", () => askWebhookStatus(endpoint, etag, "enabled"), again, "primary"),
    asking("Delete …", () => askDeleteWebhook(endpoint), leave, "quiet-danger"),
  );
}

/** @typedef {Pick<Webhook, "account_id" | "id" | "status"> & { url?: string }} Target */

/** @typedef {Promise<List<Delivery>>} Listing */

/** @param {Target} endpoint @param {Listing} listing @param {() => void} again */
const deliveriesPart = (endpoint, listing, again) =>
  filtered([{ name: "status", label: "Status", options: DELIVERY_STATUSES }], async () =>
    deliveriesPage(endpoint, await listing, again),
  );

/** @param {Target} endpoint @param {Awaited<Listing>} page @param {() => void} again */
function deliveriesPage(endpoint, page, again) {
  const redeliverCell = (/** @type {Delivery} */ one) =>
    endpoint.status === "enabled"
      ? asking("Redeliver …", () => askRedeliver(endpoint, one), again, undefined, `Redeliver ${one.id}`)
      : "";
  return pagedTable(
    "Deliveries (UTC)",
    [
      { title: "Event", header: true, of: (one) => one.event_at, as: moment },
      { title: "Type", of: (one) => one.type },
      ...(endpoint.id === CALLBACK
        ? [{ title: "Address", wrap: true, of: (/** @type {Delivery} */ one) => one.url }]
        : []),
      { title: "Status", of: (one) => one.status, as: badge },
      { title: "Attempts", numeric: true, of: (one) => one.attempts, as: count },
      { title: "Last attempt", of: (one) => one.last_attempt_at, as: moment },
      { title: "Next", of: (one) => one.next_attempt_at, as: moment },
      { title: "Answer", wrap: true, cell: answerCell },
      { title: "webhook-id", wrap: true, of: (one) => one.id, as: code },
      { title: "Action", cell: redeliverCell },
    ],
    page,
    "Latest event first. Kept for 7 days.",
    page.next_cursor ? NONE_SO_FAR : undefined,
  );
}

/** A long answer is folded. @param {Delivery} delivery */
function answerCell({ response_status: status, response, response_ms: tookMs }) {
  const said = [status ? String(status) : "", response ?? ""].filter(Boolean).join(": ");
  if (!said && tookMs === null) return "–";
  const whole = html`<details><summary>${said.slice(0, SHOWN_ANSWER_CHARS)}…</summary>${said}</details>`;
  const shown = said.length > SHOWN_ANSWER_CHARS ? whole : said;
  return [shown, tookMs !== null && html`<div class="hint">after ${count(tookMs)} ms</div>`];
}

const SECRET_HINT =
  "It is shown this once, and its receiver verifies with it: hand it over safely now. If it is lost, rotate the secret.";

/** @param {{ url: string, events: readonly string[], label: string | null }} endpoint @returns {Field[]} */
const endpointFields = ({ url, events, label }) => [
  {
    name: "url",
    label: "Address",
    hint: "https, at a public address, without user and password.",
    value: url,
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
const askRegister = (account) =>
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
const askEditWebhook = (endpoint, etag) =>
  ask({
    title: `Edit endpoint ${endpoint.id}`,
    lines: ["Messages that wait go to the new address."],
    fields: endpointFields(endpoint),
    verb: "Save",
    run: (values) => patchWebhook(endpoint, endpointBody(values), etag),
    said: `Endpoint ${endpoint.id} is changed.`,
  });

/** @param {Webhook} endpoint */
const askTestMessage = (endpoint) =>
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
const askRotateSecret = (endpoint) =>
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
const askWebhookStatus = (endpoint, etag, status) =>
  ask({
    title: status === "enabled" ? "Enable this endpoint?" : "Disable this endpoint?",
    lines: [`${endpoint.url}, of account ${endpoint.account_id}.`, STATUS_LINES[status]],
    verb: status === "enabled" ? "Enable it" : "Disable it",
    danger: status === "disabled",
    run: () => patchWebhook(endpoint, { status }, etag),
    said: `Endpoint ${endpoint.id} is ${status}.`,
  });

/** @param {Webhook} endpoint */
const askDeleteWebhook = (endpoint) =>
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
const askRedeliver = (endpoint, { id, type, url }) =>
  ask({
    title: "Deliver this again?",
    lines: [
      `${type}, ${id}, goes to ${url ?? endpoint.url} at once, under the same webhook-id. A receiver that has seen it ignores it.`,
    ],
    verb: "Deliver it",
    run: () => redeliver(endpoint, id),
    said: `Delivery ${id} is on its way. Refresh to see what came of it.`,
  });
