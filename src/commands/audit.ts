import type { Command } from "commander";
import { type AuditRecord, pageAudit } from "../operations/access/audit.ts";
import { command, whole } from "./options.ts";
import { note, print } from "./output.ts";
import { withRedis } from "./redis.ts";
import { iso, moment, table } from "./terminal.ts";

const LIMIT_MAX = 1000;

interface AuditFlags {
  account?: string;
  limit: number;
  after?: string;
  json?: boolean;
}

/** `tollgate audit` */
export function auditCommand(): Command {
  return command("audit", "what operators changed, the latest first")
    .option("--account <id>", "of this account only")
    .option("--limit <n>", "at most so many", whole(1, LIMIT_MAX), 50)
    .option("--after <cursor>", "where an earlier list ended")
    .action(async (flags: AuditFlags) => {
      const { account, limit, after } = flags;
      const { records, next } = await withRedis((nodes) =>
        pageAudit(nodes, { accountId: account, cursor: after, limit }),
      );
      const rows = records.map((record) => [
        moment(record.atMs),
        record.by,
        record.action,
        record.accountId,
        record.target === record.accountId ? "" : record.target,
        changeOf(record),
      ]);
      const headings = ["TIME", "BY", "ACTION", "ACCOUNT", "TARGET", "CHANGE"];
      print(
        { json: { records: records.map(shown), next }, text: table(headings, rows, { gives: ["CHANGE"] }) },
        flags,
      );
      if (next !== undefined && !flags.json) note(`There are more: --after ${next}`);
    });
}

/** What is different, such as `tier gold -> iron, label web -> none`. */
function changeOf({ before, after }: AuditRecord): string {
  const inWords = (value: unknown): string =>
    value === null || value === undefined
      ? "none"
      : typeof value === "object"
        ? JSON.stringify(value)
        : String(value);
  return Object.keys(after)
    .map((name) =>
      name in before
        ? `${name} ${inWords(before[name])} -> ${inWords(after[name])}`
        : `${name} ${inWords(after[name])}`,
    )
    .join(", ");
}

const shown = (record: AuditRecord): Record<string, unknown> => ({
  audit_id: record.auditId,
  at: iso(record.atMs),
  by: record.by,
  action: record.action,
  account_id: record.accountId || undefined,
  target: record.target,
  before: record.before,
  after: record.after,
  request_id: record.requestId || undefined,
});
