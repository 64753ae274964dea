import { setTimeout as wait } from "node:timers/promises";
import type { Connection } from "../redis/connection.ts";
import { repeated, takeLease } from "../redis/repeated-work.ts";
import { usablePrimaries } from "../redis/topology/frozen-partitions.ts";
import { createWriteWatch } from "../redis/write-watch.ts";
import { type RolledUp, rollup } from "../scripts/ledger.ts";
import type { Run } from "../scripts/script-definition.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const LEASE = "tg:rollup-lease";
const ROUND_EVERY_MS = 1000;
/** A round costs Redis by the account more than by the entry, so a busy store has half as many. */
const BUSY_ROUND_EVERY_MS = 2000;
const BUSY_ENTRIES = 1000;
const SLICES_MAX = 40;
const SLICE_PAUSE_MS = 2;

interface RollupOptions {
  connection: Connection;
  metrics: Pick<Metrics, "usageUnexplained">;
  log: Logger;
}

/** Once a second, in a busy store every two. The lease only saves work: two gateways count nothing twice. Decision 0054. */
export function createRollup({ connection, metrics, log }: RollupOptions) {
  const showUnexplained = createUnexplained(metrics, log);
  const watch = createWriteWatch({ late: true });
  let failed = false;
  let entries = 0;
  const pauseMs = (): number => (entries >= BUSY_ENTRIES ? BUSY_ROUND_EVERY_MS : ROUND_EVERY_MS);

  async function one(partition: number): Promise<boolean> {
    const { run } = connection.of(partition);
    const result = await rollUp(run, { partition, slicesMax: SLICES_MAX, signal });
    entries += result.entries;
    if (!result.more) showUnexplained(partition, result.unexplained);
    return result.more;
  }

  async function round(
    partitions = usablePrimaries(connection).flatMap((usable) => usable.partitions),
  ): Promise<boolean> {
    const first = Math.floor(Math.random() * partitions.length);
    let more = false;
    for (const partition of [...partitions.slice(first), ...partitions.slice(0, first)]) {
      if (signal.aborted) break;
      try {
        more = (await one(partition)) || more;
      } catch (error) {
        // Other partitions may be on another primary.
        log.debug({ err: error, partition }, "rolling up usage was interrupted");
        failed = true;
      }
    }
    return more;
  }

  async function look(): Promise<void> {
    const looked: (() => void)[] = [];
    const partitions: number[] = [];
    for (const { primary, partitions: own } of usablePrimaries(connection)) {
      const done = await primary
        .command((redis) => watch.news(redis, own.join()))
        .catch(() => () => undefined);
      if (!done) continue;
      looked.push(done);
      partitions.push(...own);
    }
    if (partitions.length === 0) {
      entries = 0;
      return;
    }
    if (!(await takeLease(connection, LEASE, pauseMs()))) return;
    failed = false;
    entries = 0;
    while (!signal.aborted && (await round(partitions)));
    if (!failed && !signal.aborted) for (const done of looked) done();
  }

  const { signal, start, stop } = repeated(look, {
    pauseMs,
    failed: (error) => log.debug({ err: error }, "rolling up usage was interrupted"),
  });
  return { start, round, stop };
}

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
    if (slices > 0) await wait(SLICE_PAUSE_MS);
    const slice = await run(rollup, { partition });
    total.entries += slice.entries;
    total.ended += slice.ended;
    total.more = slice.more;
    total.unexplained = slice.unexplained;
  }
  return total;
}

/** @returns logs and shows entries of a partition that usage does not account for */
function createUnexplained(metrics: RollupOptions["metrics"], log: Logger) {
  const unexplained = new Map<number, number>();
  return (partition: number, entries: number): void => {
    if (entries !== 0 && unexplained.get(partition) !== entries)
      log.error(
        { partition, entries },
        "usage does not account for all entries of a ledger; see TollgateUsageDrift in docs/operations/alerts-ledger.md",
      );
    unexplained.set(partition, entries);
    metrics.usageUnexplained.set(unexplained.values().reduce((sum, each) => sum + Math.abs(each), 0));
  };
}
