import { listDeliveries, listWebhooks, readWebhook } from "../api.js";
import {
  accountLink,
  actions,
  asking,
  badge,
  button,
  byId,
  code,
  factList,
  heading,
  html,
  link,
  moment,
  note,
  say,
  tile,
  tiles,
} from "../dom.js";
import { count, momentText } from "../format.js";
import { hrefTo, pageOf } from "../location.js";
import { choiceOf, filtered, NONE_SO_FAR, pagedTable, table } from "../table.js";
import {
  askDeleteWebhook,
  askEditWebhook,
  askRedeliver,
  askRegister,
  askRotateSecret,
  askTestMessage,
  askWebhookStatus,
} from "./webhook-actions.js";

/** In place of an endpoint: the addresses that requests name. */
const CALLBACK = "callback";
const SHOWN_URL_CHARS = 80;
const SHOWN_ANSWER_CHARS = 120;

const DELIVERY_STATUSES = choiceOf("all", ["waiting", "delivered", "failed"]);

/** The endpoints of an account; what can be done to one is on its own page. @param {string} id @param {Context} context @returns {Promise<Content>} */
export async function showWebhooks(id, { again }) {
  const { data } = await listWebhooks(id);
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
export async function showWebhook({ place: { args, query }, again }) {
  const [account = "", id = ""] = args;
  if (id === CALLBACK) return showCallbacks(account, query, again);
  const listing = listingOf(account, id, query);
  const { value: endpoint, etag } = await readWebhook(account, id);
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
    await deliveriesPart(endpoint, listing, again),
  ];
}

/** Deliveries to the `callBackUrl` addresses of an account's requests. @param {string} account @param {URLSearchParams} query @param {() => void} again @returns {Promise<Content>} */
const showCallbacks = async (account, query, again) => [
  heading("Deliveries to callBackUrl", again),
  factList([["Account", accountLink(account)]]),
  await deliveriesPart(
    { account_id: account, id: CALLBACK, status: "enabled" },
    listingOf(account, CALLBACK, query),
    again,
  ),
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
  // The message about the deletion stays when the next view opens.
  const leave = () => {
    const said = byId("result").textContent ?? "";
    addEventListener("hashchange", () => say(said), { once: true });
    location.hash = hrefTo(["account", endpoint.account_id, "webhooks"]);
  };
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

/** Begun before the endpoint is known. @param {string} account @param {string} id @param {URLSearchParams} query */
function listingOf(account, id, query) {
  const listing = listDeliveries({ account_id: account, id }, pageOf(query, ["status"]));
  listing.catch(() => undefined);
  return listing;
}

/** @typedef {ReturnType<typeof listDeliveries>} Listing */

/** @param {Target} endpoint @param {Listing} listing @param {() => void} again */
const deliveriesPart = (endpoint, listing, again) =>
  filtered([{ name: "status", label: "Status", options: DELIVERY_STATUSES }], async () =>
    deliveriesPage(endpoint, await listing, again),
  );

/** @param {Target} endpoint @param {Awaited<Listing>} page @param {() => void} again */
function deliveriesPage(endpoint, page, again) {
  const redeliverCell = (/** @type {Delivery} */ delivery) => {
    const press = () => void askRedeliver(endpoint, delivery).then((done) => done && again());
    return endpoint.status === "enabled"
      ? button("Redeliver …", press, { "aria-label": `Redeliver ${delivery.id}` })
      : "";
  };
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
