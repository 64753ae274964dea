import { listInForce } from "../../../config/price-lists.ts";
import { quote } from "../../../config/quote.ts";
import { missingTiers } from "../../../config/tiers-in-use.ts";
import { requireEndpoint, requireTime } from "../../../operations/access/operator-values.ts";
import { readAccountObject } from "../../../operations/accounts/operator-accounts.ts";
import { META } from "../../../records/names.ts";
import { storeNowMs } from "../../../redis/server-info.ts";
import { requireOwnAccount, requireScope } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { NewQuote, Package, Quote } from "../money-schemas.ts";
import { Problem } from "../problems.ts";
import { operation, page, route } from "../route.ts";
import { Price, Tiers } from "../schemas.ts";

const MISSING_SHOWN_MAX = 100;

const listOf = <Item extends typeof Package | typeof Price>(item: Item) =>
  t.object({ data: t.list(item), next_cursor: t.textOrNull(t.ALWAYS_NULL) });

const quoteOfPrice = operation("POST /prices/quote", {
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

export const catalogRoutes = [
  route("GET /packages", {
    tag: "Configuration",
    scope: "any",
    name: "listPackages",
    summary: "List credit packages",
    description: "Names for `package` of a grant.",
    answers: { 200: { description: "Packages.", schema: listOf(Package) } },
    run: async (_call, { config }) =>
      page(
        Object.entries(config().packages).map(([name, { credits, price = null, currency = null }]) => ({
          ...{ package: name, credits, price, currency },
        })),
      ),
  }),
  route("GET /prices", {
    tag: "Configuration",
    scope: "any",
    name: "listPrices",
    summary: "List prices",
    description: "What a generation costs, by endpoint.",
    answers: { 200: { description: "Prices.", schema: listOf(Price) } },
    run: async (_call, { config }) =>
      page(Object.entries(listInForce(config()).table).map(([endpoint, price]) => ({ endpoint, price }))),
  }),
  route("GET /tiers", {
    tag: "Configuration",
    scope: "any",
    name: "listTiers",
    summary: "List tiers",
    description: "Limits of keys that have none of their own; and tiers of keys that have no such limits.",
    answers: { 200: { description: "Tiers.", schema: Tiers } },
    async run({ grantee }, { config, tierCounts }) {
      const inForce = config().tiers;
      const keys = grantee.accounts ? undefined : tierCounts()?.keys;
      const data = Object.entries(inForce).map(([tier, { shadow = [], deprecated = false, ...limits }]) => ({
        tier,
        ...limits,
        shadow,
        deprecated,
        keys: keys === undefined ? null : (keys[tier] ?? 0),
      }));
      const missing = keys === undefined ? null : missingTiers(keys, inForce).slice(0, MISSING_SHOWN_MAX);
      return page(data, undefined, { missing });
    },
  }),
  quoteOfPrice,
];
