import { ApiError } from "./api.js";
import { badge, byId, Component, failureNote, html, link, marked } from "./dom.js";
import { age, capitalized, count, momentText, wordsOf } from "./format.js";
import { hrefTo } from "./location.js";
import { table } from "./table.js";

/** Says at the top whether this gateway is ready. @param {Promise<Live> | undefined} live @param {AbortSignal} signal */
export async function showState(live, signal) {
  if (!live) {
    byId("state").textContent = "";
    return;
  }
  try {
    showGateway(await live);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) throw error;
    if (!signal.aborted) showTrouble(error);
  }
}

/** @param {Pick<Live, "gateway" | "checks">} live */
export function showGateway({ gateway, checks }) {
  const { host, pid, uptime_seconds, not_ready, primaries } = gateway;
  const state = byId("state");
  const away = primaries.filter(({ usable }) => !usable).map(({ name }) => name);
  const bad = checks.filter(({ status }) => status === "fail");
  state.className = bad.length > 0 ? "state bad" : "state good";
  state.title = primaries.map(({ name, usable }) => `Redis ${name}${usable ? "" : ", away"}`).join("\n");
  const names = bad.filter(({ name }) => name !== "redis" || away.length === 0).map(nameOfCheck);
  const but = [
    ...(away.length > 0 ? [`Redis is away at ${away.join(", ")}`] : []),
    ...(names.length > 0 ? [`mend: ${names.join(", ")}`] : []),
  ];
  const ready = but.length > 0 ? `Ready, but ${but.join("; ")}` : "Ready";
  const where = `${host}, process ${pid}, up ${age(uptime_seconds)}`;
  const isRefusing = !not_ready && checks.some(({ name, status }) => name === "ready" && status === "warn");
  if (isRefusing) state.className = "state bad";
  const text = `${not_ready ? `Not ready: ${not_ready}` : isRefusing ? "In maintenance" : ready} · ${where}`;
  if (state.textContent !== text) state.textContent = text;
}

/** @param {unknown} error */
export function showTrouble(error) {
  const state = byId("state");
  state.className = "state bad";
  state.textContent = `No data: ${wordsOf(error)}`;
}

/** @typedef {Health["checks"][number]} Check */

const WORDS_OF_STATUS = { ok: "good", warn: "look", fail: "mend" };

/** The name for operators. @param {Check} check */
const nameOfCheck = ({ name }) =>
  name === "ready" ? "Gateway" : name.replace(/^./, (letter) => letter.toUpperCase());

/** The checks of the gateway's figures, a tile each. @param {Check[]} checks */
export const healthStrip = (checks) =>
  html`<dl class="health" aria-label="What this gateway needs">${checks.map(
    (check) => html`<div class=${`finding ${check.status}`}>
      <dt>${nameOfCheck(check)} ${badge(WORDS_OF_STATUS[check.status])}</dt>
      <dd>${wordsOfCheck(check)} ${check.status !== "ok" && runbookLink(check.runbook)}</dd>
    </div>`,
  )}</dl>`;

/** @param {unknown} error why nothing is known @returns {Check} */
export const unanswered = (error) => ({
  name: "ready",
  status: "fail",
  message: `no answer: ${wordsOf(error)}`,
  advice: "see whether it runs; the figures below are from before",
  runbook: "incidents.md",
});

/** Where the documentation says what to do. @param {string} runbook a page of it, or a section */
const runbookLink = (runbook, text = "what to do") =>
  link(hrefTo(["runbook", ...runbook.replace(/^.*\//, "").split("#")]), text);

/** Doctor's checks as this gateway sees them. @extends {Component<{ asked: Promise<Health> }, { health?: Health, error?: unknown }>} */
export class Checks extends Component {
  async componentDidMount() {
    try {
      this.setState({ health: await this.props.asked });
    } catch (error) {
      this.setState({ error });
    }
  }

  render() {
    const { health, error } = this.state;
    if (error !== undefined) return failureNote(error);
    if (health === undefined) return undefined;
    const { checks, checked_at } = health;
    const worse = checks.filter(({ status }) => status !== "ok");
    const good = checks.filter(({ status }) => status === "ok");
    return [
      worse.length > 0 && checksTable("Checks that found something", worse, "worse-by"),
      html`<details>
        <summary>${count(good.length)} of ${count(checks.length)} checks of this gateway found all good at ${momentText(checked_at)}</summary>
        ${checksTable("Checks", good, "good-by")}
      </details>`,
    ];
  }
}

/** @param {string} caption @param {Check[]} checks @param {string} sortedAs */
const checksTable = (caption, checks, sortedAs) =>
  table(
    caption,
    [
      { title: "Check", header: true, of: (one) => one.name },
      { title: "State", of: (one) => WORDS_OF_STATUS[one.status], as: badge },
      { title: "Found", wide: true, cell: wordsOfCheck },
      { title: "Runbook", cell: (one) => runbookLink(one.runbook) },
    ],
    checks,
    "There are none.",
    sortedAs,
  );

/** @param {Check} check */
const wordsOfCheck = ({ message, advice }) =>
  marked(capitalized([message, advice].filter(Boolean).join(": ").replace(/\.*$/, ".")));
