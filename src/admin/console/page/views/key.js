import { may } from "../api.js";
import {
  accountLink,
  actions,
  asking,
  badge,
  bar,
  button,
  code,
  factList,
  failureNote,
  heading,
  hint,
  html,
  keyLink,
  moment,
  note,
  tiles,
  unreadNote,
  usage,
} from "../dom.js";
import { limitTile, useColumns } from "../fields.js";
import { age, count, endpointName, momentText, plural } from "../format.js";
import { CAPS, TIER_LIMITS } from "../limits.js";
import { viewRequests } from "../requests.js";
import { ACCOUNT_COLUMN, choiceOf, filtered, pagedTable, table } from "../table.js";
import { askCreateKey, askEditKey, askRevoke, askRotate } from "./key-actions.js";
import { askLeakedKey } from "./leaked-key.js";

/** One key: its limits, what is used of them, and what can be done to it. @param {Context} context @returns {Promise<Content>} */
export async function showKey({ place, again }) {
  const asked = viewRequests.key(place);
  const { value: key, etag } = await asked.key;
  // A key that has leaked is ended whatever else cannot be read.
  const [refusals, account, used, usage] = await Promise.all([
    asked.refusals && refusalsOfKey(asked.refusals),
    asked.account,
    asked.use?.then((use) => useTiles(key, use), failureNote) ?? useTiles(key, undefined),
    asked.usage?.then(usageTable, failureNote),
  ]);
  const isOfRequest = Boolean(place.query.get("request_id"));
  return [
    heading(["Key ", code(key.key_id)], again),
    key.label && html`<p class="subtitle">${key.label}</p>`,
    // Whoever looks for one refusal, whose id a customer quotes, need not scroll to it on a phone.
    isOfRequest && refusals,
    used,
    keyActions(key, etag, again),
    factList([
      ["Account", accountFact(key, account)],
      ["Tier", key.tier],
      ["Limits of its own", ownLimits(key)],
      ...CAPS.map(
        ({ name, short }) =>
          /** @type {[string, string]} */ ([`Cap: ${short}`, key[name] === null ? "none" : count(key[name])]),
      ),
      ["Endpoints", key.allowed_endpoints?.map(endpointName).join(", ") ?? "all"],
      ["Addresses", key.allowed_addresses?.join(", ") ?? "all"],
      ["State", keyState(key)],
      ["Replaced by", key.rotated_to && keyLink(key.account_id, key.rotated_to)],
      ["Created", moment(key.created_at)],
      ["Expires", key.expires_at ? moment(key.expires_at) : "never"],
      ["Revoked", key.revoked_at && moment(key.revoked_at)],
    ]),
    usage,
    key.revoked_at &&
      hint(
        "A gateway that knew the key records the first attempt with it after its end below; further ones are refused as unknown keys are.",
      ),
    !isOfRequest && refusals,
  ];
}

/** The account, whose status holds for its keys, too. @param {Key} key @param {Account | undefined} account */
const accountFact = ({ account_id }, account) => [
  accountLink(account_id),
  account?.label && ` ${account.label}`,
  account && account.status !== "active" && [" ", badge(account.status)],
];

/** @param {Usage} usage of one key */
const usageTable = ({ data }) =>
  table(
    "Use in the last 7 days (UTC)",
    [
      { title: "Day", header: true, of: (row) => row.day },
      { title: "Requests", numeric: true, of: (row) => row.requests, as: count },
      { title: "Charged", numeric: true, of: (row) => row.credits, as: count },
      { title: "Refunded", numeric: true, of: (row) => row.refunds, as: count },
      { title: "Completed", numeric: true, of: (row) => row.completed, as: count },
      { title: "Failed", numeric: true, of: (row) => row.failed, as: count },
    ],
    data.toReversed(),
    "It was not used.",
    "used-by-day",
  );

/** @param {Key} key @param {AccountUse | undefined} use nothing where the token may not read it */
const useTiles = (key, use) =>
  tiles(
    use && TIER_LIMITS.map((limit) => limitTile(limit, use.keys[0], limit.unit)),
    CAPS.map((limit) => limitTile(limit, key, limit.short)),
  );

/** @param {Key} key */
function ownLimits({ limits }) {
  const own = TIER_LIMITS.filter(({ name }) => limits[name] !== null);
  return (
    own.map(({ name, short }) => `${count(limits[name])} ${short}`).join(", ") || "none: those of its tier"
  );
}

/** @param {Key} key @param {string | null} etag @param {() => void} again */
function keyActions(key, etag, again) {
  if (!may("keys:write") || key.revoked_at) return undefined;
  // A key is rotated once, and only while it works.
  const canRotate = !key.rotated_to && key.status === "active";
  return actions(
    asking("Edit …", () => askEditKey(key, etag), again),
    canRotate && asking("Rotate …", () => askRotate(key), again),
    canRotate && asking("It leaked: replace it now …", () => askRotate(key, "0s"), again, "quiet-danger"),
    asking("Revoke …", () => askRevoke(key), again, "quiet-danger"),
  );
}

/** @param {Account} account @param {List<Key>} keys @param {AccountUse} use of these keys @param {() => void} again */
export function keysPart(account, keys, use, again) {
  const used = new Map(use.keys.map((one) => [one.key_id, one]));
  return [
    actions(may("keys:write") && asking("Create key …", () => askCreateKey(account), again)),
    pagedTable(
      "Keys",
      [
        { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id) },
        { title: "Label", wrap: true, of: (key) => key.label },
        { title: "Tier", of: (key) => key.tier },
        ...useColumns((/** @type {Key} */ key) => used.get(key.key_id)),
        ...CAPS.map(({ name, title, used: spent }) => ({
          title,
          numeric: true,
          cell: (/** @type {Key} */ key) => usage(key[spent], key[name], title.toLowerCase()),
          of: (/** @type {Key} */ key) => key[spent],
        })),
        { title: "State", cell: keyState, of: (key) => key.status },
      ],
      keys,
      `${plural(keys.data.length, "key")} shown.`,
      "It has no keys.",
    ),
  ];
}

/** @param {Key} key */
function keyState(key) {
  const until = key.status === "active" && key.expires_at && momentText(key.expires_at).slice(0, 10);
  return [badge(key.status), until && html`<div class="hint">until ${until}</div>`];
}

/** Keys by what they used and by what they were refused today, over all gateways. @param {Context} context @returns {Promise<Content>} */
export async function showKeys({ place, again }) {
  const asked = viewRequests.keys(place);
  const [use, refused] = await Promise.all([asked.use, asked.refused]);
  return [
    heading("Keys today", again),
    actions(button("A key has leaked …", () => void askLeakedKey())),
    hint("Over all gateways, read from Redis. The day is the UTC day."),
    !use.complete &&
      note(`Only the first ${count(use.keys_looked_at)} keys were looked at; others may have used more.`),
    unreadNote(use),
    table(
      "Most used",
      [
        { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id, key.key_label) },
        ACCOUNT_COLUMN,
        { title: "Tier", of: (key) => key.tier },
        ...useColumns((/** @type {TopKeys["data"][number]} */ key) => key),
        { title: "State", cell: (key) => badge(key.usable ? "active" : "revoked or expired") },
      ],
      use.data,
      "No key was used today.",
      "used-by",
    ),
    refused && refusedTable(refused),
  ];
}

/** @param {RefusalsOfDay} refused */
function refusedTable({ data }) {
  const most = data[0]?.count ?? 0;
  return [
    table(
      "Most refused",
      [
        { title: "Key", header: true, cell: (row) => keyLink(row.account_id, row.key_id, row.key_label) },
        ACCOUNT_COLUMN,
        { title: "Why", of: (row) => row.outcome, as: code },
        { title: "Refusals", numeric: true, of: (row) => row.count, as: (times) => bar(times, most) },
      ],
      data,
      "No known key was refused today.",
      "refused-by",
    ),
    hint("Gateways add their refusals every 5 s. Requests without a known key are in the overview."),
  ];
}

/** The unit of a limit, by the refusal. @type {Record<string, string>} */
const UNIT_OF = {
  insufficient_credits: "credits",
  ...Object.fromEntries([...TIER_LIMITS, ...CAPS].map(({ refusal, short }) => [refusal, short])),
};
const OUTCOMES = [...[...TIER_LIMITS, ...CAPS].map(({ refusal }) => refusal), "insufficient_credits"];

const KEY_REFUSAL_FILTERS = [
  { name: "outcome", label: "Limit", options: choiceOf("all", OUTCOMES) },
  { name: "from", label: "From (UTC)", type: /** @type {const} */ ("moment") },
  { name: "to", label: "to", type: /** @type {const} */ ("moment") },
  { name: "request_id", label: "Request" },
];

/** The latest refusals of a key, one by one. @param {Promise<List<KeyRefusal>>} page @returns {Promise<Content>} */
async function refusalsOfKey(page) {
  const list = await filtered(KEY_REFUSAL_FILTERS, async () =>
    pagedTable(
      "Refused requests (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "Why", of: (one) => one.outcome, as: code },
        { title: "Used of the limit", numeric: true, cell: usedOfLimit, of: (one) => one.used },
        { title: "Wait", numeric: true, of: (one) => one.retry_after, as: waitText },
        { title: "Request", wrap: true, of: (one) => one.request_id, as: code },
        { title: "The client's id", wrap: true, of: (one) => one.client_request_id, as: clientId },
      ],
      await page,
    ),
  );
  return [
    html`<h3 class="section">Refusals</h3>`,
    list,
    hint("The last 1,000 of the last day, some seconds behind. The wait is what Retry-After said."),
  ];
}

/** @param {KeyRefusal} refusal */
const usedOfLimit = ({ outcome, used, limit }) =>
  limit === null ? "–" : `${count(used)} of ${count(limit)} ${UNIT_OF[outcome] ?? ""}`;

/** @param {number | null} seconds */
const waitText = (seconds) => (seconds === null ? "–" : age(seconds));

/** @param {string | null} id */
const clientId = (id) => (id ? code(id) : "–");
