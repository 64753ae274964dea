import { listTransactions, may, readAccount, reverseGrant } from "../api.js";
import { ask, unlessLeft } from "../dialogs.js";
import {
  asking,
  badge,
  bar,
  button,
  code,
  hint,
  html,
  keyLink,
  link,
  moment,
  say,
  taskLink,
} from "../dom.js";
import { credits, reasonField, referenceField } from "../fields.js";
import { count, endpointName, momentText, signed, wordsOf } from "../format.js";
import { here, hrefTo } from "../location.js";
import { partRequests, transactionsQuery } from "../requests.js";
import { personOf, saleText, subjectOf } from "../sentences.js";
import { choiceOf, DAYS, downloadCsv, filtered, pagedTable } from "../table.js";

const CSV_PER_PAGE = 100;
const CSV_ROWS_MAX = 20_000;

const TRANSACTION_KINDS = /** @type {const} */ ([
  ["", "all"],
  ["charge", "charges"],
  ["refund", "refunds"],
  ["purchase", "purchases"],
  ["trial", "trials"],
  ["goodwill", "goodwill"],
  ["adjustment", "adjustments"],
  ["reversal", "reversals"],
]);

const TRANSACTION_FILTERS = [
  { name: "kind", label: "Kind", options: TRANSACTION_KINDS },
  ...DAYS,
  { name: "reference", label: "Reference" },
  { name: "id", label: "Id" },
];

/** The ledger of an account, latest first. @param {string} id @param {Context} context @returns {Promise<Content>} */
export async function showTransactions(id, { place, again }) {
  const { page } = partRequests.transactions(place);
  const csv = button("Download CSV", (event) => {
    if (event.currentTarget instanceof HTMLButtonElement) void download(id, event.currentTarget);
  });
  return filtered(TRANSACTION_FILTERS, async () => transactionsPage(id, await page, again), csv);
}

/** @param {string} id @param {List<Transaction>} page @param {() => void} again */
function transactionsPage(id, page, again) {
  const undo = (/** @type {Transaction} */ one) =>
    may("credits:write") && leftOf(one) > 0
      ? asking("Undo …", () => askReversal(id, one), again, "quiet")
      : "";
  return pagedTable(
    "Transactions (UTC)",
    [
      { title: "When", header: true, of: (one) => one.created_at, as: moment },
      { title: "What", cell: kindAndNet, of: ({ kind, type }) => kind ?? type },
      { title: "Credits", numeric: true, of: (one) => one.amount, as: signed },
      { title: "Balance after", numeric: true, of: (one) => one.balance_after, as: count },
      { title: "Reason", wrap: true, cell: (one) => reasonOf(id, one) },
      { title: "Task", wrap: true, cell: (one) => taskLink(one.task_id) },
      { title: "By", wrap: true, of: (one) => one.by && personOf(one.by) },
      { title: "Undo", cell: undo },
    ],
    page,
  );
}

/** A grant says what is left of it. @param {Transaction} transaction */
function kindAndNet({ kind, type, amount, reversed }) {
  const net =
    kind !== "reversal" && reversed ? `net ${count(amount - reversed)}: ${count(reversed)} taken back` : "";
  return [kind ?? type, net && html`<div class="hint">${net}</div>`];
}

/** @param {string} account @param {Transaction} entry */
function reasonOf(account, entry) {
  const { endpoint, reason, reference, of } = entry;
  // The word of a refund that nobody ordered.
  const why = reason === "refund" ? "the task failed" : reason;
  const parts = [endpointName(endpoint), saleText(entry), why, reference && `reference ${reference}`];
  const text = parts.filter(Boolean).join(", ") || "–";
  if (!of) return text;
  const grant = link(hrefTo(["account", account, "transactions"], { reference: of }), of);
  return [text, html`<div>of the grant ${grant}</div>`];
}

/** All that the filters let through, page by page. @param {string} id @param {HTMLButtonElement} pressed */
async function download(id, pressed) {
  pressed.disabled = true;
  try {
    /** @type {Transaction[]} */
    const rows = [];
    // Another view may be in sight when the next page is read.
    const asked = transactionsQuery(here().query, CSV_PER_PAGE);
    let cursor = "";
    do {
      const page = await listTransactions(id, { ...asked, cursor });
      rows.push(...page.data);
      cursor = page.next_cursor ?? "";
      say(`${count(rows.length)} transactions are read …`);
    } while (cursor && rows.length < CSV_ROWS_MAX);
    downloadCsv(`${id}-transactions.csv`, CSV_TITLES, rows);
    const more = cursor ? ` There are more: choose a range of days, or use the command line's export.` : "";
    say(`${count(rows.length)} transactions are in the file.${more}`);
  } catch (error) {
    say(`No file: ${wordsOf(error)}`);
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
  "package",
  "amount_paid",
  "currency",
  "task_id",
  "request_id",
  "key_id",
  "of",
  "reversed",
  "by",
];

const TASK_STATUSES = ["held", "processing", "completed", "failed", "void"];

/** @param {string} _ @param {Context} context @returns {Promise<Content>} */
export async function showAccountTasks(_, { place }) {
  const asked = partRequests.tasks(place);
  const prices = await asked.prices.catch(() => ({ data: [] }));
  const names = prices.data.map(({ endpoint }) => /** @type {const} */ ([`/api/v1/${endpoint}`, endpoint]));
  const filters = [
    { name: "status", label: "Status", options: choiceOf("all", TASK_STATUSES) },
    { name: "endpoint", label: "Endpoint", options: [...choiceOf("all", []), ...names] },
    DAYS[0],
  ];
  return filtered(filters, async () => tasksPage(await asked.page));
}

/** @param {List<Task>} page */
const tasksPage = (page) =>
  pagedTable(
    "Tasks (UTC)",
    [
      { title: "When", header: true, of: (one) => one.created_at, as: moment },
      { title: "Status", of: (one) => one.status, as: badge },
      { title: "Credits", numeric: true, of: (one) => one.price, as: count },
      { title: "Refunded", of: (one) => one.refunded, as: (is) => (is ? "yes" : "no") },
      { title: "Endpoint", of: (one) => one.endpoint, as: endpointName },
      { title: "Task or request", wrap: true, cell: (one) => taskLink(one.task_id ?? one.request_id) },
      { title: "Key", cell: (one) => keyLink(one.account_id, one.key_id, one.key_label) },
      { title: "Finished", of: (one) => one.finished_at, as: moment },
    ],
    page,
    "Open ones first, then the latest. To find one, search for its id.",
  );

/** @param {string} id @param {Context} context @returns {Promise<Content>} */
export const showAccountRefusals = (id, { place }) =>
  filtered([{ name: "key_id", label: "Key" }, ...DAYS], async () =>
    refusalsPage(id, await partRequests.refusals(place).page),
  );

/** @param {string} id @param {AccountRefusals} page */
function refusalsPage(id, page) {
  const { data, uncounted } = page;
  const most = Math.max(0, ...data.map((row) => row.count));
  return [
    pagedTable(
      "Refused in the last eight days, by hour (UTC)",
      [
        { title: "In the hour of", header: true, of: (row) => row.hour, as: moment },
        { title: "Reason", of: (row) => row.outcome, as: code },
        { title: "Times", numeric: true, of: (row) => row.count, as: (times) => bar(times, most) },
        {
          title: "Key",
          wrap: true,
          of: (row) => row.key_id,
          cell: (row) => (row.key_id === "*" ? "further keys" : keyLink(id, row.key_id, row.key_label)),
        },
      ],
      page,
    ),
    Boolean(uncounted) &&
      hint(`${count(uncounted)} refusals of this and other accounts had no room in these counts.`),
    hint(
      "Gateways add their refusals every 5 s. The page of a key has each of the last day, with the limit, what was used of it, and the wait.",
    ),
  ];
}

/** @param {Transaction} transaction */
const isGrant = ({ kind, reference: of }) => ["purchase", "trial", "goodwill"].includes(kind) && Boolean(of);

/** The part of a grant that no reversal has taken; 0 for other entries. @param {Transaction} grant */
const leftOf = (grant) => (isGrant(grant) ? grant.amount - (grant.reversed ?? 0) : 0);

/** The balance is read when it is asked: it may have been spent since the list was read. @param {string} id @param {Transaction} grant */
async function askReversal(id, grant) {
  const { amount: granted, reversed = 0, reference: of, by, kind, created_at: at } = grant;
  const account = (await unlessLeft(readAccount(id)))?.value;
  if (!account) return false;
  const { balance, held } = account;
  const left = Math.min(leftOf(grant), balance);
  const before = reversed > 0 ? ` ${count(reversed)} of it were taken back before.` : "";
  const isHeld = held > 0 ? `, beside ${count(held)} that are held` : "";
  const wanted = (/** @type {Record<string, string>} */ { amount }) => (amount ? Number(amount) : left);
  return ask({
    title: `Take back this ${kind}?`,
    lines: [
      `${subjectOf(by)} granted ${count(granted)} credits at ${momentText(at)}, reference ${of}.${before}`,
      left > 0
        ? `The account can spend ${count(balance)}${isHeld}: at most ${count(left)} can be taken back.`
        : `Nothing is left to take back: the account can spend ${count(balance)}${isHeld}.`,
    ],
    fields: [
      {
        name: "amount",
        label: "Credits",
        hint: "Empty: all that is left.",
        type: "number",
        check: (value) => (value ? credits(value) : undefined),
      },
      reasonField("The customer sees it."),
      // One for each state of the grant: a repeat whose answer was lost takes nothing twice.
      referenceField(
        "The same one counts once, however often it is sent.",
        `undo ${grant.id}${reversed > 0 ? ` after ${reversed}` : ""}`,
      ),
    ],
    verb: "Take back",
    danger: true,
    preview: (values) => {
      const taken = Math.min(wanted(values), left);
      return taken > 0
        ? `Balance ${count(balance)} → ${count(balance - taken)} credits (−${count(taken)}).`
        : "";
    },
    async run({ amount, reason, reference: own }) {
      const body = { of, reason, reference: own, ...(amount && { amount: Number(amount) }) };
      const { value, isRepeat } = await reverseGrant(id, body);
      const { reversed: taken = 0, requested = taken, confirmed } = value;
      const short = taken < requested ? `, of ${count(requested)} that were asked for` : "";
      const said = isRepeat
        ? `Nothing is changed: the reference ${own} took back ${count(taken)} credits before.`
        : `${count(taken)} credits of the grant ${of} are taken back${short}. The balance is ${count(value.balance)}.`;
      return { said, confirmed };
    },
  });
}
