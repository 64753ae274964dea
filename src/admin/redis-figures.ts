import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { repeated } from "../redis/repeated-work.ts";
import { isPersistent, memoryOf, readInfo, replicasOnline } from "../redis/server-info.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";

const EVERY_MS = 60_000;
const FIRST_MS = 2000;
const ONE_SERVER = "redis";

/** Shows of each primary what `tollgate doctor` warns of: its clock, its memory, whether it keeps its data, and its replicas. */
export function createRedisFigures(options: {
  connection: Pick<Connection, "primaries">;
  replicasWanted(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, replicasWanted, metrics, log } = options;
  const perPrimary = [
    metrics.redisClockAhead,
    metrics.redisMemory,
    metrics.redisMemoryMax,
    metrics.redisPersistent,
    metrics.redisReplicas,
  ];

  async function show(primary: Primary): Promise<void> {
    const labels = { primary: primary.name ?? ONE_SERVER };
    const info = readInfo(await primary.command((redis) => redis.info()));
    const { used, all } = memoryOf(info);
    metrics.redisClockAhead.set(labels, (primary.nowMs() - Date.now()) / 1000);
    metrics.redisMemory.set(labels, used);
    metrics.redisMemoryMax.set(labels, all);
    metrics.redisPersistent.set(labels, isPersistent(info) ? 1 : 0);
    metrics.redisReplicas.set(labels, replicasOnline(info));
  }

  async function look(): Promise<void> {
    const shown = await Promise.allSettled(
      connection.primaries().map(async (primary) => {
        await show(primary);
        return primary.name ?? ONE_SERVER;
      }),
    );
    const names = new Set(shown.map((each) => (each.status === "fulfilled" ? each.value : undefined)));
    for (const gauge of perPrimary)
      for (const { labels } of (await gauge.get()).values)
        if (!names.has(String(labels.primary))) gauge.remove({ primary: String(labels.primary) });
    metrics.redisReplicasWanted.set(replicasWanted());
  }

  const { start, stop } = repeated(look, {
    pauseMs: () => EVERY_MS,
    failed: (error) => log.debug({ err: error }, "figures of Redis not read"),
  });
  return { start: (): void => start(FIRST_MS), look, stop };
}
