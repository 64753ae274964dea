export const STORED = "tollgate-admin-token";
/** Who has the token, so that a view that is opened anew need not wait for that. */
const STORED_WHO = "tollgate-admin-who";
const HOUR_MS = 3_600_000;
/** Relative, so that it holds behind a proxy's prefix too. */
const API = "../manage/v1";
const PATIENCE_MS = 20_000;
const DONE_OR_NOT = "; what was asked for may be done all the same";

export class ApiError extends Error {
  /** @param {number} status 0 where nothing was answered @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The token lives in this tab, or in all tabs for some hours, and goes out in a header that no other site can add. */
export const token = {
  get: () => sessionStorage.getItem(STORED) ?? keptToken(),
  /** @param {string} value @param {number} [hours] in all tabs; 0: in this one */
  set: (value, hours = 0) => {
    token.forget();
    if (hours === 0) return sessionStorage.setItem(STORED, value);
    localStorage.setItem(STORED, JSON.stringify({ value, until: Date.now() + hours * HOUR_MS }));
  },
  forget: () => {
    for (const storage of [sessionStorage, localStorage])
      for (const name of [STORED, STORED_WHO]) storage.removeItem(name);
  },
};

/** Where the token is. */
const storage = () => (sessionStorage.getItem(STORED) ? sessionStorage : localStorage);

/** @returns {string | null} */
function keptToken() {
  const { value, until } = JSON.parse(localStorage.getItem(STORED) ?? "{}");
  if (until > Date.now()) return value;
  for (const name of [STORED, STORED_WHO]) localStorage.removeItem(name);
  return null;
}

/** @typedef {Record<string, string | number | undefined>} Query values that are missing or empty are not sent */
/** @typedef {Record<string, unknown>} Body */
/** @typedef {string | null} Etag the state of an object, which a later change names */
/** @template Value @typedef {{ value: Value, etag: Etag }} Tagged */
/** @typedef {{ value: Transaction, isRepeat: boolean }} Booked */

/** @param {string[]} parts @param {Query} [query] */
function pathOf(parts, query = {}) {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  return search.size > 0 ? `${path}?${search}` : path;
}

/** @template Value @param {string[]} parts @param {Query} [query] @returns {Promise<Value>} */
const get = async (parts, query) => (await request(pathOf(parts, query), {})).value;

/** @template Value @param {string[]} parts @returns {Promise<Tagged<Value>>} */
const getTagged = (parts) => request(pathOf(parts), {});

/**
 * @template Value @param {"POST" | "PATCH" | "PUT"} method @param {string[]} parts @param {Body} body
 * @param {Record<string, string | null>} [headers] @returns {Promise<{ value: Value, status: number }>}
 */
function write(method, parts, body, headers = {}) {
  const all = new Headers({ "Content-Type": "application/json" });
  for (const [name, value] of Object.entries(headers)) if (value) all.set(name, value);
  return request(pathOf(parts), { method, headers: all, body: JSON.stringify(body) });
}

/** @template Value @param {string[]} parts @param {Body} [body] @param {Record<string, string>} [headers] @returns {Promise<Value>} */
const post = async (parts, body = {}, headers = {}) => (await write("POST", parts, body, headers)).value;

/** @template Value @param {string[]} parts @param {Body} body @param {Etag} etag @returns {Promise<Value>} */
const patch = async (parts, body, etag) => (await write("PATCH", parts, body, { "If-Match": etag })).value;

/** Books money. The same reference again changes nothing, and is told by the status. @param {string[]} parts @param {Body} body */
async function book(parts, body) {
  const { value, status } = await write("POST", parts, body);
  return { value: /** @type {Transaction} */ (value), isRepeat: status === 200 };
}

/** Nobody listens before: what an answer means for the session would be told to none. */
const pageThere =
  document.readyState === "loading" &&
  new Promise((resolve) => addEventListener("DOMContentLoaded", resolve, { once: true }));

/** @template Value @param {string} path @param {RequestInit} init @returns {Promise<Tagged<Value> & { status: number }>} */
async function request(path, init) {
  const headers = new Headers(init.headers);
  headers.set("X-Tollgate-Client", "console");
  const secret = token.get();
  // A header takes no other characters.
  if (!secret || /[^!-~]/.test(secret))
    throw refusal(401, "this needs a token, which has only letters, digits and signs of ASCII", secret);
  headers.set("Authorization", `Bearer ${secret}`);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const doneOrNot = init.method ? DONE_OR_NOT : "";
  const response = await fetch(`${API}/${path}`, { ...init, headers, cache: "no-store", signal }).catch(
    () => {
      throw new ApiError(0, `the gateway does not answer${doneOrNot}`);
    },
  );
  const { status } = response;
  const value = await response.json().catch(() => undefined);
  await pageThere;
  // A proxy's page, or one that broke off: nothing is known of what was done.
  const said = value === undefined ? `the answer (${status}) cannot be read${doneOrNot}` : "";
  if (!response.ok) throw refusal(status, said || problemText(value, status), secret);
  if (said) throw new ApiError(0, said);
  return { value, etag: response.headers.get("ETag"), status };
}

/** @param {number} status @param {string} message @param {string | null} secret of the request */
function refusal(status, message, secret) {
  // Of several answers the first one gives the token up; the others say nothing of one that was given since.
  if (status === 401 && secret === token.get()) {
    dispatchEvent(new CustomEvent("token-needed", { detail: message }));
  }
  return new ApiError(status, message);
}

/** @typedef {{ detail?: string, title?: string, errors?: { path?: string, message: string }[] }} Problem RFC 9457 */

/** A problem in a sentence. @param {Problem} problem @param {number} status */
function problemText({ detail, title, errors = [] }, status) {
  if (status === 412) return "somebody else has changed it meanwhile; close this and read it again";
  const said = detail ?? title ?? `the gateway answered ${status}`;
  const more = errors
    .filter(({ message }) => !said.toLowerCase().includes(message.toLowerCase()))
    .map(({ path, message }) => [path, message].filter(Boolean).join(": "));
  return [said, ...more].join("; ");
}

// The management API, path by path; see docs/management.openapi.json.

/** @type {(query: Query) => Promise<Accounts>} */
export const listAccounts = (query) => get(["accounts"], query);
/** @type {(query: Query) => Promise<TopAccounts>} */
export const listTopAccounts = (query) => get(["top-accounts"], query);
/** Of a UTC month. @type {(month: string) => Promise<Sales>} */
export const listSales = (month) => get(["sales"], { month });
/** Of a UTC month, all accounts together. @type {(month: string) => Promise<TotalStatement>} */
export const readTotalStatement = (month) => get(["statements", "total"], { month });
/** @type {(id: string) => Promise<Tagged<Account>>} */
export const readAccount = (id) => getTagged(["accounts", id]);
/** Undefined where it cannot be read. @param {string} id */
export const readAccountIfMay = async (id) =>
  may("accounts:read") ? (await readAccount(id).catch(() => undefined))?.value : undefined;
/** @type {(body: Body) => Promise<Account>} */
export const createAccount = (body) => post(["accounts"], body);
/** @type {(id: string, changes: Body, etag: Etag) => Promise<Account>} */
export const patchAccount = (id, changes, etag) => patch(["accounts", id], changes, etag);
/** Of one key (`key_id`), or of those of a page of `listKeys`. @type {(id: string, query: Query) => Promise<AccountUse>} */
export const readUse = (id, query) => get(["accounts", id, "use"], query);
/** All pages as one; of an account with many keys a page may end with a month. @type {(id: string, query: Query) => Promise<Usage>} */
export async function readUsage(id, query) {
  const read = (/** @type {string} */ cursor) =>
    /** @type {Promise<Usage>} */ (get(["accounts", id, "usage"], { ...query, cursor }));
  const all = await read("");
  while (all.next_cursor) {
    const { data, next_cursor } = await read(all.next_cursor);
    Object.assign(all, { data: [...all.data, ...data], next_cursor });
  }
  return all;
}
/** @type {(id: string, query: Query) => Promise<List<Transaction>>} */
export const listTransactions = (id, query) => get(["accounts", id, "transactions"], query);
/** @type {(id: string, query: Query) => Promise<List<Task>>} */
export const listTasks = (id, query) => get(["accounts", id, "tasks"], query);
/** @type {(id: string, query: Query) => Promise<AccountRefusals>} */
export const listRefusals = (id, query) => get(["accounts", id, "refusals"], query);
/** @type {(id: string, query: Query) => Promise<List<TimelineEvent>>} */
export const listTimeline = (id, query) => get(["accounts", id, "timeline"], query);
/** Credits or a package, and a reference. @type {(id: string, body: Body) => Promise<Booked>} */
export const grantCredits = (id, body) => book(["accounts", id, "grants"], body);
/** @type {(id: string, body: Body) => Promise<Booked>} */
export const adjustCredits = (id, body) => book(["accounts", id, "adjustments"], body);
/** @type {(id: string, body: Body) => Promise<Booked>} */
export const reverseGrant = (id, body) => book(["accounts", id, "reversals"], body);

/** @type {(account: string, query: Query) => Promise<List<Key>>} */
export const listKeys = (account, query) => get(["accounts", account, "keys"], query);
/** @type {(account: string, key: string) => Promise<Tagged<Key>>} */
export const readKey = (account, key) => getTagged(["accounts", account, "keys", key]);
/** By the key itself, which stands in no address. @type {(key: string) => Promise<Key>} */
export const lookUpKey = (key) => post(["keys", "lookup"], { key });
/** @type {(account: string, key: string, query: Query) => Promise<List<KeyRefusal>>} */
export const listRefusalsOfKey = (account, key, query) =>
  get(["accounts", account, "keys", key, "refusals"], query);
/** A repeat whose answer was lost has the same name. @type {(account: string, body: Body, name: string) => Promise<Key>} */
export const createKey = (account, body, name) =>
  post(["accounts", account, "keys"], body, { "Idempotency-Key": name });
/** @param {Key} key */
const partsOf = ({ account_id, key_id }) => ["accounts", account_id, "keys", key_id];
/** @type {(key: Key, changes: Body, etag: Etag) => Promise<Key>} */
export const patchKey = (key, changes, etag) => patch(partsOf(key), changes, etag);
/** @type {(key: Key, body: Body) => Promise<Key>} */
export const rotateKey = (key, body) => post([...partsOf(key), "rotate"], body);
/** @type {(key: Key) => Promise<Key>} */
export const revokeKey = (key) => post([...partsOf(key), "revoke"]);

/** @type {(account: string) => Promise<List<Webhook>>} */
export const listWebhooks = (account) => get(["accounts", account, "webhooks"]);
/** @type {(account: string, id: string) => Promise<Tagged<Webhook>>} */
export const readWebhook = (account, id) => getTagged(["accounts", account, "webhooks", id]);
/** @type {(account: string, body: Body) => Promise<Webhook>} */
export const createWebhook = (account, body) => post(["accounts", account, "webhooks"], body);
/** @param {Pick<Webhook, "account_id" | "id">} endpoint */
const partsOfWebhook = ({ account_id, id }) => ["accounts", account_id, "webhooks", id];
/** @type {(endpoint: Webhook, changes: Body, etag: Etag) => Promise<Webhook>} */
export const patchWebhook = (endpoint, changes, etag) => patch(partsOfWebhook(endpoint), changes, etag);
/** @type {(endpoint: Webhook) => Promise<unknown>} */
export const deleteWebhook = (endpoint) => request(pathOf(partsOfWebhook(endpoint)), { method: "DELETE" });
/** @type {(endpoint: Webhook, body: Body) => Promise<Webhook>} */
export const rotateWebhookSecret = (endpoint, body) =>
  post([...partsOfWebhook(endpoint), "rotate-secret"], body);
/** @type {(endpoint: Webhook) => Promise<Delivery>} */
export const testWebhook = (endpoint) => post([...partsOfWebhook(endpoint), "test"]);
/** @type {(endpoint: Pick<Webhook, "account_id" | "id">, query: Query) => Promise<List<Delivery>>} */
export const listDeliveries = (endpoint, query) => get([...partsOfWebhook(endpoint), "deliveries"], query);
/** @type {(endpoint: Pick<Webhook, "account_id" | "id">, id: string) => Promise<Delivery>} */
export const redeliver = (endpoint, id) => post([...partsOfWebhook(endpoint), "deliveries", id, "redeliver"]);

/** By its own id or its request's. @type {(id: string) => Promise<TaskDetail>} */
export const readTask = (id) => get(["tasks", id]);
/** @type {(id: string) => Promise<List<Transaction>>} */
export const listTransactionsOfTask = (id) => get(["tasks", id, "transactions"]);
/** @type {(id: string) => Promise<Release>} */
export const releaseTask = (id) => post(["tasks", id, "release"]);
/** @type {(id: string, body: Body) => Promise<Booked>} */
export const refundTask = (id, body) => book(["tasks", id, "refund"], body);
/** @type {(seconds: number) => Promise<OpenRequests>} */
export const listOpenRequests = (seconds) => get(["open-requests"], { older_than_seconds: seconds });

/** @type {(query: Query) => Promise<List<AuditRecord>>} */
export const listAudit = (query) => get(["audit"], query);
/** @type {(query: Query) => Promise<List<Token>>} */
export const listTokens = (query) => get(["tokens"], query);
/** @type {(body: Body) => Promise<Token>} */
export const createToken = (body) => post(["tokens"], body);
/** @type {(id: string) => Promise<Token>} */
export const revokeToken = (id) => post(["tokens", id, "revoke"]);
/** By an id, or words of a label, of metadata or of a reference. @type {(q: string) => Promise<SearchResults>} */
export const search = (q) => get(["search"], { q });
/** With the samples that are later. @type {(afterMs: number) => Promise<Live>} */
export const readLive = (afterMs) => get(["live"], { after_ms: afterMs });
/** @type {() => Promise<Health>} */
export const readHealth = () => get(["health"]);
/** A page of docs/operations, which is a file of the console's. @param {string} page */
export async function readRunbook(page) {
  // The browser takes a page .. for the folder above, which is the console itself.
  if (!page.endsWith(".md")) throw new ApiError(404, `there is no page ${page}`);
  const answer = await fetch(`runbooks/${encodeURIComponent(page)}`, { cache: "no-store" }).catch(() => {
    throw new ApiError(0, "the gateway does not answer");
  });
  if (!answer.ok) throw new ApiError(answer.status, `there is no page ${page}`);
  return answer.text();
}
/** @type {() => Promise<Overview>} */
export const readOverview = () => get(["overview"]);
/** @type {() => Promise<TopKeys>} */
export const listTopKeys = () => get(["top-keys"]);
/** @type {() => Promise<RefusalsOfDay>} */
export const listRefusedToday = () => get(["refusals"]);
/** @type {() => Promise<Tiers>} */
export const listTiers = () => get(["tiers"]);
/** @type {() => Promise<List<Price>>} */
export const listPrices = () => get(["prices"]);
/** @type {() => Promise<List<Package>>} */
export const listPackages = () => get(["packages"]);
/** @type {() => Promise<Maintenance>} */
export const readMaintenance = () => get(["maintenance"]);
/** @type {(wanted: Body) => Promise<Maintenance>} */
export const setMaintenance = async (wanted) => (await write("PUT", ["maintenance"], wanted)).value;
/** @type {() => Promise<Configuration>} */
export const readConfiguration = () => get(["configuration"]);

/** @type {{ of: string | null, me: Whoami } | undefined} */
let known;

/** Who has signed in with the token of this tab, and what it may do. @param {string | null} of the token */
export async function signedIn(of) {
  if (isKnown(of)) return /** @type {NonNullable<typeof known>} */ (known).me;
  /** @type {Whoami} */
  const me = await get(["whoami"]);
  storage().setItem(STORED_WHO, JSON.stringify(me));
  known = { of, me };
  return me;
}

/** True if nobody need ask who has signed in. */
export function isKnown(of = token.get()) {
  if (known !== undefined && known.of === of) return true;
  const stored = of && storage().getItem(STORED_WHO);
  if (!stored) return false;
  known = { of, me: JSON.parse(stored) };
  // Behind what the view asks for.
  setTimeout(
    () =>
      void get(["whoami"]).then(
        (/** @type {Whoami} */ me) => keepWho(of, me),
        () => undefined,
      ),
  );
  return true;
}

/** The rights of the token may have changed since they were stored. @param {string | null} of @param {Whoami} me */
function keepWho(of, me) {
  const text = JSON.stringify(me);
  if (of !== token.get() || text === storage().getItem(STORED_WHO)) return;
  storage().setItem(STORED_WHO, text);
  known = { of, me };
  dispatchEvent(new Event("rights-changed"));
}

export const forgetSession = () => {
  known = undefined;
};

/** True if an action or a view is to be offered. The gateway checks for itself. @param {Scope} scope */
export const may = (scope) => known?.me.scopes.includes(scope) ?? false;

/** True for what is about all accounts, too. @param {Scope} scope */
export const mayOfAll = (scope) => may(scope) && ownAccounts() === null;

/** Scopes of the token in use: it can make no other with more. */
export const ownScopes = () => known?.me.scopes ?? [];

/** Accounts that the token in use is bound to; null for all. */
export const ownAccounts = () => known?.me.accounts ?? null;
