import { listInForce } from "../../../config/price-lists.ts";
import { missingTiers } from "../../../config/tiers-in-use.ts";
import * as t from "../field-schemas.ts";
import { Package } from "../money-schemas.ts";
import { page, route } from "../route.ts";
import { Price, Tiers } from "../schemas.ts";

const MISSING_SHOWN_MAX = 100;

const listOf = <Item extends typeof Package | typeof Price>(item: Item) =>
  t.object({ data: t.list(item), next_cursor: t.textOrNull(t.ALWAYS_NULL) });

export const catalogRoutes = [
  route("GET /packages", {
    tag: "Configuration",
    scope: "any",
    name: "listPackages",
    summary: "List credit packages",
    description: "Names for `package` of a grant.",
    answers: { 200: { description: "Packages.", schema: listOf(Package) } },
    run: async (_call, { packages }) =>
      page(
        Object.entries(packages()).map(([name, { credits, price = null, currency = null }]) => ({
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
    async run({ grantee }, { tiers, tierCounts }) {
      const inForce = tiers();
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
];
