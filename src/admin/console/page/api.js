/**
 * @import {
 *   Account, AccountRefusals, Accounts, AccountUse, AuditRecord, Configuration, Key, List, Live, OpenRequests, Overview,
 *   Package, Price, RefusalsOfDay, Release, SearchResults, Task, Tiers, Token, TopKeys, Transaction, Usage, Whoami
 * } from "./objects.d.ts"
 */
import { book, get, getTagged, pathOf, send } from "./transport.js";

/** @import { Query } from "./transport.js" */
/** @typedef {{ value: Transaction, isRepeat: boolean }} Booked */

/** The management API, path by path; see docs/management.openapi.json. */

export const whoami = () => /** @type {Promise<Whoami>} */ (get("whoami"));

/** @param {Query} query */
export const listAccounts = (query) => /** @type {Promise<Accounts>} */ (get(pathOf(["accounts"], query)));

/** @param {string} id */
export const readAccount = (id) =>
  /** @type {Promise<{ value: Account, etag: string | null }>} */ (getTagged(pathOf(["accounts", id])));

/** @param {Record<string, unknown>} body */
export const createAccount = (body) => /** @type {Promise<Account>} */ (send("POST", "accounts", body));

/**
 * @param {string} id
 * @param {Record<string, unknown>} changes
 * @param {string | null} etag
 */
export const patchAccount = (id, changes, etag) =>
  /** @type {Promise<Account>} */ (send("PATCH", pathOf(["accounts", id]), changes, { etag }));

/**
 * @param {string} id
 * @param {Query} query of one key (`key_id`), or those of a page of `listKeys`
 */
export const readUse = (id, query) =>
  /** @type {Promise<AccountUse>} */ (get(pathOf(["accounts", id, "use"], query)));

/**
 * @param {string} id
 * @param {Query} query
 */
export const readUsage = (id, query) =>
  /** @type {Promise<Usage>} */ (get(pathOf(["accounts", id, "usage"], query)));

/**
 * @param {string} id
 * @param {Query} query
 */
export const listTransactions = (id, query) =>
  /** @type {Promise<List<Transaction>>} */ (get(pathOf(["accounts", id, "transactions"], query)));

/**
 * @param {string} id
 * @param {Query} query
 */
export const listTasks = (id, query) =>
  /** @type {Promise<List<Task>>} */ (get(pathOf(["accounts", id, "tasks"], query)));

/**
 * @param {string} id
 * @param {Query} query
 */
export const listRefusals = (id, query) =>
  /** @type {Promise<AccountRefusals>} */ (get(pathOf(["accounts", id, "refusals"], query)));

/**
 * @param {string} account
 * @param {Query} query
 */
export const listKeys = (account, query) =>
  /** @type {Promise<List<Key>>} */ (get(pathOf(["accounts", account, "keys"], query)));

/**
 * @param {string} account
 * @param {string} key
 */
export const readKey = (account, key) =>
  /** @type {Promise<{ value: Key, etag: string | null }>} */ (
    getTagged(pathOf(["accounts", account, "keys", key]))
  );

/**
 * @param {string} account
 * @param {Record<string, unknown>} body
 * @param {string} idempotencyKey the same for a repeat whose answer was lost
 */
export const createKey = (account, body, idempotencyKey) =>
  /** @type {Promise<Key>} */ (send("POST", pathOf(["accounts", account, "keys"]), body, { idempotencyKey }));

/**
 * @param {Key} key
 * @param {Record<string, unknown>} changes
 * @param {string | null} etag
 */
export const patchKey = ({ account_id, key_id }, changes, etag) =>
  /** @type {Promise<Key>} */ (
    send("PATCH", pathOf(["accounts", account_id, "keys", key_id]), changes, { etag })
  );

/**
 * @param {Key} key
 * @param {Record<string, unknown>} body
 */
export const rotateKey = ({ account_id, key_id }, body) =>
  /** @type {Promise<Key>} */ (
    send("POST", pathOf(["accounts", account_id, "keys", key_id, "rotate"]), body)
  );

/** @param {Key} key */
export const revokeKey = ({ account_id, key_id }) =>
  /** @type {Promise<Key>} */ (send("POST", pathOf(["accounts", account_id, "keys", key_id, "revoke"]), {}));

/**
 * @param {string} account
 * @param {Record<string, unknown>} body credits or package, and reference
 */
export const grantCredits = (account, body) =>
  /** @type {Promise<Booked>} */ (book(pathOf(["accounts", account, "grants"]), body));

/**
 * @param {string} account
 * @param {Record<string, unknown>} body
 */
export const adjustCredits = (account, body) =>
  /** @type {Promise<Booked>} */ (book(pathOf(["accounts", account, "adjustments"]), body));

/** @param {string} id a task's or a request's */
export const readTask = (id) => /** @type {Promise<Task>} */ (get(pathOf(["tasks", id])));

/** @param {string} id */
export const releaseTask = (id) =>
  /** @type {Promise<Release>} */ (send("POST", pathOf(["tasks", id, "release"]), {}));

/**
 * @param {string} id
 * @param {Record<string, unknown>} body
 */
export const refundTask = (id, body) =>
  /** @type {Promise<Booked>} */ (book(pathOf(["tasks", id, "refund"]), body));

/** @param {Query} query */
export const listAudit = (query) => /** @type {Promise<List<AuditRecord>>} */ (get(pathOf(["audit"], query)));

/** @param {Query} query */
export const listTokens = (query) => /** @type {Promise<List<Token>>} */ (get(pathOf(["tokens"], query)));

/** @param {Record<string, unknown>} body */
export const createToken = (body) => /** @type {Promise<Token>} */ (send("POST", "tokens", body));

/** @param {string} id */
export const revokeToken = (id) =>
  /** @type {Promise<Token>} */ (send("POST", pathOf(["tokens", id, "revoke"]), {}));

/** @param {string} q an id, a reference or the beginning of a label */
export const search = (q) => /** @type {Promise<SearchResults>} */ (get(pathOf(["search"], { q })));

/** @param {number} afterMs samples that are later */
export const readLive = (afterMs) =>
  /** @type {Promise<Live>} */ (get(pathOf(["live"], { after_ms: afterMs })));

export const readOverview = () => /** @type {Promise<Overview>} */ (get("overview"));
export const listTopKeys = () => /** @type {Promise<TopKeys>} */ (get("top-keys"));
export const listRefusedToday = () => /** @type {Promise<RefusalsOfDay>} */ (get("refusals"));

/** @param {number} seconds */
export const listOpenRequests = (seconds) =>
  /** @type {Promise<OpenRequests>} */ (get(pathOf(["open-requests"], { older_than_seconds: seconds })));

export const listTiers = () => /** @type {Promise<Tiers>} */ (get("tiers"));
export const listPrices = () => /** @type {Promise<List<Price>>} */ (get("prices"));
export const listPackages = () => /** @type {Promise<List<Package>>} */ (get("packages"));
export const readConfiguration = () => /** @type {Promise<Configuration>} */ (get("configuration"));
