/** @import { GatewayLine, Overview } from "./objects.d.ts" */
import { badge, code, el, moment, tiles, unreadNotes } from "./dom.js";
import { age, count, momentText, rate, signed } from "./format.js";
import { table } from "./table.js";

/**
 * What was charged, refunded and bought, and whether the ledger is right.
 * @param {Overview} overview
 * @returns {Node[]}
 */
export function moneyPart({ money, ledger, settlements_waiting }) {
  const { today, month, unread } = money;
  const list = tiles([
    tile("Charged", today.charged, month.charged),
    tile("Refunded", today.refunded, month.refunded),
    tile("Purchased", today.purchased, month.purchased),
    ["Adjusted", signed(today.adjusted), "today", `${signed(month.adjusted)} this month`],
    tile("Uncollected", today.uncollected, month.uncollected),
    [
      "Ledger",
      ledgerWord(ledger),
      ledger.checked_at ? `checked ${momentText(ledger.checked_at)}` : "not checked yet",
    ],
    ["Settlements waiting", count(settlements_waiting), "charges that wait for Redis"],
  ]);
  alarm(list, 4, month.uncollected > 0);
  alarm(list, 5, ledger.right === false);
  alarm(list, 6, (settlements_waiting ?? 0) > 0);
  return [moneyTitle(), ...unreadNotes({ unread }), list];
}

export const moneyTitle = () => el("h3", { className: "section" }, "Money, in credits, by UTC day and month");

/**
 * @param {string} label
 * @param {number} today
 * @param {number} month
 * @returns {[string, string, string, string]}
 */
const tile = (label, today, month) => [label, count(today), "today", `${count(month)} this month`];

/** @param {Overview["ledger"]} ledger */
function ledgerWord({ right, violations }) {
  if (right === null) return "unknown";
  return right ? "right" : `${count(violations)} wrong`;
}

/**
 * @param {HTMLElement} list
 * @param {number} index
 * @param {boolean} isOn
 */
const alarm = (list, index, isOn) => list.children[index]?.classList.toggle("alarm", isOn);

/** @param {GatewayLine[]} gateways */
export function gatewaysTable(gateways) {
  const hashes = new Set(gateways.map(({ config_hash }) => config_hash));
  return table(
    "All gateways",
    [
      { title: "Gateway", header: true, cell: (one) => code(one.gateway_id), by: (one) => one.gateway_id },
      { title: "Host", cell: (one) => `${one.host}, process ${one.pid}`, by: (one) => one.host },
      {
        title: "State",
        cell: (one) => badge(one.ready ? "ready" : "not ready"),
        by: (one) => String(one.ready),
      },
      {
        title: "Requests/s",
        numeric: true,
        cell: (one) => rate(one.requests_per_second),
        by: (one) => one.requests_per_second,
      },
      {
        title: "Refused/s",
        numeric: true,
        cell: (one) => rate(one.refused_per_second),
        by: (one) => one.refused_per_second,
      },
      {
        title: "Failed/s",
        numeric: true,
        cell: (one) => rate(one.failed_per_second),
        by: (one) => one.failed_per_second,
      },
      { title: "In flight", numeric: true, cell: (one) => count(one.in_flight), by: (one) => one.in_flight },
      {
        title: "Settlements waiting",
        numeric: true,
        cell: (one) => count(one.settlements_waiting),
        by: (one) => one.settlements_waiting,
      },
      { title: "Up", cell: upTime, by: (one) => one.started_at },
      {
        title: "Settings",
        cell: (one) => (hashes.size === 1 ? "the same" : code(one.config_hash.slice(0, 12))),
        by: (one) => one.config_hash,
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
