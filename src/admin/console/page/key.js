/** @import { AccountUse, Key } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { readKey, readUse } from "./api.js";
import { accountLink, actions, button, code, el, factList, heading, keyLink, moment, tiles } from "./dom.js";
import { count } from "./format.js";
import { askEditKey, askRevoke, askRotate } from "./key-actions.js";
import { keyState } from "./keys.js";
import { limitTile } from "./limit-fields.js";
import { CAPS, TIER_LIMITS } from "./limits.js";
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
        ...CAPS.map(
          ({ name, short }) =>
            /** @type {[string, string]} */ ([
              `Cap: ${short}`,
              key[name] === null ? "none" : count(key[name]),
            ]),
        ),
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
    ...(use ? TIER_LIMITS.map((limit) => limitTile(limit, use.keys[0])) : []),
    ...CAPS.map((limit) => limitTile(limit, key)),
  ]);

/** @param {Key} key */
function ownLimits({ limits }) {
  const own = TIER_LIMITS.flatMap(({ name, short }) =>
    limits[name] === null ? [] : [`${count(limits[name])} ${short}`],
  );
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
