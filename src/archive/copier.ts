import { randomUUID } from "node:crypto";
import type { Connection } from "../redis/connection.ts";
import { jittered, repeated } from "../redis/repeated-work.ts";
import { usablePrimaries } from "../redis/topology/frozen-partitions.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { connectArchive, type OpenedArchive } from "./archive-connection.ts";
import { archiveReason } from "./archive-reasons.ts";
import { endLeases, takeLeases } from "./archive-record.ts";
import { type CopyingOptions, createCopying, type HeldPartitions, withoutStore } from "./copying.ts";
import { identifyOrClaim } from "./identity.ts";
import { MIGRATION_MS, migrate, pendingSteps } from "./migrations.ts";
import { type ArchiveTables, createTables } from "./tables.ts";
import { createTrimming } from "./trimming.ts";

const LEASE_MS = 10_000;
const RENEW_EVERY_MS = LEASE_MS / 3;
const RETRY_MAX_MS = 30_000;

export interface CopierOptions extends CopyingOptions {
  tables(): Promise<ArchiveTables>;
  archiveUsed(fault: Error | undefined): void;
  metrics: CopyingOptions["metrics"] & Pick<Metrics, "archiveTrimmed">;
  keepMs?(): number;
  intervalMs(): number;
}

/** The rows are the cursor, and primary keys make repeated writes harmless. Decision 0050. */
export function createCopier(options: CopierOptions) {
  const { connection, log } = options;
  const leases = createLeases(connection);
  const copying = createCopying(options);
  const { keepMs } = options;
  const trimming = keepMs && createTrimming({ ...options, keepMs, look: copying.look });
  let failures = 0;
  let hasMore = false;
  let succeededMs = performance.now();

  async function round(): Promise<boolean> {
    const { held, fault: refused } = await leases.take();
    copying.keepOnly(held.flatMap(({ partitions }) => partitions));
    if (held.length === 0) {
      if (!refused) succeededMs = performance.now();
      await copying.showLag(held, refused && performance.now() - succeededMs);
      return false;
    }
    let isBehind = false;
    let fault: Error | undefined;
    try {
      const tables = await options.tables();
      for (const one of held) {
        const isDone = await copying.from(one, tables).catch(withoutStore);
        isBehind ||= isDone === false;
      }
      if (trimming && (await trimming.from(held, tables))) isBehind = true;
    } catch (error) {
      fault = error as Error;
      // The next archive may be another one, or have lost rows.
      copying.keepOnly([]);
    }
    failures = fault ? failures + 1 : 0;
    if (!fault && !refused) succeededMs = performance.now();
    options.archiveUsed(fault);
    await copying.showLag(held, (fault ?? refused) && performance.now() - succeededMs);
    return isBehind && fault === undefined;
  }

  const rounds = repeated(
    async () => {
      hasMore = false;
      hasMore = await round();
    },
    {
      pauseMs: () => (hasMore ? 0 : waitAfter(failures, options.intervalMs())),
      failed: (error) => log.debug({ err: error }, "copying to the archive was interrupted"),
    },
  );
  return {
    start: (): void => rounds.start(jittered(options.intervalMs())),
    round,
    stop: (): Promise<void> => rounds.stop().then(leases.leave),
  };
}

const waitAfter = (failures: number, intervalMs: number): number =>
  jittered(
    failures === 0
      ? intervalMs
      : Math.min(RETRY_MAX_MS, Math.max(intervalMs, 500) * 2 ** Math.min(failures, 10)),
  );

function createLeases(connection: Connection) {
  const holder = randomUUID();
  let held: HeldPartitions[] = [];
  let fault: Error | undefined;
  let takenAtMs = Number.NEGATIVE_INFINITY;

  return {
    async take(): Promise<{ held: readonly HeldPartitions[]; fault: Error | undefined }> {
      const primaries = usablePrimaries(connection);
      const isSame = held.every(({ primary }) => primaries.some((one) => one.primary === primary));
      if (isSame && performance.now() - takenAtMs < RENEW_EVERY_MS) return { held, fault };
      takenAtMs = performance.now();
      fault = undefined;
      const taken = await Promise.all(
        primaries.map(async ({ primary, partitions }) => {
          const own = await takeLeases(primary, partitions, { holder, leaseMs: LEASE_MS }).catch(
            (error: Error) => {
              withoutStore(error);
              fault = error;
              return [];
            },
          );
          return { primary, partitions: own };
        }),
      );
      held = taken.filter(({ partitions }) => partitions.length > 0);
      return { held, fault };
    },
    async leave(): Promise<void> {
      await Promise.all(
        held.map(({ primary, partitions }) => endLeases(primary, partitions, holder).catch(() => undefined)),
      );
      held = [];
    },
  };
}

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
