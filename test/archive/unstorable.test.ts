import { afterEach, beforeEach, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { createAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyNames, partitionNames, partitionOf } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { account } from "../../src/scripts/accounts.ts";
import { change } from "../../src/scripts/keys.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// Values that a damaged record may hold and that PostgreSQL takes in no text, JSON or time.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

const YEAR_10000_MS = 253_402_300_800_000;

/** Changes an account without the rules for operators. */
async function setAccount(fields: Record<string, string>): Promise<void> {
  await createAccount(stage.nodes, { accountId: "globex" }, cliActor("ann"));
  const call = { partition: partitionOf("globex", PARTITIONS), accountId: "globex", actor: cliActor("ann") };
  await scriptsOf(stage.redis).run(account, { ...call, action: "account.patch", fields });
}

/** As above, for a key. */
async function setKey(fields: Record<string, string | number>): Promise<void> {
  const { keyId } = await stage.givenKey("globex");
  const key = await findKey(stage.nodes, keyId);
  await scriptsOf(stage.redis).run(change, { ...key, fields, actor: cliActor("ann") });
}

// Guarantee: no value in a record of the store stops the archive.
test.each([
  [
    "metadata with U+0000",
    () => setAccount({ metadata: '{"a\\u0000":["\\u0000"]}' }),
    "SELECT after->>'metadata' AS found FROM tollgate.audit WHERE action = 'account.patch'",
    '{"a\uFFFD": ["\uFFFD"]}',
  ],
  [
    "metadata with half of a surrogate pair",
    () => setAccount({ metadata: '{"a":"\\ud800!"}' }),
    "SELECT after->>'metadata' AS found FROM tollgate.audit WHERE action = 'account.patch'",
    '{"a": "\uFFFD!"}',
  ],
  [
    "a label with U+0000",
    () => setAccount({ label: "a\0b" }),
    "SELECT settings->>'label' AS found FROM tollgate.accounts WHERE account_id = 'globex'",
    "a\uFFFDb",
  ],
  [
    "a key that ends in the year 10000",
    () => setKey({ expires_at: YEAR_10000_MS }),
    "SELECT floor(extract(epoch FROM expires_at) * 1000)::text AS found FROM tollgate.api_keys WHERE account_id = 'globex'",
    String(YEAR_10000_MS - 1),
  ],
] as const)(
  "%s is copied as far as PostgreSQL takes it, and so is everything else",
  async (_, make, found, value) => {
    const key = await stage.givenKey("acme");
    await make();
    await stage.grant(key, "order-1");
    const copier = await stage.copier();
    await copier.copy();
    expect(await stage.archived()).toEqual(await stage.entries());
    expect(await stage.database.query(found)).toEqual([{ found: value }]);
    expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({
      ok: true,
      violations: [],
    });
  },
);

test("a key whose end is no time is copied as one without an end", async () => {
  const { keyId } = await stage.givenKey("acme");
  const partition = partitionOf("acme", PARTITIONS);
  const copier = await stage.copier();
  // CHANGE writes an audit record, too, which another test has.
  await stage.redis.hset(keyNames(partition, keyId).key, "expires_at", "NaN");
  await copier.copy();
  expect(await stage.database.query("SELECT expires_at FROM tollgate.api_keys")).toEqual([
    { expires_at: null },
  ]);
  expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({ ok: true });
  // The money that goes with it.
  expect(await stage.redis.xlen(partitionNames(partition).ledger)).toBe((await stage.archived()).length);
});
