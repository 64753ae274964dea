/**
 * @import {
 *   Account, AccountRefusals, Accounts, AccountUse, AuditRecord, Configuration, Key, List, Live, OpenRequests, Overview,
 *   Package, Price, RefusalsOfDay, Release, Scope, SearchResults, Task, Tiers, Token, TopKeys, Transaction, Usage, Whoami
 * } from "./objects.d.ts"
 */
/** @import { Query } from "./transport.js" */
import { book, get, getTagged, pathOf, send } from "./transport.js";

/** @typedef {{ value: Transaction, isRepeat: boolean }} Booked */
/** @typedef {Record<string, unknown>} Body */
/** @typedef {string | null} Etag */

// The management API, path by path; see docs/management.openapi.json.

/** @type {(query: Query) => Promise<Accounts>} */
export const listAccounts = (query) => get(pathOf(["accounts"], query));

/** @type {(id: string) => Promise<{ value: Account, etag: Etag }>} */
export const readAccount = (id) => getTagged(pathOf(["accounts", id]));

/** @type {(body: Body) => Promise<Account>} */
export const createAccount = (body) => send("POST", "accounts", body);

/** @type {(id: string, changes: Body, etag: Etag) => Promise<Account>} */
export const patchAccount = (id, changes, etag) => send("PATCH", pathOf(["accounts", id]), changes, { etag });

/** Of one key (`key_id`), or of those of a page of `listKeys`. @type {(id: string, query: Query) => Promise<AccountUse>} */
export const readUse = (id, query) => get(pathOf(["accounts", id, "use"], query));

/** @type {(id: string, query: Query) => Promise<Usage>} */
export const readUsage = (id, query) => get(pathOf(["accounts", id, "usage"], query));

/** @type {(id: string, query: Query) => Promise<List<Transaction>>} */
export const listTransactions = (id, query) => get(pathOf(["accounts", id, "transactions"], query));

/** @type {(id: string, query: Query) => Promise<List<Task>>} */
export const listTasks = (id, query) => get(pathOf(["accounts", id, "tasks"], query));

/** @type {(id: string, query: Query) => Promise<AccountRefusals>} */
export const listRefusals = (id, query) => get(pathOf(["accounts", id, "refusals"], query));

/** @type {(account: string, query: Query) => Promise<List<Key>>} */
export const listKeys = (account, query) => get(pathOf(["accounts", account, "keys"], query));

/** @type {(account: string, key: string) => Promise<{ value: Key, etag: Etag }>} */
export const readKey = (account, key) => getTagged(pathOf(["accounts", account, "keys", key]));

/** A repeat whose answer was lost has the same `idempotencyKey`. @type {(account: string, body: Body, idempotencyKey: string) => Promise<Key>} */
export const createKey = (account, body, idempotencyKey) =>
  send("POST", pathOf(["accounts", account, "keys"]), body, { idempotencyKey });

/** @type {(key: Key, changes: Body, etag: Etag) => Promise<Key>} */
export const patchKey = ({ account_id, key_id }, changes, etag) =>
  send("PATCH", pathOf(["accounts", account_id, "keys", key_id]), changes, { etag });

/** @type {(key: Key, body: Body) => Promise<Key>} */
export const rotateKey = ({ account_id, key_id }, body) =>
  send("POST", pathOf(["accounts", account_id, "keys", key_id, "rotate"]), body);

/** @type {(key: Key) => Promise<Key>} */
export const revokeKey = ({ account_id, key_id }) =>
  send("POST", pathOf(["accounts", account_id, "keys", key_id, "revoke"]), {});

/** Credits or a package, and a reference. @type {(account: string, body: Body) => Promise<Booked>} */
export const grantCredits = (account, body) => book(pathOf(["accounts", account, "grants"]), body);

/** @type {(account: string, body: Body) => Promise<Booked>} */
export const adjustCredits = (account, body) => book(pathOf(["accounts", account, "adjustments"]), body);

/** By its own id or its request's. @type {(id: string) => Promise<Task>} */
export const readTask = (id) => get(pathOf(["tasks", id]));

/** @type {(id: string) => Promise<Release>} */
export const releaseTask = (id) => send("POST", pathOf(["tasks", id, "release"]), {});

/** @type {(id: string, body: Body) => Promise<Booked>} */
export const refundTask = (id, body) => book(pathOf(["tasks", id, "refund"]), body);

/** @type {(query: Query) => Promise<List<AuditRecord>>} */
export const listAudit = (query) => get(pathOf(["audit"], query));

/** @type {(query: Query) => Promise<List<Token>>} */
export const listTokens = (query) => get(pathOf(["tokens"], query));

/** @type {(body: Body) => Promise<Token>} */
export const createToken = (body) => send("POST", "tokens", body);

/** @type {(id: string) => Promise<Token>} */
export const revokeToken = (id) => send("POST", pathOf(["tokens", id, "revoke"]), {});

/** By an id, a reference or the beginning of a label. @type {(q: string) => Promise<SearchResults>} */
export const search = (q) => get(pathOf(["search"], { q }));

/** With the samples that are later. @type {(afterMs: number) => Promise<Live>} */
export const readLive = (afterMs) => get(pathOf(["live"], { after_ms: afterMs }));

/** @type {(seconds: number) => Promise<OpenRequests>} */
export const listOpenRequests = (seconds) => get(pathOf(["open-requests"], { older_than_seconds: seconds }));

/** @type {() => Promise<Overview>} */
export const readOverview = () => get("overview");
/** @type {() => Promise<TopKeys>} */
export const listTopKeys = () => get("top-keys");
/** @type {() => Promise<RefusalsOfDay>} */
export const listRefusedToday = () => get("refusals");
/** @type {() => Promise<Tiers>} */
export const listTiers = () => get("tiers");
/** @type {() => Promise<List<Price>>} */
export const listPrices = () => get("prices");
/** @type {() => Promise<List<Package>>} */
export const listPackages = () => get("packages");
/** @type {() => Promise<Configuration>} */
export const readConfiguration = () => get("configuration");

/** @type {{ of: string | null, me: Whoami } | undefined} */
let known;

/**
 * Who has signed in with the token of this tab, and what it may do.
 * @param {string | null} token
 */
export async function signedIn(token) {
  if (known === undefined || known.of !== token) known = { of: token, me: await get("whoami") };
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
