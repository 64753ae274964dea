import { button, byId, el, say } from "./dom.js";
import { fieldOf, isIncomplete, valuesOf } from "./fields.js";
import { capitalized } from "./format.js";
import { ApiError, token } from "./transport.js";

const NOT_CONFIRMED =
  "Not confirmed: too few replicas have it, and a failover may lose it. Repeat it when they are back: it is not done twice.";

/** Of the fields of a form only a moment can be half filled; numbers are text that is checked. */
const INCOMPLETE = "must have a date and a time, or be empty";

/** @import { Field } from "./fields.js" */
/** @typedef {Record<string, string>} Values */
/** @typedef {string | (Node | string)[]} Words a sentence; what it names may be links */

/**
 * What was done: a sentence for the status line, and perhaps a secret that is shown this once.
 * @typedef {object} Done
 * @property {Words} said
 * @property {boolean | undefined} [confirmed]
 * @property {{ label: string, value: string, hint: string } | undefined} [secret]
 */

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {string[]} [lines] what will happen
 * @property {Field[]} [fields]
 * @property {string} verb on the button that does it
 * @property {boolean} [danger] it cannot be undone
 * @property {(values: Values) => string} [preview] what would come of it, said as one types
 * @property {(values: Values) => string | undefined} [doubt] asks again with these words before it is done
 * @property {(values: Values) => Promise<Done>} run
 */

/**
 * Asks before something is done, does it, and says in the page's status line what came of it. What the gateway refuses is
 * said in the dialog, which stays open with what was typed; so does it when the token is lost.
 * @param {Question} question
 * @returns {Promise<boolean>} whether it was done
 */
export function ask(question) {
  const dialog = byId("dialog", HTMLDialogElement);
  // Another button was pressed while what its question needs was read.
  if (dialog.open) return Promise.resolve(false);
  const form = byId("dialog-form", HTMLFormElement);
  const ending = new AbortController();
  const { signal } = ending;
  const state = { done: false, sure: "" };
  fill(question);

  return new Promise((resolve) => {
    byId("dialog-cancel").addEventListener("click", () => dialog.close(), { signal });
    // Escape must not lose a secret that is shown this once.
    dialog.addEventListener("cancel", (event) => form.querySelector(".secret") && event.preventDefault(), {
      signal,
    });
    dialog.addEventListener("close", () => end(state.done), { signal });
    form.addEventListener("input", () => showPreview(question, form), { signal });
    form.addEventListener("submit", (event) => void submit(event), { signal });
    dialog.showModal();
    showPreview(question, form);
    const [first] = question.fields ?? [];
    byId(first ? `field-${first.name}` : "dialog-cancel").focus();

    /** @param {boolean} done */
    function end(done) {
      ending.abort();
      byId("dialog-body").replaceChildren();
      resolve(done);
      if (!token.get()) dispatchEvent(new CustomEvent("token-needed", { detail: "" }));
    }

    /** @param {SubmitEvent} event */
    async function submit(event) {
      event.preventDefault();
      const ok = byId("dialog-ok", HTMLButtonElement);
      // Enter twice must not do it twice.
      if (ok.disabled) return;
      if (state.done) return dialog.close();
      const values = valuesOf(form);
      if (complain(question, values) || !takeToken() || !isSure(question, values, state)) return;
      ok.disabled = true;
      byId("dialog-error").textContent = "";
      try {
        const { said, confirmed, secret } = await question.run(values);
        state.done = true;
        say(...[said].flat(), confirmed === false ? ` ${NOT_CONFIRMED}` : "");
        if (secret) showSecret(secret);
        else dialog.close();
      } catch (failure) {
        byId("dialog-error").textContent = capitalized(
          failure instanceof Error ? failure.message : String(failure),
        );
        if (failure instanceof ApiError && failure.status === 401) askToken();
      } finally {
        ok.disabled = false;
      }
    }
  });
}

/** @param {Question} question */
function fill({ title, lines = [], fields = [], verb, danger }) {
  byId("dialog-body").replaceChildren(
    el("h2", { id: "dialog-title" }, title),
    ...lines.map((line) => el("p", {}, line)),
    ...fields.map(fieldOf),
  );
  const ok = byId("dialog-ok");
  ok.textContent = verb;
  ok.className = danger ? "danger" : "primary";
  byId("dialog-cancel").hidden = false;
  byId("dialog-token").hidden = true;
  byId("dialog-token-field", HTMLInputElement).value = "";
  for (const id of ["dialog-error", "dialog-preview", "dialog-doubt"]) byId(id).textContent = "";
}

/**
 * @param {Question} question
 * @param {HTMLFormElement} form
 */
function showPreview({ preview, verb }, form) {
  byId("dialog-preview").textContent = preview?.(valuesOf(form)) ?? "";
  // Another amount is another question.
  byId("dialog-doubt").textContent = "";
  if (byId("dialog-body").childElementCount > 0 && !form.querySelector(".secret"))
    byId("dialog-ok").textContent = verb;
}

/**
 * @param {Question} question
 * @param {Values} values
 * @returns {boolean} whether something is wrong
 */
function complain({ fields = [] }, values) {
  for (const field of fields) {
    const { name, label, check } = field;
    const wrong = isIncomplete(field) ? INCOMPLETE : check?.(values[name] ?? "", values);
    if (wrong === undefined) continue;
    byId("dialog-error").textContent = `${label} ${wrong}.`;
    byId(`field-${name}`).focus();
    return true;
  }
  return false;
}

/**
 * @param {Question} question
 * @param {Values} values
 * @param {{ sure: string }} state what was asked again about, and came again unchanged
 */
function isSure({ doubt, verb }, values, state) {
  const words = doubt?.(values);
  if (words === undefined || (state.sure === words && byId("dialog-doubt").textContent === words))
    return true;
  state.sure = words;
  byId("dialog-error").textContent = "";
  byId("dialog-doubt").textContent = words;
  byId("dialog-ok").textContent = `Yes, ${verb.toLowerCase()}`;
  return false;
}

/** The token was lost: what was typed stays, and another one is asked for beside it. */
function askToken() {
  token.forget();
  byId("dialog-token").hidden = false;
  byId("dialog-token-field").focus();
}

/** @returns {boolean} whether there is a token to go on with */
function takeToken() {
  const field = byId("dialog-token-field", HTMLInputElement);
  if (byId("dialog-token").hidden) return true;
  const value = field.value.trim();
  if (!value) {
    byId("dialog-error").textContent = "Give a token to go on; what you typed is kept.";
    field.focus();
    return false;
  }
  token.set(value);
  field.value = "";
  byId("dialog-token").hidden = true;
  return true;
}

/** @param {{ label: string, value: string, hint: string }} secret */
function showSecret({ label, value, hint }) {
  const shown = el("output", { className: "secret", tabIndex: 0, "aria-label": label }, value);
  const copied = el("span", { role: "status", className: "hint" });
  const copy = button("Copy", () => void copyText(shown, copied), { className: "primary" });
  byId("dialog-body").replaceChildren(
    el("h2", { id: "dialog-title" }, label),
    // Without its links: nobody leaves before the secret is kept.
    el("p", {}, byId("result").textContent),
    shown,
    el("p", { className: "actions" }, copy, copied),
    el("p", {}, hint),
  );
  byId("dialog-preview").textContent = "";
  byId("dialog-cancel").hidden = true;
  byId("dialog-ok").textContent = "I have it";
  byId("dialog-ok").className = "";
  copy.focus();
}

/**
 * @param {HTMLElement} shown
 * @param {HTMLElement} copied says what came of it
 */
async function copyText(shown, copied) {
  try {
    // Only there over HTTPS and on this machine.
    await navigator.clipboard.writeText(shown.textContent ?? "");
    copied.textContent = "Copied.";
  } catch {
    getSelection()?.selectAllChildren(shown);
    copied.textContent = "It is selected: copy it with Ctrl+C.";
  }
}
