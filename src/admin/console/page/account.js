/** @import { Account, AccountUse, Scope } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { askAdjust, askEdit, askGrant, askStatus } from "./account-actions.js";
import { showAccountRefusals } from "./account-refusals.js";
import { showAccountTasks } from "./account-tasks.js";
import { keysPage, showAccountUsage } from "./account-usage.js";
import { readAccount, readUse } from "./api.js";
import { actions, badge, button, el, factList, failureNote, heading, link, moment, tiles } from "./dom.js";
import { count } from "./format.js";
import { limitTile } from "./limit-fields.js";
import { TIER_LIMITS } from "./limits.js";
import { hrefTo } from "./location.js";
import { may } from "./session.js";
import { showTransactions } from "./transactions.js";

/**
 * Parts of an account's page by name in the address; the first is shown where none is named.
 * @type {Record<string, { title: string, scope: Scope, show: (account: Account, context: Context, use: AccountUse) => Promise<Made> }>}
 */
const PARTS = {
  usage: { title: "Usage and keys", scope: "accounts:read", show: showAccountUsage },
  transactions: { title: "Transactions", scope: "credits:read", show: showTransactions },
  tasks: { title: "Tasks", scope: "tasks:read", show: showAccountTasks },
  refusals: { title: "Refusals", scope: "usage:read", show: showAccountRefusals },
};

/**
 * One account: its credits, limits and status, and one of its parts.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showAccount(context) {
  const [id = "", named = "usage"] = context.place.args;
  const part = PARTS[named] ?? PARTS.usage;
  const [{ value: account, etag }, use] = await Promise.all([
    readAccount(id),
    readUse(id, part === PARTS.usage ? keysPage(context.place) : {}),
  ]);
  // A part that cannot be read takes neither the account nor the way to its other parts with it.
  const shown = await part?.show(account, context, use).catch(unread);
  return {
    nodes: [
      heading([`Account ${account.account_id}`], context.again, badge(account.status)),
      ...(account.label ? [el("p", { className: "subtitle" }, account.label)] : []),
      creditTiles(account, use.account),
      ...actionsOf(account, etag, context.again),
      detailsOf(account),
      partLinks(account.account_id, named),
      ...(shown?.nodes ?? []),
    ],
    shown: () => shown?.shown?.(),
  };
}

/** @param {unknown} error @returns {Made} */
const unread = (error) => ({ nodes: [failureNote(error)] });

/**
 * @param {Account} account
 * @param {AccountUse["account"]} use
 */
function creditTiles(account, use) {
  const { limits } = account;
  return tiles([
    ["Balance", count(account.balance), "credits to spend"],
    ["Held", count(account.held), "credits, not charged yet"],
    ["Used in all", count(account.total_used), "credits"],
    ["Requests", count(account.total_requests), "admitted in all"],
    ...TIER_LIMITS.flatMap((limit) =>
      limits[limit.name] === null
        ? []
        : [
            limitTile(
              { ...limit, short: `${limit.short}, all keys` },
              { [limit.used]: 0, ...use, ...limits },
            ),
          ],
    ),
  ]);
}

/**
 * @param {Account} account
 * @param {string | null} etag
 * @param {() => void} again
 */
function actionsOf(account, etag, again) {
  const then = (/** @type {Promise<boolean>} */ asked) => void asked.then((done) => done && again());
  const credits = may("credits:write");
  const writes = may("accounts:write");
  const reinstates = writes && may("accounts:reinstate");
  const { status } = account;
  return actions(
    credits &&
      button("Grant credits …", () => then(askGrant(account.account_id)), {
        className: "primary",
      }),
    credits && button("Adjust balance …", () => then(askAdjust(account.account_id))),
    writes && button("Edit …", () => then(askEdit(account, etag))),
    writes && status === "active" && button("Suspend …", () => then(askStatus(account, etag, "suspended"))),
    reinstates && status !== "active" && button("Activate …", () => then(askStatus(account, etag, "active"))),
    writes && status !== "closed" && button("Close …", () => then(askStatus(account, etag, "closed"))),
  );
}

/** @param {Account} account */
function detailsOf(account) {
  const metadata = Object.entries(account.metadata ?? {}).map(([name, value]) =>
    el("div", {}, `${name}: ${typeof value === "string" ? value : JSON.stringify(value, undefined, 1)}`),
  );
  const audit = may("audit:read")
    ? link(hrefTo(["audit"], { account_id: account.account_id }), "what operators did to it")
    : undefined;
  return factList([
    ["Created", account.created_at ? moment(account.created_at) : undefined],
    ["Metadata", metadata.length > 0 ? metadata : undefined],
    ["Audit", audit],
  ]);
}

/**
 * @param {string} id
 * @param {string} current
 */
function partLinks(id, current) {
  const links = Object.entries(PARTS)
    .filter(([, { scope }]) => may(scope))
    .map(([name, { title }]) =>
      el(
        "a",
        {
          href: hrefTo(name === "usage" ? ["account", id] : ["account", id, name]),
          "aria-current": name === current ? "page" : undefined,
        },
        title,
      ),
    );
  return el("nav", { className: "parts", "aria-label": "Parts of the account" }, ...links);
}
