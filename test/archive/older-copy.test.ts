import { afterEach, beforeEach, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { changeKey, revokeKey } from "../../src/operations/keys/change-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { archiveNames, partitionOf } from "../../src/records/names.ts";
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
    await stage.endLeases();
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
  await revokeKey(stage.nodes, await findKey(stage.nodes, key.keyId), cliActor());
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
    await changeKey(stage.nodes, await findKey(stage.nodes, key.keyId), { tier }, cliActor());
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
  await revokeKey(stage.nodes, await findKey(stage.nodes, key.keyId), cliActor());
  await copier.copy();
  await putBack();
  await stage.grant(key, "order-2");
  await copier.copy();
  await copier.stop();
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
});

/** A key that the archive has, and a copy of Redis of that time. */
async function givenCopied() {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  await copier.copy();
  return { key, copier, putBack: await copyOfRedis() };
}

const revoke = async (keyId: string) => revokeKey(stage.nodes, await findKey(stage.nodes, keyId), cliActor());
const statuses = () => stage.database.query("SELECT settings->>'status' AS status FROM tollgate.accounts");
const generation = () =>
  stage.redis.hget(archiveNames(partitionOf("acme", PARTITIONS)).archive, "generation");

// Guarantee: a lost change is undone in the archive, too, be it a single one.
test.each([
  { lost: "a revocation", change: revoke },
  {
    lost: "a suspension",
    change: () => patchAccount(stage.nodes, "acme", { status: "suspended" }, cliActor("ann")),
  },
])("an older copy that lacks one batch with $lost is found by the next copier", async ({ change }) => {
  const { key, copier, putBack } = await givenCopied();
  await change(key.keyId);
  await copier.copy();
  await copier.stop();
  await putBack();
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
  expect(await statuses()).toEqual([{ status: null }]);
});

test("an older copy that lacks one batch is found by the copier that goes on, though nothing changes", async () => {
  const { key, copier, putBack } = await givenCopied();
  await revoke(key.keyId);
  await copier.copy();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: true }]);
  await putBack();
  await copier.copy();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
  expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({ ok: true, violations: [] });
});

test("an older copy is found that has the entry of a batch and lacks its revocation", async () => {
  const { key, copier } = await givenCopied();
  await stage.grant(key, "order-1");
  const putBack = await copyOfRedis();
  await revoke(key.keyId);
  await copier.copy();
  await copier.stop();
  await putBack();
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
});

test("the same older copy is found each time that it is put back", async () => {
  const { key, copier, putBack } = await givenCopied();
  await copier.stop();
  for (const _ of times(3, (at) => at)) {
    await revoke(key.keyId);
    const next = await stage.copier();
    await next.copy();
    expect(await keys()).toEqual([{ key_id: key.keyId, revoked: true }]);
    await next.stop();
    await putBack();
    await expectRight();
    expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
    await stage.endLeases();
  }
});

/** A key is revoked, and its copier ends between the commit of that and its note. */
async function givenCommittedOnly(keyId: string): Promise<void> {
  const copier = await stage.copier({
    step(name) {
      if (name === "note") throw new Error("the copier ends");
    },
  });
  await stage.endLeases();
  await revoke(keyId);
  await copier.round();
  expect(copier.fault()).toMatchObject({ message: "the copier ends" });
  await copier.stop();
  expect(await keys()).toEqual([{ key_id: keyId, revoked: true }]);
}

// Guarantee: a copier that has ended is no loss: what it had copied is not copied again as a whole.
test("a copier that ended before it noted its batch is not taken for an older copy", async () => {
  const { key } = await givenCopied();
  const before = await generation();
  await givenCommittedOnly(key.keyId);
  await expectRight();
  expect(await generation()).toBe(before);
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: true }]);
});

test("an older copy is found though the copier of the lost batch ended before it noted it", async () => {
  const { key, putBack } = await givenCopied();
  await givenCommittedOnly(key.keyId);
  await putBack();
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
});

test("an older copy is found that is put back after another copier has taken over from one that ended", async () => {
  const { key, putBack } = await givenCopied();
  await givenCommittedOnly(key.keyId);
  await stage.endLeases();
  let isOver = false;
  const next = await stage.copier({
    async step(name) {
      if (name !== "read" || isOver) return;
      isOver = true;
      await putBack();
      await stage.grant(key, "order-1");
    },
  });
  await next.copy();
  await next.stop();
  expect(isOver).toBe(true);
  await expectRight();
  expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
});

// Guarantee: what was copied in a generation and lost by the archive is copied again, also if the copier that found it ended.
test("a generation that was not listed to its end is not continued", async () => {
  const { key, copier } = await givenCopied();
  const { requestId, partition } = await stage.ended(key);
  await copier.copy();
  await copier.stop();
  const request = [requestId];
  await stage.database.query("DELETE FROM tollgate.request_rows WHERE request_id = $1", request);
  await stage.redis.hdel(archiveNames(partition).archive, "listed");
  await stage.endLeases();
  await expectRight();
  const found = await stage.database.query("SELECT FROM tollgate.requests WHERE request_id = $1", request);
  expect(found).toHaveLength(1);
});

test.each(["confirm", "write", "note"])(
  "an older copy is found that is put back before a batch comes to its %s",
  async (at) => {
    const { key, copier, putBack } = await givenCopied();
    await copier.stop();
    let isOver = false;
    const later = await stage.copier({
      async step(name) {
        if (name !== at || isOver) return;
        isOver = true;
        await putBack();
      },
    });
    await revoke(key.keyId);
    await later.copy();
    await later.stop();
    expect(isOver).toBe(true);
    await expectRight();
    expect(await keys()).toEqual([{ key_id: key.keyId, revoked: false }]);
  },
);

test.each(["before", "after"])(
  "another copier that goes on %s the archive is asked is not taken for an older copy",
  async (when) => {
    const { key, copier } = await givenCopied();
    const before = await generation();
    let isOver = false;
    const later = await stage.copier({
      async beside(now) {
        if (isOver || now !== when) return;
        isOver = true;
        await revoke(key.keyId);
        await stage.endLeases();
        await copier.copy();
      },
    });
    await stage.endLeases();
    await later.copy();
    await stage.endLeases();
    await expectRight();
    expect(await generation()).toBe(before);
  },
);
