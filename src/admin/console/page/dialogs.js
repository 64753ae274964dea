import { ApiError, token } from "./api.js";
import { Copyable } from "./copyable.js";
import { button, byId, Component, html, render, say } from "./dom.js";
import { fieldOf, momentProblem, valuesOf } from "./fields.js";
import { capitalized, wordsOf } from "./format.js";

const NOT_CONFIRMED =
  "Not confirmed: too few replicas have it, and a failover may lose it. Repeat it when they are back: it is not done twice.";

/** @typedef {Record<string, string>} Values */

/**
 * A sentence for the status line, and perhaps a secret that is shown this once.
 * @typedef {object} Done
 * @property {Content} [said] in place of the question's
 * @property {boolean | undefined} [confirmed]
 * @property {{ label: string, value: string, hint: string } | undefined} [shownOnce]
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
 * @property {Content} [said] once it is done
 */

/** Counts views: what is in sight when a question's needs were read may be another one. */
let views = 0;
addEventListener("hashchange", () => views++);

/**
 * Waits for what a question is made of; undefined if the view was left meanwhile: then it must not be asked.
 * @template Read @param {Promise<Read>} reading
 */
export async function unlessLeft(reading) {
  const before = views;
  const read = await reading;
  return views === before ? read : undefined;
}

/**
 * Asks before something is done, does it, and tells in the page's status line what came of it. What the gateway refuses is
 * told in the dialog, which stays open with what was typed; so does it when the token is lost.
 * @param {Question} question
 * @returns {Promise<boolean>} true if it was done
 */
export function ask(question) {
  const dialog = byId("dialog", HTMLDialogElement);
  // Another button was pressed while what its question needs was read.
  if (dialog.open) return Promise.resolve(false);
  const asked = { isDone: false, isBusy: false, hasSecret: false };
  const before = token.get();
  render(html`<${Form} question=${question} asked=${asked} close=${() => dialog.close()} />`, dialog);
  dialog.showModal();
  const [first] = question.fields ?? [];
  byId(first ? `field-${first.name}` : "dialog-cancel").focus();
  // Escape must lose neither a secret that is shown this once nor one that is on its way: a false answer keeps the dialog open,
  // but browsers close it all the same when the key is pressed again, unless the press itself is stopped.
  const isHeld = () => asked.hasSecret || asked.isBusy;
  dialog.oncancel = () => !isHeld();
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && isHeld()) event.preventDefault();
  };
  addEventListener("keydown", pressed);
  // Back leads to another view, where the question has no place; its answer has.
  const left = () => {
    if (!isHeld()) dialog.close();
  };
  addEventListener("hashchange", left);
  return new Promise((resolve) => {
    dialog.onclose = () => {
      removeEventListener("hashchange", left);
      removeEventListener("keydown", pressed);
      render(null, dialog);
      resolve(asked.isDone);
      if (!token.get()) dispatchEvent(new CustomEvent("token-needed", { detail: "" }));
      else if (token.get() !== before) dispatchEvent(new Event("rights-changed"));
    };
  });
}

/**
 * @typedef {object} State
 * @property {string} preview
 * @property {string} doubt
 * @property {string} error
 * @property {boolean} tokenLost
 * @property {{ said: string, secret: NonNullable<Done["shownOnce"]> }} [secret]
 * @extends {Component<{ question: Question, asked: { isDone: boolean, isBusy: boolean, hasSecret: boolean }, close: () => void }, State>}
 */
class Form extends Component {
  /** @type {State} */
  state = { preview: this.props.question.preview?.({}) ?? "", doubt: "", error: "", tokenLost: false };

  /** In a long form the question and the error are below what a phone shows. @param {unknown} _ @param {State} before */
  componentDidUpdate(_, { doubt, error }) {
    // With the focus: Enter that is pressed twice is no answer to what nobody has read.
    if (this.state.doubt && this.state.doubt !== doubt) byId("dialog-doubt").focus();
    if (this.state.error !== error) byId("dialog-error").scrollIntoView({ block: "nearest" });
  }

  /** Another amount is another question. @param {{ currentTarget: HTMLFormElement }} event */
  typed = ({ currentTarget }) => {
    if (this.props.asked.isDone) return;
    this.setState({ doubt: "", preview: this.props.question.preview?.(valuesOf(currentTarget)) ?? "" });
  };

  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  submit = async (event) => {
    event.preventDefault();
    const ok = byId("dialog-ok", HTMLButtonElement);
    const cancel = byId("dialog-cancel", HTMLButtonElement);
    // Enter twice must not do it twice.
    if (ok.disabled) return;
    const { question, asked, close } = this.props;
    if (asked.isDone) return close();
    const values = valuesOf(event.currentTarget);
    if (this.complains(values) || !this.takesToken() || this.doubts(values)) return;
    ok.disabled = cancel.disabled = true;
    asked.isBusy = true;
    this.setState({ error: "" });
    try {
      const { said = question.said, confirmed, shownOnce: secret } = await question.run(values);
      asked.isDone = true;
      asked.hasSecret = secret !== undefined;
      say([said, confirmed === false && ` ${NOT_CONFIRMED}`]);
      if (secret) this.setState({ secret: { secret, said: byId("result").textContent ?? "" } });
      else close();
    } catch (failure) {
      this.setState({ error: capitalized(wordsOf(failure)) });
      if (failure instanceof ApiError && failure.status === 401) this.losesToken();
    } finally {
      ok.disabled = cancel.disabled = false;
      asked.isBusy = false;
    }
  };

  /** @param {Values} values */
  complains(values) {
    for (const field of this.props.question.fields ?? []) {
      const { name, label, type, check } = field;
      const value = values[name] ?? "";
      const wrong = (type === "moment" ? momentProblem(value) : undefined) ?? check?.(value, values);
      if (wrong === undefined) continue;
      this.setState({ error: `${label} ${wrong}.` });
      byId(`field-${name}`).focus();
      return true;
    }
    return false;
  }

  /** Asks again, unless it did with these words before. @param {Values} values */
  doubts(values) {
    const doubt = this.props.question.doubt?.(values);
    if (doubt === undefined || doubt === this.state.doubt) return false;
    this.setState({ doubt, error: "" });
    return true;
  }

  /** The form stays as it is, and another token is asked for beside it. */
  losesToken() {
    token.forget();
    this.setState({ tokenLost: true }, () => byId("dialog-token-field").focus());
  }

  takesToken() {
    if (!this.state.tokenLost) return true;
    const field = byId("dialog-token-field", HTMLInputElement);
    const value = field.value.trim();
    if (!value) {
      this.setState({ error: "Give a token to go on; what you typed is kept." });
      field.focus();
      return false;
    }
    token.set(value);
    this.setState({ tokenLost: false });
    return true;
  }

  render() {
    const { question, close } = this.props;
    const { preview, doubt, error, secret } = this.state;
    const { title, lines = [], fields = [], verb, danger } = question;
    const body = secret
      ? html`<${Secret} ...${secret} />`
      : html`<h2 id="dialog-title">${title}</h2>${lines.map((line) => html`<p>${line}</p>`)}${fields.map(fieldOf)}`;
    const kind = secret ? "" : danger ? "danger" : "primary";
    const does = secret ? "I have it" : doubt ? `Yes, ${verb.toLowerCase()}` : verb;
    return html`<form method="dialog" id="dialog-form" novalidate onInput=${this.typed} onSubmit=${this.submit}>
      <div id="dialog-body">${body}</div>
      <p id="dialog-preview" class="preview" aria-live="polite">${!secret && preview}</p>
      <p id="dialog-doubt" class="doubt" role="alert" tabindex="-1">${doubt}</p>
      <p id="dialog-error" class="error" role="alert">${error}</p>
      ${this.state.tokenLost && TOKEN_FIELD}
      <div class="buttons">
        ${button("Cancel", close, { id: "dialog-cancel", hidden: Boolean(secret) })}
        <button type="submit" id="dialog-ok" class=${kind} onClick=${onlyFirstPress}>${does}</button>
      </div>
    </form>`;
  }
}

/** The second press of a double click is meant for the button that the first one took away. @param {MouseEvent} event */
const onlyFirstPress = (event) => {
  if (event.detail > 1) event.preventDefault();
};

const TOKEN_FIELD = html`<div id="dialog-token" class="field">
  <label for="dialog-token-field">Token</label>
  <input id="dialog-token-field" type="password" autocomplete="current-password" maxlength="256" />
  <p class="hint">The token is not valid any more. Give another one; what you typed is kept.</p>
</div>`;

/** @extends {Component<{ said: string, secret: NonNullable<Done["shownOnce"]> }>} */
class Secret extends Component {
  componentDidMount() {
    byId("dialog-copy").focus();
  }

  render() {
    const { said, secret } = this.props;
    // `said` is without its links: nobody leaves before the secret is kept.
    return html`<h2 id="dialog-title">${secret.label}</h2><p>${said}</p>
      <${Copyable} name="dialog" kind="secret" ...${secret} />
      <p>${secret.hint}</p>`;
  }
}
