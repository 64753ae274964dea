import { listOfAudit } from "../admin/api/routes/audit.ts";
import { listed, operationCommand, PERIOD, paging, timeIn } from "./operation-command.ts";
import { whole } from "./options.ts";

const LIMIT_MAX = 1000;

export const auditCommand = operationCommand(listOfAudit, {
  name: "audit",
  about: "what operators changed, the latest first",
  options: {
    "--account <id>": "of this account only",
    "--by <name>": "of this person or token only",
    "--action <name>": "of this action only, such as credits.grant",
    ...PERIOD,
    ...paging(50, whole(1, LIMIT_MAX)),
  },
  show: listed(
    "records",
    {
      ...{ TIME: timeIn("at"), BY: "by", ACTION: "action", ACCOUNT: "account_id" },
      TARGET: (row) => (row.target === row.account_id ? "" : (row.target ?? "")),
      CHANGE: changeOf,
    },
    ["CHANGE"],
  ),
});

/** Such as `tier gold -> iron, label web -> none`. */
function changeOf({ before, after }: { before?: unknown; after?: unknown }): string {
  const [old, now] = [before ?? {}, after ?? {}] as [Record<string, unknown>, Record<string, unknown>];
  const inWords = (value: unknown): string =>
    typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "none");
  return Object.entries(now)
    .map(([name, value]) => `${name} ${name in old ? `${inWords(old[name])} -> ` : ""}${inWords(value)}`)
    .join(", ");
}
