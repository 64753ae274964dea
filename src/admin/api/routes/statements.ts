import { Type } from "typebox";
import { csvLine } from "../../../domain/csv.ts";
import type { AccountStatement } from "../../../ledger/account-statements.ts";
import { pageStatements, readStatement } from "../../../ledger/statement-pages.ts";
import { STATEMENT_NUMBERS } from "../../../ledger/statements.ts";
import { LIMIT_DEFAULT, object, pageOf, paging, unread } from "../field-schemas.ts";
import { Statement } from "../money-schemas.ts";
import { operation, page } from "../route.ts";
import { isoTimeOrNull } from "../shown.ts";

const statementShown = (
  { accountId, statement, source, sinceMs, untilMs }: AccountStatement,
  month: string,
) => ({
  ...{ account_id: accountId, month, ...statement, source },
  ...{ since: isoTimeOrNull(sinceMs), until: isoTimeOrNull(untilMs) },
});

const COLUMNS = ["account_id", "month", ...STATEMENT_NUMBERS, "amounts_paid", "source", "since", "until"];

const csvOf = (statements: readonly AccountStatement[], month: string): string =>
  `${COLUMNS.join(",")}\r\n${statements
    .map((one) => statementShown(one, month))
    .map((shown) =>
      csvLine([
        ...[shown.account_id, month, ...STATEMENT_NUMBERS.map((name) => shown[name])],
        ...[Object.entries(shown.amounts_paid).flat().join(" "), shown.source, shown.since, shown.until],
      ]),
    )
    .join("")}`;

const month = Type.String({
  maxLength: 32,
  description: "A UTC month.",
  examples: ["2026-10"],
});

const SUM =
  "opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals = closing. From the archive where there is one, else from Redis as far as it reaches. With `Accept: text/csv` as RFC 4180 has it; then `X-Next-Cursor` names the next page.";

export const statementRoutes = [
  operation("GET /statements", {
    scope: "usage:read",
    name: "listStatements",
    summary: "List statements of a month",
    description: `Of all accounts, in the order of their ids. ${SUM}`,
    query: object({ ...paging, month }),
    answers: {
      200: {
        description: "Statements.",
        schema: object({ ...pageOf(Statement).properties, unread }),
        csv: true,
      },
    },
    async operate(nodes, { query: { limit = LIMIT_DEFAULT, ...query }, grantee }, { archive }) {
      return pageStatements(nodes, { ...query, limit }, grantee.accounts, await archive?.open(nodes));
    },
    answer: ({ statements, next, unread }, { query }) => ({
      ...page(
        statements.map((one) => statementShown(one, query.month)),
        next,
        { unread },
      ),
      csv: { text: csvOf(statements, query.month), next },
    }),
  }),
  operation("GET /accounts/{account}/statements/{month}", {
    scope: "usage:read",
    name: "readStatement",
    summary: "Read a statement",
    description: SUM,
    answers: { 200: { description: "The statement.", schema: Statement, csv: true } },
    refusals: [404],
    async operate(nodes, { params }, { archive }) {
      return readStatement(nodes, params.account!, params.month!, await archive?.open(nodes));
    },
    answer: (one, { params }) => ({
      status: 200,
      body: statementShown(one, params.month!),
      csv: { text: csvOf([one], params.month!) },
    }),
  }),
];
