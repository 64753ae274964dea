const STORED = "tollgate-admin-token";
/** Relative, so that it holds behind a proxy's prefix too. */
const API = "../manage/v1";
const PATIENCE_MS = 20_000;

/** A request that was answered with an error, in words. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 where nothing was answered
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The token lives in this tab, and goes out in a header that no other site can add. */
export const token = {
  get: () => sessionStorage.getItem(STORED),
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(STORED, value),
  forget: () => sessionStorage.removeItem(STORED),
};

/** @typedef {Record<string, string | number | undefined>} Query values that are missing or empty are not sent */

/**
 * @param {(string | number)[]} parts
 * @param {Query} [query]
 */
export function pathOf(parts, query = {}) {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  return search.size > 0 ? `${path}?${search}` : path;
}

/**
 * @param {string} path of `pathOf`
 * @returns {Promise<any>}
 */
export const get = async (path) => (await request(path, {})).value;

/**
 * Reads an object and the tag of its state, which a later change names.
 * @param {string} path
 * @returns {Promise<{ value: any, etag: string | null }>}
 */
export const getTagged = (path) => request(path, {});

/**
 * @param {"POST" | "PATCH"} method
 * @param {string} path
 * @param {Record<string, unknown>} body
 * @param {{ etag?: string | null, idempotencyKey?: string }} [options]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, { etag, idempotencyKey } = {}) {
  const headers = new Headers({ "Content-Type": "application/json" });
  if (etag) headers.set("If-Match", etag);
  if (idempotencyKey) headers.set("Idempotency-Key", idempotencyKey);
  return (await request(path, { method, headers, body: JSON.stringify(body) })).value;
}

/**
 * Books money. The same reference again changes nothing, and is told by the status.
 * @param {string} path
 * @param {Record<string, unknown>} body
 * @returns {Promise<{ value: any, isRepeat: boolean }>}
 */
export async function book(path, body) {
  const headers = { "Content-Type": "application/json" };
  const { value, status } = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
  return { value, isRepeat: status === 200 };
}

/**
 * @param {string} path
 * @param {RequestInit} init
 */
async function request(path, init) {
  const headers = new Headers(init.headers);
  headers.set("X-Tollgate-Client", "console");
  const secret = token.get();
  if (secret) headers.set("Authorization", `Bearer ${secret}`);
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const response = await fetch(`${API}/${path}`, {
    ...init,
    headers,
    cache: "no-store",
    signal: patience,
  }).catch(() => {
    throw new ApiError(0, "the gateway does not answer");
  });
  const value = await response.json().catch(() => ({}));
  if (response.ok) return { value, etag: response.headers.get("ETag"), status: response.status };
  const error = new ApiError(response.status, wordsOf(value, response.status));
  // Of several answers the first one gives the token up; the others say nothing of one that was given since.
  if (response.status === 401 && secret === token.get()) {
    dispatchEvent(new CustomEvent("token-needed", { detail: error.message }));
  }
  throw error;
}

/**
 * A problem (RFC 9457) in a sentence.
 * @param {any} problem
 * @param {number} status
 */
function wordsOf(problem, status) {
  if (status === 412) return "somebody else has changed it meanwhile; close this and read it again";
  const said = problem.detail ?? problem.title ?? `the gateway answered ${status}`;
  /** @type {{ path?: string, message: string }[]} */
  const errors = Array.isArray(problem.errors) ? problem.errors : [];
  const more = errors
    .filter(({ message }) => !said.toLowerCase().includes(message.toLowerCase()))
    .map(({ path, message }) => [path, message].filter(Boolean).join(": "));
  return [said, ...more].join("; ");
}
