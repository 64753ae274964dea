import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startRedis } from "../../src/sandbox/redis.ts";
import { createClient } from "../support/client.ts";
import { createStage, openConnection, openStore, type Stage, type TestConnection } from "../support/store.ts";
import { until } from "../support/until.ts";

/** A Redis of its own; ends with the work. @param path a database in its address */
async function withRedis(
  work: (connection: TestConnection, stage: Stage, dir: string, url: string) => Promise<void>,
  path = "",
) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-errors-"));
  const server = await startRedis({ dir, persistent: false, args: ["--save", "3600 1"] });
  const connection = await openConnection(server.url + path);
  try {
    await work(connection, createStage(connection), dir, server.url);
  } finally {
    await connection.close();
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

/** Why calls failed, by what is counted. */
async function failures({ metrics }: TestConnection): Promise<unknown[]> {
  const { values } = await metrics.storeFailures.get();
  return values.filter(({ value }) => value > 0).map(({ labels }) => labels.reason);
}

// Both as docs/operations/alerts-redis.md tells them apart: TollgateStoreDegraded and TollgateStoreRefuses.
test("a Redis that cannot write its disk (MISCONF) counts as away", () =>
  withRedis(async (connection, stage, dir) => {
    const key = await stage.givenKey({ credits: 100 });
    await rm(dir, { recursive: true });
    await connection.redis.bgsave();
    await until(async () => /rdb_last_bgsave_status:err/.test(await connection.redis.info("persistence")));
    const admitted = openStore(connection).admit(stage.request(key), stage.tiers);
    await expect(admitted).rejects.toThrow(/MISCONF/);
    expect(connection.breaker.isOpen).toBe(true);
    expect(await failures(connection)).toEqual(["connection"]);
    // Else it would not end: it saves first.
    await connection.redis.config("SET", "save", "");
  }));

test("missing rights (NOPERM) refuse everything, polls and credits included, and are no outage until a settlement waits", () =>
  withRedis(async (connection, stage) => {
    const key = await stage.givenKey({ credits: 100 });
    const store = openStore(connection);
    await connection.redis.acl("SETUSER", "default", "-@scripting");
    for (const ask of [
      () => store.admit(stage.request(key), stage.tiers),
      () => store.inspect(key, stage.tiers),
      () => store.credits(key, stage.tiers),
    ]) {
      await expect(ask()).rejects.toThrow(/NOPERM/);
    }
    expect(connection.breaker.isOpen).toBe(false);
    expect(await failures(connection)).toEqual(["refused"]);
    // A settlement that must not be lost waits for a Redis that takes it.
    await store.voidHold(stage.request(key), stage.tiers);
    expect(connection.breaker.isOpen).toBe(true);
  }));

// Guarantee: `allow` is for a Redis that cannot be reached, whatever its database.
test("a Redis that takes no more connections is no outage, in another database neither", () =>
  withRedis(async (connection, _stage, _dir, url) => {
    const client = createClient(url, 10_000);
    await client.connect();
    await client.config("SET", "maxclients", "1");
    await client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await until(() => connection.breaker.isOpen);
    expect(await connection.outage()).toBeUndefined();
    await client.config("SET", "maxclients", "100");
    client.disconnect();
    await connection.usable();
  }, "/1"));
