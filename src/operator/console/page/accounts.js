/** @import { Account, AccountKey, Transaction, Transactions } from "../answers.ts" */
import { get } from "./api.js";
import { ask } from "./dialogs.js";
import {
  accountLink,
  button,
  code,
  count,
  el,
  heading,
  hint,
  moment,
  table,
  unreadNotes,
  usage,
} from "./dom.js";

/**
 * Accounts in pages; Redis keeps them in no order.
 * @param {HTMLElement} view
 * @param {() => void} again
 * @param {string} prefix
 * @param {string[]} cursors of the pages up to this one
 */
export async function showAccounts(view, again, prefix = "", cursors = [""]) {
  const page = await get("accounts", { prefix, cursor: cursors.at(-1) ?? "" });
  const go = (/** @type {string} */ begin, /** @type {string[]} */ pages) =>
    showAccounts(view, again, begin, pages).then(() => document.getElementById("view-title")?.focus());
  const input = el("input", {
    id: "prefix",
    value: prefix,
    type: "search",
    maxLength: 64,
    spellcheck: false,
    autocomplete: "off",
  });
  const form = el(
    "form",
    { className: "filter" },
    el("label", { htmlFor: "prefix" }, "Account id begins with"),
    input,
    el("button", { type: "submit" }, "Show"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    again = () => void go(input.value.trim(), [""]);
    again();
  });
  const back = button("Back", () => go(prefix, cursors.slice(0, -1)), { disabled: cursors.length === 1 });
  const next = [...cursors, page.next ?? ""];
  const on = button("Further", () => go(prefix, next), { disabled: page.next === undefined });
  view.replaceChildren(
    heading("Accounts", again),
    el("search", {}, form),
    ...unreadNotes(page),
    table(
      `Accounts, page ${cursors.length}`,
      [
        { title: "Account", header: true, cell: (row) => accountLink(row.account_id) },
        { title: "Balance", numeric: true, cell: (row) => count(row.balance) },
        { title: "Held", numeric: true, cell: (row) => count(row.held) },
        { title: "Used in all", numeric: true, cell: (row) => count(row.total_used) },
        { title: "Requests", numeric: true, cell: (row) => count(row.total_requests) },
      ],
      page.accounts,
      page.next === undefined ? "There is none." : "None among those looked at so far; look further.",
    ),
    el(
      "p",
      { className: "paging" },
      back,
      on,
      el("span", { className: "hint" }, "Credits. In no particular order."),
    ),
  );
}

/**
 * One account: its credits, keys and transactions.
 * @param {HTMLElement} view
 * @param {() => void} again
 * @param {string} id
 * @param {boolean} writable
 */
export async function showAccount(view, again, id, writable) {
  const [account, first] = await Promise.all([get("account", { id }), get("transactions", { account: id })]);
  const grant = button("Grant credits …", () => askGrant(account, again), { className: "primary" });
  const facts = [
    ["Balance", count(account.balance)],
    ["Held", count(account.held)],
    ["Used in all", count(account.total_used)],
    ["Requests", count(account.total_requests)],
  ];
  const tiles = facts.map(([label, value]) =>
    el("div", { className: "tile" }, el("dt", {}, label), el("dd", {}, value)),
  );
  view.replaceChildren(
    heading(`Account ${account.account_id}`, again),
    el("dl", { className: "tiles" }, ...tiles),
    ...(writable ? [el("p", {}, grant)] : []),
    keysTable(account, again, writable),
    ...(account.more_keys ? [hint("There are more keys; the command line lists all.")] : []),
    transactions(id, first),
    refusalsTable(account),
    ...(account.more_refusals ? [hint("There are earlier ones; the command line lists all.")] : []),
  );
}

/** @param {Account} account */
const refusalsTable = ({ refusals }) =>
  table(
    "Refused in the last eight days, by hour (UTC)",
    [
      { title: "In the hour of", header: true, cell: (row) => moment(row.hour) },
      { title: "Key", cell: (row) => code(row.key_id) },
      { title: "Reason", cell: (row) => row.outcome },
      { title: "Times", numeric: true, cell: (row) => count(row.count) },
    ],
    refusals,
    "It was not refused.",
  );

/**
 * @param {Account} account
 * @param {() => void} again
 * @param {boolean} writable
 */
function keysTable(account, again, writable) {
  const revoke = (/** @type {AccountKey} */ key) => {
    if (key.revoked_at) return "";
    return button("Revoke …", () => askRevoke(key, again), { "aria-label": `Revoke key ${key.key_id}` });
  };
  const state = (/** @type {AccountKey} */ key) => {
    if (key.revoked_at) return ["revoked ", moment(key.revoked_at)];
    if (!key.usable) return ["expired ", moment(key.expires_at)];
    return key.expires_at ? ["good until ", moment(key.expires_at)] : "good";
  };
  return table(
    "Keys",
    [
      { title: "Key", header: true, cell: (key) => code(key.key_id) },
      { title: "Tier", cell: (key) => key.tier },
      {
        title: "Last 60 s",
        numeric: true,
        cell: (key) => usage(key.window_used, key.rate_limit, "last 60 s"),
      },
      { title: "Slots", numeric: true, cell: (key) => usage(key.active, key.max_concurrent, "slots") },
      { title: "Made", cell: (key) => moment(key.created_at) },
      { title: "State", cell: state },
      ...(writable ? [{ title: "Action", action: true, cell: revoke }] : []),
    ],
    account.keys,
    "It has no keys.",
  );
}

/**
 * @param {string} id
 * @param {Transactions} first
 */
function transactions(id, first) {
  const rows = [...first.transactions];
  let next = first.next;
  const box = el("div", {});
  const draw = () => {
    const older = button("Older …", async () => {
      older.disabled = true;
      const page = await get("transactions", { account: id, before: next ?? "" });
      rows.push(...page.transactions);
      next = page.next;
      const scrolled = scrollY;
      draw();
      scrollTo(0, scrolled);
      box.querySelector("button")?.focus();
    });
    box.replaceChildren(
      table(
        "Transactions, latest first (UTC)",
        [
          { title: "When", header: true, cell: (entry) => moment(entry.created_at) },
          { title: "What", cell: (entry) => (entry.reason ? `${entry.type}, ${entry.reason}` : entry.type) },
          { title: "Credits", numeric: true, cell: (entry) => signed(entry.amount) },
          { title: "Balance after", numeric: true, cell: (entry) => count(entry.balance_after) },
          { title: "For", wrap: true, cell: (entry) => purpose(entry) },
        ],
        rows,
        "There are none.",
      ),
      el("p", { className: "paging" }, ...(next === undefined ? ["These are all."] : [older])),
    );
  };
  draw();
  return box;
}

/** @param {Transaction} entry */
function purpose({ reference, endpoint, task_id }) {
  if (reference) return `reference ${reference}`;
  return [endpoint ? `${endpoint.replace("/api/v1/", "")} ` : "", code(task_id ?? "")];
}

/** @param {number} amount */
const signed = (amount) => (amount > 0 ? `+${count(amount)}` : `−${count(-amount)}`);

/**
 * @param {Account} account
 * @param {() => void} again
 */
async function askGrant(account, again) {
  const id = account.account_id;
  const done = await ask({
    title: `Grant credits to ${id}`,
    lines: [
      `It can spend ${count(account.balance)} now. The same reference credits once, however often it is sent.`,
    ],
    fields: [
      {
        name: "amount",
        label: "Credits",
        hint: "A whole number, at least 1.",
        type: "number",
        pattern: /^[1-9]\d{0,14}$/,
        wrong: "Credits must be a whole number, at least 1.",
      },
      {
        name: "reference",
        label: "Reference",
        hint: "What it is for, such as an invoice or a ticket; it stands in the ledger.",
        pattern: /^[\x20-\x7e]{1,200}$/,
        wrong: "A reference has 1 to 200 printable ASCII characters.",
      },
    ],
    verb: "Grant",
    action: "grant",
    body: ({ amount, reference }) => ({ account_id: id, amount: Number(amount), reference }),
    done: ({ outcome, balance }, { amount, reference }) =>
      outcome === "duplicate"
        ? `Nothing is changed: ${reference} has credited ${count(Number(amount))} to ${id} before. It can spend ${count(balance)}.`
        : `${count(Number(amount))} credits are granted to ${id}, reference ${reference}. It can spend ${count(balance)}.`,
  });
  if (done) again();
}

/**
 * @param {AccountKey} key
 * @param {() => void} again
 */
async function askRevoke(key, again) {
  const done = await ask({
    title: "Revoke this key?",
    lines: [
      `Key ${key.key_id} of account ${key.account_id} ends at once and for good: its next request is answered 401.`,
      "Tasks that it has begun go on; the account's other keys can poll them.",
    ],
    verb: "Revoke it",
    danger: true,
    action: "revoke",
    body: () => ({ key_id: key.key_id }),
    done: ({ outcome }) =>
      `Key ${key.key_id} ${outcome === "revoked" ? "is revoked" : "was revoked before"}.`,
  });
  if (done) again();
}
