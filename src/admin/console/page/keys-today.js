/** @import { TopKeys } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listRefusedToday, listTopKeys } from "./api.js";
import { accountLink, badge, bar, code, heading, hint, keyLink, note, unreadNotes } from "./dom.js";
import { count } from "./format.js";
import { useColumns } from "./limit-fields.js";
import { may } from "./session.js";
import { table } from "./table.js";

/**
 * Keys by what they used and by what they were refused today, over all gateways.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showKeys({ again }) {
  const [use, refused] = await Promise.all([
    listTopKeys(),
    may("usage:read") ? listRefusedToday() : undefined,
  ]);
  const most = refused?.data[0]?.count ?? 0;
  const cut = use.complete
    ? []
    : [note(`Only the first ${count(use.keys_looked_at)} keys were looked at; others may have used more.`)];
  return {
    nodes: [
      heading("Keys today", again),
      hint("Over all gateways, read from Redis. The day is the UTC day."),
      ...cut,
      ...unreadNotes(use),
      table(
        "Most used",
        [
          { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id) },
          {
            title: "Account",
            wrap: true,
            cell: (key) => accountLink(key.account_id),
            by: (key) => key.account_id,
          },
          { title: "Tier", cell: (key) => key.tier, by: (key) => key.tier },
          ...useColumns((/** @type {TopKeys["data"][number]} */ key) => key),
          { title: "State", cell: (key) => badge(key.usable ? "active" : "revoked or expired") },
        ],
        use.data,
        "No key was used today.",
        "used-by",
      ),
      ...(refused
        ? [
            table(
              "Most refused",
              [
                { title: "Key", header: true, cell: (row) => keyLink(row.account_id, row.key_id) },
                {
                  title: "Account",
                  wrap: true,
                  cell: (row) => accountLink(row.account_id),
                  by: (row) => row.account_id,
                },
                { title: "Why", cell: (row) => code(row.outcome), by: (row) => row.outcome },
                {
                  title: "Refusals",
                  numeric: true,
                  cell: (row) => bar(row.count, most),
                  by: (row) => row.count,
                },
              ],
              refused.data,
              "No known key was refused today.",
              "refused-by",
            ),
            hint("Gateways add their refusals every 5 s. Requests without a known key are in the overview."),
          ]
        : []),
    ],
  };
}
