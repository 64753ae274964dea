import { afterEach, beforeEach, expect, test } from "vitest";
import { createRollup } from "../../src/jobs/rollup-work.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { archiveNames, partitionNames, partitionOf } from "../../src/records/names.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// A Redis that is out of memory: what has left it makes room, so copying and all that it waits for must go on.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

const log = createLogger("silent");
const PARTITION = partitionOf("acme", PARTITIONS);
const lagOf = async ({ metrics }: Awaited<ReturnType<ArchiveStage["copier"]>>): Promise<number> =>
  (await metrics.archiveLag.get()).values[0]?.value ?? 0;

async function givenTraffic(): Promise<void> {
  const key = await stage.givenKey("acme");
  for (const end of ["completed", "failed", "completed"] as const) await stage.ended(key, end);
  await stage.grant(key, "order-1", 70);
}
const length = (): Promise<number> => stage.redis.xlen(partitionNames(PARTITION).ledger);

// Guarantee: a full Redis with an archive gets going by itself, whatever had begun before it was full.
test.each(["never copied before", "copied before", "copied before by another generation"])(
  "a full Redis is copied and trimmed: %s",
  async (before) => {
    await givenTraffic();
    const rollup = createRollup({ connection: stage.connection, metrics: stage.connection.metrics, log });
    await rollup.round();
    if (before !== "never copied before") {
      const earlier = await stage.copier();
      await earlier.copy();
      await earlier.stop();
      await stage.ended(await stage.givenKey("acme"), "failed");
    }
    if (before.endsWith("generation")) await stage.redis.hdel(archiveNames(PARTITION).archive, "listed");
    const entries = await stage.entries();
    await stage.redis.config("SET", "maxmemory", "1");
    await expect(stage.redis.set("full", "1")).rejects.toThrow("OOM");
    while (await rollup.round());
    const copier = await stage.copier({ keepMs: 0 });
    await copier.copy();
    expect(await stage.archived()).toEqual(entries);
    expect(await length()).toBe(1);
    expect(await lagOf(copier)).toBe(0);
    await stage.redis.config("SET", "maxmemory", "0");
    expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true });
  },
);

// Guarantee: a copier that is given no lease does not say that all is copied.
test("the lag grows while Redis gives no leases, and falls once it does", async () => {
  await givenTraffic();
  const copier = await stage.copier();
  // As Redis refuses a write that is not marked `allow-oom`.
  await stage.redis.call("ACL", "SETUSER", "default", "-set");
  await copier.round();
  const first = await lagOf(copier);
  expect(first).toBeGreaterThan(0);
  await copier.round();
  expect(await lagOf(copier)).toBeGreaterThan(first);
  expect(await stage.database.query("SELECT to_regclass('tollgate.ledger_rows') AS rows")).toEqual([
    { rows: null },
  ]);
  await stage.redis.call("ACL", "SETUSER", "default", "+set");
  await stage.endLeases();
  const next = await stage.copier();
  await next.copy();
  expect(await lagOf(next)).toBe(0);
  expect(await stage.archived()).toEqual(await stage.entries());
});
