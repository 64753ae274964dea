import { setTimeout as wait } from "node:timers/promises";
import type { Run } from "../scripts/script-definition.ts";
import { type ArchivedEntry, trim } from "../scripts/trim.ts";

/** Entries that leave in one step: Redis serves nobody else for a millisecond at most. Decision 0051. */
const SLICE_MAX = 25;
/** Between two steps, so that others are served. */
const PAUSE_MS = 5;
/** How long references of grants stay in Redis at least. */
const KEEP_REFERENCES_MS = 400 * 86_400_000;

/**
 * - `trimmed`: entries and references that have left Redis. `more`: it was ended before all had left that may.
 * - `unknown`: the ledger does not have the archive's newest entry. Nothing has left.
 * - `broken`: the oldest entry does not follow from its account's checkpoint, so `ledger verify` reports it. It and all after it
 *   stay.
 */
export type Trimmed =
  | { outcome: "trimmed"; entries: number; references: number; more: boolean }
  | { outcome: "unknown" }
  | { outcome: "broken"; entry: string };

export interface TrimOptions {
  partition: number;
  /** The newest entry of the partition that the archive has, read from the archive after its commit. It stays. */
  archivedTo: ArchivedEntry;
  /** Entries that are younger stay. */
  keepMs: number;
  /** References of grants that have left stay until they are so old. */
  keepReferencesMs?: number;
  /** Ends it between two steps. */
  signal?: AbortSignal;
  /** At most so many steps; the rest leaves with the next call. */
  slicesMax?: number;
  sliceMax?: number;
}

/**
 * Removes what the archive has from a partition's ledger: entries before `archivedTo` that are older than `keepMs`, up to the
 * charge of a task that has not ended. May be stopped at any point, and repeated.
 * @param run runs a script on the primary of the partition
 * @throws Error of Redis; FROZEN where an operator has frozen the partition
 */
export async function trimLedger(run: Run, options: TrimOptions): Promise<Trimmed> {
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
