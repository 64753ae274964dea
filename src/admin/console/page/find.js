import { may, search } from "./api.js";
import { byId, html, link, render, say } from "./dom.js";
import { capitalized, wordsOf } from "./format.js";
import { hrefTo, placeOf } from "./location.js";
import { isSecret, SECRET_SEARCHED } from "./requests.js";
import { openLeakedKey } from "./views/leaked-key.js";

const PAUSE_MS = 250;
const LETTERS_MIN = 2;
const SHOWN_MAX = 8;

const field = () => byId("find-id", HTMLInputElement);
/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;
/** Counts what was typed: an answer to something else is dropped. */
let typed = 0;

/** The field at the top: it finds as one types, a moment after the last letter. */
export function offerSearch() {
  byId("find").hidden = !may("accounts:read");
}

function close() {
  typed++;
  clearTimeout(waiting);
  render(null, byId("found"));
}

/** Whoever signs in next does not see the last search. */
export function closeSearch() {
  close();
  field().value = "";
  byId("find").hidden = true;
}

async function look() {
  const mine = ++typed;
  const q = field().value.trim();
  if (isSecret(q)) return tellOfSecret(q);
  if (q.length < LETTERS_MIN) return render(null, byId("found"));
  const answer = await search(q).catch((error) => ({ error }));
  if (mine !== typed) return;
  // Hits of the letters before are not of these.
  if ("error" in answer) return tellOfNone(capitalized(wordsOf(answer.error)));
  const { data, complete } = answer;
  const rest = data.length > SHOWN_MAX || !complete;
  render(
    html`<ul>${data.slice(0, SHOWN_MAX).map(foundLine)}
      ${data.length === 0 && html`<li class="found-none">Nothing begins with this.</li>`}
      ${rest && html`<li>${link(hrefTo(["search"], { q }), "All that was found")}</li>`}</ul>`,
    byId("found"),
  );
}

/** It is asked for only once somebody wants it, and in no address. @param {string} q */
const tellOfSecret = (q) =>
  q.startsWith("sk_") && may("keys:read")
    ? tellOfNone("A key: Enter leads to its page, where it can be replaced at once.")
    : render(null, byId("found"));

/** @param {string} words in place of what is found */
const tellOfNone = (words) => render(html`<ul><li class="found-none">${words}</li></ul>`, byId("found"));

/** @param {Found} one */
const foundLine = (one) =>
  html`<li>${link(placeOf(one), [html`<span class="found-name">${one.label ?? one.id}</span> `, html`<span class="found-more">${[one.kind, one.metadata, one.label && one.id, one.account_id !== one.id && one.account_id].filter(Boolean).join(", ")}</span>`])}</li>`;

byId("find").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => void look(), PAUSE_MS);
});
byId("find").addEventListener("focusout", ({ relatedTarget }) => {
  if (!(relatedTarget instanceof Node && byId("find").contains(relatedTarget))) close();
});
byId("find").addEventListener("keydown", (event) => {
  const stops = [field(), ...byId("found").querySelectorAll("a")];
  const at = stops.indexOf(/** @type {HTMLInputElement} */ (document.activeElement));
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") close();
  if (!step) return;
  event.preventDefault();
  stops[Math.max(0, at + step)]?.focus();
});
byId("found").addEventListener("click", close);

byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  close();
  const q = field().value.trim();
  if (isSecret(q)) {
    // Not even for a moment in the address: the browser would keep it in its history.
    field().value = "";
    if (!q.startsWith("sk_") || !may("keys:read")) return say(SECRET_SEARCHED);
  }
  // The view that is found takes the focus.
  field().blur();
  if (isSecret(q)) return void openLeakedKey(q);
  const href = hrefTo(["search"], { q });
  if (location.hash === href) dispatchEvent(new Event("hashchange"));
  else location.hash = href;
});

addEventListener("keydown", (event) => {
  const isTyping = document.activeElement?.matches("input, select, textarea") ?? false;
  if (event.key !== "/" || isTyping || byId("dialog", HTMLDialogElement).open || byId("find").hidden) return;
  event.preventDefault();
  field().select();
});
