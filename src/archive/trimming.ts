import { setTimeout as wait } from "node:timers/promises";
import { type ArchivedEntry, type TrimmedSlice, trim } from "../scripts/ledger.ts";
import type { Run } from "../scripts/script-definition.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { ArchivedState } from "./archive-pages.ts";
import { type HeldPartitions, withoutStore } from "./copying.ts";
import type { ArchiveTables } from "./tables.ts";

const TRIM_EVERY_MS = 10_000;
const SLICES_MAX = 40;

interface TrimmingOptions {
  keepMs(): number;
  look(partitions: readonly number[], tables: ArchiveTables): Promise<ReadonlyMap<number, ArchivedState>>;
  metrics: Pick<Metrics, "archiveTrimmed">;
  log: Logger;
}

/** The archive is read each time: remembered positions may be ahead of one that lost rows. Decision 0050. */
export function createTrimming({ keepMs, look, metrics, log }: TrimmingOptions) {
  let trimmedAtMs = Number.NEGATIVE_INFINITY;
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
      const result = await trimLedger(primary.run, options).catch(withoutStore);
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

/** Blocks Redis for a millisecond at most. Decision 0050. */
const SLICE_MAX = 25;
const PAUSE_MS = 5;
const KEEP_REFERENCES_MS = 400 * 86_400_000;

export interface TrimOptions {
  partition: number;
  /** Newest archived entry of the partition, read after its commit. It stays. */
  archivedTo: ArchivedEntry;
  keepMs: number;
  keepReferencesMs?: number;
  signal?: AbortSignal;
  slicesMax?: number;
  sliceMax?: number;
}

/** Removes archived entries older than `keepMs`, up to the charge of an unfinished task. Repeatable. @throws Error of Redis; FROZEN */
export async function trimLedger(run: Run, options: TrimOptions): Promise<TrimmedSlice> {
  const { partition, archivedTo, keepMs, keepReferencesMs = KEEP_REFERENCES_MS, signal } = options;
  const { slicesMax = Number.POSITIVE_INFINITY, sliceMax = SLICE_MAX } = options;
  const call = { partition, archivedTo, keepMs, keepReferencesMs, most: sliceMax };
  const result = { outcome: "trimmed" as const, entries: 0, references: 0, more: true };
  for (let slices = 0; result.more && slices < slicesMax && !signal?.aborted; slices++) {
    if (slices > 0) await wait(PAUSE_MS);
    const slice = await run(trim, call);
    if (slice.outcome !== "trimmed") return slice;
    result.entries += slice.entries;
    result.references += slice.references;
    result.more = slice.more;
  }
  return result;
}
