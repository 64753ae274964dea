import { Type } from "typebox";
import {
  findAuditRecord,
  pageAudit,
  type AuditRecord as StoredRecord,
} from "../../../operations/access/audit.ts";
import { badCursor } from "../../../records/cursors.ts";
import { AuditRecord } from "../audit-schemas.ts";
import { requireOwnAccount } from "../authorize.ts";
import { LIMIT_DEFAULT, pageOf, paging } from "../list-schemas.ts";
import { Problem } from "../problems.ts";
import { route } from "../route.ts";
import type { Services } from "../services.ts";
import { auditShown } from "../shown.ts";

/** What operators changed. */
export const auditRoutes = ({ session }: Services) => [
  route({
    method: "GET",
    path: "/audit",
    tag: "Tokens",
    scope: "audit:read",
    name: "listAudit",
    summary: "List what operators changed",
    description:
      "Newest first, for 90 days. With `account_id` that of one account, which a token for some accounts has to name. Pages may have fewer rows than `limit`.",
    query: Type.Object(
      {
        ...paging,
        account_id: Type.Optional(
          Type.String({ minLength: 1, maxLength: 64, description: "Of this account only." }),
        ),
        audit_id: Type.Optional(
          Type.String({ maxLength: 100, description: "This one only; it is the only page." }),
        ),
      },
      { additionalProperties: false },
    ),
    answers: { 200: { description: "Audit records.", schema: pageOf(AuditRecord) } },
    async run({ query, grantee }) {
      const { account_id: accountId, audit_id: auditId, cursor, limit = LIMIT_DEFAULT } = query;
      if (accountId !== undefined) requireOwnAccount(grantee, accountId);
      else if (grantee.accounts) throw new Problem("forbidden", "this token has to name an account_id");
      if (auditId !== undefined && cursor !== undefined) throw badCursor();
      const { records, next } = await session.run<{ records: StoredRecord[]; next?: string }>(
        async (nodes) => {
          if (auditId === undefined) return pageAudit(nodes, { accountId, cursor, limit });
          const record = await findAuditRecord(nodes, auditId);
          const isAskedFor = record && (accountId === undefined || record.accountId === accountId);
          return { records: isAskedFor ? [record] : [] };
        },
      );
      return { status: 200, body: { data: records.map(auditShown), next_cursor: next ?? null } };
    },
  }),
];
