import { afterEach, beforeEach, expect, test } from "vitest";
import { verifyArchive } from "../../src/ledger/archive/verify-archive.ts";
import { cliActor } from "../../src/store/actor.ts";
import { changeKey } from "../../src/store/change-key.ts";
import { findKey } from "../../src/store/keys.ts";
import { partitionOf } from "../../src/store/names.ts";
import { createAccount } from "../../src/store/operator-accounts.ts";
import { revokeKey } from "../../src/store/revoke-key.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// An older copy of Redis is put back: the archive has what it has, of accounts and keys, too.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

/** An account of the same partition. */
const otherAccount = (accountId: string): string =>
  times(100, (at) => `later-${at}`).find(
    (other) => partitionOf(other, PARTITIONS) === partitionOf(accountId, PARTITIONS),
  )!;

/** Everything in Redis as it is now; answers how to put it back. */
async function copyOfRedis(): Promise<() => Promise<void>> {
  const names = await stage.redis.keys("*");
  const dumps = await Promise.all(
    names.map(async (name) => [name, await stage.redis.dumpBuffer(name)] as const),
  );
  return async () => {
    for (const name of await stage.redis.keys("*")) await stage.redis.del(name);
    for (const [name, dump] of dumps) await stage.redis.restore(name, 0, dump, "REPLACE");
    await stage.endTurns();
  };
}

const keys = () =>
  stage.database.query("SELECT key_id, revoked_at IS NOT NULL AS revoked FROM tollgate.api_keys");

/** A new copier has done all it does, and the archive is right. */
async function expectRight(): Promise<void> {
  const copier = await stage.copier();
  await copier.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({ ok: true, violations: [] });
}

// Guarantee: a restore brings back what the store had, and nothing that it had lost before.
test("keys and accounts are in the archive as the older copy has them, and later ones not at all", async () => {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  await copier.copy();
  const putBack = await copyOfRedis();
  await stage.grant(key, "order-1");
  await revokeKey(stage.nodes, await findKey(stage.nodes, key.keyId));
  const later = await stage.givenKey("acme");
  // In the same partition: there a fork is found.
  await createAccount(stage.nodes, { accountId: otherAccount("acme") }, cliActor("ann"));
  await copier.copy();
  await copier.stop();
  expect(await keys()).toHaveLength(2);
  await putBack();
  const { violations } = await verifyArchive(stage.nodes, copier.archive.query);
  const lost = `key ${later.keyId}: is in the archive, and not in Redis`;
  expect(violations.map(({ message }) => message)).toContain(lost);
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
  expect(await stage.database.query("SELECT account_id FROM tollgate.accounts")).toEqual([
    { account_id: "acme" },
  ]);
  expect(await stage.database.query("SELECT FROM tollgate.ledger_forks")).not.toEqual([]);
});

test("an older copy without any entry less is found, too", async () => {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  await copier.copy();
  const putBack = await copyOfRedis();
  for (const tier of ["enterprise", "standard", "enterprise"]) {
    await changeKey(stage.nodes, await findKey(stage.nodes, key.keyId), { tier });
    await copier.copy();
  }
  await copier.stop();
  await putBack();
  await expectRight();
  expect(await stage.database.query("SELECT tier FROM tollgate.api_keys")).toEqual([{ tier: "standard" }]);
});

test("a fork found by a copier that goes on copies keys again, too", async () => {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  await copier.copy();
  const putBack = await copyOfRedis();
  await stage.grant(key, "order-1");
  await revokeKey(stage.nodes, await findKey(stage.nodes, key.keyId));
  await copier.copy();
  await putBack();
  await stage.grant(key, "order-2");
  await copier.copy();
  await copier.stop();
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
});
