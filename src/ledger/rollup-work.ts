import type { Connection } from "../store/connection.ts";
import { rollUp } from "../store/rolling-up.ts";
import { takeTurn } from "../store/take-turn.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

/** Exists until the next round of any gateway is due. */
const TURN = "tg:rollup-turn";
const ROUND_EVERY_MS = 1000;
/** Calls for one partition in a round: the others come in between. */
const SLICES_MAX = 40;

interface RollupOptions {
  connection: Connection;
  metrics: Pick<Metrics, "usageUnexplained">;
  log: Logger;
}

/**
 * Rolls the ledger up into usage, about once a second by one of all gateways. Whose turn it is only saves work: two that do it
 * at a time count nothing twice. Decision 0054.
 */
export function createRollup({ connection, metrics, log }: RollupOptions) {
  const ending = new AbortController();
  /** Partitions whose ledger is not accounted for, and by how many entries. */
  const unexplained = new Map<number, number>();
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();

  async function one(partition: number): Promise<boolean> {
    const { run } = connection.of(partition);
    const result = await rollUp(run, { partition, slicesMax: SLICES_MAX, signal: ending.signal });
    if (!result.more) show(partition, result.unexplained);
    return result.more;
  }

  function show(partition: number, entries: number): void {
    if (entries !== 0 && unexplained.get(partition) !== entries)
      log.error(
        { partition, entries },
        "usage does not account for all entries of a ledger; see docs/operations.md",
      );
    if (entries === 0) unexplained.delete(partition);
    else unexplained.set(partition, entries);
    metrics.usageUnexplained.set([...unexplained.values()].reduce((sum, each) => sum + Math.abs(each), 0));
  }

  /** All partitions once. @returns whether there is more to count */
  async function round(): Promise<boolean> {
    const { partitions = 0 } = connection.facts() ?? {};
    const first = Math.floor(Math.random() * partitions);
    let more = false;
    for (let at = 0; at < partitions && !ending.signal.aborted; at++) {
      const partition = (first + at) % partitions;
      if (connection.of(partition).breaker.isOpen() || connection.isFrozen(partition)) continue;
      try {
        more = (await one(partition)) || more;
      } catch (error) {
        // Others may be on another primary.
        log.debug({ err: error, partition }, "rolling up usage was interrupted");
      }
    }
    return more;
  }

  const schedule = (): void => {
    if (ending.signal.aborted) return;
    timer = setTimeout(() => {
      current = (async () => {
        if (!(await takeTurn(connection, TURN, ROUND_EVERY_MS))) return;
        while (!ending.signal.aborted && (await round()));
      })()
        .catch((error: unknown) => log.debug({ err: error }, "rolling up usage was interrupted"))
        .finally(schedule);
    }, ROUND_EVERY_MS);
  };

  return {
    start: schedule,
    /** One round now; for tests and tools. */
    round,
    async stop(): Promise<void> {
      ending.abort();
      clearTimeout(timer);
      await current;
    },
  };
}
