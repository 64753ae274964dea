import { setTimeout as wait } from "node:timers/promises";
import { type RolledUp, rollup } from "../scripts/rollup.ts";
import type { Run } from "../scripts/script-definition.ts";

/** Between two calls, so that others are served. */
const PAUSE_MS = 2;

/**
 * Counts what is new in a partition's ledger, and its ended tasks, in the usage of their accounts. May be stopped at any point, and
 * run anywhere at the same time: what counts and how far it counts are one step.
 * @param options.slicesMax at most so many calls; the rest is counted by the next round
 * @throws Error of Redis; FROZEN where an operator has frozen the partition
 */
export async function rollUp(
  run: Run,
  {
    partition,
    slicesMax = Number.POSITIVE_INFINITY,
    signal,
  }: { partition: number; slicesMax?: number; signal?: AbortSignal },
): Promise<RolledUp> {
  const total: RolledUp = { entries: 0, ended: 0, more: true, unexplained: 0 };
  for (let slices = 0; total.more && slices < slicesMax && !signal?.aborted; slices++) {
    if (slices > 0) await wait(PAUSE_MS);
    const slice = await run(rollup, { partition });
    total.entries += slice.entries;
    total.ended += slice.ended;
    total.more = slice.more;
    total.unexplained = slice.unexplained;
  }
  return total;
}
