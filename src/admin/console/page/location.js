import { may } from "./api.js";

/**
 * Where somebody is: all of it stands in the address after its #, as in `#account/acme/transactions?type=refund`, so that
 * Back, a reload and a link to a colleague lead to the same.
 * @typedef {object} Place
 * @property {string} view
 * @property {string[]} args
 * @property {URLSearchParams} query
 */

/** @returns {Place} */
export function here() {
  const [path = "", search = ""] = splitOnce(location.hash.slice(1), "?");
  const [view = "", ...args] = path.split("/").map(decoded);
  return { view, args, query: new URLSearchParams(search) };
}

/** @param {string[]} parts @param {Record<string, string | number | undefined>} [query] what is missing or empty is left out */
export function hrefTo(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  return `#${parts.map((part) => encodeURIComponent(part)).join("/")}${search.size > 0 ? `?${search}` : ""}`;
}

/** A page's cursor belongs to the query it was made for. @param {Record<string, string | number | undefined>} changes of the query */
export function hrefHere(changes) {
  const { view, args, query } = here();
  const { cursor: _, ...rest } = Object.fromEntries(query);
  return hrefTo([view, ...args], { ...rest, ...changes });
}

/** Tells that a view is to be looked at elsewhere. @param {string} href */
export const placeAt = (href) => new URL(href, location.href);

/** Changes how this view looks, without a step of its own for Back. @param {Record<string, string | number | undefined>} changes */
export function noteHere(changes) {
  const { view, args, query } = here();
  history.replaceState(null, "", hrefTo([view, ...args], { ...Object.fromEntries(query), ...changes }));
}

/** Where something that was found is shown. @param {Found} found */
export function placeOf({ kind, id, account_id, key_id }) {
  if (kind === "refusal")
    return may("keys:read")
      ? hrefTo(["key", account_id ?? "", key_id ?? ""], { request_id: id })
      : hrefTo(["account", account_id ?? "", "refusals"], { key_id: key_id ?? "" });
  if (kind === "key") return hrefTo(["key", account_id ?? "", id]);
  if (kind === "reference") return hrefTo(["account", account_id ?? "", "transactions"], { reference: id });
  if (kind === "transaction") return hrefTo(["account", account_id ?? "", "transactions"], { id });
  if (kind === "audit") return hrefTo(["audit"], { audit_id: id, account_id: account_id ?? "" });
  if (kind === "token") return hrefTo(["tokens"], { token_id: id });
  if (kind === "task" || kind === "request") return hrefTo(["task", id]);
  return hrefTo(["account", account_id ?? id]);
}

/** A page of a list as the address names it. @param {URLSearchParams} query @param {string[]} names of filters @param {number} limit */
export const pageOf = (query, names, limit = 50) => ({
  ...Object.fromEntries([...names, "cursor"].map((name) => [name, query.get(name) ?? ""])),
  limit,
});

/** @param {string} text @param {string} at */
function splitOnce(text, at) {
  const index = text.indexOf(at);
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index + 1)];
}

/** @param {string} part of an address that somebody may have typed */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
