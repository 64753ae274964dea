import { ApiError, may, readLive, readOverview } from "../api.js";
import {
  actions,
  asking,
  badge,
  bar,
  button,
  Component,
  code,
  failureNote,
  heading,
  html,
  moment,
  tile,
  tiles,
  unreadNote,
} from "../dom.js";
import { age, count, rate, shortCount, signed, took, wholeCount } from "../format.js";
import { Checks, healthStrip, showGateway, showTrouble, unanswered } from "../health.js";
import { here, noteHere } from "../location.js";
import { Plot } from "../plots.js";
import { LATER_THAN_ALL_MS, viewRequests } from "../requests.js";
import { optionList, table } from "../table.js";
import { runningOut } from "./accounts.js";

const LATENCY_KINDS = { all: "all requests", generations: "generations", polls: "task polls" };

const perSecond = {
  note: "Averaged over 10 s, this gateway.",
  format: rate,
  tick: (/** @type {number} */ value) => String(Number(value.toPrecision(3))),
};
const RATES = {
  ...perSecond,
  title: "Requests per second",
  lines: [
    { name: "ok", label: "answered", color: "--blue", fill: true },
    { name: "refused", label: "refused (4xx)", color: "--orange", dash: [8, 3] },
    { name: "failed", label: "failed (5xx)", color: "--red", dash: [3, 3] },
  ],
};
const REFUSALS = {
  ...perSecond,
  title: "Refusals per second, by limit",
  lines: [
    { name: "rate_limited", label: "per minute", color: "--orange" },
    { name: "concurrency_limited", label: "slots", color: "--violet", dash: [8, 3] },
    { name: "daily_limited", label: "per day", color: "--teal", dash: [3, 3] },
    { name: "insufficient_credits", label: "credits", color: "--red", dash: [10, 3, 2, 3] },
    { name: "other_refusals", label: "other", color: "--soft", dash: [1, 3] },
  ],
};
const SLOTS = {
  title: "Slots taken",
  note: "Holds and unfinished tasks over all gateways, read every 20 s; in flight in this one.",
  format: wholeCount,
  tick: shortCount,
  whole: true,
  lines: [
    { name: "slots", label: "slots, all gateways", color: "--violet", fill: true },
    { name: "in_flight", label: "requests in flight here", color: "--blue", dash: [8, 3] },
  ],
};
/** @param {keyof typeof LATENCY_KINDS} kind */
const latencyOf = (kind) => ({
  title: `Latency of ${LATENCY_KINDS[kind]}`,
  note: "Over 30 s, this gateway; logarithmic.",
  format: took,
  logarithmic: true,
  lines: [
    { name: `${kind}_p50`, label: "p50", color: "--blue" },
    { name: `${kind}_p99`, label: "p99", color: "--red", dash: [8, 3] },
    { name: `${kind}_upstream_p99`, label: "upstream's p99", color: "--teal", dash: [3, 3] },
  ],
});

const LATENCY = {
  all: latencyOf("all"),
  generations: latencyOf("generations"),
  polls: latencyOf("polls"),
};

/** @param {Overview} overview */
function moneyTiles({ money: { today, month, unread }, ledger, settlements_waiting: waiting }) {
  const sums = (
    /** @type {"charged" | "refunded" | "purchased" | "trials" | "goodwill" | "reversed" | "uncollected"} */ name,
  ) =>
    /** @type {[string, string[]]} */ ([count(today[name]), ["today", `${count(month[name])} this month`]]);
  const word = ledger.right ? "balanced" : `${count(ledger.violations)} wrong`;
  const checked = ledger.checked_at ? html`checked ${moment(ledger.checked_at)}` : "not checked yet";
  return [
    unreadNote({ unread }),
    tiles(
      tile("Charged", ...sums("charged")),
      tile("Refunded", ...sums("refunded")),
      tile("Purchased", ...sums("purchased")),
      tile("Trials", ...sums("trials")),
      tile("Goodwill", ...sums("goodwill")),
      tile("Reversed", ...sums("reversed")),
      tile("Adjusted", signed(today.adjusted), ["today", `${signed(month.adjusted)} this month`]),
      tile("Uncollected", ...sums("uncollected"), month.uncollected > 0),
      tile("Ledger", ledger.right === null ? "unknown" : word, checked, ledger.right === false),
      tile("Settlements waiting", count(waiting), "charges that wait for Redis", (waiting ?? 0) > 0),
    ),
  ];
}

/** @param {GatewayLine[]} gateways */
function gatewaysTable(gateways) {
  const hashes = new Set(gateways.map(({ config_hash }) => config_hash));
  return table(
    "All gateways",
    [
      { title: "Gateway", header: true, of: (one) => one.gateway_id, as: code },
      { title: "Host", wrap: true, cell: (one) => `${one.host}, process ${one.pid}`, of: (one) => one.host },
      { title: "State", of: (one) => one.ready, as: (ready) => badge(ready ? "ready" : "not ready") },
      { title: "Requests/s", numeric: true, of: (one) => one.requests_per_second, as: rate },
      { title: "Refused/s", numeric: true, of: (one) => one.refused_per_second, as: rate },
      { title: "Failed/s", numeric: true, of: (one) => one.failed_per_second, as: rate },
      { title: "In flight", numeric: true, of: (one) => one.in_flight, as: count },
      { title: "Waiting", numeric: true, of: (one) => one.settlements_waiting, as: count },
      { title: "Up", cell: upTime, of: (one) => one.started_at },
      {
        title: "Settings",
        of: (one) => one.config_hash,
        as: (/** @type {string} */ hash) => (hashes.size === 1 ? "the same" : code(hash.slice(0, 8))),
      },
    ],
    gateways,
    "No gateway has named itself yet; each does so every 5 s.",
    "gateways-by",
  );
}

/** @param {GatewayLine} gateway */
const upTime = ({ started_at, seen_at }) =>
  Number.isNaN(Date.parse(started_at))
    ? moment(started_at)
    : age((Date.parse(seen_at) - Date.parse(started_at)) / 1000);

/** @param {Live["denied"]} denied */
function deniedTable(denied) {
  const most = denied[0]?.last_15_minutes ?? 0;
  return table(
    "Why requests were refused or failed, this gateway",
    [
      { title: "Outcome", header: true, of: (row) => row.outcome, as: code },
      { title: "HTTP", numeric: true, cell: (row) => row.status },
      { title: "Last minute", numeric: true, of: (row) => row.last_minute, as: count },
      { title: "Last 15 minutes", numeric: true, of: (row) => row.last_15_minutes, as: (n) => bar(n, most) },
    ],
    denied,
    "Nothing was refused in the last 15 minutes.",
    "denied-by",
  );
}

const LIVE_EVERY_MS = 2000;
const MONEY_EVERY_MS = 10_000;
const KEPT_MS = 15 * 60_000;

/** @typedef {{ seconds: number[], series: Record<string, (number | null)[]>, denied: Live["denied"] }} History */
/** @typedef {{ overview?: Overview, failure?: unknown }} Money */

/** The money, all gateways, and this gateway's live figures. @param {Context} context */
export async function showOverview({ place, signal, live, again, more }) {
  const asked = viewRequests.overview(place);
  const [money, out] = await Promise.all([
    moneyOf(asked.money),
    asked.runningOut?.then(runningOut, () => undefined),
  ]);
  // Without Redis the live figures go on; without a right there are none.
  if (isRefusal(money.failure)) throw money.failure;
  const ask = async () => (await more()).askMaintenance();
  const maintenance = may("maintenance:write") && asking("Maintenance …", ask, again, "quiet");
  return html`${heading("Overview", again)}${actions(maintenance)}<${Figures} money=${money} out=${out} live=${live} asked=${asked} signal=${signal} />`;
}

/** Figures of before would be taken for those of now. @param {Promise<Overview>} reading @returns {Promise<Money>} */
const moneyOf = (reading) =>
  reading.then(
    (overview) => ({ overview }),
    (failure) => ({ failure }),
  );

/** @param {unknown} error */
const isRefusal = (error) => error instanceof ApiError && error.status >= 400 && error.status < 500;

/**
 * Live numbers of this gateway are read every two seconds while somebody looks.
 * @typedef {object} State
 * @property {Money} money
 * @property {keyof typeof LATENCY_KINDS} kind
 * @property {boolean} paused
 * @property {History} history
 * @property {Live} [live]
 * @property {unknown} [trouble]
 * @extends {Component<{ money: Money, out: Content, live: Promise<Live> | undefined, asked: ReturnType<typeof viewRequests.overview>, signal: AbortSignal }, State>}
 */
class Figures extends Component {
  /** @type {State} */
  state = {
    money: this.props.money,
    kind: kindHere(),
    paused: false,
    history: { seconds: [], series: {}, denied: [] },
  };

  /** The first ones, which were asked for with the view. @type {Promise<Live> | undefined} */
  samples = this.props.asked.samples;

  componentDidMount() {
    // The state at the top was shown from it. Its samples are not worth a wait: they come next.
    this.props.live?.then((live) => this.state.live ?? this.setState({ live })).catch(() => undefined);
    void this.repeat(() => this.readLive(), LIVE_EVERY_MS);
    const again = async () => this.setState({ money: await moneyOf(readOverview()) });
    setTimeout(() => void this.repeat(again, MONEY_EVERY_MS), MONEY_EVERY_MS);
  }

  /** @param {() => Promise<void>} work that tells of its failures itself @param {number} everyMs */
  async repeat(work, everyMs) {
    if (this.props.signal.aborted) return;
    if (!document.hidden) await work();
    setTimeout(() => void this.repeat(work, everyMs), everyMs);
  }

  async readLive() {
    const { history, paused } = this.state;
    const after = paused ? LATER_THAN_ALL_MS : Math.round((history.seconds.at(-1) ?? 0) * 1000);
    const ahead = this.samples;
    this.samples = undefined;
    try {
      const live = await (ahead ?? readLive(after));
      // An answer that comes after the view was left is not of the next one.
      if (this.props.signal.aborted) return;
      showGateway(live);
      this.setState({ live, trouble: undefined, history: paused ? history : appended(history, live) });
    } catch (trouble) {
      if (this.props.signal.aborted) return;
      showTrouble(trouble);
      this.setState({ trouble });
    }
  }

  health() {
    const { live, trouble } = this.state;
    if (trouble) return healthStrip([unanswered(trouble)]);
    return live && healthStrip(live.checks);
  }

  render() {
    const { money, kind, paused, history } = this.state;
    const plot = (/** @type {import("../plots.js").PlotOptions} */ options) =>
      html`<${Plot} key=${options.title} options=${options} ...${history} />`;
    const choose = (/** @type {{ currentTarget: HTMLSelectElement }} */ { currentTarget: { value } }) => {
      noteHere({ latency: value === "all" ? "" : value });
      this.setState({ kind: /** @type {keyof typeof LATENCY_KINDS} */ (value) });
    };
    const pause = () => this.setState({ paused: !paused });
    return html`<div>${this.health()}</div>
      <${Checks} asked=${this.props.asked.health} />
      <div>
        <h3 class="section">Money, in credits, by UTC day and month</h3>
        ${money.overview ? moneyTiles(money.overview) : failureNote(money.failure)}
      </div>
      <div>${this.props.out}</div>
      <div class="heading">
        <h3 class="section">This gateway, live</h3>
        <p class="choice"><label for="latency-kind">Latency of</label> <select id="latency-kind"
          onChange=${choose}>${optionList(Object.entries(LATENCY_KINDS), kind)}</select></p>
        ${button(paused ? "Go on" : "Pause", pause, { class: "quiet", "aria-pressed": String(paused) })}
      </div>
      ${liveTiles((name) => history.series[name]?.at(-1), kind)}
      <div class="plots">${[RATES, LATENCY[kind], REFUSALS, SLOTS].map(plot)}</div>
      ${deniedTable(history.denied)}
      <div>${money.overview && gatewaysTable(money.overview.gateways)}</div>`;
  }
}

/** @param {(name: string) => number | null | undefined} latest @param {keyof typeof LATENCY_KINDS} kind */
const liveTiles = (latest, kind) =>
  tiles(
    tile("Answered", rate(latest("ok")), "per second"),
    tile("Refused", rate(latest("refused")), "per second, 4xx"),
    tile("Failed", rate(latest("failed")), "per second, 5xx", (latest("failed") ?? 0) > 0),
    tile("Latency p50", took(latest(`${kind}_p50`)), LATENCY_KINDS[kind]),
    tile("Latency p99", took(latest(`${kind}_p99`)), LATENCY_KINDS[kind]),
    tile("Slots taken", wholeCount(latest("slots")), "over all gateways"),
  );

function kindHere() {
  const named = here().query.get("latency") ?? "";
  return Object.hasOwn(LATENCY_KINDS, named) ? /** @type {keyof typeof LATENCY_KINDS} */ (named) : "all";
}

/** @param {History} history @param {Live} live @returns {History} */
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
    denied: live.denied,
    series: Object.fromEntries([...names].map((name) => [name, lineOf(name)])),
  };
}
