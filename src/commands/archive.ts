import { Command } from "commander";
import { archiveUrlRule } from "../config/environment.ts";
import { OperatorError } from "../store/accounts.ts";
import { detachArchive } from "../store/archive-source.ts";
import { command } from "./options.ts";
import { print } from "./output.ts";
import { withRedisToWrite } from "./redis.ts";

/** `tollgate archive ...` */
export function archiveCommand(): Command {
  return new Command("archive")
    .description("the archive in PostgreSQL at ARCHIVE_URL")
    .addCommand(migrateCommand())
    .addCommand(detachCommand());
}

function migrateCommand(): Command {
  return command(
    "migrate",
    "bring the archive's schema up to this release; ARCHIVE_URL names its owner",
  ).action(async (flags: { json?: boolean }) => {
    const { connectArchive } = await import("../ledger/archive/connection.ts");
    const { migrate } = await import("../ledger/archive/migrations.ts");
    const { archiveReason } = await import("../ledger/archive/reasons.ts");
    const archive = connectArchive(archiveUrl(), { statementMs: MIGRATION_MS });
    try {
      const steps = await migrate(archive);
      const text = steps.length === 0 ? "The schema is that of this release." : `Done: ${steps.join(", ")}.`;
      print({ json: { steps }, text }, flags);
    } catch (error) {
      const { why, advice } = archiveReason(error);
      throw new OperatorError(`the archive: ${why}; ${advice}`);
    } finally {
      archive.close();
    }
  });
}

/** A step may rewrite a large table. */
const MIGRATION_MS = 3_600_000;

function detachCommand(): Command {
  return command(
    "detach",
    "the store has no archive any more: nothing is kept for it; gateways with ARCHIVE_URL begin anew",
  ).action(async (flags: { json?: boolean }) => {
    const { result: partitions } = await withRedisToWrite(detachArchive);
    const text =
      partitions === 0
        ? "The store has no archive."
        : `The store has no archive any more (${partitions} partitions). What is not copied by now is forgotten in its time.`;
    print({ json: { partitions }, text }, flags);
  });
}

/** @throws OperatorError where there is none, or it cannot be used */
function archiveUrl(): string {
  const url = process.env.ARCHIVE_URL;
  if (!url) throw new OperatorError("there is no archive: set ARCHIVE_URL in the environment");
  const problem = archiveUrlRule(url);
  if (problem !== undefined) throw new OperatorError(`ARCHIVE_URL ${problem}`);
  return url;
}
