/** @import { Context, Made } from "./views.js" */
import { askCreateAccount } from "./account-actions.js";
import { listAccounts } from "./api.js";
import { accountLink, badge, button, heading, moment, unreadNotes } from "./dom.js";
import { filtered, filterForm } from "./filters.js";
import { count } from "./format.js";
import { hrefTo } from "./location.js";
import { may } from "./session.js";
import { paging, table } from "./table.js";

const PER_PAGE = 50;

const STATUSES = /** @type {const} */ ([
  ["", "any"],
  ["active", "active"],
  ["suspended", "suspended"],
  ["closed", "closed"],
]);

/**
 * Accounts in pages, by the beginning of their id or label and by status.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showAccounts({ place: { query }, again }) {
  const create = button("Create account …", () =>
    askCreateAccount().then((id) => {
      if (id) location.hash = hrefTo(["account", id]);
    }),
  );
  const form = filterForm(
    [
      { name: "prefix", label: "Id begins with" },
      { name: "label", label: "Label begins with" },
      { name: "status", label: "Status", options: STATUSES },
    ],
    ...(may("accounts:write") ? [create] : []),
  );
  return { nodes: [heading("Accounts", again), ...(await filtered(form, () => accountsPage(query)))] };
}

/** @param {URLSearchParams} query */
async function accountsPage(query) {
  const page = await listAccounts({
    prefix: query.get("prefix") ?? "",
    label: query.get("label") ?? "",
    status: query.get("status") ?? "",
    cursor: query.get("cursor") ?? "",
    limit: PER_PAGE,
  });
  return [
    ...unreadNotes(page),
    table(
      "Accounts",
      [
        {
          title: "Account",
          header: true,
          wrap: true,
          cell: (one) => accountLink(one.account_id),
          by: (one) => one.account_id,
        },
        { title: "Label", wrap: true, cell: (one) => one.label ?? "–", by: (one) => one.label },
        { title: "Status", cell: (one) => badge(one.status), by: (one) => one.status },
        { title: "Balance", numeric: true, cell: (one) => count(one.balance), by: (one) => one.balance },
        { title: "Held", numeric: true, cell: (one) => count(one.held), by: (one) => one.held },
        {
          title: "Used in all",
          numeric: true,
          cell: (one) => count(one.total_used),
          by: (one) => one.total_used,
        },
        {
          title: "Requests",
          numeric: true,
          cell: (one) => count(one.total_requests),
          by: (one) => one.total_requests,
        },
        { title: "Created", cell: (one) => moment(one.created_at), by: (one) => one.created_at },
      ],
      page.data,
      page.next_cursor ? "None among those looked at so far; go on to the next page." : "There is none.",
    ),
    paging(page, "Balance, held and used are credits."),
  ];
}
