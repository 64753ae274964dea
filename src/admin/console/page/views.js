import { showAccount } from "./account.js";
import { showAccounts } from "./accounts.js";
import { showAudit } from "./audit.js";
import { showConfiguration } from "./configuration.js";
import { heading, note } from "./dom.js";
import { showKey } from "./key.js";
import { showKeys } from "./keys-today.js";
import { showOpenTasks } from "./open-tasks.js";
import { showOverview } from "./overview.js";
import { showSearch } from "./search.js";
import { may, ownAccounts, ownScopes } from "./session.js";
import { showTask } from "./task.js";
import { showTokens } from "./tokens.js";

/** @import { Scope } from "./objects.d.ts" */
/** @import { Place } from "./location.js" */

/**
 * @typedef {object} Context
 * @property {Place} place
 * @property {AbortSignal} signal fires when the view is left
 * @property {() => void} again reads the view anew
 */

/** @typedef {{ nodes: Node[], shown?: () => void }} Made `shown` runs once the nodes are in the page and have a size */

/**
 * @typedef {object} View
 * @property {string} title
 * @property {Scope} [scope] the right that it needs to be offered
 * @property {boolean} [ofAll] it is about all accounts: not for a token that may use some only
 * @property {string} [under] the view that it belongs to in the navigation
 * @property {(context: Context) => Promise<Made | string>} show a text is where to look instead
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
    const has = note(
      `This token can read nothing that a view shows. It has ${ownScopes().join(", ")}${only}.`,
    );
    return { nodes: [heading("Nothing to show"), has] };
  },
};

/**
 * Whether the token may see a view.
 * @param {View} view
 */
export const isOffered = ({ scope, ofAll = false }) =>
  scope !== undefined && may(scope) && !(ofAll && ownAccounts() !== null);
