import { Type } from "typebox";
import { accountUsage } from "../../../ledger/account-usage.ts";
import { allUsage } from "../../../ledger/all-usage.ts";
import { topAccounts } from "../../../operations/accounts/top-accounts.ts";
import { cursorOf, positionOf } from "../../../records/cursors.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { operation, page } from "../route.ts";
import { AllUsage, TopAccounts, Usage } from "../schemas.ts";

const GROUPS = ["day", "endpoint", "key"] as const;
const ALL_GROUPS = ["day", "month", "account", "endpoint", "key"] as const;

const ROWS_MAX = 1000;

const day = (description: string) =>
  t.optional(Type.String({ format: "date", description, examples: ["2026-10-31"] }));
const days = { from: day("The first day."), to: day("The last day, itself included.") };

const groupBy = (known: string, example: string) =>
  t.optional(
    Type.String({
      default: "day",
      description: `What each row is about: some of ${known}, with commas.`,
      examples: [example],
    }),
  );

/** @throws Problem for a group that there is not, or one given twice */
function groupsOf<Group extends string>(text: string, known: readonly Group[]): Group[] {
  const names = text.split(",");
  const groups = names.filter((name): name is Group => known.includes(name as Group));
  if (groups.length === names.length && new Set(groups).size === groups.length) return groups;
  throw invalidQuery("group_by", `group_by must be some of ${known.join(",")}, each once`);
}

const invalidQuery = (name: string, message: string): Problem =>
  new Problem("invalid", message, { errors: [{ path: `?${name}`, message }] });

export const topOfAccounts = operation("GET /top-accounts", {
  scope: "usage:read",
  name: "listTopAccounts",
  summary: "List the accounts that spent most, or were refused most",
  description:
    "In some UTC days; without `from` today. Spending is what was charged without what was refunded, about a second behind: in the last 31 days from Redis. A period that begins earlier is as far behind as the archive, where there is one. Refusals are those of the last eight days, of the 10,000 most frequent kinds of a day. `complete` is false if another account may belong to the list.",
  query: t.object({
    by: t.optional(Type.Enum(["spend", "refusals"], { default: "spend", description: "What is counted." })),
    ...days,
    limit: t.paging.limit,
  }),
  answers: { 200: { description: "Accounts, the first with the most.", schema: TopAccounts } },
  async operate(nodes, { query, grantee }, { archive }) {
    requireAllAccounts(grantee);
    const { by = "spend", limit = t.LIMIT_DEFAULT, ...days } = query;
    return topAccounts(nodes, { by, limit, ...days }, await archive?.open(nodes));
  },
  answer: ({ accounts, ...found }, { query }) =>
    page(
      accounts.map((one) => ({ ...one, [query.by === "refusals" ? "refusals" : "credits"]: one.amount })),
      undefined,
      found,
    ),
});

export const usageRoutes = [
  operation("GET /accounts/{account}/usage", {
    scope: "usage:read",
    name: "readUsage",
    summary: "Read usage",
    description:
      "By UTC day, endpoint and key, about a second behind. A page may have fewer rows than `limit` and still a next one, where `day` is the first group. From the archive where there is one, else from Redis, which keeps it for 400 days.",
    query: t.object({
      cursor: t.paging.cursor,
      limit: t.wholeOr(ROWS_MAX, 1, ROWS_MAX, "Rows of a page, at most."),
      ...days,
      group_by: groupBy("`day`, `endpoint` and `key`", "day,endpoint"),
      key_id: t.filter(64, "Of this key only; with `key` in `group_by`."),
    }),
    answers: { 200: { description: "Rows in the order of the groups.", schema: Usage } },
    async operate(nodes, { params, query }, { archive }) {
      const { from, to, group_by: groupBy = "day", key_id: keyId, cursor, limit = ROWS_MAX } = query;
      const by = groupsOf(groupBy, GROUPS);
      if (keyId !== undefined && !by.includes("key"))
        throw invalidQuery("key_id", "key_id goes with `key` in group_by");
      const accountId = params.account!;
      const list = ["usage", accountId, from, to, keyId, ...by];
      const after = positionOf(list, cursor);
      const { next, ...usage } = await accountUsage(
        nodes,
        { ...{ accountId, from, to, by, keyId }, after, limit },
        await archive?.open(nodes),
      );
      return { ...usage, next: next && cursorOf(list, next) };
    },
    answer: ({ rows, next, ...found }) => page(rows, next, found),
  }),
  operation("GET /usage", {
    scope: "usage:read",
    name: "readAllUsage",
    summary: "Read the usage of all accounts",
    description:
      "About a second behind. By `day`, `month` and `endpoint` it is one page. With `account` or `key` it comes account by account in the order of their ids, in pages that may have fewer rows than `limit`, even none, and still a next one. From Redis, which keeps usage for 400 days; what is older from the archive where there is one.",
    query: t.object({
      ...t.paging,
      ...days,
      group_by: groupBy("`day`, `month`, `account`, `endpoint` and `key`", "month,account"),
    }),
    answers: {
      200: { description: "Rows in the order of the groups; `account` is the first.", schema: AllUsage },
    },
    async operate(nodes, { query, grantee }, { archive }) {
      requireAllAccounts(grantee);
      const { from, to, group_by: groupBy = "day", cursor, limit = t.LIMIT_DEFAULT } = query;
      const selection = { from, to, by: groupsOf(groupBy, ALL_GROUPS), cursor, limit };
      return allUsage(nodes, selection, await archive?.open(nodes));
    },
    answer: ({ rows, next, ...found }) => page(rows, next, found),
  }),
  topOfAccounts,
];
