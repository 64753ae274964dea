import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { verifyArchiveBeside } from "../../src/jobs/background-work.ts";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { changeKey } from "../../src/operations/keys/change-key.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import {
  accountNames,
  archiveNames,
  keyNames,
  partitionNames,
  partitionOf,
} from "../../src/records/names.ts";
import { addMoney } from "../support/account-money.ts";
import { runHere } from "../support/cli.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS, type TestCopier } from "./stage.ts";

// `archive verify`: what differs between archive and store is found, and what is right is not reported, whatever goes on.

let stage: ArchiveStage;
let copier: TestCopier;
let keys: IssuedKey[];
beforeAll(async () => {
  stage = await givenArchiveStage();
  copier = await stage.copier();
  keys = await Promise.all(times(6, (at) => stage.givenKey(`acme-${at}`)));
  for (const key of keys) {
    await stage.ended(key);
    await stage.ended(key, "failed");
    await stage.grant(key, "order");
  }
  await copier.copy();
});
afterAll(() => stage.stop());

const verify = () => verifyArchive(stage.nodes, copier.archive.query);

test("an archive that has what the store has is right", async () => {
  expect(await verify()).toEqual({
    ok: true,
    accounts: 6,
    entries: 30,
    keys: 6,
    in_redis: 30,
    violations: [],
  });
});

test("what is not copied yet is no violation", async () => {
  await stage.grant(keys[0]!, "not copied");
  await stage.givenKey("acme-new");
  await changeKey(
    stage.nodes,
    await findKey(stage.nodes, keys[1]!.keyId),
    { tier: "enterprise" },
    cliActor(),
  );
  await patchAccount(stage.nodes, "acme-1", { status: "suspended" }, cliActor());
  expect(await verify()).toMatchObject({ ok: true, violations: [] });
  await copier.copy();
  expect(await verify()).toMatchObject({ ok: true, entries: 32, keys: 7 });
  await patchAccount(stage.nodes, "acme-1", { status: "active" }, cliActor());
  await copier.copy();
});

test("verified again and again while traffic and copying go on, nothing is wrong", async () => {
  let goesOn = true;
  const traffic = (async () => {
    for (let at = 0; goesOn; at++) {
      await stage.grant(keys[at % 6]!, `more-${at}`);
      await stage.ended(keys[at % 6]!, at % 2 ? "failed" : "completed");
    }
  })();
  const copying = (async () => {
    while (goesOn) await copier.round();
  })();
  try {
    for (let at = 0; at < 8; at++) expect(await verify()).toMatchObject({ ok: true, violations: [] });
  } finally {
    goesOn = false;
    await Promise.all([traffic, copying]);
  }
  await copier.copy();
  expect(await verify()).toMatchObject({ ok: true });
});

type Query = TestCopier["archive"]["query"];

/** The archive's answers, after the `nth` of those questions something happens. */
function interrupted(
  isMeant: (text: string, values: readonly unknown[]) => boolean,
  nth: number,
  happens: () => Promise<void>,
): Query {
  const { query } = copier.archive;
  let seen = 0;
  return async (text, values = []) => {
    const rows = await query<never>(text, values);
    if (isMeant(text, values) && ++seen === nth) await happens();
    return rows;
  };
}

test.each([1, 2])("a key that is copied after answer %i about it is no violation", async (nth) => {
  const { keyId } = await stage.givenKey(`acme-copied-${nth}`);
  const isAboutIt = (_: string, [ids]: readonly unknown[]) => Array.isArray(ids) && ids.includes(keyId);
  const query = interrupted(isAboutIt, nth, () => copier.copy());
  expect(await verifyArchive(stage.nodes, query)).toMatchObject({ ok: true, violations: [] });
  await copier.copy();
});

test("a key that is lost, and known to be lost in the archive after it was listed, is no violation", async () => {
  const { keyId, accountId } = await stage.givenKey("acme-lost");
  await copier.copy();
  const partition = partitionOf(accountId, PARTITIONS);
  const isList = (text: string, [of]: readonly unknown[]) => text.includes("DISTINCT ON") && of === partition;
  const query = interrupted(isList, 1, async () => {
    await stage.redis.del(keyNames(partition, keyId).key);
    await stage.redis.hincrby(archiveNames(partition).changed, `key ${keyId}`, 1);
    await copier.copy();
  });
  expect(await verifyArchive(stage.nodes, query)).toMatchObject({ ok: true, violations: [] });
});

test("a key that is lost, and not copied as lost yet, is no violation", async () => {
  const { keyId, accountId } = await stage.givenKey("acme-losing");
  await copier.copy();
  const partition = partitionOf(accountId, PARTITIONS);
  await stage.redis.del(keyNames(partition, keyId).key);
  expect((await verify()).violations).toMatchObject([
    { message: `key ${keyId}: is in the archive, and not in Redis` },
  ]);
  await stage.redis.hincrby(archiveNames(partition).changed, `key ${keyId}`, 1);
  expect(await verify()).toMatchObject({ ok: true, violations: [] });
  await copier.copy();
});

/** Some row of the archive, as its condition. */
const ENTRY = "account_id = 'acme-3' AND reference = 'order'";
const REFUND = "account_id = 'acme-3' AND reason = 'refund'";

/** Mistakes, by what undoes them. */
const MISTAKES: [what: string, mistake: string, found: RegExp][] = [
  [
    "a row is missing",
    `DELETE FROM tollgate.ledger_rows WHERE ${ENTRY}`,
    /is in Redis, and not in the archive/,
  ],
  [
    "an amount was changed",
    `UPDATE tollgate.ledger_rows SET amount = 6 WHERE ${ENTRY}`,
    /amount 6 in the archive, 5 in Redis/,
  ],
  [
    "an account was changed",
    `UPDATE tollgate.ledger_rows SET account_id = 'acme-4' WHERE ${ENTRY}`,
    /accountId acme-4/,
  ],
  [
    "a reference was changed",
    `UPDATE tollgate.ledger_rows SET reference = 'x' WHERE ${ENTRY}`,
    /reference x/,
  ],
  ["a time was changed", `UPDATE tollgate.ledger_rows SET at = at + interval '1 day' WHERE ${ENTRY}`, /atMs/],
  [
    "a row is there twice",
    `INSERT INTO tollgate.ledger_rows (partition, id, account_id, type, amount, balance_after, reason, request_id, previous, at)
     SELECT partition, id_ms || '-' || id_number + 100000, account_id, type, amount, balance_after, reason, request_id || 'x', previous, at
     FROM tollgate.ledger_rows WHERE ${REFUND}`,
    /is in the archive, and not in Redis/,
  ],
  [
    "a key is missing",
    `DELETE FROM tollgate.api_key_versions WHERE account_id = 'acme-3'`,
    /is not in the archive/,
  ],
  [
    "a key has another tier",
    `UPDATE tollgate.api_key_versions SET tier = 'x' WHERE account_id = 'acme-3'`,
    /tier x/,
  ],
  ...(
    [
      ["is revoked", "revoked_at = now()", /revoked_at \d+ in the archive, undefined in Redis/],
      ["was replaced", "rotated_to = 'key_x'", /rotated_to key_x in the archive/],
      ["has a limit", `limits = '{"rate_limit": "7"}'`, /rate_limit 7 in the archive/],
      ["has a name", `settings = settings || '{"label": "x"}'`, /label x in the archive/],
      ["may do less", `settings = settings || '{"restrictions": "x"}'`, /restrictions x in the archive/],
    ] as const
  ).map(([what, change, found]): [string, string, RegExp] => [
    `only in the archive a key ${what}`,
    `UPDATE tollgate.api_key_versions SET ${change} WHERE account_id = 'acme-3'`,
    found,
  ]),
  ...(
    [
      ["is suspended", '"status": "suspended"', /account acme-3: status suspended in the archive/],
      ["pays less", '"price_multiplier": "0.5"', /account acme-3: price_multiplier 0.5 in the archive/],
      ["has a limit", '"daily_limit": "7"', /account acme-3: daily_limit 7 in the archive/],
      ["has a name", '"label": "x"', /account acme-3: label x in the archive/],
    ] as const
  ).map(([what, setting, found]): [string, string, RegExp] => [
    `only in the archive an account ${what}`,
    `UPDATE tollgate.account_versions SET settings = settings || '{${setting}}' WHERE account_id = 'acme-3'`,
    found,
  ]),
  [
    "an account is missing",
    "DELETE FROM tollgate.account_versions WHERE account_id = 'acme-3'",
    /account acme-3: is not in the archive/,
  ],
  [
    "a fork hides what is there",
    `INSERT INTO tollgate.ledger_forks (partition, fork, after, until)
     SELECT partition, 9, previous, id FROM tollgate.ledger_rows WHERE ${ENTRY}`,
    /is in Redis, and not in the archive/,
  ],
];

test.each(MISTAKES)("it is found that %s", async (what, mistake, found) => {
  // A later entry, so that the mistake is not the newest row, up to which is compared.
  for (const key of keys) await stage.grant(key, `after ${what}`);
  await copier.copy();
  const tables = ["ledger_rows", "account_versions", "api_key_versions", "ledger_forks"];
  for (const table of tables)
    await stage.database.query(`CREATE TABLE kept_${table} AS SELECT * FROM tollgate.${table}`);
  await stage.database.query(mistake);
  const { ok, violations } = await verify();
  expect(ok).toBe(false);
  expect(violations.map(({ message }) => message).join("\n")).toMatch(found);
  for (const table of tables) {
    const columns = await stage.database.query<{ name: string }>(
      "SELECT attname AS name FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND attgenerated = ''",
      [`tollgate.${table}`],
    );
    const names = columns.map(({ name }) => name).join(", ");
    await stage.database.query(`DELETE FROM tollgate.${table}`);
    await stage.database.query(`INSERT INTO tollgate.${table} (${names}) SELECT ${names} FROM kept_${table}`);
    await stage.database.query(`DROP TABLE kept_${table}`);
  }
  expect(await verify()).toMatchObject({ ok: true });
});

test("entries and balances that were changed in Redis are found", async () => {
  const partition = partitionOf("acme-2", PARTITIONS);
  const { account } = accountNames(partition, "acme-2");
  await addMoney(stage.redis, account, "balance", 1);
  expect((await verify()).violations).toMatchObject([
    { account_id: "acme-2", message: expect.stringContaining("credits in Redis") },
  ]);
  await addMoney(stage.redis, account, "balance", -1);
  const name = keyNames(partition, keys[2]!.keyId).key;
  const sha256 = (await stage.redis.hget(name, "sha256"))!;
  await stage.redis.hset(name, "sha256", "0");
  expect((await verify()).violations).toMatchObject([
    { account_id: "acme-2", message: expect.stringContaining("sha256") },
  ]);
  await stage.redis.hset(name, "sha256", sha256);
  expect(await verify()).toMatchObject({ ok: true });
});

test("of what has left Redis the chain is proven, also refunds of charges that have left", async () => {
  for (const { accountId } of keys) {
    const { ledger } = partitionNames(partitionOf(accountId, PARTITIONS));
    const [middle] = (await stage.redis.xrange(ledger, "-", "+")).slice(20, 21);
    if (middle) await stage.redis.xtrim(ledger, "MINID", middle[0]);
  }
  const { in_redis, entries, ...rest } = await verify();
  expect(rest).toMatchObject({ ok: true, violations: [] });
  expect(in_redis).toBeLessThan(entries);
  expect(in_redis).toBe((await stage.entries()).length);
  await stage.database.query(`UPDATE tollgate.ledger_rows SET amount = 11 WHERE ${REFUND}`);
  expect((await verify()).violations.map(({ invariant }) => invariant)).toContain("requests");
  await stage.database.query(`UPDATE tollgate.ledger_rows SET amount = 10 WHERE ${REFUND}`);
});

test("a gateway verifies as the command line does", async () => {
  const redisUrl = `redis://127.0.0.1:${stage.redis.options.port}`;
  const result = await verifyArchiveBeside({ redisUrl }, stage.url, AbortSignal.timeout(60_000));
  expect(result).toEqual(await verify());
});

test("the command line says so, with its exit code", async () => {
  const env = { ARCHIVE_URL: stage.url, REDIS_URL: `redis://127.0.0.1:${stage.redis.options.port}` };
  const right = await runHere(["archive", "verify", "--json"], env);
  expect(right.code).toBe(0);
  expect(JSON.parse(right.stdout)).toMatchObject({ ok: true, violations: [] });
  await stage.database.query(`DELETE FROM tollgate.ledger_rows WHERE ${ENTRY}`);
  const wrong = await runHere(["archive", "verify"], env);
  expect(wrong.code).toBe(1);
  expect(wrong.stdout).toContain("acme-3");
  expect((await runHere(["archive", "verify"], { ...env, ARCHIVE_URL: "" })).stderr).toContain(
    "set ARCHIVE_URL",
  );
});
