import { showAccount, showAccounts } from "./accounts.js";
import { get, token } from "./api.js";
import { say } from "./dialogs.js";
import { byId, el, heading } from "./dom.js";
import { showKeys } from "./keys.js";
import { showOverview, showState, showTrouble } from "./overview.js";
import { showRequest, showTasks } from "./tasks.js";

const view = byId("view");
const TITLES = {
  overview: "Overview",
  keys: "Keys",
  accounts: "Accounts",
  account: "Account",
  tasks: "Open tasks",
  find: "Find",
};

/** Ends what the view before has begun. */
let leave = () => {};
/** Counts views: an answer that comes after its view was left is dropped. */
let turn = 0;
let writable = false;

/** Shows what the address names after its #, such as `#account/acme`. */
async function show({ focus = true } = {}) {
  const [name = "", argument = ""] = location.hash.slice(1).split("/").map(decoded);
  const known = /** @type {keyof typeof TITLES} */ (Object.hasOwn(TITLES, name) ? name : "overview");
  const mine = ++turn;
  leave();
  leave = () => {};
  markCurrent(known === "account" ? "accounts" : known);
  document.title = `${argument || TITLES[known]} · Tollgate console`;
  try {
    // Also tells whether the token is right, before a view is begun.
    const live = await get("live", { after_ms: Number.MAX_SAFE_INTEGER });
    if (mine !== turn) return;
    writable = live.writable;
    showState(live.gateway);
    signedIn();
    const box = el("div", {});
    const elsewhere = await fill(known, argument, box);
    if (mine !== turn) return;
    if (elsewhere) return location.replace(elsewhere);
    if (known !== "overview") view.replaceChildren(box);
  } catch (error) {
    if (mine !== turn) return;
    const text = error instanceof Error ? error.message : String(error);
    if (!byId("sign-in").hidden) {
      byId("sign-in-error").textContent ||= token.get() ? text : "";
      return;
    }
    const trouble = el("p", { className: "error", role: "alert" }, text);
    view.replaceChildren(
      heading(TITLES[known], () => show()),
      trouble,
    );
    view.hidden = false;
  }
  if (focus) byId("view-title").focus();
}

/** @param {string} part of an address that somebody may have typed */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * @param {keyof typeof TITLES} name
 * @param {string} argument
 * @param {HTMLElement} box
 * @returns {Promise<string | void>} where to look instead
 */
async function fill(name, argument, box) {
  const again = () => void show();
  switch (name) {
    case "overview":
      leave = showOverview(view);
      return;
    case "keys":
      return showKeys(box, again);
    case "accounts":
      return showAccounts(box, again);
    case "account":
      return showAccount(box, again, argument, writable);
    case "tasks":
      return showTasks(box, again, writable);
    case "find": {
      const found = await get("find", { q: argument });
      if (found.kind === "request") return showRequest(box, again, found, writable);
      return `#account/${encodeURIComponent(found.account_id)}`;
    }
  }
}

/** @param {string} name */
function markCurrent(name) {
  for (const link of byId("nav").querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function signedIn() {
  byId("sign-in").hidden = true;
  view.hidden = false;
  byId("sign-out").hidden = !token.get();
  byId("read-only").hidden = writable;
}

addEventListener("token-needed", (event) => {
  const { detail } = /** @type {CustomEvent<string>} */ (event);
  leave();
  leave = () => {};
  // A token that was given and is wrong is worth a word; none given is not.
  byId("sign-in-error").textContent = token.get() ? detail : "";
  token.forget();
  byId("sign-out").hidden = true;
  view.hidden = true;
  view.replaceChildren();
  byId("sign-in").hidden = false;
  byId("token").focus();
});

byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("token", HTMLInputElement);
  token.set(input.value.trim());
  input.value = "";
  byId("sign-in-error").textContent = "";
  void show();
});

byId("sign-out").addEventListener("click", () => {
  token.forget();
  say("The token is forgotten.");
  void show();
});

byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const hash = `#find/${encodeURIComponent(byId("find-id", HTMLInputElement).value.trim())}`;
  if (location.hash === hash) void show();
  else location.hash = hash;
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

addEventListener("hashchange", () => {
  say("");
  void show();
});
addEventListener("unhandledrejection", (event) => showTrouble(event.reason));
void show({ focus: false });
