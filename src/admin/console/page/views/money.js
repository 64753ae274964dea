/** @import { GatewayLine, Live, Overview } from "../objects.d.ts" */
import { badge, bar, code, moment, tile, tiles, unreadNote } from "../dom.js";
import { age, count, momentText, rate, signed } from "../format.js";
import { table } from "../table.js";

/**
 * What was charged, refunded and bought, and whether the ledger is right.
 * @param {Overview} overview
 */
export function moneyTiles({ money: { today, month, unread }, ledger, settlements_waiting: waiting }) {
  const sums = (/** @type {"charged" | "refunded" | "purchased" | "uncollected"} */ name) =>
    /** @type {[string, string[]]} */ ([count(today[name]), ["today", `${count(month[name])} this month`]]);
  const word = ledger.right ? "right" : `${count(ledger.violations)} wrong`;
  const checked = ledger.checked_at ? `checked ${momentText(ledger.checked_at)}` : "not checked yet";
  return [
    unreadNote({ unread }),
    tiles(
      tile("Charged", ...sums("charged")),
      tile("Refunded", ...sums("refunded")),
      tile("Purchased", ...sums("purchased")),
      tile("Adjusted", signed(today.adjusted), ["today", `${signed(month.adjusted)} this month`]),
      tile("Uncollected", ...sums("uncollected"), month.uncollected > 0),
      tile("Ledger", ledger.right === null ? "unknown" : word, checked, ledger.right === false),
      tile("Settlements waiting", count(waiting), "charges that wait for Redis", (waiting ?? 0) > 0),
    ),
  ];
}

/** @param {GatewayLine[]} gateways */
export function gatewaysTable(gateways) {
  const hashes = new Set(gateways.map(({ config_hash }) => config_hash));
  return table(
    "All gateways",
    [
      { title: "Gateway", header: true, of: (one) => one.gateway_id, as: code },
      { title: "Host", cell: (one) => `${one.host}, process ${one.pid}`, of: (one) => one.host },
      { title: "State", of: (one) => one.ready, as: (ready) => badge(ready ? "ready" : "not ready") },
      { title: "Requests/s", numeric: true, of: (one) => one.requests_per_second, as: rate },
      { title: "Refused/s", numeric: true, of: (one) => one.refused_per_second, as: rate },
      { title: "Failed/s", numeric: true, of: (one) => one.failed_per_second, as: rate },
      { title: "In flight", numeric: true, of: (one) => one.in_flight, as: count },
      { title: "Settlements waiting", numeric: true, of: (one) => one.settlements_waiting, as: count },
      { title: "Up", cell: upTime, of: (one) => one.started_at },
      {
        title: "Settings",
        of: (one) => one.config_hash,
        as: (hash) => (hashes.size === 1 ? "the same" : code(hash.slice(0, 12))),
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
export function deniedTable(denied) {
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
