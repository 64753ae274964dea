import { capitalized, count, momentText } from "./format.js";
import { hrefTo } from "./location.js";
import { may } from "./session.js";

/** @typedef {Node | string | number | undefined | null} Child */

/**
 * Makes an element. Text is only ever set as text: what comes from the store is never markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [props] properties; names with a dash and `role`, `scope` go in as attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "scope") element.setAttribute(name, String(value));
    else Reflect.set(element, name, value);
  }
  for (const child of children) {
    if (child !== undefined && child !== null) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/**
 * An element that is there.
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id
 * @param {new () => Kind} [kind]
 * @returns {Kind}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof (kind ?? HTMLElement))) throw new Error(`the page has no such #${id}`);
  return /** @type {Kind} */ (element);
}

/**
 * Says something to whoever looks or listens.
 * @param {...(Node | string)} words
 */
export function say(...words) {
  byId("result").replaceChildren(...words);
}

/** @param {unknown} error what stands where something could not be read */
export const failureNote = (error) =>
  el(
    "p",
    { className: "error", role: "alert" },
    capitalized(error instanceof Error ? error.message : String(error)),
  );

/** @param {string} text */
export const hint = (text) => el("p", { className: "hint" }, text);

/** @param {string} text something to know before what follows is trusted */
export const note = (text) => el("p", { className: "note" }, text);

/**
 * Says which partitions what is shown does not cover; nothing if it covers all.
 * @param {{ unread?: { partitions: number[], why: string } | null | undefined }} answer
 */
export const unreadNotes = ({ unread }) =>
  unread
    ? [
        note(
          `${count(unread.partitions.length)} partitions could not be read, and nothing of them is shown: ${unread.why}`,
        ),
      ]
    : [];

/**
 * A button that does something.
 * @param {string} label
 * @param {() => void} press
 * @param {Record<string, unknown>} [props]
 */
export function button(label, press, props = {}) {
  const made = el("button", { type: "button", ...props }, label);
  made.addEventListener("click", press);
  return made;
}

/**
 * The buttons of a view; none where nothing may be done.
 * @param {(HTMLElement | false | undefined)[]} buttons
 */
export function actions(...buttons) {
  const offered = buttons.filter((one) => one instanceof HTMLElement);
  return offered.length > 0 ? [el("p", { className: "actions" }, ...offered)] : [];
}

/**
 * @param {string} href
 * @param {Child} text
 */
export const link = (href, text) => el("a", { href }, text);

// An id leads to what it names where the token may read that; elsewhere it is text.

/** @param {string | null | undefined} id an account's */
export const accountLink = (id) =>
  id && may("accounts:read") ? link(hrefTo(["account", id]), id) : id || "–";

/**
 * @param {string | null | undefined} account
 * @param {string | null | undefined} key
 */
export function keyLink(account, key) {
  if (!key) return "–";
  const id = el("code", { className: "whole" }, key);
  return account && may("keys:read") ? link(hrefTo(["key", account, key]), id) : id;
}

/** @param {string | null | undefined} id a task's or a request's */
export function taskLink(id) {
  if (!id) return "–";
  return may("tasks:read") ? link(hrefTo(["task", id]), code(id)) : code(id);
}

/** @param {string} text an id or another name of the machine's */
export const code = (text) => el("code", {}, text);

const BADGES = {
  good: ["active", "completed", "in use", "ready", "good"],
  bad: ["closed", "revoked", "failed", "expired", "not ready", "mend"],
  warn: ["suspended", "held", "uncollected", "look"],
};

/** @param {string} text a state */
export function badge(text) {
  const kind = Object.entries(BADGES).find(([, words]) => words.includes(text))?.[0] ?? "plain";
  return el("span", { className: `badge ${kind}` }, text);
}

/**
 * A number against its limit, to look at and to read.
 * @param {number | null | undefined} used
 * @param {number | null | undefined} limit
 * @param {string} what
 */
export function usage(used, limit, what) {
  if (used === undefined || used === null) return "–";
  if (limit === undefined || limit === null) return count(used);
  const share = limit > 0 ? used / limit : 1;
  const className = `use ${share >= 1 ? "full" : share >= 0.8 ? "near" : ""}`;
  return el(
    "span",
    { className },
    `${count(used)} / ${count(limit)} `,
    el("meter", {
      max: 1,
      low: 0.8,
      high: 0.999,
      optimum: 0,
      value: Math.min(1, share),
      "aria-label": `${what}: share of the limit`,
    }),
  );
}

/**
 * A number with a bar beside it, as long as its share of the largest.
 * @param {number} number
 * @param {number} most
 */
export function bar(number, most) {
  const length = el("i", { className: "bar-length" });
  length.style.width = `${most > 0 ? (100 * number) / most : 0}%`;
  return el(
    "span",
    { className: "use" },
    count(number),
    el("span", { className: "bar-box", "aria-hidden": "true" }, length),
  );
}

/** @param {string | null | undefined} iso */
export const moment = (iso) => (iso ? el("time", { dateTime: iso }, momentText(iso)) : "–");

/** @param {[string, Node | string, ...string[]][]} facts label, value and perhaps lines below */
export const tiles = (facts) =>
  el(
    "dl",
    { className: "tiles" },
    ...facts.map(([label, value, ...below]) =>
      el(
        "div",
        { className: "tile" },
        el("dt", {}, label),
        typeof value === "string" ? figure(value) : el("dd", {}, value),
        ...below.map((line) => el("dd", { className: "unit" }, line)),
      ),
    ),
  );

/** @param {string} text a number that may have many digits: it is cut after a comma, if at all */
function figure(text) {
  const parts = text.split(/(?<=,)/).flatMap((part) => [el("wbr"), part]);
  return el("dd", { className: text.length > 9 ? "long" : undefined }, ...parts);
}

/** @param {[string, Child | Child[]][]} facts label and value; those whose value is undefined are left out */
export const factList = (facts) =>
  el(
    "dl",
    { className: "facts" },
    ...facts
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, ...[value].flat())]),
  );

/**
 * The heading of a view, with a button that reads it anew.
 * @param {Child | Child[]} title
 * @param {() => void} [refresh]
 * @param {...Child} more beside it
 */
export function heading(title, refresh, ...more) {
  const made = el("h2", { id: "view-title", tabIndex: -1 }, ...[title].flat());
  const now = new Date().toISOString().slice(11, 19);
  const again = refresh && [
    el("p", { className: "asof" }, `as of ${now} UTC`),
    button("Read again", refresh, { className: "quiet" }),
  ];
  return el("div", { className: "heading" }, made, ...more, ...(again ?? []));
}
