import { Type } from "typebox";
import { findAuditRecord, pageAudit } from "../../../operations/access/audit.ts";
import { badCursor } from "../../../records/cursors.ts";
import { requireOwnAccount } from "../authorize.ts";
import { LIMIT_DEFAULT, object, pageOf, paging, period } from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { periodOf } from "../request.ts";
import { operation, page } from "../route.ts";
import { AuditRecord } from "../schemas.ts";
import { auditShown } from "../shown.ts";

export const listOfAudit = operation("GET /audit", {
  scope: "audit:read",
  name: "listAudit",
  summary: "List what operators changed",
  description:
    "Newest first, for 90 days. With `account_id` that of one account, which a token for some accounts has to name. Pages may have fewer rows than `limit`.",
  query: object({
    ...paging,
    account_id: Type.Optional(
      Type.String({ minLength: 1, maxLength: 64, description: "Of this account only." }),
    ),
    by: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 200,
        description:
          "Of this person only: the whole `by` of a record, or its first word, such as a token's id.",
      }),
    ),
    action: Type.Optional(
      Type.String({ minLength: 1, maxLength: 64, description: "Such as `credits.grant`, in whole." }),
    ),
    ...period,
    audit_id: Type.Optional(
      Type.String({ maxLength: 100, description: "This one only; it is the only page." }),
    ),
  }),
  answers: { 200: { description: "Audit records.", schema: pageOf(AuditRecord) } },
  async operate(nodes, { query, grantee }) {
    const { account_id: accountId, audit_id: auditId, by, action, cursor, limit = LIMIT_DEFAULT } = query;
    if (accountId !== undefined) requireOwnAccount(grantee, accountId);
    else if (grantee.accounts) throw new Problem("forbidden", "this token has to name an account_id");
    if (auditId === undefined)
      return pageAudit(nodes, { accountId, by, action, ...periodOf(query), cursor, limit });
    if (cursor !== undefined) throw badCursor();
    const record = await findAuditRecord(nodes, auditId);
    const isAskedFor = record && (accountId === undefined || record.accountId === accountId);
    return { records: isAskedFor ? [record] : [], next: undefined };
  },
  answer: ({ records, next }) => page(records.map(auditShown), next),
});

export const auditRoutes = [listOfAudit];
