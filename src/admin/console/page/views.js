/** @import { Content } from "./dom.js" */
/** @import { Place } from "./location.js" */
/** @import { Scope } from "./objects.d.ts" */
import { may, ownAccounts, ownScopes } from "./api.js";
import { heading, note } from "./dom.js";
import { showAccount } from "./views/account.js";
import { showAccounts } from "./views/accounts.js";
import { showAudit } from "./views/audit.js";
import { showConfiguration } from "./views/configuration.js";
import { showKey } from "./views/key.js";
import { showKeys } from "./views/keys-today.js";
import { showOverview } from "./views/overview.js";
import { showSearch } from "./views/search.js";
import { showOpenTasks, showTask } from "./views/tasks.js";
import { showTokens } from "./views/tokens.js";

/**
 * @typedef {object} Context
 * @property {Place} place
 * @property {AbortSignal} signal fires when the view is left
 * @property {() => void} again reads the view anew
 */

/**
 * @typedef {object} View
 * @property {string} title
 * @property {Scope} [scope] the right that it needs to be offered
 * @property {boolean} [ofAll] it is about all accounts: not for a token that may use some only
 * @property {string} [under] the view that it belongs to in the navigation
 * @property {(context: Context) => Promise<Content | URL>} show an address is where to look instead
 */

/** By name in the address, in the order of the navigation. @type {Record<string, View>} */
export const VIEWS = {
  overview: { title: "Overview", scope: "usage:read", ofAll: true, show: showOverview },
  accounts: { title: "Accounts", scope: "accounts:read", show: showAccounts },
  account: { title: "Account", under: "accounts", show: showAccount },
  key: { title: "Key", under: "accounts", show: showKey },
  tasks: { title: "Open tasks", scope: "tasks:read", ofAll: true, show: showOpenTasks },
  task: { title: "Task", under: "accounts", show: showTask },
  keys: { title: "Keys today", scope: "keys:read", ofAll: true, show: showKeys },
  configuration: { title: "Configuration", scope: "accounts:read", ofAll: true, show: showConfiguration },
  audit: { title: "Audit", scope: "audit:read", show: showAudit },
  tokens: { title: "Tokens", scope: "tokens:write", show: showTokens },
  search: { title: "Search", under: "accounts", show: showSearch },
};

/** Stands in for all views where the token is offered none. @type {View} */
export const NOTHING = {
  title: "Nothing to show",
  async show() {
    const accounts = ownAccounts();
    const only = accounts ? `, for ${accounts.join(", ")} only` : "";
    const has = `It has ${ownScopes().join(", ")}${only}.`;
    return [heading("Nothing to show"), note(`This token can read nothing that a view shows. ${has}`)];
  },
};

/** True if the token may see the view. @param {View} view */
export const isOffered = ({ scope, ofAll = false }) =>
  scope !== undefined && may(scope) && !(ofAll && ownAccounts() !== null);
