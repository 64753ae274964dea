/** @import { AccountUse, Key, Use } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { readKey, readUse } from "./api.js";
import {
  accountLink,
  actions,
  button,
  code,
  el,
  factList,
  heading,
  keyLink,
  moment,
  tiles,
  usage,
} from "./dom.js";
import { count } from "./format.js";
import { askEditKey, askRevoke, askRotate } from "./key-actions.js";
import { keyState } from "./keys.js";
import { may } from "./session.js";

/**
 * One key: its limits, what is used of them, and what can be done to it.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showKey({ place, again }) {
  const [account = "", id = ""] = place.args;
  const [{ value: key, etag }, use] = await Promise.all([
    readKey(account, id),
    may("accounts:read") ? readUse(account, { key_id: id }) : undefined,
  ]);
  return {
    nodes: [
      heading(["Key ", code(key.key_id)], again),
      ...(key.label ? [el("p", { className: "subtitle" }, key.label)] : []),
      useTiles(key, use),
      ...actionsOf(key, etag, again),
      factList([
        ["Account", accountLink(key.account_id)],
        ["Tier", key.tier],
        ["Limits of its own", ownLimits(key)],
        ["Cap per month", key.monthly_credits === null ? "none" : `${count(key.monthly_credits)} credits`],
        ["State", keyState(key)],
        ["Replaced by", key.rotated_to ? keyLink(key.account_id, key.rotated_to) : undefined],
        ["Created", moment(key.created_at)],
        ["Expires", key.expires_at ? moment(key.expires_at) : "never"],
        ["Revoked", key.revoked_at ? moment(key.revoked_at) : undefined],
      ]),
    ],
  };
}

/**
 * @param {Key} key
 * @param {AccountUse | undefined} use nothing where the token may not read it
 */
const useTiles = (key, use) =>
  tiles([
    ...(use ? limitTiles(use.keys[0]) : []),
    [
      "This month",
      usage(key.spent_this_month, key.monthly_credits, "credits this month"),
      "credits held and spent, UTC month",
    ],
  ]);

/**
 * @param {Use | undefined} used
 * @returns {[string, Node | string, string][]}
 */
const limitTiles = (used) => [
  ["Last 60 s", usage(used?.window_used, used?.rate_limit, "last 60 s"), "requests"],
  ["Slots", usage(used?.active, used?.max_concurrent, "slots"), "tasks at a time"],
  ["Today", usage(used?.day_count, used?.daily_limit, "today"), "requests, UTC day"],
];

/** @param {Key} key */
function ownLimits({ limits }) {
  const own = [
    limits.rate_limit === null ? undefined : `${count(limits.rate_limit)} requests per 60 s`,
    limits.max_concurrent === null ? undefined : `${count(limits.max_concurrent)} slots`,
    limits.daily_limit === null ? undefined : `${count(limits.daily_limit)} requests per day`,
  ].filter((text) => text !== undefined);
  return own.length > 0 ? own.join(", ") : "none: those of its tier";
}

/**
 * @param {Key} key
 * @param {string | null} etag
 * @param {() => void} again
 */
function actionsOf(key, etag, again) {
  if (!may("keys:write") || key.revoked_at) return [];
  const then = (/** @type {Promise<boolean>} */ asked) => void asked.then((done) => done && again());
  // A key is rotated once, and only while it works.
  const canRotate = !key.rotated_to && key.status === "active";
  return actions(
    button("Edit …", () => then(askEditKey(key, etag))),
    canRotate && button("Rotate …", () => then(askRotate(key))),
    button("Revoke …", () => then(askRevoke(key)), { className: "quiet-danger" }),
  );
}
