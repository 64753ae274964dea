import { ApiError, post } from "./api.js";
import { byId, el } from "./dom.js";

const NOT_CONFIRMED =
  "Not confirmed: too few replicas have it, and a failover may lose it. Repeat it when they are back: it is not done twice.";

/** @import { Outcomes } from "../answers.ts" */
/** @typedef {{ name: string, label: string, hint: string, type?: "number", pattern?: RegExp, wrong?: string }} Field */

/**
 * Asks before something is done, does it, and says in the page's status line what came of it. What the gateway
 * refuses is said in the dialog, which stays open.
 * @template {keyof Outcomes} Name
 * @param {object} question
 * @param {string} question.title
 * @param {string[]} question.lines what will happen
 * @param {Field[]} [question.fields]
 * @param {string} question.verb on the button that does it
 * @param {boolean} [question.danger] it cannot be undone
 * @param {Name} question.action name of the API's action
 * @param {(values: Record<string, string>) => Record<string, unknown>} question.body
 * @param {(answer: Outcomes[Name], values: Record<string, string>) => string} question.done the answer in words
 * @returns {Promise<boolean>} whether it was done
 */
export function ask(question) {
  const dialog = byId("dialog", HTMLDialogElement);
  const form = byId("dialog-form", HTMLFormElement);
  const ok = byId("dialog-ok", HTMLButtonElement);
  const [cancel, error] = [byId("dialog-cancel"), byId("dialog-error")];
  const { fields = [] } = question;
  const title = el("h2", { id: "dialog-title" }, question.title);
  const lines = question.lines.map((line) => el("p", {}, line));
  byId("dialog-body").replaceChildren(title, ...lines, ...fields.map(input));
  ok.textContent = question.verb;
  ok.className = question.danger ? "danger" : "primary";
  error.textContent = "";

  return new Promise((resolve) => {
    let done = false;
    const ending = new AbortController();
    const { signal } = ending;
    cancel.addEventListener("click", () => dialog.close(), { signal });
    dialog.addEventListener(
      "close",
      () => {
        ending.abort();
        resolve(done);
      },
      { signal },
    );
    form.addEventListener(
      "submit",
      async (event) => {
        event.preventDefault();
        // Enter twice must not do it twice.
        if (ok.disabled) return;
        const values = valuesOf(form);
        const wrong = fields.find(({ name, pattern }) => pattern && !pattern.test(values[name] ?? ""));
        if (wrong) {
          error.textContent = wrong.wrong ?? `${wrong.label} is not right`;
          byId(`field-${wrong.name}`).focus();
          return;
        }
        ok.disabled = true;
        error.textContent = "";
        try {
          const answer = await post(question.action, question.body(values));
          const said = question.done(answer, values);
          say(answer.confirmed === false ? `${said} ${NOT_CONFIRMED}` : said);
          done = true;
          dialog.close();
        } catch (failure) {
          error.textContent = failure instanceof Error ? failure.message : String(failure);
          // The sign-in form is behind the dialog.
          if (failure instanceof ApiError && failure.status === 401) dialog.close();
        } finally {
          ok.disabled = false;
        }
      },
      { signal },
    );
    dialog.showModal();
    if (fields[0]) byId(`field-${fields[0].name}`).focus();
    else cancel.focus();
  });
}

/** @param {HTMLFormElement} form */
function valuesOf(form) {
  /** @type {Record<string, string>} */
  const values = {};
  for (const [name, value] of new FormData(form)) values[name] = String(value).trim();
  return values;
}

/** @param {Field} field */
function input({ name, label, hint, type }) {
  const id = `field-${name}`;
  return el(
    "div",
    { className: "field" },
    el("label", { htmlFor: id }, label),
    el("input", {
      id,
      name,
      autocomplete: "off",
      spellcheck: false,
      maxLength: 200,
      inputMode: type === "number" ? "numeric" : "text",
      "aria-describedby": `${id}-hint dialog-error`,
    }),
    el("p", { id: `${id}-hint`, className: "hint" }, hint),
  );
}

/**
 * Says something to whoever looks or listens.
 * @param {string} text
 */
export function say(text) {
  byId("result").textContent = text;
}
