/** @import { Content } from "../dom.js" */
/** @import { RefusalsOfDay, TopKeys } from "../objects.d.ts" */
/** @import { Context } from "../views.js" */
import { listRefusedToday, listTopKeys, may } from "../api.js";
import { accountLink, badge, bar, code, heading, hint, keyLink, note, unreadNote } from "../dom.js";
import { count } from "../format.js";
import { useColumns } from "../limit-fields.js";
import { table } from "../table.js";

/**
 * Keys by what they used and by what they were refused today, over all gateways.
 * @param {Context} context
 * @returns {Promise<Content>}
 */
export async function showKeys({ again }) {
  const [use, refused] = await Promise.all([
    listTopKeys(),
    may("usage:read") ? listRefusedToday() : undefined,
  ]);
  return [
    heading("Keys today", again),
    hint("Over all gateways, read from Redis. The day is the UTC day."),
    !use.complete &&
      note(`Only the first ${count(use.keys_looked_at)} keys were looked at; others may have used more.`),
    unreadNote(use),
    table(
      "Most used",
      [
        { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id) },
        { title: "Account", wrap: true, of: (key) => key.account_id, as: accountLink },
        { title: "Tier", of: (key) => key.tier },
        ...useColumns((/** @type {TopKeys["data"][number]} */ key) => key),
        { title: "State", cell: (key) => badge(key.usable ? "active" : "revoked or expired") },
      ],
      use.data,
      "No key was used today.",
      "used-by",
    ),
    refused && refusedTable(refused),
  ];
}

/** @param {RefusalsOfDay} refused */
function refusedTable({ data }) {
  const most = data[0]?.count ?? 0;
  return [
    table(
      "Most refused",
      [
        { title: "Key", header: true, cell: (row) => keyLink(row.account_id, row.key_id) },
        { title: "Account", wrap: true, of: (row) => row.account_id, as: accountLink },
        { title: "Why", of: (row) => row.outcome, as: code },
        { title: "Refusals", numeric: true, of: (row) => row.count, as: (times) => bar(times, most) },
      ],
      data,
      "No known key was refused today.",
      "refused-by",
    ),
    hint("Gateways add their refusals every 5 s. Requests without a known key are in the overview."),
  ];
}
