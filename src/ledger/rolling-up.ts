import { setTimeout as wait } from "node:timers/promises";
import { type RolledUp, rollup } from "../scripts/ledger.ts";
import type { Run } from "../scripts/script-definition.ts";

const PAUSE_MS = 2;

/** Adds new entries and ended tasks to usage, with the cursor in one step: may run twice at a time. @throws Error of Redis; FROZEN */
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
