/** @import { Content } from "../dom.js" */
/** @import { Context } from "../main.js" */
/** @import { AuditRecord } from "../objects.d.ts" */
import { listAudit, ownAccounts } from "../api.js";
import { accountLink, code, heading, hint, html, keyLink, moment, taskLink } from "../dom.js";
import { count, momentText } from "../format.js";
import { hrefHere, pageOf, placeAt } from "../location.js";
import { filtered, paging, table } from "../table.js";

const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** A token for some accounts reads those of one at a time. @param {Context} context @returns {Promise<Content | URL>} */
export async function showAudit({ place: { query }, again }) {
  const own = ownAccounts();
  const isNamed = own === null || Boolean(query.get("account_id"));
  if (!isNamed && own.length === 1) return placeAt(hrefHere({ account_id: own[0] }));
  const options = own?.map((id) => /** @type {[string, string]} */ ([id, id]));
  const filters = [
    {
      name: "account_id",
      label: "Account",
      ...(options && { options: [/** @type {[string, string]} */ (["", "choose one"]), ...options] }),
    },
    { name: "audit_id", label: "Record" },
  ];
  const read = async () =>
    isNamed ? auditPage(query) : hint("This token is for some accounts: choose one of them.");
  return [heading("Audit", again), await filtered(filters, read)];
}

/** @param {URLSearchParams} query */
async function auditPage(query) {
  const auditId = query.get("audit_id");
  const page = await listAudit(pageOf(query, ["audit_id", "account_id"]));
  return [
    table(
      "What operators changed (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "Who", wrap: true, of: (one) => one.by },
        { title: "What", of: (one) => one.action, as: code },
        { title: "Account", wrap: true, of: (one) => one.account_id, as: accountLink },
        { title: "To what", wrap: true, cell: targetOf, of: (one) => one.target },
        { title: "Changed", wide: true, cell: changes },
      ],
      page.data,
      auditId ? `There is no record ${auditId}.` : "There is no record.",
    ),
    paging(page, "Latest first."),
    hint("Records are kept for 90 days, and in the archive where there is one."),
  ];
}

/** The changed object, unless it is the account. @param {AuditRecord} record */
function targetOf({ action, account_id, target }) {
  if (!target || target === account_id) return "–";
  if (action.startsWith("key.")) return keyLink(account_id, target);
  return action.startsWith("task.") ? taskLink(target) : code(target);
}

/** @param {AuditRecord} record */
function changes({ audit_id, before, after, request_id }) {
  const [first = "no fields", ...more] = changesBetween(objectOf(before), objectOf(after));
  return html`<details>
    <summary>${more.length > 0 ? `${first}, and ${more.length} more` : first}</summary>
    ${more.map((line) => html`<div>${line}</div>`)}
    <div class="hint">record ${audit_id}, request ${request_id ?? "–"}</div>
  </details>`;
}

/** @param {unknown} value as it is stored: an object, its JSON, or nothing */
function objectOf(value) {
  let parsed = value;
  if (typeof value === "string") {
    try {
      parsed = JSON.parse(value);
    } catch {
      return { value };
    }
  }
  return parsed !== null && typeof parsed === "object" ? /** @type {Record<string, unknown>} */ (parsed) : {};
}

/** @param {Record<string, unknown>} before @param {Record<string, unknown>} after */
function changesBetween(before, after) {
  const lines = [];
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, now] = [before[name], after[name]].map(text);
    if (old !== now) lines.push(old === "" ? `${name}: ${now}` : `${name}: ${old} → ${now || "none"}`);
  }
  return lines;
}

/** @param {unknown} value as the other views show it @returns {string} */
function text(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return count(value);
  if (Array.isArray(value)) return value.map(text).join(", ");
  if (typeof value !== "string") return JSON.stringify(value, undefined, 1);
  return ISO_TIME.test(value) ? momentText(value) : value;
}
