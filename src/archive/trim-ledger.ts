import { setTimeout as wait } from "node:timers/promises";
import type { Run } from "../scripts/script-definition.ts";
import { type ArchivedEntry, trim } from "../scripts/trim.ts";

/** Blocks Redis for a millisecond at most. Decision 0051. */
const SLICE_MAX = 25;
const PAUSE_MS = 5;
const KEEP_REFERENCES_MS = 400 * 86_400_000;

/**
 * - `trimmed`: entries and references that have left Redis. `more`: it was ended before all had left that may.
 * - `unknown`: the ledger does not have the archive's newest entry. Nothing has left.
 * - `broken`: the oldest entry does not follow from its account's checkpoint, so `ledger verify` reports it. It and all after it
 *   stay.
 */
type Trimmed =
  | { outcome: "trimmed"; entries: number; references: number; more: boolean }
  | { outcome: "unknown" }
  | { outcome: "broken"; entry: string };

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

/**
 * Removes archived entries older than `keepMs`, up to the charge of an unfinished task. May be stopped and repeated. @throws
 * Error of Redis; FROZEN
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
