import type { Command } from "commander";
import { detachArchive } from "../archive/archive-record.ts";
import { migrate } from "../archive/migrations.ts";
import { type Restored, restoreStore } from "../archive/restore.ts";
import { type ArchiveVerification, verifyArchive } from "../archive/verify-archive.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { withArchive, withOwnArchive } from "./local-archive.ts";
import { command, group } from "./options.ts";
import { findingsText, print } from "./output.ts";
import { requireConfig, withAnyLayout, withRedisToWrite } from "./redis.ts";
import { iso, startProgress } from "./terminal.ts";

export const archiveCommand = group("archive", "the archive in PostgreSQL at ARCHIVE_URL", [
  migrateCommand,
  verifyCommand,
  restoreCommand,
  detachCommand,
]);

function migrateCommand(): Command {
  return command(
    "migrate",
    "bring the archive's schema up to this release; ARCHIVE_URL names its owner",
  ).action(async (flags: { json?: boolean }) => {
    const steps = await withArchive(migrate, LONG_MS);
    const text = steps.length === 0 ? "The schema is that of this version." : `Done: ${steps.join(", ")}.`;
    print({ json: { steps }, text }, flags);
  });
}

/** A step may rewrite a large table, and a restore sort one. */
const LONG_MS = 3_600_000;

function verifyCommand(): Command {
  return command("verify", "compare the archive with Redis, entry by entry, while traffic goes on").action(
    async (flags: { json?: boolean }) => {
      const progress = startProgress();
      const result = await withOwnArchive(
        (query, nodes) =>
          verifyArchive(nodes, query, {
            seen: ({ done, all }, { accounts, entries }) =>
              progress.show(`partition ${done} of ${all}: ${accounts} accounts, ${entries} entries`),
          }),
        VERIFY_MS,
      ).finally(progress.done);
      const { violations, unread } = result;
      print({ json: { ...result }, text: inWords(result), ok: violations.length === 0, unread }, flags);
    },
  );
}

/** A page of a large table, on a slow disk. */
const VERIFY_MS = 60_000;

function inWords(result: ArchiveVerification): string {
  const { accounts, entries, keys, in_redis: inRedis } = result;
  const compared = `${entries} entries of ${accounts} accounts (${inRedis} of them in Redis, too) and ${keys} keys`;
  return findingsText(result, "archive", compared);
}

function detachCommand(): Command {
  return command(
    "detach",
    "the store has no archive any more: nothing is kept for it; gateways with ARCHIVE_URL begin anew",
  ).action(async (flags: { json?: boolean }) => {
    const { result: partitions } = await withRedisToWrite(detachArchive);
    const text =
      partitions === 0
        ? "The store has no archive."
        : `The store has no archive any more (${partitions} partitions). What is not copied by now is forgotten in its time. Keep the database: what has left Redis is only there.`;
    print({ json: { partitions }, text }, flags);
  });
}

function restoreCommand(): Command {
  return command(
    "restore",
    "fill an empty Redis from the archive, after the Redis of the store was lost",
  ).action(async (flags: { json?: boolean }) => {
    const { store, archive: settings, tasks } = requireConfig();
    const { partitions } = store;
    const progress = startProgress();
    const seen = (entries: number): void => progress.show(`${entries} ledger entries`);
    const options = { partitions, keepMs: settings.keepMs, tasks, seen };
    const restore = (nodes: RedisNodes) =>
      withArchive(async (archive) => {
        await migrate(archive);
        return restoreStore(archive, nodes, options);
      }, LONG_MS);
    const restored = await withAnyLayout(restore).finally(progress.done);
    print({ json: shownRestore(restored), text: restoreInWords(restored) }, flags);
  });
}

const shownRestore = (restored: Restored): Record<string, unknown> => ({
  store_id: restored.storeId,
  partitions: restored.partitions,
  accounts: restored.accounts,
  keys: restored.keys,
  entries: restored.entries,
  tasks: restored.tasks,
  balance: restored.balance,
  newest_entry_at: iso(restored.newestEntryMs),
  copied_until: iso(restored.copiedUntilMs),
});

function restoreInWords({ accounts, keys, entries, tasks, balance, ...times }: Restored): string {
  const { newestEntryMs, copiedUntilMs } = times;
  const until = copiedUntilMs === undefined ? "nothing" : `up to ${iso(copiedUntilMs)}`;
  return [
    `Restored: ${accounts} accounts with ${balance} credits, ${keys} keys, ${entries} ledger entries, ${tasks} running tasks.`,
    `Gateways copied ${until}${newestEntryMs === undefined ? "" : `; the newest entry is of ${iso(newestEntryMs)}`}.`,
    "What came after that is missing: charges, grants, new and changed keys. Start the gateways. If they have confirmed later",
    "charges, they say so and wait; `tollgate store show` lists what is known, `tollgate store accept` goes on without it.",
  ].join("\n");
}
