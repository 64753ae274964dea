/** @import { Content } from "../dom.js" */
/** @import { Account, AccountUse, Key, List } from "../objects.d.ts" */
/** @import { Context } from "../views.js" */
import { may, readKey, readUse } from "../api.js";
import {
  accountLink,
  actions,
  asking,
  badge,
  code,
  factList,
  heading,
  html,
  keyLink,
  moment,
  tile,
  tiles,
  usage,
} from "../dom.js";
import { count, momentText } from "../format.js";
import { TIER_LIMITS, useColumns } from "../limit-fields.js";
import { paging, table } from "../table.js";
import { askCreateKey, askEditKey, askRevoke, askRotate } from "./key-actions.js";

/**
 * One key: its limits, what is used of them, and what can be done to it.
 * @param {Context} context
 * @returns {Promise<Content>}
 */
export async function showKey({ place, again }) {
  const [account = "", id = ""] = place.args;
  const [{ value: key, etag }, use] = await Promise.all([
    readKey(account, id),
    may("accounts:read") ? readUse(account, { key_id: id }) : undefined,
  ]);
  return [
    heading(["Key ", code(key.key_id)], again),
    key.label && html`<p class="subtitle">${key.label}</p>`,
    useTiles(key, use),
    actionsOf(key, etag, again),
    factList([
      ["Account", accountLink(key.account_id)],
      ["Tier", key.tier],
      ["Limits of its own", ownLimits(key)],
      ["Cap per month", key.monthly_credits === null ? "none" : `${count(key.monthly_credits)} credits`],
      ["State", keyState(key)],
      ["Replaced by", key.rotated_to && keyLink(key.account_id, key.rotated_to)],
      ["Created", moment(key.created_at)],
      ["Expires", key.expires_at ? moment(key.expires_at) : "never"],
      ["Revoked", key.revoked_at && moment(key.revoked_at)],
    ]),
  ];
}

/**
 * @param {Key} key
 * @param {AccountUse | undefined} use nothing where the token may not read it
 */
const useTiles = (key, use) =>
  tiles(
    use &&
      TIER_LIMITS.map(({ name, used, title, unit }) => {
        const of = use.keys[0];
        const below = name === "daily_limit" ? `${unit}, UTC day` : unit;
        return tile(title, usage(of?.[used], of?.[name], title.toLowerCase()), below);
      }),
    tile("This month", monthOf(key), "credits held and spent, UTC month"),
  );

/** @param {Key} key */
const monthOf = (key) => usage(key.spent_this_month, key.monthly_credits, "credits this month");

/** @param {Key} key */
function ownLimits({ limits }) {
  const own = TIER_LIMITS.filter(({ name }) => limits[name] !== null);
  return own.map(({ name, of }) => `${count(limits[name])} ${of}`).join(", ") || "none: those of its tier";
}

/**
 * @param {Key} key
 * @param {string | null} etag
 * @param {() => void} again
 */
function actionsOf(key, etag, again) {
  if (!may("keys:write") || key.revoked_at) return undefined;
  // A key is rotated once, and only while it works.
  const canRotate = !key.rotated_to && stateOf(key) === "active";
  return actions(
    asking("Edit …", () => askEditKey(key, etag), again),
    canRotate && asking("Rotate …", () => askRotate(key), again),
    asking("Revoke …", () => askRevoke(key), again, "quiet-danger"),
  );
}

/**
 * The keys of an account with what is used of their limits; an action is on a key's own page.
 * @param {Account} account
 * @param {List<Key>} keys
 * @param {AccountUse} use of these keys
 * @param {() => void} again
 */
export function keysPart(account, keys, use, again) {
  const used = new Map(use.keys.map((one) => [one.key_id, one]));
  return [
    actions(may("keys:write") && asking("Create key …", () => askCreateKey(account), again)),
    table(
      "Keys",
      [
        { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id) },
        { title: "Label", wrap: true, of: (key) => key.label },
        { title: "Tier", of: (key) => key.tier },
        ...useColumns((/** @type {Key} */ key) => used.get(key.key_id)),
        { title: "This month", numeric: true, cell: monthOf, of: (key) => key.spent_this_month },
        { title: "State", cell: keyState, of: stateOf },
      ],
      keys.data,
      "It has no keys.",
    ),
    paging(keys, `${count(keys.data.length)} keys are shown.`),
  ];
}

/** @param {{ revoked_at?: string | null, expires_at?: string | null }} of a key or a token */
export function stateOf({ revoked_at, expires_at }) {
  if (revoked_at) return "revoked";
  return expires_at && Date.parse(expires_at) <= Date.now() ? "expired" : "active";
}

/** @param {Key} key */
function keyState(key) {
  const state = stateOf(key);
  const until = state === "active" && key.expires_at && momentText(key.expires_at).slice(0, 10);
  return [badge(state), until && html`<div class="hint">until ${until}</div>`];
}
