/** @import { Content } from "../dom.js" */
/** @import { Place } from "../location.js" */
/** @import { Account, AccountUse, Usage } from "../objects.d.ts" */
/** @import { Context } from "../views.js" */
import { listKeys, may, readUsage } from "../api.js";
import { choices, hint, html } from "../dom.js";
import { count, shortCount } from "../format.js";
import { hrefHere, pageOf } from "../location.js";
import { dateOf, Plot } from "../plots.js";
import { table } from "../table.js";
import { keysPart } from "./key.js";

const DAY_SECONDS = 86_400;
const SPANS = [7, 30, 90];

/**
 * The page of keys that is shown, for the keys and for what is used of their limits.
 * @param {Place} place
 */
export const keysPage = ({ query }) => pageOf(query, [], 100);

/**
 * What an account used day by day, and its keys.
 * @param {Account} account
 * @param {Context} context
 * @param {AccountUse} use
 * @returns {Promise<Content>}
 */
export async function showAccountUsage(account, { place, again }, use) {
  const days = SPANS.find((span) => String(span) === place.query.get("days")) ?? 30;
  const today = Math.floor(Date.now() / 1000 / DAY_SECONDS) * DAY_SECONDS;
  const seconds = Array.from({ length: days }, (_, at) => today - (days - 1 - at) * DAY_SECONDS);
  const [usage, keys] = await Promise.all([
    may("usage:read")
      ? readUsage(account.account_id, { from: dateOf(seconds[0] ?? today), group_by: "day" })
      : undefined,
    may("keys:read") ? listKeys(account.account_id, keysPage(place)) : undefined,
  ]);
  return [usage && usagePart(usage, seconds), keys && keysPart(account, keys, use, again)];
}

/**
 * @param {Usage} usage
 * @param {number[]} seconds Unix seconds at which each UTC day began
 */
function usagePart({ data, since }, seconds) {
  const byDay = new Map(data.map((row) => [row.day ?? "", row]));
  const rows = seconds.map(dateOf).map((day) => {
    return { requests: 0, credits: 0, refunds: 0, ...byDay.get(day), day };
  });
  const spans = SPANS.map((span) => ({
    href: hrefHere({ days: span }),
    text: `${span} days`,
    current: span === seconds.length,
  }));
  const series = { charged: rows.map((row) => row.credits), refunded: rows.map((row) => row.refunds) };
  return html`<p class="choice">Show ${choices(spans, "true")}</p>
    <${Plot} options=${creditsBy(seconds.length)} seconds=${seconds} series=${series} />
    ${since && since > dateOf(seconds[0] ?? 0) && hint(`What is known begins at ${since.slice(0, 10)}.`)}
    <details><summary>The same as a table</summary>${table(
      "Usage by day (UTC)",
      [
        { title: "Day", header: true, of: (row) => row.day },
        { title: "Requests", numeric: true, of: (row) => row.requests, as: count },
        { title: "Charged", numeric: true, of: (row) => row.credits, as: count },
        { title: "Refunded", numeric: true, of: (row) => row.refunds, as: count },
      ],
      rows.reverse(),
      "None.",
      "days-by",
    )}</details>`;
}

/** @param {number} days @returns {import("../plots.js").PlotOptions} */
const creditsBy = (days) => ({
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
