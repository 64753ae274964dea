/** @import { Account, AccountUse, Usage } from "./objects.d.ts" */
/** @import { Place } from "./location.js" */
/** @import { Context, Made } from "./views.js" */
import { listKeys, readUsage } from "./api.js";
import { el, hint } from "./dom.js";
import { count, shortCount } from "./format.js";
import { keysPart } from "./keys.js";
import { hrefHere } from "./location.js";
import { createPlot, dateOf } from "./plots.js";
import { may } from "./session.js";
import { table } from "./table.js";

const DAY_SECONDS = 86_400;
const SPANS = [7, 30, 90];

/** @typedef {{ day: string, requests: number, credits: number, refunds: number }} Day */

/**
 * The page of keys that is shown, for the keys and for what is used of their limits.
 * @param {Place} place
 */
export const keysPage = ({ query }) => ({ cursor: query.get("cursor") ?? "", limit: 100 });

/**
 * What an account used day by day, and its keys.
 * @param {Account} account
 * @param {Context} context
 * @param {AccountUse} use
 * @returns {Promise<Made>}
 */
export async function showAccountUsage(account, context, use) {
  const { place, signal, again } = context;
  const days = SPANS.find((span) => String(span) === place.query.get("days")) ?? 30;
  const today = Math.floor(Date.now() / 1000 / DAY_SECONDS) * DAY_SECONDS;
  const from = dateOf(today - (days - 1) * DAY_SECONDS);
  const [usage, keys] = await Promise.all([
    may("usage:read") ? readUsage(account.account_id, { from, group_by: "day" }) : undefined,
    may("keys:read") ? listKeys(account.account_id, keysPage(place)) : undefined,
  ]);
  const drawn = usage && drawUsage(usage, today, days, signal);
  return {
    nodes: [...(drawn?.nodes ?? []), ...(keys ? keysPart(account, keys, use, again) : [])],
    shown: () => drawn?.show(),
  };
}

/**
 * @param {Usage} usage
 * @param {number} today Unix seconds at which the UTC day began
 * @param {number} days
 * @param {AbortSignal} signal
 */
function drawUsage(usage, today, days, signal) {
  const byDay = new Map(usage.data.map((row) => [row.day ?? "", row]));
  const seconds = Array.from({ length: days }, (_, at) => today - (days - 1 - at) * DAY_SECONDS);
  /** @type {Day[]} */
  const rows = seconds.map((at) => {
    const day = dateOf(at);
    return { requests: 0, credits: 0, refunds: 0, ...byDay.get(day), day };
  });
  const plot = createPlot({
    title: "Credits by day",
    note: `The last ${days} days, UTC. The legend has the sums, or the day under the pointer.`,
    days: true,
    whole: true,
    tick: shortCount,
    format: (value) => count(Math.round(value ?? 0)),
    lines: [
      { name: "charged", label: "charged", color: "--blue" },
      { name: "refunded", label: "refunded", color: "--orange", dash: [8, 3] },
    ],
  });
  const spans = SPANS.map((span) =>
    el(
      "a",
      { href: hrefHere({ days: span }), "aria-current": span === days ? "true" : undefined },
      `${span} days`,
    ),
  );
  const reaches = usage.since && usage.since > dateOf(seconds[0] ?? today) ? usage.since : undefined;
  signal.addEventListener("abort", () => plot.destroy());
  return {
    nodes: [
      el("p", { className: "choice" }, "Show ", ...spans),
      plot.figure,
      ...(reaches ? [hint(`What is known begins at ${reaches.slice(0, 10)}.`)] : []),
      asTable(rows),
    ],
    show() {
      plot.show();
      plot.update(seconds, {
        charged: rows.map((row) => row.credits),
        refunded: rows.map((row) => row.refunds),
      });
    },
  };
}

/** @param {Day[]} rows */
const asTable = (rows) =>
  el(
    "details",
    {},
    el("summary", {}, "The same as a table"),
    table(
      "Usage by day (UTC)",
      [
        { title: "Day", header: true, cell: (row) => row.day, by: (row) => row.day },
        { title: "Requests", numeric: true, cell: (row) => count(row.requests), by: (row) => row.requests },
        { title: "Charged", numeric: true, cell: (row) => count(row.credits), by: (row) => row.credits },
        { title: "Refunded", numeric: true, cell: (row) => count(row.refunds), by: (row) => row.refunds },
      ],
      [...rows].reverse(),
      "None.",
      "days-by",
    ),
  );
