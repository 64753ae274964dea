/** @import { Content } from "../dom.js" */
/** @import { Context } from "../views.js" */
import { listAccounts, may } from "../api.js";
import { accountLink, badge, button, heading, moment, unreadNote } from "../dom.js";
import { count } from "../format.js";
import { hrefTo, pageOf } from "../location.js";
import { filtered, paging, table } from "../table.js";
import { askCreateAccount } from "./account-actions.js";

const STATUSES = /** @type {const} */ ([
  ["", "any"],
  ["active", "active"],
  ["suspended", "suspended"],
  ["closed", "closed"],
]);

/**
 * Accounts in pages, by the beginning of their id or label and by status.
 * @param {Context} context
 * @returns {Promise<Content>}
 */
export async function showAccounts({ place: { query }, again }) {
  const create = button("Create account …", () =>
    askCreateAccount().then((id) => {
      if (id) location.hash = hrefTo(["account", id]);
    }),
  );
  const filters = [
    { name: "prefix", label: "Id begins with" },
    { name: "label", label: "Label begins with" },
    { name: "status", label: "Status", options: STATUSES },
  ];
  const list = await filtered(filters, () => accountsPage(query), may("accounts:write") && create);
  return [heading("Accounts", again), list];
}

/** @param {URLSearchParams} query */
async function accountsPage(query) {
  const page = await listAccounts(pageOf(query, ["prefix", "label", "status"]));
  return [
    unreadNote(page),
    table(
      "Accounts",
      [
        { title: "Account", header: true, wrap: true, of: (one) => one.account_id, as: accountLink },
        { title: "Label", wrap: true, of: (one) => one.label },
        { title: "Status", of: (one) => one.status, as: badge },
        { title: "Balance", numeric: true, of: (one) => one.balance, as: count },
        { title: "Held", numeric: true, of: (one) => one.held, as: count },
        { title: "Used in all", numeric: true, of: (one) => one.total_used, as: count },
        { title: "Requests", numeric: true, of: (one) => one.total_requests, as: count },
        { title: "Created", of: (one) => one.created_at, as: moment },
      ],
      page.data,
      page.next_cursor ? "None among those looked at so far; go on to the next page." : "There is none.",
    ),
    paging(page, "Balance, held and used are credits."),
  ];
}
