/** @import { Account, Transaction } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listTransactions } from "./api.js";
import { downloadCsv } from "./csv.js";
import { button, moment, say, taskLink } from "./dom.js";
import { filtered, filterForm } from "./filters.js";
import { count, endpointName, signed } from "./format.js";
import { here } from "./location.js";
import { paging, table } from "./table.js";

const PER_PAGE = 50;
const CSV_PER_PAGE = 100;
const CSV_ROWS_MAX = 20_000;

const KINDS = /** @type {const} */ ([
  ["", "all"],
  ["charge", "charges"],
  ["refund", "refunds"],
  ["purchase", "purchases"],
  ["adjustment", "adjustments"],
]);

/**
 * The ledger of an account, latest first.
 * @param {Account} account
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showTransactions({ account_id: id }, { place }) {
  const csv = button("Download CSV", () => void download(id, csv));
  const form = filterForm(
    [
      { name: "kind", label: "Kind", options: KINDS },
      { name: "from", label: "From", type: "date" },
      { name: "to", label: "to", type: "date" },
      { name: "reference", label: "Reference" },
      { name: "id", label: "Id" },
    ],
    csv,
  );
  return { nodes: await filtered(form, () => transactionsPage(id, place.query.get("cursor") ?? "")) };
}

/**
 * @param {string} id
 * @param {string} cursor
 */
async function transactionsPage(id, cursor) {
  const page = await listTransactions(id, { ...filtersHere(), cursor, limit: PER_PAGE });
  return [
    table(
      "Transactions (UTC)",
      [
        { title: "When", header: true, cell: (one) => moment(one.created_at), by: (one) => one.created_at },
        { title: "What", cell: (one) => whatOf(one), by: (one) => whatOf(one) },
        { title: "Credits", numeric: true, cell: (one) => signed(one.amount), by: (one) => one.amount },
        {
          title: "Balance after",
          numeric: true,
          cell: (one) => count(one.balance_after),
          by: (one) => one.balance_after,
        },
        { title: "Reason", wrap: true, cell: reasonOf },
        { title: "Task", wrap: true, cell: (one) => taskLink(one.task_id) },
        { title: "By", wrap: true, cell: (one) => one.by ?? "–", by: (one) => one.by },
      ],
      page.data,
      "There are none.",
    ),
    paging(page, "Latest first."),
  ];
}

function filtersHere() {
  const { query } = here();
  const filters = ["kind", "from", "to", "reference", "id"];
  return Object.fromEntries(filters.map((name) => [name, query.get(name) ?? ""]));
}

/** @param {Transaction} transaction */
const whatOf = ({ kind, type }) => kind ?? type;

/** @param {Transaction} transaction */
function reasonOf({ endpoint, reason, reference }) {
  const parts = [endpoint ? endpointName(endpoint) : "", reason, reference ? `reference ${reference}` : ""];
  return parts.filter(Boolean).join(", ") || "–";
}

/**
 * All that the filters let through, page by page.
 * @param {string} id
 * @param {HTMLButtonElement} pressed
 */
async function download(id, pressed) {
  pressed.disabled = true;
  try {
    /** @type {Transaction[]} */
    const rows = [];
    let cursor = "";
    do {
      const page = await listTransactions(id, { ...filtersHere(), cursor, limit: CSV_PER_PAGE });
      rows.push(...page.data);
      cursor = page.next_cursor ?? "";
      say(`${count(rows.length)} transactions are read …`);
    } while (cursor && rows.length < CSV_ROWS_MAX);
    downloadCsv(`${id}-transactions.csv`, CSV_TITLES, rows.map(csvRow));
    const more = cursor ? ` There are more: choose a range of days, or use the command line's export.` : "";
    say(`${count(rows.length)} transactions are in the file.${more}`);
  } catch (error) {
    say(`No file: ${error instanceof Error ? error.message : error}`);
  } finally {
    pressed.disabled = false;
  }
}

const CSV_TITLES = [
  "created_at",
  "id",
  "type",
  "kind",
  "amount",
  "balance_after",
  "endpoint",
  "reason",
  "reference",
  "task_id",
  "request_id",
  "key_id",
  "by",
];

/** @param {Transaction} one */
const csvRow = (one) =>
  CSV_TITLES.map((title) => /** @type {Record<string, any>} */ (/** @type {unknown} */ (one))[title]);
