import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { partitionOf } from "../../src/records/names.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS, type TestCopier } from "./stage.ts";

// Guarantee: `archive verify` finds what is wrong on any page of entries and keys, not on the first one only.

/** More than a page of the archive (500), and than one of Redis (1000). */
const ENTRIES = 1100;
const KEYS = 600;

let stage: ArchiveStage;
let copier: TestCopier;
let key: IssuedKey;
beforeAll(async () => {
  stage = await givenArchiveStage();
  copier = await stage.copier();
  key = await stage.givenKey("acme");
  await Promise.all(times(ENTRIES - 1, (at) => stage.grant(key, `order-${at}`)));
  await copier.copy();
}, 60_000);
afterAll(() => stage.stop());

const verify = () => verifyArchive(stage.nodes, copier.archive.query);

test("a key that Redis has lost is found behind pages of keys that are known to be gone", async () => {
  const of = `'acme', ${partitionOf("acme", PARTITIONS)}, '', '', '{}', '{}'`;
  const columns = "key_id, account_id, partition, sha256, tier, limits, settings, version, gone";
  await stage.database.query(
    `INSERT INTO tollgate.api_key_versions (${columns})
     SELECT 'key_0' || lpad(n::text, 4, '0'), ${of}, 1, n < ${KEYS} FROM generate_series(1, ${KEYS}) AS n`,
  );
  expect((await verify()).violations).toMatchObject([
    { account_id: "acme", message: `key key_00${KEYS}: is in the archive, and not in Redis` },
  ]);
});

test("all entries are compared, and each that the archive lacks is found", async () => {
  await stage.database.query("DELETE FROM tollgate.api_key_versions WHERE key_id LIKE 'key\\_0%'");
  expect(await verify()).toMatchObject({ ok: true, entries: ENTRIES, in_redis: ENTRIES, violations: [] });
  await stage.database.query(
    `DELETE FROM tollgate.ledger_rows WHERE (id_ms, id_number) <
       (SELECT id_ms, id_number FROM tollgate.ledger_rows ORDER BY id_ms DESC, id_number DESC LIMIT 1)`,
  );
  const { violations, unlisted = 0 } = await verify();
  expect(violations[0]?.message).toMatch(/is in Redis, and not in the archive/);
  expect(violations.length + unlisted).toBeGreaterThanOrEqual(ENTRIES - 1);
});
