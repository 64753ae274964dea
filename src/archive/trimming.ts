import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { ArchivedState } from "./archive-pages.ts";
import type { ArchiveSource } from "./archive-source.ts";
import { type HeldPartitions, withoutStore } from "./copying.ts";
import type { ArchiveTables } from "./tables.ts";

/** Entries leave once in so long, or sooner where they are kept for less. */
const TRIM_EVERY_MS = 10_000;
/** Steps for one partition at a time: the others and copying come in between. */
const SLICES_MAX = 40;

interface TrimmingOptions {
  source: ArchiveSource;
  /** How long archived entries stay in Redis. */
  keepMs(): number;
  /** What the archive has of these partitions now. */
  look(partitions: readonly number[], tables: ArchiveTables): Promise<ReadonlyMap<number, ArchivedState>>;
  metrics: Pick<Metrics, "archiveTrimmed">;
  log: Logger;
}

/**
 * Removes from the store what the archive has. Which entry that is, the archive is asked each time, after its commits: what
 * this process or the store remembers may be ahead of an archive that has lost rows. Decision 0051.
 */
export function createTrimming({ source, keepMs, look, metrics, log }: TrimmingOptions) {
  let trimmedAtMs = Number.NEGATIVE_INFINITY;
  /** What was reported of partitions whose ledgers are not trimmed. */
  const reported = new Map<number, string>();

  function sayOnce(partition: number, why: string, details: object): void {
    if (reported.get(partition) === why) return;
    reported.set(partition, why);
    log.warn({ partition, ...details }, why);
  }

  async function trimOne({ primary, partitions }: HeldPartitions, tables: ArchiveTables): Promise<boolean> {
    let more = false;
    for (const [partition, { newest: archivedTo }] of await look(partitions, tables)) {
      if (archivedTo === undefined) continue;
      const options = { partition, archivedTo, keepMs: keepMs(), slicesMax: SLICES_MAX };
      const result = await source.trim(primary, options).catch(withoutStore);
      if (result?.outcome === "trimmed") {
        reported.delete(partition);
        metrics.archiveTrimmed.inc(result.entries);
        more ||= result.more;
      } else if (result?.outcome === "broken") {
        const why = "a ledger does not add up, so nothing leaves it; run `tollgate ledger verify`";
        sayOnce(partition, why, { entry: result.entry });
      } else if (result?.outcome === "unknown") {
        const why = "a ledger does not have the archive's newest entry, so nothing leaves it";
        sayOnce(partition, why, { newest: archivedTo.streamId });
      }
    }
    return more;
  }

  return {
    /** @returns whether there is more that may leave */
    async from(held: readonly HeldPartitions[], tables: ArchiveTables): Promise<boolean> {
      const nowMs = performance.now();
      if (nowMs - trimmedAtMs < Math.min(TRIM_EVERY_MS, keepMs())) return false;
      let more = false;
      for (const one of held) more = (await trimOne(one, tables)) || more;
      if (!more) trimmedAtMs = nowMs;
      return more;
    },
  };
}
