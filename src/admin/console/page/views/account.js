/** @import { Content } from "../dom.js" */
/** @import { Account, AccountUse, Scope } from "../objects.d.ts" */
/** @import { Context } from "../views.js" */
import { may, readAccount, readUse } from "../api.js";
import {
  actions,
  asking,
  badge,
  choices,
  factList,
  failureNote,
  heading,
  html,
  link,
  moment,
  tile,
  tiles,
} from "../dom.js";
import { count } from "../format.js";
import { limitTile } from "../limit-fields.js";
import { TIER_LIMITS } from "../limits.js";
import { hrefTo } from "../location.js";
import { askAdjust, askEdit, askGrant, askStatus } from "./account-actions.js";
import { showAccountRefusals, showAccountTasks, showTransactions } from "./account-lists.js";
import { keysPage, showAccountUsage } from "./account-usage.js";

/**
 * Parts of an account's page by name in the address; the first is shown where none is named.
 * @type {Record<string, { title: string, scope: Scope, show: (account: Account, context: Context, use: AccountUse) => Promise<Content> }>}
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
 * @returns {Promise<Content>}
 */
export async function showAccount(context) {
  const [id = "", named = "usage"] = context.place.args;
  const part = PARTS[named] ?? PARTS.usage;
  const [{ value: account, etag }, use] = await Promise.all([
    readAccount(id),
    readUse(id, part === PARTS.usage ? keysPage(context.place) : {}),
  ]);
  return [
    heading(`Account ${account.account_id}`, context.again, badge(account.status)),
    account.label && html`<p class="subtitle">${account.label}</p>`,
    creditTiles(account, use.account),
    actionsOf(account, etag, context.again),
    detailsOf(account),
    partLinks(account.account_id, named),
    // A part that cannot be read takes neither the account nor the way to its other parts with it.
    await part?.show(account, context, use).catch(failureNote),
  ];
}

/**
 * @param {Account} account
 * @param {AccountUse["account"]} use
 */
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

/**
 * @param {Account} account
 * @param {string | null} etag
 * @param {() => void} again
 */
function actionsOf(account, etag, again) {
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
function detailsOf({ account_id, created_at, metadata }) {
  const lines = Object.entries(metadata ?? {}).map(
    ([name, value]) =>
      html`<div>${name}: ${typeof value === "string" ? value : JSON.stringify(value, undefined, 1)}</div>`,
  );
  return factList([
    ["Created", created_at && moment(created_at)],
    ["Metadata", lines.length > 0 ? lines : undefined],
    ["Audit", may("audit:read") ? link(hrefTo(["audit"], { account_id }), "what operators did to it") : ""],
  ]);
}

/**
 * @param {string} id
 * @param {string} current
 */
const partLinks = (id, current) =>
  html`<nav class="parts" aria-label="Parts of the account">${choices(
    Object.entries(PARTS)
      .filter(([, { scope }]) => may(scope))
      .map(([name, { title: text }]) => ({
        href: hrefTo(name === "usage" ? ["account", id] : ["account", id, name]),
        text,
        current: name === current,
      })),
  )}</nav>`;
