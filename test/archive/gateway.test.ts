import { afterAll, beforeAll, expect, test } from "vitest";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { createDatabase, type TestDatabase } from "../support/postgres.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";
import { givenRedis, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";

// A whole gateway with an archive: it copies by itself, and its requests do not notice what PostgreSQL does.

let postgres: PostgresServer;
let redis: TestRedis;
let database: TestDatabase;
let gateway: TestGateway;
beforeAll(async () => {
  [postgres, redis] = await Promise.all([startPostgres(), givenRedis()]);
  database = await createDatabase(postgres.url());
  gateway = await givenGateway({
    redisUrl: redis.url,
    config: { archive: { url: database.url, intervalMs: 100 } },
  });
});
afterAll(async () => {
  await postgres?.resume();
  await gateway?.stop();
  await redis?.stop();
  await postgres?.remove();
});

const charged = async () =>
  (await database.query("SELECT FROM tollgate.ledger_entries WHERE type = 'consume'")).length;

test("generations are in the archive soon, while PostgreSQL is hung or killed nothing waits for it, and then they come", async () => {
  const ready = async () => (await fetch(`${gateway.adminUrl}/readyz`)).ok;
  await until(ready, "the gateway to be ready");
  const { key } = await gateway.givenKey();
  const generate = async (): Promise<void> => {
    const reply = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "rain" } });
    expect(reply.status, JSON.stringify(reply.body)).toBe(200);
    expect((await gateway.request("GET", "/api/v1/credits", { key })).status).toBe(200);
  };
  await generate();
  await until(async () => (await charged().catch(() => 0)) === 1, "the first charge");
  // Said once the round has ended, a moment after the row is there.
  await until(async () => gateway.logs.join().includes("the archive is in use"), "the archive to be in use");

  await postgres.suspend();
  for (let at = 0; at < 5; at++) await generate();
  await postgres.resume();
  await until(async () => (await charged()) === 6, "what was charged while PostgreSQL hung");

  await postgres.kill();
  for (let at = 0; at < 5; at++) await generate();
  await until(() => gateway.logs.join().includes("the archive cannot be used"), "the log to say so");
  expect(gateway.logs.join()).toContain("nobody listens there");
  expect(gateway.logs.join()).not.toContain(database.url);
  await postgres.start();
  await until(
    async () => (await charged().catch(() => 0)) === 11,
    "what was charged while PostgreSQL was away",
  );
  expect(await database.query("SELECT FROM tollgate.ledger_rows")).toHaveLength(12);
  expect(await gateway.metric('tollgate_archive_rows_total{kind="entry"}')).toEqual([
    'tollgate_archive_rows_total{kind="entry"} 12',
  ]);
});
