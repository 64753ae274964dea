import { ownAccounts } from "../api.js";
import { code, heading, hint, html, link, moment, targetOf } from "../dom.js";
import { capitalized } from "../format.js";
import { hrefHere, placeAt } from "../location.js";
import { viewRequests } from "../requests.js";
import { AUDIT_ACTIONS, changedFields, deedOf, personOf } from "../sentences.js";
import { ACCOUNT_COLUMN, choiceOf, DAYS, filtered, NONE_SO_FAR, pagedTable } from "../table.js";

/** Beside the account. */
const AUDIT_FILTERS = [
  { name: "by", label: "By" },
  { name: "action", label: "Action", options: choiceOf("all", AUDIT_ACTIONS) },
  ...DAYS,
  { name: "audit_id", label: "Record" },
];

/** A token for some accounts reads those of one at a time. @param {Context} context @returns {Promise<Content | URL>} */
export async function showAudit({ place, again }) {
  const own = ownAccounts();
  const { page } = viewRequests.audit(place);
  if (!page && own?.length === 1) return placeAt(hrefHere({ account_id: own[0] }));
  const options = own?.map((id) => /** @type {[string, string]} */ ([id, id]));
  const filters = [
    {
      name: "account_id",
      label: "Account",
      needed: own !== null,
      ...(options && { options: [/** @type {[string, string]} */ (["", "choose one"]), ...options] }),
    },
    ...AUDIT_FILTERS,
  ];
  const read = async () =>
    page ? auditPage(place, await page) : hint("This token is for some accounts: choose one of them.");
  return [heading("Audit", again), await filtered(filters, read)];
}

/** @param {Place} place @param {List<AuditRecord>} page */
function auditPage({ query }, page) {
  const auditId = query.get("audit_id");
  return [
    pagedTable(
      "What operators changed (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "Who", wrap: true, of: (one) => one.by, as: person },
        { title: "What", wide: true, cell: auditSentence },
        { title: "Action", of: (one) => one.action, as: code },
        ACCOUNT_COLUMN,
        { title: "To what", wrap: true, cell: targetOf, of: (one) => one.target },
      ],
      page,
      undefined,
      auditId ? `There is no record ${auditId}.` : page.next_cursor ? NONE_SO_FAR : "There is no record.",
    ),
    hint("Records are kept for 90 days, and in the archive where there is one."),
  ];
}

/** All that the same person did. @param {string} by */
const person = (by) => link(hrefHere({ by, audit_id: "" }), personOf(by));

/** @param {AuditRecord} record */
function auditSentence(record) {
  const { audit_id, by, request_id } = record;
  return html`<details>
    <summary>${capitalized(deedOf(record))}</summary>
    ${changedFields(record).map((line) => html`<div>${line}</div>`)}
    <div class="hint">by ${by}, record ${audit_id}, request ${request_id ?? "–"}</div>
  </details>`;
}
