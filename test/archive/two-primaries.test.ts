import { afterAll, beforeAll, expect, test } from "vitest";
import { connectArchive } from "../../src/archive/archive-connection.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { META } from "../../src/records/names.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { createDatabase, type TestDatabase } from "../support/postgres.ts";
import { accountOn, givenTwoPrimaries, sideOf, type TwoPrimaries } from "../support/two-primaries.ts";

// A store on several primaries: each partition is copied from its own, and waits for it alone.

let two: TwoPrimaries;
let database: TestDatabase;
let gateway: TestGateway;
beforeAll(async () => {
  [two, database] = await Promise.all([givenTwoPrimaries(), createDatabase()]);
  gateway = await givenGateway({
    redisUrl: two.servers[0].url,
    place: two.place,
    config: { archive: { url: database.url, intervalMs: 100 }, store: { commandTimeoutMs: 400 } },
  });
});
afterAll(async () => {
  for (const server of two?.servers ?? []) server.resume();
  await gateway?.stop();
  await two?.stop();
});

const copied = async (accountId: string): Promise<number> =>
  (await database.query("SELECT FROM tollgate.ledger_entries WHERE account_id = $1", [accountId])).length;

test("while one primary hangs the other's partitions are copied, and then its own", async () => {
  const ready = async () => (await fetch(`${gateway.adminUrl}/readyz`)).ok;
  await until(ready, "the gateway to be ready");
  // The one that has no global name goes away.
  const away = 1 - sideOf(META);
  const keys: IssuedKey[] = [];
  for (const side of [0, 1])
    keys[side] = await issueKey(two.nodes, { accountId: accountOn(side), credits: 100 }, cliActor());
  for (const { accountId } of keys)
    await until(async () => (await copied(accountId).catch(() => 0)) === 1, "the first entries");
  await grantCredits(two.nodes, keys[away]!.accountId, 5, "before", cliActor());
  two.servers[away]!.pause();
  for (let at = 0; at < 5; at++) {
    await grantCredits(two.nodes, keys[1 - away]!.accountId, 5, `order-${at}`, cliActor());
    await until(async () => (await copied(keys[1 - away]!.accountId)) === at + 2, "the other's entries");
  }
  two.servers[away]!.resume();
  await grantCredits(two.nodes, keys[away]!.accountId, 5, "after", cliActor());
  await until(async () => (await copied(keys[away]!.accountId)) === 3, "what waited");
  expect(await two.misplaced()).toEqual([]);
  const archive = connectArchive(database.url);
  expect(await verifyArchive(two.nodes, archive.query)).toMatchObject({ ok: true, entries: 9, keys: 2 });
  archive.close();
});
