import { quote } from "../../../config/quote.ts";
import { requireEndpoint, requireTime } from "../../../operations/access/operator-values.ts";
import { readAccountObject } from "../../../operations/accounts/operator-accounts.ts";
import { META } from "../../../records/names.ts";
import { storeNowMs } from "../../../redis/server-info.ts";
import { requireOwnAccount, requireScope } from "../authorize.ts";
import { NewQuote, Quote } from "../money-schemas.ts";
import { Problem } from "../problems.ts";
import { operation } from "../route.ts";

export const quoteOfPrice = operation("POST /prices/quote", {
  tag: "Configuration",
  scope: "any",
  name: "quotePrice",
  summary: "Quote a price",
  description:
    "What a generation with this body costs, now or at a time, by this gateway's configuration; nothing is written. The body is validated as customers' are. With `account_id` by the account's multiplier, for which a token needs `accounts:read`.",
  body: NewQuote,
  onlyReads: true,
  answers: { 200: { description: "The price.", schema: Quote } },
  refusals: [404],
  async operate(nodes, { body: { endpoint: name, body, account_id: accountId, at }, grantee }, { config }) {
    const endpoint = requireEndpoint(name, "endpoint");
    const atMs = at === undefined ? await storeNowMs(nodes.ofName(META)) : requireTime(at, "at");
    if (accountId !== undefined) {
      requireScope(grantee, "accounts:read");
      requireOwnAccount(grantee, accountId);
    }
    const account = accountId === undefined ? undefined : await readAccountObject(nodes, accountId);
    const multiplier = account?.priceMultiplier ?? "1";
    const found = quote(config(), endpoint, body, { atMs, multiplier });
    if (!("problems" in found)) return { ...found, multiplier };
    const errors = found.problems.map(({ path, message }) => ({ path: `/body${path}`, message }));
    throw new Problem("invalid_generation", found.problems[0]?.message ?? "", { errors });
  },
  answer: ({ price, listPrice, list, multiplier }) => ({
    status: 200,
    body: { price, listPrice, file: list.name, multiplier: Number(multiplier) },
  }),
});
