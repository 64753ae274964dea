import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startCluster } from "../failover/cluster.ts";
import { startTrio } from "../failover/trio.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { generate, ready } from "../support/store-stage.ts";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

let stage: ArchiveStage;
let dir: string;
beforeEach(async () => {
  stage = await givenArchiveStage();
  dir = await mkdtemp(join(tmpdir(), "tollgate-restore-elsewhere-"));
});
afterEach(async () => {
  await stage.stop();
  await rm(dir, { recursive: true, force: true });
});

/** Addresses of an empty Redis that is not one server. */
const PLACES = [
  ["a Redis Cluster", startCluster],
  ["a primary with replicas, found through its Sentinels", startTrio],
] as const;

// Guarantee: what one server has lost goes on wherever the company has it from then on.
test.each(PLACES)("a store is restored to %s", { timeout: 180_000 }, async (_, start) => {
  await givenExample(stage);
  const key = await stage.givenKey("acme");
  await stage.ended(key, "bound");
  await (await stage.copier()).copy();
  const place = await start();
  try {
    const file = join(dir, "tollgate.yaml");
    await writeFile(file, JSON.stringify({ store: { partitions: PARTITIONS } }));
    const env = { ARCHIVE_URL: stage.url, REDIS_URL: place.redisUrl, TOLLGATE_CONFIG: file };
    const restored = await runHere(["archive", "restore"], env);
    expect(restored).toMatchObject({ code: 0, stdout: expect.stringContaining("Restored: 2 accounts with") });
    expect(await runHere(["ledger", "verify"], env)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("The ledger is right: 2 accounts and 24 ledger entries."),
    });
    const again = await runHere(["archive", "restore"], env);
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("not empty") });
    const gateway = await givenGateway({
      redisUrl: place.redisUrl,
      config: { store: { partitions: PARTITIONS } },
    });
    try {
      await ready(gateway);
      // All primaries, not one of them.
      const isWhole = async () => (await gateway.metric("tollgate_store_up "))[0] === "tollgate_store_up 1";
      await until(isWhole, "the store to be usable");
      expect((await generate(gateway, key)).status).toBe(200);
      // A charge may wait in the journal for a moment.
      const isCharged = async () =>
        (await runHere(["ledger", "verify"], env)).stdout.includes(" 25 ledger entries");
      await until(isCharged, "the charge in the ledger");
    } finally {
      await gateway.stop();
    }
    expect((await runHere(["archive", "verify"], env)).code).toBe(0);
    expect((await runHere(["ledger", "verify"], env)).stdout).toContain("2 accounts and 25 ledger entries");
  } finally {
    await place.stop();
  }
});
