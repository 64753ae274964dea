import { csvLine } from "../../../domain/operator-texts.ts";
import { amountsPaid, salesOf } from "../../../ledger/sales.ts";
import { STATEMENT_NUMBERS } from "../../../ledger/statement-sums.ts";
import { type AccountStatement, pageStatements, readStatement } from "../../../ledger/statements.ts";
import { totalStatement } from "../../../ledger/total-statement.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Sale, Statement, TotalStatement } from "../money-schemas.ts";
import { operation, page } from "../route.ts";
import { isoTime, shownAs } from "../shown.ts";

const statementShown = ({ statement, ...of }: AccountStatement, month: string) =>
  shownAs(Statement, { ...of, ...statement, month });

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

const month = t.upTo(32, "A UTC month.", "2026-10");

const SUM =
  "opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals = closing. From the archive where there is one, else from Redis as far as it reaches. With `Accept: text/csv` as RFC 4180 has it; then `X-Next-Cursor` names the next page.";

const SALE_COLUMNS = ["kind", "package", "currency", "grants", "credits", "amount_paid"] as const;

const salesOfMonth = operation("GET /sales", {
  scope: "usage:read",
  name: "listSales",
  summary: "List what was sold and given in a month",
  description:
    "Grants of all accounts by kind, package and currency, about a second behind; reversals are not subtracted. From Redis, which keeps it for 400 days; from the archive where Redis does not reach back so far. `since`: earlier grants are not counted; `until`: later ones may not be. With `Accept: text/csv` as RFC 4180 has it.",
  query: t.object({ month }),
  answers: {
    200: {
      description: "One page.",
      schema: t.titled("Sales", {
        ...t.pageOf(Sale).properties,
        amounts_paid: Statement.properties.amounts_paid,
        source: t.source,
        since: t.seldomTime,
        until: t.seldomTimed(t.ARCHIVED_UNTIL),
        unread: t.unread,
      }),
      csv: true,
    },
  },
  async operate(nodes, { query, grantee }, { archive }) {
    requireAllAccounts(grantee);
    return salesOf(nodes, query.month, await archive?.open(nodes));
  },
  answer({ sales, source, sinceMs, untilMs, unread: away }, { query }) {
    const rows = sales.map((sale) => shownAs(Sale, sale));
    const timeOrNull = (ms?: number) => (ms === undefined ? null : isoTime(ms));
    const [since, until] = [timeOrNull(sinceMs), timeOrNull(untilMs)];
    const lines = rows.map((row) =>
      csvLine([query.month, ...SALE_COLUMNS.map((name) => row[name]), source, since, until]),
    );
    return {
      ...page(rows, undefined, { amounts_paid: amountsPaid(sales), source, sinceMs, untilMs, unread: away }),
      csv: { text: `month,${SALE_COLUMNS.join(",")},source,since,until\r\n${lines.join("")}`, unread: away },
    };
  },
});

const totalOfMonth = operation("GET /statements/total", {
  scope: "usage:read",
  name: "readTotalStatement",
  summary: "Read the statement of all accounts together",
  description:
    "The sum of all accounts' statements of a month, about a second behind: `closing` is what is owed to customers as prepaid credits. From Redis, which keeps totals for 400 days; what was before them from the archive. Without one, or while it is away, `opening` and `closing` are null once Redis has forgotten the first months.",
  query: t.object({ month }),
  answers: { 200: { description: "The statement.", schema: TotalStatement } },
  async operate(nodes, { query, grantee }, { archive }) {
    requireAllAccounts(grantee);
    return totalStatement(nodes, query.month, await archive?.open(nodes));
  },
  answer: ({ statement, ...of }, { query: { month } }) => ({
    status: 200,
    body: { month, ...statement, ...of },
  }),
});

export const statementRoutes = [
  salesOfMonth,
  totalOfMonth,
  operation("GET /statements", {
    scope: "usage:read",
    name: "listStatements",
    summary: "List statements of a month",
    description: `Of all accounts, in the order of their ids. ${SUM}`,
    query: t.object({ ...t.paging, month }),
    answers: {
      200: {
        description: "Statements.",
        schema: t.pageOf(Statement, { unread: t.unread }),
        csv: true,
      },
    },
    async operate(nodes, { query: { limit = t.LIMIT_DEFAULT, ...query }, grantee }, { archive }) {
      return pageStatements(nodes, { ...query, limit }, grantee.accounts, await archive?.open(nodes));
    },
    answer: ({ statements, next, unread }, { query }) => ({
      ...page(
        statements.map((one) => statementShown(one, query.month)),
        next,
        { unread },
      ),
      csv: { text: csvOf(statements, query.month), next, unread },
    }),
  }),
  operation("GET /accounts/{account}/statements/{month}", {
    scope: "usage:read",
    name: "readStatement",
    summary: "Read a statement",
    description: SUM,
    answers: { 200: { description: "The statement.", schema: Statement, csv: true } },
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
