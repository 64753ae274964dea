import { Type } from "typebox";
import { findAuditRecord, pageAudit } from "../../../operations/access/audit.ts";
import { pageTimeline } from "../../../operations/accounts/timeline.ts";
import { auditWithLabels } from "../../../operations/labels.ts";
import { badCursor } from "../../../records/cursors.ts";
import { requireOwnAccount } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { periodOf } from "../request.ts";
import { operation, page } from "../route.ts";
import { AuditRecord, TimelineEvent } from "../schemas.ts";
import { transactionShown } from "../shown.ts";

export const listOfAudit = operation("GET /audit", {
  scope: "audit:read",
  name: "listAudit",
  summary: "List what operators changed",
  description:
    "Newest first, for 90 days. With `account_id` that of one account, which a token for some accounts has to name. Pages may have fewer rows than `limit`.",
  query: t.object({
    ...t.paging,
    account_id: t.filter(64, "Of this account only."),
    by: t.filter(
      200,
      "Of this person only: the whole `by` of a record, its first word, such as a token's id, or what follows that, such as a token's label.",
    ),
    action: t.filter(64, "Such as `credits.grant`, in whole."),
    ...t.period,
    audit_id: t.optional(t.upTo(100, "This one only; it is the only page.")),
  }),
  answers: { 200: { description: "Audit records.", schema: t.pageOf(AuditRecord) } },
  async operate(nodes, { query, grantee }) {
    const { account_id: accountId, audit_id: auditId, by, action, cursor, limit = t.LIMIT_DEFAULT } = query;
    if (accountId !== undefined) requireOwnAccount(grantee, accountId);
    else if (grantee.accounts) throw new Problem("forbidden", "this token has to name an account_id");
    if (auditId === undefined) {
      const filter = { accountId, by, action, ...periodOf(query), cursor, limit };
      const { records, next } = await pageAudit(nodes, filter);
      return { records: await auditWithLabels(nodes, records), next };
    }
    if (cursor !== undefined) throw badCursor();
    const record = await findAuditRecord(nodes, auditId);
    const isAskedFor = record && (accountId === undefined || record.accountId === accountId);
    return { records: await auditWithLabels(nodes, isAskedFor ? [record] : []), next: undefined };
  },
  answer: ({ records, next }) => page(records, next),
});

const timelineOfAccount = operation("GET /accounts/{account}/timeline", {
  tag: "Accounts",
  scope: "audit:read",
  name: "listTimeline",
  summary: "List what happened to an account",
  description:
    "Newest first: transactions and audit records in one order, each once. Transactions only for a token with `credits:read`. Pages may have fewer rows than `limit`, even none, and still a next one.",
  query: t.object({
    ...t.paging,
    ...t.period,
    charges: t.optional(
      Type.Enum(["with", "without"], { default: "with", description: "Whether charges are listed." }),
    ),
  }),
  answers: { 200: { description: "Events.", schema: t.pageOf(TimelineEvent) } },
  async operate(nodes, { params, query, grantee }, { archive }) {
    const { charges, cursor, limit = t.LIMIT_DEFAULT } = query;
    const hasLedger = grantee.scopes.includes("credits:read");
    const filter = { hasLedger, hasCharges: charges !== "without", cursor, limit, ...periodOf(query) };
    const { events, next } = await pageTimeline(nodes, params.account!, filter, await archive?.open(nodes));
    const records = await auditWithLabels(
      nodes,
      events.flatMap(({ record }) => record ?? []),
    );
    const labelled = new Map(records.map((record) => [record.auditId, record]));
    const shown = events.map(({ atMs, entry, record }) => ({
      atMs,
      transaction: entry && transactionShown(entry),
      audit: record && labelled.get(record.auditId),
    }));
    return { events: shown, next };
  },
  answer: ({ events, next }) => page(events, next),
});

export const auditRoutes = [listOfAudit, timelineOfAccount];
