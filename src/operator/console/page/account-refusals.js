/** @import { Account } from "./objects.d.ts" */
/** @import { Made } from "./views.js" */
import { listRefusals } from "./api.js";
import { bar, code, hint, keyLink, moment } from "./dom.js";
import { table } from "./table.js";

/**
 * How often an account's keys were refused, and why, hour by hour.
 * @param {Account} account
 * @returns {Promise<Made>}
 */
export async function showAccountRefusals({ account_id: id }) {
  const { data } = await listRefusals(id);
  const most = Math.max(0, ...data.map((row) => row.count));
  return {
    nodes: [
      table(
        "Refused in the last eight days, by hour (UTC)",
        [
          { title: "In the hour of", header: true, cell: (row) => moment(row.hour), by: (row) => row.hour },
          { title: "Reason", cell: (row) => code(row.outcome), by: (row) => row.outcome },
          { title: "Times", numeric: true, cell: (row) => bar(row.count, most), by: (row) => row.count },
          { title: "Key", wrap: true, cell: (row) => keyLink(id, row.key_id), by: (row) => row.key_id },
        ],
        data,
        "It was not refused.",
      ),
      hint(
        "Gateways add their refusals every 5 s. The log's line of a refusal has the limit and what was used of it.",
      ),
    ],
  };
}
