import { Command } from "commander";
import { detachArchive } from "../store/archive-source.ts";
import { withArchive } from "./local-archive.ts";
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
    const { migrate } = await import("../ledger/archive/migrations.ts");
    const steps = await withArchive(migrate, MIGRATION_MS);
    const text = steps.length === 0 ? "The schema is that of this release." : `Done: ${steps.join(", ")}.`;
    print({ json: { steps }, text }, flags);
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
