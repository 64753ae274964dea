import { listTimeline } from "../api.js";
import { link, moment, taskLink } from "../dom.js";
import { signed } from "../format.js";
import { hrefTo, pageOf } from "../location.js";
import { deedOf, entrySentence, subjectOf } from "../sentences.js";
import { choiceOf, DAYS, filtered, pagedTable } from "../table.js";
import { targetOf } from "./audit.js";

const TIMELINE_FILTERS = [
  { name: "charges", label: "Charges", options: choiceOf("with", ["without"]) },
  ...DAYS,
];

/** All that happened to an account, in one order. @param {string} id @param {Context} context @returns {Promise<Content>} */
export const showTimeline = (id, { place: { query } }) =>
  filtered(TIMELINE_FILTERS, async () => {
    const page = await listTimeline(id, pageOf(query, ["charges", "from", "to"]));
    return pagedTable(
      "What happened (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "What", wide: true, cell: eventSentence },
        { title: "Credits", numeric: true, of: (one) => one.transaction?.amount, as: eventCredits },
        { title: "To what", wrap: true, cell: eventTarget },
        { title: "More", cell: (one) => eventLink(id, one) },
      ],
      page,
      undefined,
      page.next_cursor ? "Nothing among what was looked at so far; go on to the next page." : "Nothing.",
    );
  });

/** @param {number | undefined} amount */
const eventCredits = (amount) => (amount === undefined ? "–" : signed(amount));

/** @param {TimelineEvent} event */
function eventSentence({ transaction, audit }) {
  if (transaction) return entrySentence(transaction);
  return audit && `${subjectOf(audit.by)} ${deedOf(audit)}`;
}

/** @param {TimelineEvent} event */
function eventTarget({ transaction, audit }) {
  if (transaction) return taskLink(transaction.task_id ?? transaction.request_id);
  return audit && targetOf(audit);
}

/** @param {string} account @param {TimelineEvent} event */
const eventLink = (account, { transaction, audit }) =>
  transaction
    ? link(hrefTo(["account", account, "transactions"], { id: transaction.id }), "transaction")
    : audit && link(hrefTo(["audit"], { audit_id: audit.audit_id, account_id: account }), "record");
