import { reversedOf } from "../../../operations/credits/reversals.ts";
import {
  namedTransactions,
  pageAllTransactions,
  pageTransactions,
} from "../../../operations/credits/transactions.ts";
import { isGrant, kindOf } from "../../../records/ledger-entries.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Transaction, TransactionKind, TransactionOfAll } from "../money-schemas.ts";
import { periodOf } from "../request.ts";
import { operation, page } from "../route.ts";
import { transactionShown } from "../shown.ts";

const kinds = {
  type: t.optional(t.oneOf(["consume", "recharge"], "As customers see it.")),
  kind: t.optional(TransactionKind),
};

const Query = t.object({
  ...t.paging,
  ...kinds,
  id: t.optional(t.upTo(100, "The one of this id.")),
  reference: t.filter(200, "The one under this reference, in whole."),
  ...t.period,
});

const AllPage = t.titled("TransactionPage", {
  ...t.pageOf(TransactionOfAll).properties,
  source: t.source,
  ...t.reaches,
  until: t.seldomTimed(t.ARCHIVED_UNTIL),
});

const transactionsOfAccount = operation("GET /accounts/{account}/transactions", {
  scope: "credits:read",
  name: "listTransactions",
  summary: "List transactions",
  description:
    "Newest first, back to the first one. Pages may have fewer rows than `limit`, even none, and still a next one: each looks at a bounded number of entries. With `id` or `reference` there is one row at most.",
  query: Query,
  answers: { 200: { description: "Transactions.", schema: t.pageOf(Transaction, t.reaches) } },
  async operate(nodes, { params, query }, { archive, lookUps }) {
    const { id, reference, type, kind, cursor, limit = t.LIMIT_DEFAULT } = query;
    const filter = { ...{ type, kind, cursor, limit }, ...periodOf(query) };
    const found =
      id === undefined && reference === undefined
        ? await pageTransactions(nodes, params.account!, filter, await archive?.open(nodes))
        : await namedTransactions(nodes, params.account!, { ...filter, id, reference }, lookUps);
    return { ...found, reversed: await reversedOf(nodes, params.account!, found.entries) };
  },
  answer: ({ entries, next, reachesBackToMs, reversed }) =>
    page(
      entries.map((entry) => {
        const credits = isGrant(kindOf(entry)) && reversed.get(entry.reference);
        return { ...transactionShown(entry), ...(credits && { reversed: credits }) };
      }),
      next,
      { reachesBackToMs },
    ),
});

export const transactionsOfAll = operation("GET /transactions", {
  scope: "credits:read",
  name: "listAllTransactions",
  summary: "List the transactions of all accounts",
  description:
    "Newest first, from the archive where there is one (some seconds behind), else from Redis as far as it reaches. Pages may have fewer rows than `limit`, even none, and still a next one: each looks at a bounded number of entries.",
  query: t.object({ ...t.paging, ...kinds, ...t.period }),
  answers: { 200: { description: "Transactions, with their accounts.", schema: AllPage } },
  async operate(nodes, { query, grantee }, { archive }) {
    requireAllAccounts(grantee);
    const { type, kind, cursor, limit = t.LIMIT_DEFAULT } = query;
    const filter = { ...{ type, kind, cursor, limit }, ...periodOf(query) };
    return pageAllTransactions(nodes, filter, await archive?.open(nodes));
  },
  answer: ({ entries, next, reachesBackToMs, source, untilMs }) =>
    page(
      entries.map((entry) => transactionShown(entry)),
      next,
      { source, reachesBackToMs, untilMs },
    ),
});

export const transactionRoutes = [transactionsOfAccount, transactionsOfAll];
