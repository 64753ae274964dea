import { setTimeout as wait } from "node:timers/promises";
import type { Redis } from "ioredis";
import { OperatorError } from "./accounts.ts";
import { storeNowMs } from "./keys.ts";
import { hasTasksInPartitions, TRIMMABLE_LAYOUT } from "./layout.ts";
import { META } from "./names.ts";
import { oneNode } from "./nodes.ts";
import type { Run } from "./script-definition.ts";
import { type ArchivedEntry, trim } from "./scripts/trim.ts";
import { layoutOf } from "./store-facts.ts";

/** Gateways read the layout every 15 s, and those of an earlier release stop at layout 3. */
const GATEWAYS_KNOW_MS = 30_000;
/** Entries that leave in one step: Redis serves nobody else for a millisecond at most. Decision 0051. */
const SLICE_MAX = 25;
/** Between two steps, so that others are served. */
const PAUSE_MS = 5;
/** How long references of grants stay in Redis at least. */
const KEEP_REFERENCES_MS = 400 * 86_400_000;

const MIGRATE_FIRST =
  "the store has layout 1, whose ledger cannot be trimmed; run `tollgate store migrate` first";

/**
 * Says in the store that entries may leave the ledger: from now on it has layout 3, which earlier releases do not use. Their
 * gateways that run have time to notice. Repeat it before each `trimLedger`; then it is one read.
 * @param redis the server of `tg:meta`
 * @param options.waitMs how long gateways may take to learn of it
 * @returns whether the ledger may be trimmed by now
 * @throws OperatorError for a store of layout 1
 */
export async function allowTrimming(
  redis: Redis,
  { waitMs = GATEWAYS_KNOW_MS }: { waitMs?: number } = {},
): Promise<boolean> {
  const [layout, since] = await redis.hmget(META, "layout", "trimmable_since");
  const nowMs = await storeNowMs(redis);
  if (layout === TRIMMABLE_LAYOUT && since !== null) return nowMs >= Number(since);
  if (!hasTasksInPartitions(await layoutOf(oneNode(redis)))) throw new OperatorError(MIGRATE_FIRST);
  await redis.hset(META, { layout: TRIMMABLE_LAYOUT, trimmable_since: Math.ceil(nowMs + waitMs) });
  return waitMs <= 0;
}

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
 * charge of a task that has not ended. May be stopped at any point, and repeated. Only where `allowTrimming` is true.
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
