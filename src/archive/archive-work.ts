import type { Connection } from "../redis/connection.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { connectArchive, type OpenedArchive } from "./archive-connection.ts";
import { archiveReason } from "./archive-reasons.ts";
import { createCopier } from "./copier.ts";
import { identifyOrClaim } from "./identity.ts";
import { MIGRATION_MS, migrate, pendingSteps } from "./migrations.ts";
import { type ArchiveTables, createTables } from "./tables.ts";

interface ArchiveWorkOptions {
  url: string;
  connection: Connection;
  intervalMs(): number;
  keepMs(): number;
  statementMs?: number;
  metrics: Metrics;
  log: Logger;
}

export function createArchiveWork(options: ArchiveWorkOptions) {
  const { url, connection, intervalMs, keepMs, statementMs, metrics, log } = options;
  const archive = connectArchive(url, statementMs === undefined ? {} : { statementMs });
  const say = createAnnouncer(log);
  /** Undefined before the first check and after each fault: another archive may answer. */
  let tables: ArchiveTables | undefined;

  /** A migration may take longer than any statement of the copier. */
  let migrating: OpenedArchive | undefined;

  async function takeSteps(): Promise<void> {
    migrating = connectArchive(url, { statementMs: MIGRATION_MS, most: 1 });
    try {
      for (const step of await migrate(migrating)) log.info({ step }, "the archive's schema has got a step");
    } finally {
      migrating.close();
      migrating = undefined;
    }
  }

  async function open(): Promise<ArchiveTables> {
    const storeId = connection.known.facts?.id;
    if (storeId === undefined) throw new Error("the store has no id: it is out of memory");
    if ((await pendingSteps(archive.query)).length > 0) await takeSteps();
    const { archiveId } = await identifyOrClaim(archive.query, storeId);
    return createTables(archiveId, archive);
  }

  const copier = createCopier({
    connection,
    tables: async () => (tables ??= await open()),
    archiveUsed(fault) {
      if (fault) tables = undefined;
      say(fault);
    },
    intervalMs,
    keepMs,
    metrics,
    log,
  });

  return {
    start: copier.start,
    async stop(): Promise<void> {
      const stopped = copier.stop();
      archive.close();
      migrating?.close();
      await stopped;
    },
  };
}

function createAnnouncer(log: Logger): (fault: Error | undefined) => void {
  let reported: string | undefined = "not looked at yet";
  return (fault) => {
    const reason = fault && archiveReason(fault);
    if (reason?.why === reported) return;
    reported = reason?.why;
    if (reason)
      log.warn(
        { ...reason },
        "the archive cannot be used; requests go on, and the store keeps what is not copied",
      );
    else log.info("the archive is in use");
  };
}
