import { ApiError, may, ownAccounts, readLive } from "./api.js";
import { runbookLink } from "./checks.js";
import { badge, byId, html, marked } from "./dom.js";
import { age, count, wordsOf } from "./format.js";

/** @typedef {"good" | "warn" | "bad" | "unknown" | "none"} Level */
/** @typedef {{ name: string, level: Level, words: string }} Finding one sentence: what is so, and what to do */

const WORDS = { good: "good", warn: "look", bad: "mend", unknown: "unknown", none: "none" };
/** A check that is this many intervals old is late. */
const LATE_CHECKS = 3;
const LAG_SECONDS = 300;

/** @param {Pick<Live, "gateway" | "health">} live @returns {Finding[]} */
export const findings = ({ gateway, health }) => [
  { name: "Gateway", ...gatewayOf(gateway) },
  { name: "Redis", ...redisOf(gateway, health.redis) },
  { name: "Upstream", ...upstreamOf(health.upstream) },
  { name: "Archive", ...archiveOf(health.archive) },
  { name: "Ledger", ...ledgerOf(health.ledger) },
  { name: "Journal", ...journalOf(health.journal) },
];

/** @param {unknown} error why nothing is known @returns {Finding} */
export const unanswered = (error) => ({
  name: "Gateway",
  level: "bad",
  words: `No answer: ${wordsOf(error)}. See whether it runs; the figures below are from before.`,
});

/** @param {Finding[]} found */
export const healthStrip = (found) =>
  html`<dl class="health" aria-label="What this gateway needs">${found.map(
    ({ name, level, words }) => html`<div class=${`finding ${level}`}>
      <dt>${name} ${badge(WORDS[level])}</dt>
      <dd>${marked(words)}
        ${level === "warn" || level === "bad" ? [" ", runbookLink(RUNBOOKS[name] ?? "incidents.md")] : ""}</dd>
    </div>`,
  )}</dl>`;

/** @param {Level} level @param {string} words */
const is = (level, words) => ({ level, words });

/** @param {Live["gateway"]} gateway */
function gatewayOf({ not_ready, uptime_seconds }) {
  if (not_ready === null) return is("good", `Ready, up ${age(uptime_seconds)}.`);
  return is("bad", `Not ready: ${not_ready}. Load balancers send it nothing until that is mended.`);
}

/** @param {Live["gateway"]} gateway @param {Live["health"]["redis"]} redis */
function redisOf({ primaries }, { usable, older, frozen_partitions }) {
  const away = primaries.filter((one) => !one.usable).map(({ name }) => name);
  if (older)
    return is(
      "bad",
      "Redis lacks writes that it had confirmed and is not used: `tollgate store show` lists them.",
    );
  if (away.length > 0)
    return is("bad", `Away: ${away.join(", ")}. Start it, or see why no replica was promoted.`);
  if (!usable)
    return is(
      "bad",
      "Redis cannot be used: start it or mend the network; `tollgate doctor` says what is wrong.",
    );
  if (frozen_partitions > 0)
    return is(
      "warn",
      `${count(frozen_partitions)} partitions are frozen: thaw them once their slots have moved.`,
    );
  return is("good", "Redis can be used.");
}

/** Pages of docs/operations by the name of a finding. @type {Record<string, string>} */
const RUNBOOKS = {
  Redis: "alerts-redis.md#tollgatestoredegraded",
  Upstream: "alerts-upstream.md#tollgateupstreamfailing",
  Archive: "alerts-ledger.md#tollgatearchivelag",
  Ledger: "alerts-ledger.md#tollgateledgerdrift",
  Journal: "alerts-redis.md#tollgatesettlementswaiting",
};

const FAILURES = /** @type {Record<string, string>} */ ({
  unreachable: "it cannot be reached: look at the network, DNS and its address",
  timed_out: "it does not answer in time: ask its operator",
  upstream_timeout: "it does not answer in time: ask its operator",
  unclear: "connections break before the answer: look at proxies and idle timeouts",
  misrouted: "something else answers at its address: correct `upstream.url`",
  refused_gateway: "it refuses our credential or account: check `UPSTREAM_API_KEY` and the balance there",
});

/** @param {Live["health"]["upstream"]} upstream */
function upstreamOf({ window_seconds, answered, limited, failed, failure, last_answer_at }) {
  const last = last_answer_at ? `last good answer ${secondsSince(last_answer_at)} ago` : "no good answer yet";
  const all = answered + limited + failed;
  if (all === 0) return is("unknown", `Nothing was asked in the last ${age(window_seconds)}; ${last}.`);
  const rate = `${Math.floor((100 * answered) / all)} % of ${count(all)} answered in the last ${age(window_seconds)}, ${last}`;
  if (failed / all >= 0.1) {
    const why = FAILURES[failure ?? ""] ?? "it answers with errors: ask its operator";
    return is(failed / all >= 0.5 ? "bad" : "warn", `${rate}: ${why}.`);
  }
  if (limited / all >= 0.1)
    return is("warn", `${rate}: it limits us, so ask for more or lower the tiers' limits.`);
  return is("good", `${rate}.`);
}

/** @param {Live["health"]["archive"]} archive */
function archiveOf(archive) {
  if (archive === null) return is("none", "None is configured: the ledger stays in Redis.");
  const { lag_seconds, violations } = archive;
  if (violations > 0)
    return is("bad", `${count(violations)} differences from Redis: \`tollgate archive verify\` names them.`);
  if (lag_seconds > LAG_SECONDS)
    return is(
      "warn",
      `Behind by ${age(lag_seconds)}: bring PostgreSQL back; nothing is lost, and Redis grows meanwhile.`,
    );
  return is("good", `Behind by ${age(lag_seconds)}.`);
}

/** @param {Live["health"]["ledger"]} ledger */
function ledgerOf({ checked_at, violations, check_interval_seconds }) {
  if (violations > 0)
    return is(
      "bad",
      `${count(violations)} violations: \`tollgate ledger verify\` names them; change nothing by hand.`,
    );
  if (check_interval_seconds === 0) return is("warn", "Not checked: `store.ledger_check_interval` is off.");
  if (checked_at === null) return is("unknown", "Not checked yet; the first check follows the start.");
  const checked = `checked ${secondsSince(checked_at)} ago`;
  if ((Date.now() - Date.parse(checked_at)) / 1000 > LATE_CHECKS * check_interval_seconds)
    return is("warn", `Balanced when it was ${checked}, which is too long: run \`tollgate ledger verify\`.`);
  return is("good", `Balanced, ${checked}.`);
}

/** @param {Live["health"]["journal"]} journal */
function journalOf({ usable, waiting, of_other_stores, unconfirmed }) {
  if (!usable)
    return is("bad", "It cannot be written: free or mount its disk, and do not restart while charges wait.");
  if (of_other_stores > 0)
    return is("bad", `${count(of_other_stores)} charges wait for another Redis: point REDIS_URL back to it.`);
  if (waiting > 0)
    return is("warn", `${count(waiting)} charges wait for Redis: keep this process and its disk.`);
  if (unconfirmed > 0)
    return is("warn", `${count(unconfirmed)} charges are on no replica yet: bring the replicas back.`);
  return is("good", "It can be written, and nothing waits.");
}

/** @param {string} iso */
const secondsSince = (iso) => age((Date.now() - Date.parse(iso)) / 1000);

/** No sample is later: the gateway is asked for without its samples. */
const LATER_THAN_ALL_MS = 1e14;

/** @returns {Promise<Live> | undefined} undefined for a token that may not read it */
export function readState() {
  if (!may("usage:read") || ownAccounts() !== null) return undefined;
  const live = readLive(LATER_THAN_ALL_MS);
  live.catch(() => undefined);
  return live;
}

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

/** @param {Pick<Live, "gateway" | "health">} live */
export function showGateway({ gateway, health }) {
  const { host, pid, uptime_seconds, not_ready, primaries } = gateway;
  const state = byId("state");
  const away = primaries.filter(({ usable }) => !usable).map(({ name }) => name);
  const bad = findings({ gateway, health }).filter(({ level }) => level === "bad");
  state.className = bad.length > 0 ? "state bad" : "state good";
  state.title = primaries.map(({ name, usable }) => `Redis ${name}${usable ? "" : ", away"}`).join("\n");
  const names = bad.map(({ name }) => name).filter((name) => name !== "Redis" || away.length === 0);
  const but = [
    ...(away.length > 0 ? [`Redis is away at ${away.join(", ")}`] : []),
    ...(names.length > 0 ? [`mend: ${names.join(", ")}`] : []),
  ];
  const ready = but.length > 0 ? `Ready, but ${but.join("; ")}` : "Ready";
  const where = `${host}, process ${pid}, up ${age(uptime_seconds)}`;
  const text = `${not_ready ? `Not ready: ${not_ready}` : ready} · ${where}`;
  if (state.textContent !== text) state.textContent = text;
}

/** @param {unknown} error */
export function showTrouble(error) {
  const state = byId("state");
  state.className = "state bad";
  state.textContent = `No data: ${wordsOf(error)}`;
}
