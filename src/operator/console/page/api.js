/** @import { Answers, Outcomes } from "../answers.ts" */

const STORED = "tollgate-admin-token";

/** A request that was answered with an error, in words. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The admin token lives in this tab, and goes out in a header that no other site can add. */
export const token = {
  get: () => sessionStorage.getItem(STORED),
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(STORED, value),
  forget: () => sessionStorage.removeItem(STORED),
};

/**
 * @template {keyof Answers} Name
 * @param {Name} name
 * @param {Record<string, string | number>} [query]
 * @returns {Promise<Answers[Name]>}
 */
export function get(name, query = {}) {
  const search = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]));
  return request(`api/${name}?${search}`, {});
}

/**
 * @template {keyof Outcomes} Name
 * @param {Name} name
 * @param {Record<string, unknown>} body
 * @returns {Promise<Outcomes[Name]>}
 */
export function post(name, body) {
  return request(`api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

/**
 * @param {string} url
 * @param {RequestInit} init
 */
async function request(url, init) {
  const headers = new Headers(init.headers);
  const secret = token.get();
  if (secret) headers.set("Authorization", `Bearer ${secret}`);
  const patience = AbortSignal.timeout(20_000);
  const response = await fetch(url, { ...init, headers, cache: "no-store", signal: patience }).catch(() => {
    throw new ApiError(0, "the gateway does not answer");
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const error = new ApiError(response.status, answer.error ?? `the gateway answered ${response.status}`);
  if (response.status === 401) dispatchEvent(new CustomEvent("token-needed", { detail: error.message }));
  throw error;
}
