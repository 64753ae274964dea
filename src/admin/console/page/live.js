/** @import { Live, Overview } from "./objects.d.ts" */
import { readLive } from "./api.js";
import { bar, button, code, el } from "./dom.js";
import { count, rate, shortCount, took, wholeCount } from "./format.js";
import { findings, healthStrip, unanswered } from "./health.js";
import { here, noteHere } from "./location.js";
import { createPlot } from "./plots.js";
import { showGateway, showTrouble } from "./state.js";
import { table } from "./table.js";

const KEPT_MS = 15 * 60_000;

const KINDS = { all: "all requests", generations: "generations", polls: "task polls" };

/** @typedef {keyof typeof KINDS} Kind */
/** @typedef {{ atMs: number[], series: Record<string, (number | null)[]> }} History */

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
  note: "Holds and unfinished tasks over all gateways, read every 10 s; in flight in this one.",
  format: wholeCount,
  tick: shortCount,
  whole: true,
  lines: [
    { name: "slots", label: "slots, all gateways", color: "--violet", fill: true },
    { name: "in_flight", label: "requests in flight here", color: "--blue", dash: [8, 3] },
  ],
};
const latencyOf = (/** @type {Kind} */ kind) => ({
  title: `Latency of ${KINDS[kind]}`,
  note: "Over 30 s, this gateway; logarithmic.",
  format: took,
  logarithmic: true,
  lines: [
    { name: `${kind}_p50`, label: "p50", color: "--blue" },
    { name: `${kind}_p99`, label: "p99", color: "--red", dash: [8, 3] },
    { name: `${kind}_upstream_p99`, label: "upstream's p99", color: "--teal", dash: [3, 3] },
  ],
});

/**
 * Live numbers of this gateway, read every two seconds while somebody looks.
 * @param {AbortSignal} signal ends it
 */
export function createLiveFigures(signal) {
  /** @type {History} */
  const history = { atMs: [], series: {} };
  const state = { kind: kindHere(), paused: false };
  const tiles = createTiles();
  const [rates, refusals, slots] = [createPlot(RATES), createPlot(REFUSALS), createPlot(SLOTS)];
  let latency = createPlot(latencyOf(state.kind));
  const plots = () => [rates, latency, refusals, slots];
  const latencyBox = el("div", {}, latency.figure);
  const denied = el("div", {}, deniedTable([]));
  const health = el("div", {});
  /** @type {{ checked_at: string, violations: number } | undefined} */
  let checked;
  const pause = pauseButton((paused) => {
    state.paused = paused;
  });
  const choice = kindChoice(state.kind, (kind) => {
    state.kind = kind;
    latency.destroy();
    latency = createPlot(latencyOf(kind));
    latencyBox.replaceChildren(latency.figure);
    latency.show();
    update();
  });

  function update() {
    const seconds = history.atMs.map((ms) => ms / 1000);
    for (const plot of plots()) plot.update(seconds, history.series);
    tiles.update((name) => history.series[name]?.at(-1), state.kind);
  }

  async function read() {
    if (state.paused || document.hidden) return;
    const live = await readLive(history.atMs.at(-1) ?? 0).catch((error) => {
      // Figures of before would be taken for those of now.
      if (!signal.aborted) health.replaceChildren(healthStrip([unanswered(error)]));
      throw error;
    });
    if (signal.aborted) return;
    append(history, live);
    showGateway(live);
    const { ledger } = live.health;
    // This gateway's own figures learn of a check some seconds after the store.
    const known = ledger.checked_at === null ? { ...ledger, ...checked } : ledger;
    health.replaceChildren(healthStrip(findings({ ...live, health: { ...live.health, ledger: known } })));
    update();
    // A row that somebody points at stays where nothing is new.
    if (live.at_ms.length > 0) denied.replaceChildren(deniedTable(live.denied));
  }

  return {
    choice,
    pause,
    health,
    /** @param {Overview["ledger"]} ledger the last check that the store knows of */
    knowLedger({ checked_at, violations }) {
      if (checked_at !== null) checked = { checked_at, violations: violations ?? 0 };
    },
    nodes: [
      tiles.list,
      el("div", { className: "plots" }, rates.figure, latencyBox, refusals.figure, slots.figure),
      denied,
    ],
    /** To be called once the nodes are in the page. */
    show() {
      for (const plot of plots()) plot.show();
      repeat(read, signal);
      signal.addEventListener("abort", () => {
        for (const plot of plots()) plot.destroy();
      });
    },
  };
}

/**
 * @param {() => Promise<void>} work
 * @param {AbortSignal} signal
 */
function repeat(work, signal) {
  const loop = () => {
    if (signal.aborted) return;
    work()
      // What fails after the view was left is no trouble of the next one.
      .catch((error) => signal.aborted || showTrouble(error))
      .finally(() => setTimeout(loop, 2000));
  };
  loop();
}

/** @returns {Kind} */
function kindHere() {
  const named = here().query.get("latency") ?? "";
  return Object.hasOwn(KINDS, named) ? /** @type {Kind} */ (named) : "all";
}

/** @param {(paused: boolean) => void} changed */
function pauseButton(changed) {
  let paused = false;
  const press = () => {
    paused = !paused;
    made.setAttribute("aria-pressed", String(paused));
    made.textContent = paused ? "Go on" : "Pause";
    changed(paused);
  };
  const made = button("Pause", press, { className: "quiet", "aria-pressed": "false" });
  return made;
}

/**
 * Whose latency is shown.
 * @param {Kind} chosen
 * @param {(kind: Kind) => void} changed
 */
function kindChoice(chosen, changed) {
  const options = Object.entries(KINDS).map(([value, label]) =>
    el("option", { value, selected: value === chosen }, label),
  );
  const select = el("select", { id: "latency-kind" }, ...options);
  select.addEventListener("change", () => {
    noteHere({ latency: select.value === "all" ? "" : select.value });
    changed(/** @type {Kind} */ (select.value));
  });
  const label = el("label", { htmlFor: "latency-kind" }, "Latency of");
  return el("p", { className: "choice" }, label, " ", select);
}

/**
 * @param {History} history
 * @param {Live} live
 */
function append(history, live) {
  const before = history.atMs.length;
  history.atMs.push(...live.at_ms);
  for (const [name, values] of Object.entries(live.series)) {
    history.series[name] ??= Array(before).fill(null);
    history.series[name].push(...values);
  }
  const since = (history.atMs.at(-1) ?? 0) - KEPT_MS;
  const old = history.atMs.findIndex((ms) => ms >= since);
  if (old <= 0) return;
  history.atMs.splice(0, old);
  for (const values of Object.values(history.series)) values.splice(0, old);
}

function createTiles() {
  const tile = (/** @type {string} */ label, /** @type {string} */ unit) => {
    const value = el("dd", {}, "–");
    return {
      value,
      box: el(
        "div",
        { className: "tile" },
        el("dt", {}, label),
        value,
        el("dd", { className: "unit" }, unit),
      ),
    };
  };
  const answered = tile("Answered", "per second");
  const refused = tile("Refused", "per second, 4xx");
  const failed = tile("Failed", "per second, 5xx");
  const p50 = tile("Latency p50", "");
  const p99 = tile("Latency p99", "");
  const slots = tile("Slots taken", "over all gateways");
  const boxes = [answered, refused, failed, p50, p99, slots].map(({ box }) => box);
  return {
    list: el("dl", { className: "tiles" }, ...boxes),
    /**
     * @param {(name: string) => number | null | undefined} latest
     * @param {Kind} kind
     */
    update(latest, kind) {
      answered.value.textContent = rate(latest("ok"));
      refused.value.textContent = rate(latest("refused"));
      failed.value.textContent = rate(latest("failed"));
      failed.box.classList.toggle("alarm", (latest("failed") ?? 0) > 0);
      p50.value.textContent = took(latest(`${kind}_p50`));
      p99.value.textContent = took(latest(`${kind}_p99`));
      for (const { box } of [p50, p99]) {
        const unit = box.lastElementChild;
        if (unit) unit.textContent = KINDS[kind];
      }
      slots.value.textContent = wholeCount(latest("slots"));
    },
  };
}

/** @param {Live["denied"]} denied */
function deniedTable(denied) {
  const most = denied[0]?.last_15_minutes ?? 0;
  return table(
    "Why requests were refused or failed, this gateway",
    [
      { title: "Outcome", header: true, cell: (row) => code(row.outcome), by: (row) => row.outcome },
      { title: "HTTP", numeric: true, cell: (row) => row.status },
      {
        title: "Last minute",
        numeric: true,
        cell: (row) => count(row.last_minute),
        by: (row) => row.last_minute,
      },
      {
        title: "Last 15 minutes",
        numeric: true,
        cell: (row) => bar(row.last_15_minutes, most),
        by: (row) => row.last_15_minutes,
      },
    ],
    denied,
    "Nothing was refused in the last 15 minutes.",
    "denied-by",
  );
}
