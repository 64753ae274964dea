import { Type } from "typebox";
import { accountUsage } from "../../../ledger/account-usage.ts";
import { object } from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { operation, page } from "../route.ts";
import { Usage } from "../schemas.ts";
import { isoTimeOrNull } from "../shown.ts";

const GROUPS = ["day", "endpoint", "key"] as const;
type Group = (typeof GROUPS)[number];

const day = (description: string) =>
  Type.Optional(Type.String({ format: "date", description, examples: ["2026-10-31"] }));

/** @throws Problem for a group that there is not, or one given twice */
function groupsOf(text: string): Group[] {
  const names = text.split(",");
  const groups = names.filter((name): name is Group => GROUPS.includes(name as Group));
  if (groups.length === names.length && new Set(groups).size === groups.length) return groups;
  const message = `group_by must be some of ${GROUPS.join(",")}, each once`;
  throw new Problem("invalid", message, { errors: [{ path: "?group_by", message }] });
}

export const usageRoutes = [
  operation("GET /accounts/{account}/usage", {
    scope: "usage:read",
    name: "readUsage",
    summary: "Read usage",
    description:
      "By UTC day, endpoint and key, about a second behind. From the archive where there is one, else from Redis, which keeps it for 400 days.",
    query: object({
      from: day("The first day."),
      to: day("The last day, itself included."),
      group_by: Type.Optional(
        Type.String({
          default: "day",
          description: "What each row is about: some of `day`, `endpoint` and `key`, with commas.",
          examples: ["day,endpoint"],
        }),
      ),
    }),
    answers: { 200: { description: "Rows in the order of the groups.", schema: Usage } },
    refusals: [404],
    async operate(nodes, { params, query: { from, to, group_by: groupBy = "day" } }, { archive }) {
      const selection = { accountId: params.account!, from, to, by: groupsOf(groupBy) };
      return accountUsage(nodes, selection, await archive?.open(nodes));
    },
    answer: ({ rows, source, sinceMs, endedSinceMs }) =>
      page(rows, undefined, {
        source,
        since: isoTimeOrNull(sinceMs),
        ended_since: isoTimeOrNull(endedSinceMs),
      }),
  }),
];
