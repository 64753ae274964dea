/** @import { Account } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listRefusals } from "./api.js";
import { bar, code, hint, keyLink, moment } from "./dom.js";
import { filtered, filterForm } from "./filters.js";
import { count } from "./format.js";
import { paging, table } from "./table.js";

const PER_PAGE = 100;

/**
 * How often an account's keys were refused, and why, hour by hour.
 * @param {Account} account
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showAccountRefusals({ account_id: id }, { place: { query } }) {
  const form = filterForm([
    { name: "key_id", label: "Key" },
    { name: "from", label: "From", type: "date" },
    { name: "to", label: "to", type: "date" },
  ]);
  return { nodes: await filtered(form, () => refusalsPage(id, query)) };
}

/**
 * @param {string} id
 * @param {URLSearchParams} query
 */
async function refusalsPage(id, query) {
  const page = await listRefusals(id, {
    key_id: query.get("key_id") ?? "",
    from: query.get("from") ?? "",
    to: query.get("to") ?? "",
    cursor: query.get("cursor") ?? "",
    limit: PER_PAGE,
  });
  const { data, uncounted } = page;
  const most = Math.max(0, ...data.map((row) => row.count));
  return [
    table(
      "Refused in the last eight days, by hour (UTC)",
      [
        { title: "In the hour of", header: true, cell: (row) => moment(row.hour), by: (row) => row.hour },
        { title: "Reason", cell: (row) => code(row.outcome), by: (row) => row.outcome },
        { title: "Times", numeric: true, cell: (row) => bar(row.count, most), by: (row) => row.count },
        { title: "Key", wrap: true, cell: (row) => keyCell(id, row.key_id), by: (row) => row.key_id },
      ],
      data,
      "There are none.",
    ),
    paging(page, "Latest first."),
    ...(uncounted
      ? [hint(`${count(uncounted)} refusals of this and other accounts had no room in these counts.`)]
      : []),
    hint(
      "Gateways add their refusals every 5 s. The log's line of a refusal has the limit and what was used of it.",
    ),
  ];
}

/**
 * @param {string} account
 * @param {string} key
 */
const keyCell = (account, key) => (key === "*" ? "further keys" : keyLink(account, key));
