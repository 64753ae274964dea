import { actions, bar, button, heading, hint, moment, note, tile, tiles, unreadNote } from "../dom.js";
import { count } from "../format.js";
import { day, viewRequests } from "../requests.js";
import { downloadCsv, filtered, LABELLED_ACCOUNT, table } from "../table.js";

const BY = /** @type {const} */ ([
  ["spend", "spending"],
  ["refusals", "refusals"],
]);

/** Accounts by what they spent, or were refused, in some days. @param {Context} context @returns {Promise<Content>} */
export async function showTop({ place, again }) {
  const { by, from, page } = viewRequests.top(place);
  const filters = [
    { name: "by", label: "By", options: BY },
    { name: "from", label: "From", type: /** @type {const} */ ("date"), usual: from },
    { name: "to", label: "to", type: /** @type {const} */ ("date"), usual: day() },
  ];
  return [heading("Top accounts", again), await filtered(filters, async () => topTable(by, await page))];
}

/** @param {string} by @param {TopAccounts} page */
function topTable(by, page) {
  const rows = page.data.map((one) => ({ ...one, amount: one.credits ?? one.refusals ?? 0 }));
  const most = rows[0]?.amount ?? 0;
  return [
    unreadNote(page),
    !page.complete && note("Another account may belong to this list: too many have spent about as much."),
    page.since && hint(`What is known begins on ${page.since.slice(0, 10)}.`),
    table(
      by === "refusals" ? "Refused most" : "Spent most",
      [
        LABELLED_ACCOUNT,
        {
          title: by === "refusals" ? "Refusals" : "Credits",
          numeric: true,
          cell: (one) => bar(one.amount, most),
        },
      ],
      rows,
      "None in these days.",
    ),
    hint(
      by === "refusals"
        ? "Refusals of known keys, of the last eight days."
        : "Charged, without what was refunded; about a second behind.",
    ),
  ];
}

/** Grants of a month by package and kind. @param {Context} context @returns {Promise<Content>} */
export async function showSales({ place, again }) {
  const { month, sales, total } = viewRequests.sales(place);
  const filters = [{ name: "month", label: "Month", type: /** @type {const} */ ("month"), usual: month }];
  return [
    heading("Sold", again),
    await filtered(filters, async () => salesPart(month, await sales, await total)),
  ];
}

const SALE_COLUMNS = ["kind", "package", "currency", "grants", "credits", "amount_paid"];
const KINDS = /** @type {const} */ ([
  ["purchase", "Purchased"],
  ["trial", "Trials"],
  ["goodwill", "Goodwill"],
]);

/** @param {string} name */
const packageName = (name) => (name === "*" ? "further packages" : name === "none" ? "no package" : name);

/** @param {string} month @param {Sales} sales @param {TotalStatement} total */
function salesPart(month, sales, total) {
  const { data, since, until, amounts_paid } = sales;
  const save = () => downloadCsv(`sold-${month}.csv`, SALE_COLUMNS, data);
  const sum = (/** @type {string} */ kind) =>
    data.reduce((credits, one) => credits + (one.kind === kind ? one.credits : 0), 0);
  return [
    unreadNote(sales),
    since && note(`Grants before ${since.slice(0, 10)} are not counted.`),
    until && note(["Grants after ", moment(until), " may be missing: the archive lags."]),
    tiles(
      KINDS.map(([kind, name]) => tile(name, count(sum(kind)), "credits")),
      Object.entries(amounts_paid).map(([currency, amount]) => tile(`Paid, ${currency}`, amount)),
    ),
    table(
      `Sold and given in ${month} (UTC)`,
      [
        { title: "Kind", header: true, of: (one) => one.kind },
        { title: "Package", wrap: true, of: (one) => one.package ?? "none", as: packageName },
        { title: "Grants", numeric: true, of: (one) => one.grants, as: count },
        { title: "Credits", numeric: true, of: (one) => one.credits, as: count },
        {
          title: "Paid",
          numeric: true,
          cell: (one) => (one.amount_paid === null ? "–" : `${one.amount_paid} ${one.currency}`),
        },
      ],
      data,
      "Nothing was sold or given.",
    ),
    actions(data.length > 0 && button("Download CSV", save)),
    hint("Reversals are not subtracted here; the credits of the month below have them."),
    totalPart(month, total),
  ];
}

/** By which the lines add up to the last one. */
const TOTAL_LINES = /** @type {const} */ ([
  ["opening", "At the beginning"],
  ["purchases", "Purchased"],
  ["trials", "Trials"],
  ["goodwill", "Goodwill"],
  ["charges", "Charged", -1],
  ["refunds", "Refunded"],
  ["adjustments", "Adjusted"],
  ["reversals", "Reversed", -1],
  ["closing", "At the end, owed to customers"],
]);

/** @param {string} month @param {TotalStatement} total */
const totalPart = (month, total) => [
  unreadNote(total),
  total.since && note(`Entries before ${total.since.slice(0, 10)} are not counted.`),
  total.until && note(["Entries after ", moment(total.until), " may be missing: the archive lags."]),
  table(
    `Credits of all accounts in ${month} (UTC)`,
    [
      { title: "What", header: true, of: ([, name]) => name },
      {
        title: "Credits",
        numeric: true,
        of: ([field, , times = 1]) => total[field] && times * total[field],
        as: count,
      },
    ],
    [...TOTAL_LINES],
    "None.",
  ),
];
