import { ApiError, forgetSession, may, ownAccounts, ownScopes, STORED, signedIn, token } from "./api.js";
import { byId, choices, Fragment, failureNote, h, heading, note, render, say } from "./dom.js";
import { closeSearch, offerSearch } from "./find.js";
import { capitalized, wordsOf } from "./format.js";
import { showState } from "./health.js";
import { here, hrefTo } from "./location.js";
import { begun, readinessRequest } from "./requests.js";
import { showAccount, showAccounts } from "./views/accounts.js";
import { showKey, showKeys } from "./views/key.js";
import { showOverview } from "./views/overview.js";

/**
 * @typedef {object} Context
 * @property {Place} place
 * @property {AbortSignal} signal fires when the view is left
 * @property {Promise<Live> | undefined} live what the state at the top is shown from
 * @property {() => void} again reads the view anew
 * @property {typeof loadMore} more
 */

/**
 * @typedef {object} View
 * @property {string} title
 * @property {Scope} [scope] the right that it needs to be offered
 * @property {boolean} [ofAll] it is about all accounts: not for a token that may use some only
 * @property {string} [under] the view that it belongs to in the navigation
 * @property {(context: Context) => Promise<Content | URL>} show an address is where to look instead
 */

/** Views that are seldom the first one, and a form that few open: loaded once, with the first of them. */
const loadMore = () =>
  import("./more.js").catch(() => {
    throw new ApiError(0, "this view did not come from the gateway; load the page anew");
  });

/** @param {Exclude<keyof typeof import("./more.js"), "askMaintenance" | import("./views/accounts.js").LaterPart>} name @returns {View["show"]} */
const later = (name) => async (context) => (await context.more())[name](context);

/** By name in the address, in the order of the navigation. @type {Record<string, View>} */
const VIEWS = {
  overview: { title: "Overview", scope: "usage:read", ofAll: true, show: showOverview },
  accounts: { title: "Accounts", scope: "accounts:read", show: showAccounts },
  account: { title: "Account", under: "accounts", show: showAccount },
  key: { title: "Key", under: "accounts", show: showKey },
  webhook: { title: "Endpoint", under: "accounts", show: later("showWebhook") },
  tasks: { title: "Open tasks", scope: "tasks:read", ofAll: true, show: later("showOpenTasks") },
  task: { title: "Task", under: "accounts", show: later("showTask") },
  top: { title: "Top accounts", scope: "usage:read", ofAll: true, show: later("showTop") },
  sales: { title: "Sold", scope: "usage:read", ofAll: true, show: later("showSales") },
  keys: { title: "Keys today", scope: "keys:read", ofAll: true, show: showKeys },
  configuration: {
    title: "Configuration",
    scope: "accounts:read",
    ofAll: true,
    show: later("showConfiguration"),
  },
  audit: { title: "Audit", scope: "audit:read", show: later("showAudit") },
  tokens: { title: "Tokens", scope: "tokens:write", show: later("showTokens") },
  runbook: { title: "Runbook", under: "overview", show: later("showRunbook") },
  search: { title: "Search", under: "accounts", show: later("showSearch") },
};

/** Stands in for all views where the token is offered none. @type {View} */
const NOTHING = {
  title: "Nothing to show",
  async show() {
    const accounts = ownAccounts();
    const only = accounts ? `, for ${accounts.join(", ")} only` : "";
    const has = `It has ${ownScopes().join(", ")}${only}.`;
    return [heading("Nothing to show"), note(`This token can read nothing that a view shows. ${has}`)];
  },
};

/** True if the token may see the view. @param {View} view */
const isOffered = ({ scope, ofAll = false }) =>
  scope !== undefined && may(scope) && !(ofAll && ownAccounts() !== null);

const box = byId("view");
/** Counts views: an answer that comes after its view was left is dropped. */
let turn = 0;
/** Ends what the view before has begun. */
let leaving = new AbortController();

async function show({ focus = true } = {}) {
  const mine = ++turn;
  // Whoever goes through the choices of a filter by keyboard stays there.
  const held = document.activeElement instanceof HTMLSelectElement ? document.activeElement.id : "";
  box.setAttribute("aria-busy", "true");
  // Until the next view is drawn its predecessor is in sight, whose buttons would act on something else.
  box.inert = true;
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  try {
    const me = await signedIn(token.get());
    if (mine !== turn) return;
    byId("who").textContent = me.label;
    const { place, name, view } = shown();
    document.title = `${place.args[0] ?? view.title} · Tollgate console`;
    offerViews(view.under ?? name);
    const { live } = readinessRequest(place);
    const shows = view.show({ place, signal, live, again: () => void show(), more: loadMore });
    // Nobody waits for the view where the state says that the token has ended.
    shows.catch(() => undefined);
    await showState(live, signal);
    if (mine !== turn) return;
    unlock();
    const made = await shows;
    if (mine !== turn) return;
    if (made instanceof URL) return location.replace(made);
    render(h(Fragment, { key: mine }, made), box);
  } catch (error) {
    if (mine !== turn) return;
    // Only the sign-in form is in sight.
    if (!byId("sign-in").hidden) return void signInFailed(error);
    unlock();
    const { title } = VIEWS[here().view] ?? { title: "Console" };
    render([heading(title, () => void show()), failureNote(error)], box);
  }
  settle(here());
  for (const nav of document.querySelectorAll("nav")) centreCurrent(nav);
  // Whoever searches meanwhile goes on with that.
  const isTyping = document.activeElement === byId("find-id");
  if (focus && !isTyping) (document.getElementById(held) ?? document.getElementById("view-title"))?.focus();
}

/** The view that the address names; the first that the token may see where it names none. */
function shown() {
  const [first] = Object.entries(VIEWS).find(([, view]) => isOffered(view)) ?? [];
  const named = Object.hasOwn(VIEWS, here().view) ? VIEWS[here().view] : undefined;
  // A token that is offered no view may still read what a link leads to, such as a task.
  if (first === undefined && !named?.under) return { place: here(), name: "", view: NOTHING };
  if (named === undefined) history.replaceState(null, "", hrefTo([first ?? "overview"]));
  const place = here();
  return { place, name: place.view, view: /** @type {View} */ (VIEWS[place.view]) };
}

/** Where the links scroll sideways, the one in sight is in sight. @param {HTMLElement} nav */
function centreCurrent(nav) {
  const link = nav.querySelector("[aria-current]");
  if (!(link instanceof HTMLElement)) return;
  nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
}

/** @param {Place} place */
function settle({ view, args }) {
  begun.clear();
  box.dataset.place = [view, ...args].join("/");
  box.removeAttribute("aria-busy");
  box.inert = false;
}

/** The views that the token may read; the one in sight is marked. @param {string} current */
function offerViews(current) {
  const links = Object.entries(VIEWS)
    .filter(([, view]) => isOffered(view) && !view.under)
    .map(([name, { title }]) => ({ href: hrefTo([name]), text: title, current: name === current }));
  render(choices(links), byId("nav"));
  offerSearch();
}

function unlock() {
  byId("sign-in").hidden = true;
  box.hidden = false;
  byId("sign-out").hidden = !token.get();
}

/** @param {string} why nothing where no token was given */
function lock(why) {
  turn++;
  leaving.abort();
  forgetSession();
  token.forget();
  byId("sign-in-error").textContent = capitalized(why);
  byId("sign-out").hidden = true;
  closeSearch();
  say("");
  byId("who").textContent = "";
  byId("state").textContent = "";
  render(null, byId("nav"));
  box.hidden = true;
  render(null, box);
  byId("sign-in").hidden = false;
  byId("token").focus();
}

addEventListener("token-needed", (event) => {
  // A dialog asks for another token itself, and keeps what was typed.
  if (byId("dialog", HTMLDialogElement).open) return;
  const { detail } = /** @type {CustomEvent<string>} */ (event);
  // A token that was given and is wrong is worth a word; none given is not.
  lock(token.get() ? detail : "");
});

/** The token may be right, but nobody could say so: it goes back into the field, to be tried again. @param {unknown} error */
function signInFailed(error) {
  byId("token", HTMLInputElement).value = token.get() ?? "";
  forgetSession();
  token.forget();
  byId("sign-in-error").textContent =
    `${capitalized(wordsOf(error))}. Nobody was signed in; once that is mended, press the button again.`;
  byId("token").focus();
}

byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("token", HTMLInputElement);
  const open = byId("sign-in-button", HTMLButtonElement);
  token.set(input.value.trim(), Number(byId("kept", HTMLSelectElement).value));
  input.value = "";
  byId("sign-in-error").textContent = "";
  open.disabled = true;
  say("Asking the gateway …");
  void show().finally(() => {
    open.disabled = false;
    say("");
    if (!byId("sign-in").hidden) byId("token").focus();
  });
});

byId("sign-out").addEventListener("click", () => {
  lock("");
  say("You are signed out.");
});

// Signed in or out in another tab.
addEventListener("storage", ({ key }) => {
  if (key !== STORED) return;
  if (token.get()) void show();
  else if (byId("sign-in").hidden) lock("");
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

addEventListener("rights-changed", () => void show({ focus: false }));

addEventListener("hashchange", () => {
  say("");
  void show();
});
// Something that a button needs could not be read.
addEventListener("unhandledrejection", ({ reason }) => {
  if (byId("sign-in").hidden) say(capitalized(wordsOf(reason)));
});
void show({ focus: false });
