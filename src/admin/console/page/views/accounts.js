import { may } from "../api.js";
import {
  actions,
  asking,
  badge,
  button,
  choices,
  factList,
  failureNote,
  heading,
  hint,
  html,
  leaveFor,
  link,
  moment,
  targetOf,
  taskLink,
  tile,
  tiles,
  unreadNote,
} from "../dom.js";
import { limitTile } from "../fields.js";
import { count, shortCount, signed } from "../format.js";
import { TIER_LIMITS } from "../limits.js";
import { hrefHere, hrefTo } from "../location.js";
import { Plot } from "../plots.js";
import { DAY_SECONDS, dateOf, ownParts, partOf, partRequests, SPANS, viewRequests } from "../requests.js";
import { deedOf, entrySentence, subjectOf } from "../sentences.js";
import {
  choiceOf,
  DAYS,
  filtered,
  LABELLED_ACCOUNT,
  NONE_SO_FAR,
  pagedTable,
  paging,
  table,
} from "../table.js";
import { askAdjust, askCreateAccount, askEdit, askGrant, askStatus } from "./account-actions.js";
import { keysPart } from "./key.js";
import { askLeakedKey } from "./leaked-key.js";

const ACCOUNT_STATUSES = choiceOf("any", ["active", "suspended", "closed"]);

/** Accounts in pages, by the beginning of their id or label and by status. @param {Context} context @returns {Promise<Content>} */
export async function showAccounts({ place, again }) {
  const create = button("Create account …", () =>
    askCreateAccount().then((id) => {
      if (id) leaveFor(hrefTo(["account", id]));
    }),
  );
  const filters = [
    { name: "prefix", label: "Id begins with" },
    { name: "label", label: "Label begins with" },
    { name: "status", label: "Status", options: ACCOUNT_STATUSES },
    { name: "balance_below", label: "Balance below" },
    { name: "metadata", label: "Metadata", placeholder: "name=value" },
  ];
  const more = [
    may("accounts:write") && create,
    may("keys:read") && button("A key has leaked …", () => void askLeakedKey()),
  ];
  const order = place.query.get("order") ?? "";
  const list = await filtered(
    filters,
    async () => accountsPage(order, await viewRequests.accounts(place).page),
    more,
  );
  return [heading("Accounts", again), list];
}

/** @param {string} order @param {Accounts} page */
const accountsPage = (order, page) => [
  unreadNote(page),
  accountsTable("Accounts", page.data, page.next_cursor ? NONE_SO_FAR : "There is none."),
  paging(page, ORDERS[/** @type {keyof typeof ORDERS} */ (order)] ?? ORDERS[""], true),
];

const SPENDERS = "Of the 1,000 accounts that spent most in seven days";
const NO_SPENDERS = "Accounts that spent nothing are left out.";
const ORDERS = {
  "": "All figures are credits. Days left are those that the balance lasts at the pace of seven days.",
  balance: "Smallest balance first, what is held included.",
  "-balance": "Largest balance first, what is held included.",
  "-spent_today": `Those that spent most today first. ${NO_SPENDERS}`,
  "-spent_7d": `${SPENDERS}, the most first. ${NO_SPENDERS}`,
  days_left: `${SPENDERS}, those that run out first. ${NO_SPENDERS}`,
};

/** @param {string} caption @param {ListedAccount[]} accounts @param {string} empty */
const accountsTable = (caption, accounts, empty) =>
  table(
    caption,
    [
      { ...LABELLED_ACCOUNT, orders: [""] },
      { title: "Status", cell: (one) => badge(one.status) },
      { title: "Balance", numeric: true, cell: (one) => count(one.balance), orders: ["balance", "-balance"] },
      { title: "Held", numeric: true, cell: (one) => count(one.held) },
      {
        title: "Spent today",
        numeric: true,
        cell: (one) => count(one.spent_today),
        orders: ["-spent_today"],
      },
      { title: "In 7 days", numeric: true, cell: (one) => count(one.spent_7d), orders: ["-spent_7d"] },
      { title: "Days left", numeric: true, cell: (one) => daysLeft(one.days_left), orders: ["days_left"] },
      { title: "Used in all", numeric: true, cell: (one) => count(one.total_used) },
      { title: "Created", cell: (one) => moment(one.created_at) },
    ],
    accounts,
    empty,
  );

/** @param {number | null} days */
const daysLeft = (days) => (days === null || days < 10 ? (days ?? "–") : count(Math.floor(days)));

/** The first accounts that run out. @param {Accounts} accounts @returns {Content} */
export const runningOut = ({ data }) => [
  html`<div class="heading"><h3 class="section">About to run out</h3>
      <p class="choice">${link(hrefTo(["accounts"], { order: "days_left" }), "All, by days left")}</p></div>`,
  table(
    "Accounts whose credits last least, at the pace of seven days",
    [
      LABELLED_ACCOUNT,
      { title: "Balance", numeric: true, cell: (one) => count(one.balance) },
      { title: "Spent today", numeric: true, cell: (one) => count(one.spent_today) },
      { title: "In 7 days", numeric: true, cell: (one) => count(one.spent_7d) },
      { title: "Days left", numeric: true, cell: (one) => daysLeft(one.days_left) },
    ],
    data,
    "No account has spent anything in seven days.",
  ),
];

/** The account, with its tag, and what is used of its limits. @typedef {Promise<[{ value: Account, etag: string | null }, AccountUse]>} Reading */

/** @typedef {"showTransactions" | "showAccountTasks" | "showAccountRefusals" | "showWebhooks"} LaterPart */

/** @param {LaterPart} name */
const laterPart = (name) => async (/** @type {string} */ id, /** @type {Context} */ context) =>
  (await context.more())[name](id, context);

/**
 * Parts of an account's page by name in the address; the first is shown where none is named.
 * @type {Record<import("../requests.js").PartName, { title: string, show: (id: string, context: Context, reading: Reading) => Promise<Content> }>}
 */
const PARTS = {
  usage: { title: "Usage and keys", show: showAccountUsage },
  transactions: { title: "Transactions", show: laterPart("showTransactions") },
  tasks: { title: "Tasks", show: laterPart("showAccountTasks") },
  refusals: { title: "Refusals", show: laterPart("showAccountRefusals") },
  timeline: { title: "Timeline", show: showTimeline },
  webhooks: { title: "Webhooks", show: laterPart("showWebhooks") },
};

/** One account: its credits, limits and status, and one of its parts. @param {Context} context @returns {Promise<Content>} */
export async function showAccount(context) {
  const [id = ""] = context.place.args;
  const part = partOf(context.place);
  const asked = viewRequests.account(context.place);
  const reading = Promise.all([asked.account, asked.use]);
  const [[{ value: account, etag }, use], shown] = await Promise.all([
    reading,
    // A part that cannot be read takes neither the account nor the way to its other parts with it.
    PARTS[part].show(id, context, reading).catch(failureNote),
  ]);
  return [
    heading(`Account ${account.account_id}`, context.again, badge(account.status)),
    account.label && html`<p class="subtitle">${account.label}</p>`,
    creditTiles(account, use.account),
    accountActions(account, etag, context.again),
    detailsOf(account),
    partLinks(account.account_id, part),
    shown,
  ];
}

/** @param {Account} account @param {AccountUse["account"]} use */
const creditTiles = (account, use) =>
  tiles(
    tile("Balance", count(account.balance), "credits to spend"),
    tile("Held", count(account.held), "credits, not charged yet"),
    tile("Used in all", count(account.total_used), "credits"),
    tile("Requests", count(account.total_requests), "admitted in all"),
    TIER_LIMITS.filter(({ name }) => account.limits[name] !== null).map((limit) =>
      limitTile(limit, { [limit.used]: 0, ...use, ...account.limits }, `${limit.unit}, all keys`),
    ),
  );

/** @param {Account} account @param {string | null} etag @param {() => void} again */
function accountActions(account, etag, again) {
  const { status, account_id: id } = account;
  const credits = may("credits:write");
  const writes = may("accounts:write");
  const reinstates = writes && may("accounts:reinstate");
  return actions(
    credits && asking("Grant credits …", () => askGrant(id), again, "primary"),
    credits && asking("Adjust balance …", () => askAdjust(id), again),
    writes && asking("Edit …", () => askEdit(account, etag), again),
    writes && status === "active" && asking("Suspend …", () => askStatus(account, etag, "suspended"), again),
    reinstates &&
      status !== "active" &&
      asking("Activate …", () => askStatus(account, etag, "active"), again),
    writes && status !== "closed" && asking("Close …", () => askStatus(account, etag, "closed"), again),
  );
}

/** @param {Account} account */
function detailsOf({ account_id, created_at, metadata, price_multiplier: times }) {
  const lines = Object.entries(metadata ?? {}).map(
    ([name, value]) =>
      html`<div>${name}: ${typeof value === "string" ? value : JSON.stringify(value, undefined, 1)}</div>`,
  );
  return factList([
    ["Created", created_at && moment(created_at)],
    ["Prices", times !== 1 && `${times} × the list price, rounded up to whole credits`],
    ["Metadata", lines.length > 0 ? lines : undefined],
    ["Audit", may("audit:read") ? link(hrefTo(["audit"], { account_id }), "what operators did to it") : ""],
  ]);
}

/** @param {string} id @param {string} current */
function partLinks(id, current) {
  const links = ownParts().map((name, at) => ({
    href: hrefTo(at === 0 ? ["account", id] : ["account", id, name]),
    text: name === "usage" ? usageTitle() : PARTS[name].title,
    current: name === current,
  }));
  return (
    links.length > 0 && html`<nav class="parts" aria-label="Parts of the account">${choices(links)}</nav>`
  );
}

const usageTitle = () => (may("keys:read") ? (may("usage:read") ? "Usage and keys" : "Keys") : "Usage");

/** @param {string} _ @param {Context} context @param {Reading} reading @returns {Promise<Content>} */
async function showAccountUsage(_, { place, again }, reading) {
  const { days, ...asked } = partRequests.usage(place);
  const today = Math.floor(Date.now() / 1000 / DAY_SECONDS) * DAY_SECONDS;
  const seconds = Array.from({ length: days }, (_, at) => today - (days - 1 - at) * DAY_SECONDS);
  const [usage, keys, [{ value: account }, use]] = await Promise.all([asked.usage, asked.keys, reading]);
  return [usage && usagePart(usage, seconds), keys && keysPart(account, keys, use, again)];
}

/** @param {Usage} usage @param {number[]} seconds Unix seconds at which each UTC day began */
function usagePart({ data, since }, seconds) {
  const byDay = new Map(data.map((row) => [row.day ?? "", row]));
  const rows = seconds.map(dateOf).map((day) => {
    return { requests: 0, credits: 0, refunds: 0, ...byDay.get(day), day };
  });
  const spans = SPANS.map((span) => ({
    href: hrefHere({ days: span }),
    text: `${span} days`,
    current: span === seconds.length,
  }));
  const series = { charged: rows.map((row) => row.credits), refunded: rows.map((row) => row.refunds) };
  return html`<p class="choice">Show ${choices(spans, "true")}</p>
    <${Plot} options=${creditsBy(seconds.length)} seconds=${seconds} series=${series} />
    ${since && since > dateOf(seconds[0] ?? 0) && hint(`What is known begins at ${since.slice(0, 10)}.`)}
    <details><summary>The same as a table</summary>${table(
      "Usage by day (UTC)",
      [
        { title: "Day", header: true, of: (row) => row.day },
        { title: "Requests", numeric: true, of: (row) => row.requests, as: count },
        { title: "Charged", numeric: true, of: (row) => row.credits, as: count },
        { title: "Refunded", numeric: true, of: (row) => row.refunds, as: count },
      ],
      rows.reverse(),
      "None.",
      "days-by",
    )}</details>`;
}

/** @param {number} days @returns {import("../plots.js").PlotOptions} */
const creditsBy = (days) => ({
  title: "Credits by day",
  note: `The last ${days} days, UTC. The legend has the sums, or the day under the pointer.`,
  days: true,
  whole: true,
  tick: shortCount,
  format: (value) => count(Math.round(value ?? 0)),
  lines: [
    { name: "charged", label: "charged", color: "--blue" },
    { name: "refunded", label: "refunded", color: "--orange", dash: [8, 3] },
  ],
});

const TIMELINE_FILTERS = [
  { name: "charges", label: "Charges", options: choiceOf("with", ["without"]) },
  ...DAYS,
];

/** All that happened to an account, in one order. @param {string} id @param {Context} context @returns {Promise<Content>} */
function showTimeline(id, { place }) {
  return filtered(TIMELINE_FILTERS, async () => {
    const page = await partRequests.timeline(place).page;
    return pagedTable(
      "What happened (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "What", wide: true, cell: eventSentence },
        { title: "Credits", numeric: true, of: (one) => one.transaction?.amount, as: eventCredits },
        { title: "To what", wrap: true, cell: eventTarget },
        { title: "More", cell: (one) => eventLink(id, one) },
      ],
      page,
      undefined,
      page.next_cursor ? "Nothing among what was looked at so far; go on to the next page." : "Nothing.",
    );
  });
}

/** @param {number | undefined} amount */
const eventCredits = (amount) => (amount === undefined ? "–" : signed(amount));

/** @param {TimelineEvent} event */
function eventSentence({ transaction, audit }) {
  if (transaction) return entrySentence(transaction);
  return audit && `${subjectOf(audit.by)} ${deedOf(audit)}`;
}

/** @param {TimelineEvent} event */
function eventTarget({ transaction, audit }) {
  if (transaction) return taskLink(transaction.task_id ?? transaction.request_id);
  return audit && targetOf(audit);
}

/** @param {string} account @param {TimelineEvent} event */
const eventLink = (account, { transaction, audit }) =>
  transaction
    ? link(hrefTo(["account", account, "transactions"], { id: transaction.id }), "transaction")
    : audit && link(hrefTo(["audit"], { audit_id: audit.audit_id, account_id: account }), "record");
