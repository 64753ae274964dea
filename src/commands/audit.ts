import type { Command } from "commander";
import type { Static } from "typebox";
import { listOfAudit } from "../admin/api/routes/audit.ts";
import type { AuditRecord } from "../admin/api/schemas.ts";
import { operationCommand, pageOutput } from "./operation-command.ts";
import { whole } from "./options.ts";
import { moment } from "./terminal.ts";

const LIMIT_MAX = 1000;

type Row = Static<typeof AuditRecord>;

export const auditCommand = (): Command =>
  operationCommand(listOfAudit, {
    name: "audit",
    about: "what operators changed, the latest first",
    options: {
      "--account <id>": "of this account only",
      "--by <name>": "of this person or token only",
      "--action <name>": "of this action only, such as credits.grant",
      "--from <time>": "from this day or time on",
      "--to <time>": "up to the end of this day, or before this time",
      "--limit <n>": { about: "at most so many", parse: whole(1, LIMIT_MAX), default: 50 },
      "--after <cursor>": "where an earlier list ended",
    },
    show: (_, __, answer) => pageOutput("records", answer(), COLUMNS, ["CHANGE"]),
  });

const COLUMNS = {
  TIME: (row: Row) => moment(Date.parse(row.at)),
  BY: (row: Row) => row.by,
  ACTION: (row: Row) => row.action,
  ACCOUNT: (row: Row) => row.account_id ?? "",
  TARGET: (row: Row) => (row.target === row.account_id ? "" : (row.target ?? "")),
  CHANGE: changeOf,
};

/** Such as `tier gold -> iron, label web -> none`. */
function changeOf({ before, after }: Row): string {
  const [old, now] = [before ?? {}, after ?? {}] as [Record<string, unknown>, Record<string, unknown>];
  const inWords = (value: unknown): string =>
    typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "none");
  return Object.entries(now)
    .map(([name, value]) => `${name} ${name in old ? `${inWords(old[name])} -> ` : ""}${inWords(value)}`)
    .join(", ");
}
