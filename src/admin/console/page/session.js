/** @import { Scope, Whoami } from "./objects.d.ts" */
import { whoami } from "./api.js";

/** @type {{ of: string | null, me: Whoami } | undefined} */
let known;

/**
 * Who has signed in with the token of this tab, and what it may do.
 * @param {string | null} token
 */
export async function signedIn(token) {
  if (known === undefined || known.of !== token) known = { of: token, me: await whoami() };
  return known.me;
}

export const forgetSession = () => {
  known = undefined;
};

/**
 * Whether an action or a view is to be offered. The gateway checks for itself.
 * @param {Scope} scope
 */
export const may = (scope) => known?.me.scopes.includes(scope) ?? false;

/** Scopes of the token in use: it can make no other with more. */
export const ownScopes = () => known?.me.scopes ?? [];

/** Accounts that the token in use is bound to; null for all. */
export const ownAccounts = () => known?.me.accounts ?? null;
