import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { expect, test } from "vitest";
import { connectArchive } from "../../src/archive/archive-connection.ts";
import { createCopier } from "../../src/archive/copier.ts";
import { identifyOrClaim } from "../../src/archive/identity.ts";
import { migrate } from "../../src/archive/migrations.ts";
import { createTables } from "../../src/archive/tables.ts";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { type KeyRef, keyRef, partitionNames, partitionOf } from "../../src/records/names.ts";
import { type Connection, createConnection } from "../../src/redis/connection.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { createDatabase } from "../support/postgres.ts";
import { ENDPOINT, onOneServer, openStore, randomId, TIERS, times, UPSTREAM } from "../support/store.ts";

const DAY_MS = 86_400_000;
/** `archive.keep` and `tasks.retention`. */
const WEEK_MS = 7 * DAY_MS;
const PARTITIONS = 16;
const ACCOUNTS = 40;
/** `DAYS=30 PER_DAY=5000` for the figures in docs/archive.md. */
const DAYS = Number(process.env.DAYS ?? 14);
const PER_DAY = Number(process.env.PER_DAY ?? 400);
const STEPS_A_DAY = 8;
/** A day, less than which says nothing: nothing has left yet. */
const STEADY_DAY = 8;
const GROWTH_MAX = 1.05;
const AT_A_TIME = 50;

// Guarantee: with an archive, Redis is as large after a month as after a week.
test("memory stays the same once archive.keep has passed", { timeout: 900_000 }, async () => {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-memory-"));
  const server = await startRedis({ dir, persistent: false });
  const database = await createDatabase();
  const archive = connectArchive(database.url);
  const clock = { nowMs: Date.now() };
  const connection = createConnection({
    redisUrl: server.url,
    commandTimeoutMs: 30_000,
    partitions: PARTITIONS,
    allowNoPersistence: true,
    log: createLogger("silent"),
    metrics: createMetrics(),
    nowMs: () => clock.nowMs,
  });
  try {
    await connection.usable();
    const only = onOneServer(connection);
    await migrate(archive);
    const keys = await givenKeys(only.redis);
    const sizes: number[] = [];
    for (let day = 1; day <= DAYS; day++) {
      const copier = copierOn(connection, archive);
      for (let step = 0; step < STEPS_A_DAY; step++) {
        clock.nowMs += DAY_MS / STEPS_A_DAY;
        await traffic(connection, keys, Math.round(PER_DAY / STEPS_A_DAY));
        while (await copier.round());
        await collectAll(connection, clock);
        for (let partition = 0; partition < PARTITIONS; partition++)
          await rollUp(connection.of(partition).run, { partition });
      }
      await copier.stop();
      sizes.push(await usedBytes(only.redis));
    }
    console.log(
      `${PER_DAY} requests a day, MiB: ${sizes.map((size) => (size / 2 ** 20).toFixed(1)).join(" ")}`,
    );
    // A table of names that Redis makes larger at that moment is there twice.
    const [, last] = sizes.slice(-3).sort((a, b) => a - b);
    expect(last! / sizes[STEADY_DAY - 1]!).toBeLessThan(GROWTH_MAX);
    expect(await entriesLeft(only.redis)).toBeLessThan(1.3 * (STEADY_DAY - 1) * PER_DAY);
  } finally {
    await connection.close();
    archive.close();
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  }
});

/** A new one each day: it trims once in ten seconds of real time. */
function copierOn(connection: Connection, archive: ReturnType<typeof connectArchive>) {
  return createCopier({
    connection,
    tables: async () =>
      createTables((await identifyOrClaim(archive.query, connection.known.facts!.id!)).archiveId, archive),
    archiveUsed: (fault) => expect(fault).toBeUndefined(),
    keepMs: () => WEEK_MS,
    intervalMs: () => 1000,
    metrics: createMetrics(),
    log: createLogger("silent"),
  });
}

async function givenKeys(redis: Redis): Promise<KeyRef[]> {
  const issued = await Promise.all(
    times(ACCOUNTS, () =>
      issueKey(
        oneNode(redis),
        {
          credits: 10_000_000,
          limits: { rate_limit: 10_000, max_concurrent: 1000, daily_limit: 1_000_000 },
        },
        cliActor(),
      ),
    ),
  );
  return issued.map(({ keyId, accountId }) => keyRef(keyId, accountId, partitionOf(accountId, PARTITIONS)));
}

/** Requests that are charged and end; every tenth is refunded. */
async function traffic(connection: Connection, keys: readonly KeyRef[], count: number): Promise<void> {
  const store = openStore(connection);
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) {
      const at = next++;
      const key = keys[at % keys.length]!;
      const requestId = randomId("req");
      const generation = {
        requestId,
        key,
        price: 10,
        endpoint: ENDPOINT,
        holdMs: 60_000,
        retentionMs: WEEK_MS,
      };
      expect((await store.admit(generation, TIERS)).outcome).toBe("admitted");
      const taskId = randomId("task");
      await store.bind(generation, {
        taskId,
        data: "",
        pollMs: 30_000,
        maxAgeMs: DAY_MS,
        upstream: UPSTREAM,
      });
      const status = at % 10 === 0 ? "failed" : "completed";
      const data = JSON.stringify({ task_id: taskId, status });
      const task = { taskId, requestId, creatorKeyId: key.keyId };
      await store.observe(
        { partition: key.partition, accountId: key.accountId, task },
        { status, data },
        { refundFailed: true, maxAgeMs: DAY_MS, pollMs: 30_000, tiers: TIERS },
      );
    }
  };
  await Promise.all(times(AT_A_TIME, lane));
}

async function collectAll(connection: Connection, clock: { nowMs: number }): Promise<void> {
  const sweeps = createSweeps(
    connection,
    () => 60_000,
    () => clock.nowMs,
  );
  for (let partition = 0; partition < PARTITIONS; partition++)
    while ((await sweeps.collect(partition, WEEK_MS, 1000)).collected > 0);
}

const usedBytes = async (redis: Redis): Promise<number> =>
  Number(/^used_memory:(\d+)/m.exec(await redis.info("memory"))?.[1]);

async function entriesLeft(redis: Redis): Promise<number> {
  const lengths = await Promise.all(
    times(PARTITIONS, (partition) => redis.xlen(partitionNames(partition).ledger)),
  );
  return lengths.reduce((sum, length) => sum + length, 0);
}
