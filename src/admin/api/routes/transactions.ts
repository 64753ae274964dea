import { Type } from "typebox";
import { namedTransactions, pageTransactions } from "../../../operations/credits/transactions.ts";
import { LIMIT_DEFAULT, object, pageOf, paging, period, reaches } from "../field-schemas.ts";
import { Transaction, TransactionKind } from "../money-schemas.ts";
import { periodOf } from "../request.ts";
import { operation, page } from "../route.ts";
import { reachShown, transactionShown } from "../shown.ts";

const Query = object({
  ...paging,
  type: Type.Optional(Type.Enum(["consume", "recharge"], { description: "As customers see it." })),
  kind: Type.Optional(TransactionKind),
  id: Type.Optional(Type.String({ maxLength: 100, description: "The one of this id." })),
  reference: Type.Optional(
    Type.String({ minLength: 1, maxLength: 200, description: "The one under this reference, in whole." }),
  ),
  ...period,
});

const Page = object({ ...pageOf(Transaction).properties, ...reaches });

export const transactionRoutes = [
  operation("GET /accounts/{account}/transactions", {
    scope: "credits:read",
    name: "listTransactions",
    summary: "List transactions",
    description:
      "Newest first, back to the first one. Pages may have fewer rows than `limit`, even none, and still a next one: each looks at a bounded number of entries. With `id` or `reference` there is one row at most.",
    query: Query,
    answers: { 200: { description: "Transactions.", schema: Page } },
    refusals: [404],
    async operate(nodes, { params, query }, { archive, lookUps }) {
      const { id, reference, type, kind, cursor, limit = LIMIT_DEFAULT } = query;
      const filter = { ...{ type, kind, cursor, limit }, ...periodOf(query) };
      return id === undefined && reference === undefined
        ? pageTransactions(nodes, params.account!, filter, await archive?.open(nodes))
        : namedTransactions(nodes, params.account!, { ...filter, id, reference }, lookUps);
    },
    answer: ({ entries, next, reachesBackToMs }) =>
      page(
        entries.map((entry) => transactionShown(entry)),
        next,
        reachShown(reachesBackToMs),
      ),
  }),
];
