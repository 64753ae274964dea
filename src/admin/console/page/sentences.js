import { count, endpointName, momentText } from "./format.js";

/** @typedef {Record<string, unknown>} Values */

const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** @param {unknown} value of an audit record, as the other views show it @returns {string} */
function valueText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return count(value);
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  if (typeof value !== "string") return JSON.stringify(value, undefined, 1);
  return ISO_TIME.test(value) ? momentText(value) : value;
}

/** Changed fields, a line each. @param {Pick<AuditRecord, "before" | "after">} record */
export function changedFields({ before, after }) {
  const [old, now] = [before, after].map((values) => /** @type {Values} */ (values ?? {}));
  const names = new Set([...Object.keys(old ?? {}), ...Object.keys(now ?? {})]);
  return [...names].flatMap((name) => {
    const [was, is] = [valueText(old?.[name]), valueText(now?.[name])];
    if (was === is) return [];
    return [was === "" ? `${name}: ${is}` : `${name}: ${was} → ${is || "none"}`];
  });
}

/** @param {AuditRecord} record */
const changesText = (record) => changedFields(record).join("; ") || "nothing";

/** @param {unknown} credits with its sign */
const creditsText = (credits) => `${count(Math.abs(Number(credits)))} credits`;

/** @param {Values} values */
const whyText = ({ reason, reference }) =>
  [reason && `: ${reason}`, reference && ` (reference ${reference})`].filter(Boolean).join("");

/** Names the package of a sale, and what was paid. @param {{ package?: unknown, amount_paid?: unknown, currency?: unknown }} sale */
export const saleText = ({ package: name, amount_paid: paid, currency }) =>
  [name, paid && `${paid} ${currency}`].filter(Boolean).join(", ");

/** A record has the sale as JSON. @param {Values} values */
const saleOf = ({ details }) => {
  const sale = saleText(typeof details === "string" ? JSON.parse(details) : {});
  return sale && `, ${sale}`;
};

/** @param {unknown} kind of a grant */
const asKind = (kind = "purchase") => (kind === "goodwill" ? "as goodwill" : `as a ${kind}`);

/** By action, after who did it: what was done. @type {Record<string, (after: Values, record: AuditRecord) => string>} */
const SENTENCES = {
  "account.create": () => "created the account",
  "account.patch": ({ status }, record) =>
    status === "suspended"
      ? `suspended the account${changedFields(record).length > 1 ? `; ${changesText(record)}` : ""}`
      : `changed the account: ${changesText(record)}`,
  "credits.grant": (after) =>
    `granted ${creditsText(after.amount)} ${asKind(after.kind)}${saleOf(after)}${whyText(after)}`,
  "credits.adjust": (after) =>
    `${Number(after.amount) < 0 ? "took away" : "added"} ${creditsText(after.amount)}${whyText(after)}`,
  "credits.reverse": (after) =>
    `took back ${creditsText(after.amount)} of the grant ${after.of}${whyText(after)}`,
  "credits.correct": (after) =>
    `gave back ${creditsText(after.amount)} of a charge by a wrong price${whyText(after)}`,
  "task.refund": (after) => `refunded ${creditsText(after.amount)} of a task${whyText(after)}`,
  "task.release": ({ state, credits, refunded }) =>
    state === "void"
      ? `voided a hold of ${creditsText(credits)}`
      : `ended a task as failed and refunded ${creditsText(refunded ?? 0)}`,
  "key.create": ({ label, tier }) =>
    `created a key${label ? ` (${label})` : ""} of tier ${tier ?? "standard"}`,
  "key.patch": (_, record) => `changed a key: ${changesText(record)}`,
  "key.rotate": ({ rotated_to: next, expires_at: at }) =>
    `replaced a key by ${next}${at ? `; it ends at ${valueText(at)}` : ""}`,
  "key.revoke": () => "ended a key for good",
  "token.create": ({ label, scopes }) => `created the token ${label ?? ""} with ${valueText(scopes)}`,
  "token.revoke": () => "ended a token for good",
  "webhook.create": ({ url }) => `registered the endpoint ${url}`,
  "webhook.patch": (_, record) => `changed an endpoint: ${changesText(record)}`,
  "webhook.delete": () => "deleted an endpoint",
  "webhook.disable": ({ disabled_reason: reason }) => `disabled an endpoint: ${reason}`,
  "webhook.rotate_secret": () => "replaced the secret of an endpoint",
  "webhook.reseal": () => "sealed the secret of an endpoint anew",
  "webhook.test": () => "sent a test to an endpoint",
  "webhook.redeliver": () => "sent a message to an endpoint again",
  "maintenance.set": (after, record) =>
    after.on === null ? "ended the maintenance" : `began or changed the maintenance: ${changesText(record)}`,
};

export const AUDIT_ACTIONS = Object.keys(SENTENCES);

/** The action in words that follow the actor's name. @param {AuditRecord} record */
export const deedOf = (record) =>
  SENTENCES[record.action]?.(/** @type {Values} */ (record.after ?? {}), record) ?? changesText(record);

/** @param {string} by as audit and ledger have it */
export const personOf = (by) => by.replace(/^tok_\S+ /, "");

/** Who begins a sentence. @param {string | null} by */
export function subjectOf(by) {
  if (!by) return "The gateway";
  if (by === "console") return "The console";
  if (by === "admin_token") return "ADMIN_TOKEN";
  return by.startsWith("cli ") ? `${by.slice(4)} at the command line` : personOf(by);
}

/** Who made an entry of the ledger, what and why. @param {Transaction} entry */
export function entrySentence(entry) {
  const { kind, amount, by, reason, endpoint, of } = entry;
  const [who, credits] = [subjectOf(by), creditsText(amount)];
  // The word of a refund that nobody ordered.
  const note = whyText({ ...entry, reason: reason === "refund" ? "" : reason });
  switch (kind) {
    case "charge":
      return `${credits} charged for ${endpointName(endpoint)}`;
    case "refund":
      if (amount < 0) return `${credits} charged again: the video came after the refund`;
      return by ? `${who} refunded ${credits}${note}` : `${credits} refunded: the task failed`;
    case "adjustment":
      return `${who} ${amount < 0 ? "took away" : "added"} ${credits}${note}`;
    case "reversal":
      return `${who} took back ${credits} of the grant ${of ?? ""}${note}`;
    default: {
      const sale = saleText(entry);
      return `${who} granted ${credits} ${asKind(kind)}${sale && `, ${sale}`}${note}`;
    }
  }
}
