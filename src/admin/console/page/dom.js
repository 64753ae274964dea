import { may } from "./api.js";
import { capitalized, count, momentText, wordsOf } from "./format.js";
import htm from "./htm.js";
import { hrefTo } from "./location.js";
import { Component, createRef, Fragment, h, render } from "./preact.js";

// The other modules have it from here, so that it is imported once when all are served as one script.
export { Component, createRef, Fragment, h, render };

/** @typedef {import("./preact.js").ComponentChildren} Content */

/** Characters that would turn the direction of the words of the page behind them, too. */
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;

/** As the command line shows them. @param {Content} content @returns {Content} */
function asVisible(content) {
  if (Array.isArray(content)) return content.map(asVisible);
  return typeof content === "string"
    ? content.replace(TURNING, (char) => `\\u${char.charCodeAt(0).toString(16)}`)
    : content;
}

/** Markup as a template. Text is only ever set as text: what comes from the store is never markup. */
export const html = htm.bind((type, props, ...children) => h(type, props, ...children.map(asVisible)));

/** @template {HTMLElement} [Kind=HTMLElement] @param {string} id @param {new () => Kind} [kind] @returns {Kind} */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof (kind ?? HTMLElement))) throw new Error(`the page has no such #${id}`);
  return /** @type {Kind} */ (element);
}

/** Tells whoever looks or listens. @param {Content} words */
export const say = (words) => render(words, byId("result"));

/** Leads to another view, where what was said last stays in sight. @param {string} href */
export function leaveFor(href) {
  const said = byId("result").textContent ?? "";
  addEventListener("hashchange", () => say(said), { once: true });
  location.hash = href;
}

/** Stands in place of something that could not be read. @param {unknown} error */
export const failureNote = (error) => html`<p class="error" role="alert">${capitalized(wordsOf(error))}</p>`;

/** @param {Content} text */
export const hint = (text) => html`<p class="hint">${text}</p>`;

/** Something to know before what follows is trusted. @param {Content} text */
export const note = (text) => html`<p class="note">${text}</p>`;

/** @param {{ unread?: { partitions: number[], why: string } | null | undefined }} answer */
export const unreadNote = ({ unread }) =>
  unread &&
  note(
    `${count(unread.partitions.length)} partitions could not be read, and nothing of them is shown: ${unread.why}`,
  );

/** @param {string} label @param {(event: MouseEvent) => void} press @param {Record<string, unknown>} [props] */
export const button = (label, press, props = {}) =>
  html`<button type="button" onClick=${press} ...${props}>${label}</button>`;

/** The view is read anew where it was done. @param {string} label @param {() => Promise<boolean>} ask @param {() => void} again @param {string} [kind] @param {string} [said] what is said of the button where its label is not enough */
export const asking = (label, ask, again, kind, said) =>
  button(label, () => void ask().then((done) => done && again()), { class: kind, "aria-label": said });

/** The buttons of a view; none where nothing may be done. @param {Content[]} buttons */
export const actions = (...buttons) => buttons.some(Boolean) && html`<p class="actions">${buttons}</p>`;

/** @param {string} href @param {Content} text */
export const link = (href, text) => html`<a href=${href}>${text}</a>`;

/** Links of which one is where one is. @param {{ href: string, text: string, current: boolean }[]} links @param {string} [as] */
export const choices = (links, as = "page") =>
  links.map(
    // With the page's path: a link to a place in it that is scrolled out of sight is taken for one that skips to it.
    ({ href, text, current }) =>
      html`<a href=${location.pathname + href} aria-current=${current ? as : undefined}>${text}</a>`,
  );

// An id leads to what it names where the token may read that; elsewhere it is text.

/** @param {string | null | undefined} id an account's @param {string | null | undefined} [label] */
export const accountLink = (id, label) =>
  labelled(id && may("accounts:read") ? link(hrefTo(["account", id]), id) : id || "–", label);

/** @param {string | null | undefined} account @param {string | null | undefined} key @param {string | null | undefined} [label] */
export function keyLink(account, key, label) {
  if (!key) return "–";
  const id = html`<code class="whole">${key}</code>`;
  return labelled(account && may("keys:read") ? link(hrefTo(["key", account, key]), id) : id, label);
}

/** The label below an id. @param {Content} id @param {string | null | undefined} label */
const labelled = (id, label) => (label ? [id, html`<div class="hint">${label}</div>`] : id);

/** @param {string | null | undefined} id a task's or a request's */
export function taskLink(id) {
  if (!id) return "–";
  return may("tasks:read") ? link(hrefTo(["task", id]), code(id)) : code(id);
}

/** The subject of a record of the audit, unless it is the account. @param {AuditRecord} record */
export function targetOf({ action, account_id: account, target, key_label }) {
  if (!target || target === account) return "–";
  if (action.startsWith("key.")) return keyLink(account, target, key_label);
  if (action.startsWith("webhook.") && may("webhooks:write"))
    return link(hrefTo(["webhook", account ?? "", target]), code(target));
  return action.startsWith("task.") ? taskLink(target) : code(target);
}

/** @param {string} text an id or another name of the machine's */
export const code = (text) => html`<code>${text}</code>`;

/** @param {string} words with names of the machine's between backquotes */
export const marked = (words) => words.split("`").map((part, at) => (at % 2 === 1 ? code(part) : part));

const BADGES = {
  good: ["active", "completed", "delivered", "enabled", "in use", "ready", "good"],
  bad: ["closed", "revoked", "failed", "disabled", "expired", "not ready", "mend"],
  warn: ["suspended", "held", "uncollected", "look"],
};

/** @param {string} text a state */
export function badge(text) {
  const kind = Object.entries(BADGES).find(([, words]) => words.includes(text))?.[0] ?? "plain";
  return html`<span class=${`badge ${kind}`}>${text}</span>`;
}

/** @param {number | null | undefined} used @param {number | null | undefined} limit @param {string} what */
export function usage(used, limit, what) {
  if (used === undefined || used === null) return "–";
  if (limit === undefined || limit === null) return count(used);
  const share = limit > 0 ? used / limit : 1;
  const kind = `use ${share >= 1 ? "full" : share >= 0.8 ? "near" : ""}`;
  return html`<span class=${kind}>${count(used)} / ${count(limit)} <meter max="1" low="0.8" high="0.999"
    optimum="0" value=${Math.min(1, share)} aria-label=${`${what}: share of the limit`} /></span>`;
}

/** A number with a bar beside it, as long as its share of the largest. @param {number} number @param {number} most */
export function bar(number, most) {
  const style = { width: `${most > 0 ? (100 * number) / most : 0}%` };
  return html`<span class="use">${count(number)}<span class="bar-box" aria-hidden="true"><i class="bar-length" style=${style} /></span></span>`;
}

/** @param {string | null | undefined} iso */
export function moment(iso) {
  if (!iso) return "–";
  const [day, time] = momentText(iso).split(" ");
  return html`<time datetime=${iso}><span>${day}</span> <span>${time}</span></time>`;
}

/** @param {Content[]} list of `tile` */
export const tiles = (...list) => html`<dl class="tiles">${list}</dl>`;

/** @param {string} label @param {Content} value @param {Content} [below] a line, or several @param {boolean} [alarm] */
export const tile = (label, value, below = [], alarm = false) =>
  html`<div class=${alarm ? "tile alarm" : "tile"}>
    <dt>${label}</dt>
    ${typeof value === "string" ? figure(value) : html`<dd>${value}</dd>`}
    ${[below].flat().map((line) => html`<dd class="unit">${line}</dd>`)}
  </div>`;

/** @param {string} text a number that may have many digits: it is cut after a comma, if at all; or a word */
const figure = (text) =>
  html`<dd class=${text.length > 9 || /[a-z]{8}/.test(text) ? "long" : undefined}>${text.split(/(?<=,)/).map((part, at) => [at > 0 && html`<wbr />`, part])}</dd>`;

/** @param {[string, Content][]} facts label and value; those without a value are left out */
export const factList = (facts) =>
  html`<dl class="facts">${facts
    .filter(([, value]) => value)
    .map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>`;

/** @param {Content} title @param {() => void} [refresh] reads the view anew @param {Content} [more] beside it */
export const heading = (title, refresh, more) =>
  html`<div class="heading"><h2 id="view-title" tabindex="-1">${title}</h2>${more}
    ${
      refresh && [
        html`<p class="asof">as of ${new Date().toISOString().slice(11, 19)} UTC</p>`,
        button("Refresh", refresh, { class: "quiet" }),
      ]
    }
  </div>`;
