/** @import { Live, Overview } from "../objects.d.ts" */
/** @import { Context } from "../views.js" */
import { readLive, readOverview } from "../api.js";
import { button, failureNote, heading, html, tile, tiles } from "../dom.js";
import { rate, took, wholeCount } from "../format.js";
import { findings, healthStrip, showGateway, showTrouble, unanswered } from "../health.js";
import { here, noteHere } from "../location.js";
import { Plot } from "../plots.js";
import { Component } from "../preact.js";
import { optionList } from "../table.js";
import { ApiError } from "../transport.js";
import { KINDS, LATENCY, RATES, REFUSALS, SLOTS } from "./live.js";
import { deniedTable, gatewaysTable, moneyTiles } from "./money.js";

const LIVE_EVERY_MS = 2000;
const MONEY_EVERY_MS = 10_000;
const KEPT_MS = 15 * 60_000;

/** @typedef {{ seconds: number[], series: Record<string, (number | null)[]> }} History */
/** @typedef {{ overview?: Overview, failure?: unknown }} Money */

/**
 * The money, all gateways, and this gateway's live figures.
 * @param {Context} context
 */
export async function showOverview({ signal, again }) {
  const money = await readMoney();
  return html`${heading("Overview", again)}<${Figures} money=${money} signal=${signal} />`;
}

/** Figures of before would be taken for those of now. The live ones need no Redis. @returns {Promise<Money>} */
const readMoney = () =>
  readOverview().then(
    (overview) => ({ overview }),
    (failure) => {
      if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500) throw failure;
      return { failure };
    },
  );

/**
 * Live numbers of this gateway are read every two seconds while somebody looks.
 * @typedef {object} State
 * @property {Money} money
 * @property {Overview["ledger"]} [ledger] the last one that the store told
 * @property {keyof typeof KINDS} kind
 * @property {boolean} paused
 * @property {History} history
 * @property {Live} [live]
 * @property {unknown} [trouble]
 * @extends {Component<{ money: Money, signal: AbortSignal }, State>}
 */
class Figures extends Component {
  /** @type {State} */
  state = {
    money: this.props.money,
    ...(this.props.money.overview && { ledger: this.props.money.overview.ledger }),
    kind: kindHere(),
    paused: false,
    history: { seconds: [], series: {} },
  };

  componentDidMount() {
    this.repeat(() => this.readLive(), LIVE_EVERY_MS, showTrouble);
    const again = async () => {
      const money = await readMoney();
      this.setState(money.overview ? { money, ledger: money.overview.ledger } : { money });
    };
    setTimeout(() => this.repeat(again, MONEY_EVERY_MS, () => undefined), MONEY_EVERY_MS);
  }

  /**
   * @param {() => Promise<void>} work
   * @param {number} everyMs
   * @param {(error: unknown) => void} failed
   */
  repeat(work, everyMs, failed) {
    const { signal } = this.props;
    if (signal.aborted) return;
    const done = document.hidden ? Promise.resolve() : work();
    void done
      // What fails after the view was left is no trouble of the next one.
      .catch((error) => signal.aborted || failed(error))
      .finally(() => setTimeout(() => this.repeat(work, everyMs, failed), everyMs));
  }

  async readLive() {
    if (this.state.paused) return;
    const { history } = this.state;
    try {
      const live = await readLive(Math.round((history.seconds.at(-1) ?? 0) * 1000));
      if (this.props.signal.aborted) return;
      showGateway(live);
      this.setState({ live, trouble: undefined, history: appended(history, live) });
    } catch (trouble) {
      this.setState({ trouble });
      throw trouble;
    }
  }

  /** This gateway's own figures learn of a check of the ledger some seconds after the store. */
  health() {
    const { live, trouble, ledger } = this.state;
    if (trouble) return healthStrip([unanswered(trouble)]);
    if (!live) return undefined;
    const own = live.health.ledger;
    const checked = own.checked_at === null && ledger?.checked_at;
    const known = checked ? { ...own, checked_at: checked, violations: ledger.violations ?? 0 } : own;
    return healthStrip(findings({ ...live, health: { ...live.health, ledger: known } }));
  }

  render() {
    const { live, money, kind, paused, history } = this.state;
    const plot = (/** @type {import("../plots.js").PlotOptions} */ options) =>
      html`<${Plot} key=${options.title} options=${options} ...${history} />`;
    const choose = (/** @type {{ currentTarget: HTMLSelectElement }} */ { currentTarget: { value } }) => {
      noteHere({ latency: value === "all" ? "" : value });
      this.setState({ kind: /** @type {keyof typeof KINDS} */ (value) });
    };
    const pause = () => this.setState({ paused: !paused });
    return html`<div>${this.health()}</div>
      <div>
        <h3 class="section">Money, in credits, by UTC day and month</h3>
        ${money.overview ? moneyTiles(money.overview) : failureNote(money.failure)}
      </div>
      <div class="heading">
        <h3 class="section">This gateway, live</h3>
        <p class="choice"><label for="latency-kind">Latency of</label> <select id="latency-kind"
          onChange=${choose}>${optionList(Object.entries(KINDS), kind)}</select></p>
        ${button(paused ? "Go on" : "Pause", pause, { class: "quiet", "aria-pressed": String(paused) })}
      </div>
      ${liveTiles((name) => history.series[name]?.at(-1), kind)}
      <div class="plots">${[RATES, LATENCY[kind], REFUSALS, SLOTS].map(plot)}</div>
      ${deniedTable(live?.denied ?? [])}
      <div>${money.overview && gatewaysTable(money.overview.gateways)}</div>`;
  }
}

/**
 * @param {(name: string) => number | null | undefined} latest
 * @param {keyof typeof KINDS} kind
 */
const liveTiles = (latest, kind) =>
  tiles(
    tile("Answered", rate(latest("ok")), "per second"),
    tile("Refused", rate(latest("refused")), "per second, 4xx"),
    tile("Failed", rate(latest("failed")), "per second, 5xx", (latest("failed") ?? 0) > 0),
    tile("Latency p50", took(latest(`${kind}_p50`)), KINDS[kind]),
    tile("Latency p99", took(latest(`${kind}_p99`)), KINDS[kind]),
    tile("Slots taken", wholeCount(latest("slots")), "over all gateways"),
  );

function kindHere() {
  const named = here().query.get("latency") ?? "";
  return Object.hasOwn(KINDS, named) ? /** @type {keyof typeof KINDS} */ (named) : "all";
}

/**
 * @param {History} history
 * @param {Live} live
 * @returns {History}
 */
function appended({ seconds, series }, live) {
  const all = [...seconds, ...live.at_ms.map((ms) => ms / 1000)];
  const since = (all.at(-1) ?? 0) - KEPT_MS / 1000;
  const from = Math.max(
    0,
    all.findIndex((at) => at >= since),
  );
  const names = new Set([...Object.keys(series), ...Object.keys(live.series)]);
  const lineOf = (/** @type {string} */ name) =>
    [
      ...(series[name] ?? seconds.map(() => null)),
      ...(live.series[name] ?? live.at_ms.map(() => null)),
    ].slice(from);
  return {
    seconds: all.slice(from),
    series: Object.fromEntries([...names].map((name) => [name, lineOf(name)])),
  };
}
