import { afterEach, beforeEach, expect, test } from "vitest";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { changeKey, revokeKey } from "../../src/operations/keys/change-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import {
  accountNames,
  archiveNames,
  keyNames,
  partitionNames,
  partitionOf,
  requestName,
} from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { collect } from "../../src/scripts/tasks.ts";
import { addMoney } from "../support/account-money.ts";
import { times } from "../support/store.ts";
import { changeRequest, readRequest } from "../support/stored-requests.ts";
import { until } from "../support/until.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// Copying: everything of the store is in the archive exactly once, whatever fails and whenever.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

type Ended = Awaited<ReturnType<ArchiveStage["ended"]>>;

/** Entries of the store are those of the archive, each once and in order. */
async function expectSame(): Promise<number> {
  const entries = await stage.entries();
  expect(await stage.archived()).toEqual(entries);
  return entries.length;
}

test("entries, ended requests, accounts and keys are copied once, as they are", async () => {
  const copier = await stage.copier();
  const key = await stage.givenKey("acme");
  const [completed, failed, refused] = [
    await stage.ended(key),
    await stage.ended(key, "failed"),
    await stage.ended(key, "refused"),
  ];
  await stage.ended(key, "bound");
  await stage.grant(key, "order-1", 70);
  await copier.copy();
  // A grant, three charges, a refund, another grant.
  expect(await expectSame()).toBe(6);
  expect(
    await stage.database.query(
      "SELECT request_id, account_id, key_id, price::int, status, ended_by, endpoint FROM tollgate.requests ORDER BY request_id",
    ),
  ).toEqual(
    [
      [completed, "completed", "upstream"],
      [failed, "failed", "upstream"],
      [refused, "void", "refused"],
    ]
      .sort(([one], [other]) => ((one as Ended).requestId < (other as Ended).requestId ? -1 : 1))
      .map(([request, status, endedBy]) => ({
        request_id: (request as Ended).requestId,
        account_id: "acme",
        key_id: key.keyId,
        price: 10,
        status,
        ended_by: endedBy,
        endpoint: completed.generation.endpoint,
      })),
  );
  expect(await stage.database.query("SELECT account_id, partition FROM tollgate.accounts")).toEqual([
    { account_id: "acme", partition: partitionOf("acme", PARTITIONS) },
  ]);
  const stored = await stage.redis.hgetall(keyNames(partitionOf("acme", PARTITIONS), key.keyId).key);
  expect(
    await stage.database.query("SELECT key_id, account_id, sha256, tier, limits FROM tollgate.api_keys"),
  ).toEqual([
    {
      key_id: key.keyId,
      account_id: "acme",
      sha256: stored.sha256,
      tier: "standard",
      limits: { rate_limit: "1000", max_concurrent: "1000" },
    },
  ]);
  expect(await stage.database.query("SELECT balance::int FROM tollgate.balances")).toEqual([
    { balance: 1050 },
  ]);
  // Nothing has changed, and nothing more is written.
  const [before] = await stage.database.query<{ rows: string }>(ROWS);
  await copier.copy();
  expect(await stage.database.query(ROWS)).toEqual([before]);
});

// Guarantee: however many end at once, no page is read again and again, and none of them is left out.
test("requests that ended in the same millisecond, more than several pages of them, are copied once each", async () => {
  const { redis } = stage;
  const { requestId, partition } = await stage.ended(await stage.givenKey("acme"));
  const { done } = partitionNames(partition);
  const [score, text] = [
    (await redis.zscore(done, requestId))!,
    (await redis.get(requestName(partition, requestId)))!,
  ];
  const others = times(1500, (at) => `req_same_${at}`);
  const pipe = redis.pipeline();
  for (const id of others) pipe.set(requestName(partition, id), text).zadd(done, score, id);
  await pipe.exec();
  const copier = await stage.copier();
  await copier.copy();
  const rows = await stage.database.query<{ request_id: string }>(
    "SELECT request_id FROM tollgate.request_rows ORDER BY request_id",
  );
  expect(rows.map(({ request_id }) => request_id)).toEqual([...others, requestId].sort());
});

const ROWS = `SELECT (SELECT count(*) FROM tollgate.ledger_rows) + (SELECT count(*) FROM tollgate.request_rows)
  + (SELECT count(*) FROM tollgate.account_versions) + (SELECT count(*) FROM tollgate.api_key_versions) AS rows`;

test("of batches, only the latest row of each partition stays", async () => {
  const copier = await stage.copier();
  const key = await stage.givenKey("acme");
  const { archive } = archiveNames(partitionOf("acme", PARTITIONS));
  const numbers = new Set<string>();
  for (const tier of ["enterprise", "standard", "enterprise"]) {
    await changeKey(stage.nodes, await findKey(stage.nodes, key.keyId), { tier }, cliActor());
    await copier.copy();
    await copier.copy();
    const number = await stage.redis.hget(archive, "batch");
    expect(await stage.database.query("SELECT number::text FROM tollgate.batches")).toEqual([{ number }]);
    numbers.add(number ?? "");
  }
  expect(numbers.size).toBe(3);
});

test("no text of a key is in the archive", async () => {
  const copier = await stage.copier();
  const { key } = await stage.givenKey();
  await copier.copy();
  for (const table of ["ledger_rows", "request_rows", "account_versions", "api_key_versions", "archive"]) {
    const rows = await stage.database.query<{ row: string }>(
      `SELECT t::text AS row FROM tollgate.${table} t`,
    );
    expect(rows.map(({ row }) => row).join(), table).not.toContain(key);
  }
});

test("a change of a key is a new version, and the views show the latest", async () => {
  const copier = await stage.copier();
  const { keyId } = await stage.givenKey();
  await copier.copy();
  await changeKey(
    stage.nodes,
    await findKey(stage.nodes, keyId),
    { tier: "enterprise", limits: { daily_limit: 7 } },
    cliActor(),
  );
  await copier.copy();
  await revokeKey(stage.nodes, await findKey(stage.nodes, keyId), cliActor());
  await copier.copy();
  const keys = await stage.database.query(
    "SELECT tier, (limits->>'daily_limit')::int AS daily_limit, revoked_at IS NOT NULL AS revoked FROM tollgate.api_keys",
  );
  expect(keys).toEqual([{ tier: "enterprise", daily_limit: 7, revoked: true }]);
  expect(await stage.database.query("SELECT FROM tollgate.api_key_versions")).toHaveLength(3);
});

// Guarantee: a key that was revoked stays so in the archive, whatever server's clock said when.
test("a change counts though the clock of Redis has gone back since the one before", async () => {
  const copier = await stage.copier();
  const { keyId } = await stage.givenKey("acme");
  const actor = cliActor("ann");
  await patchAccount(stage.nodes, "acme", { label: "before" }, actor);
  await copier.copy();
  // The clock of the former primary was ahead.
  for (const table of ["account_versions", "api_key_versions"])
    await stage.database.query(`UPDATE tollgate.${table} SET version = version + 3600000`);
  await revokeKey(stage.nodes, await findKey(stage.nodes, keyId), cliActor());
  await patchAccount(stage.nodes, "acme", { label: "after" }, actor);
  await copier.copy();
  expect(
    await stage.database.query("SELECT revoked_at IS NOT NULL AS revoked FROM tollgate.api_keys"),
  ).toEqual([{ revoked: true }]);
  expect(await stage.database.query("SELECT settings->>'label' AS label FROM tollgate.accounts")).toEqual([
    { label: "after" },
  ]);
});

test("a store that has been used for long is copied as a whole, in batches", async () => {
  const keys = await Promise.all(times(30, () => stage.givenKey()));
  await Promise.all(times(1500, (at) => stage.grant(keys[at % keys.length]!, `order-${at}`)));
  for (const key of keys.slice(0, 10)) await stage.ended(key);
  const copier = await stage.copier();
  await copier.copy();
  expect(await expectSame()).toBe(30 + 1500 + 10);
  expect(await stage.database.query("SELECT FROM tollgate.api_keys")).toHaveLength(30);
  expect(await stage.database.query("SELECT FROM tollgate.requests")).toHaveLength(10);
  expect(await copier.metrics.registry.getSingleMetricAsString("tollgate_archive_lag_seconds")).toMatch(
    / 0$/m,
  );
});

class Killed extends Error {}

// Guarantee: a copier that ends at any step leaves nothing missing and nothing twice.
test.each(["read", "confirm", "write", "note"] as const)(
  "a copier that is killed before it can %s leaves all to the next one, exactly once",
  async (at) => {
    const key = await stage.givenKey();
    for (let times = 0; times < 3; times++) {
      const { requestId, partition } = await stage.ended(key, "failed");
      const dying = await stage.copier({
        step: (name) => {
          if (name === at) throw new Killed();
        },
      });
      await dying.round();
      expect(dying.fault()).toBeInstanceOf(Killed);
      await stage.grant(key, `after-${times}`);
      expect((await readRequest(stage.redis, requestName(partition, requestId))).archived).toBeUndefined();
      await stage.endLeases();
      const next = await stage.copier();
      await next.copy();
      await next.stop();
    }
    expect(await expectSame()).toBe(1 + 3 * 3);
    expect(await stage.database.query("SELECT FROM tollgate.request_rows")).toHaveLength(3);
  },
);

test("two copiers at the same time write each row once", async () => {
  const keys = await Promise.all(times(8, () => stage.givenKey()));
  const [one, other] = [await stage.copier(), await stage.copier()];
  for (let round = 0; round < 5; round++) {
    await Promise.all(times(80, (at) => stage.grant(keys[at % 8]!, `order-${round}-${at}`)));
    await stage.endLeases();
    // Both have all partitions: the second takes them while the first still believes that it has them.
    await one.round();
    await Promise.all(times(40, (at) => stage.grant(keys[at % 8]!, `more-${round}-${at}`)));
    await stage.endLeases();
    await Promise.all([one.copy(), other.copy()]);
  }
  expect(await expectSame()).toBe(8 + 5 * 120);
  expect(await stage.database.query("SELECT FROM tollgate.ledger_rows")).toHaveLength(8 + 5 * 120);
});

test("a partition is copied by one process, until that stops or its lease ends", async () => {
  await stage.givenKey();
  const [one, other] = [await stage.copier(), await stage.copier()];
  await one.copy();
  await stage.givenKey();
  await other.round();
  expect(await stage.archived()).toHaveLength(1);
  await one.stop();
  await (await stage.copier()).copy();
  expect(await expectSame()).toBe(2);
});

// Guarantee: the archive says what the store says, also after a failover that lost what had been copied.
test("entries that the store has lost are hidden, and what is settled again counts once", async () => {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  for (let at = 0; at < 5; at++) await stage.grant(key, `order-${at}`);
  await copier.copy();
  const lost = await stage.loseLast("acme", 2);
  const partition = partitionOf("acme", PARTITIONS);
  for (const reference of ["order-3", "order-4"])
    await stage.redis.hdel(accountNames(partition, "acme").references, reference);
  await stage.grant(key, "order-4");
  await copier.copy();
  expect(await expectSame()).toBe(5);
  expect(await stage.database.query("SELECT fork, until FROM tollgate.ledger_forks")).toEqual([
    { fork: 1, until: lost[0] },
  ]);
  expect(await stage.database.query("SELECT FROM tollgate.ledger_rows")).toHaveLength(7);
  expect(copier.lines.join()).toContain("the store has lost ledger entries");
  // And once more, over the first fork, down to nothing.
  await stage.loseLast("acme", 5);
  await stage.grant(key, "order-9");
  const next = await stage.copier();
  await stage.endLeases();
  await next.copy();
  expect(await expectSame()).toBe(1);
  expect(await stage.database.query("SELECT balance::int FROM tollgate.balances")).toEqual([{ balance: 5 }]);
});

test("a charge that a failover lost and that is sent again is one charge in the archive", async () => {
  const key = await stage.givenKey("acme");
  const { requestId, partition, generation, stage: requests } = await stage.ended(key, "bound");
  const copier = await stage.copier();
  await copier.copy();
  await stage.loseLast("acme", 1);
  await changeRequest(stage.redis, requestName(partition, requestId), { state: "held" });
  await addMoney(stage.redis, accountNames(partition, "acme").account, "held", 10);
  await requests.bind(generation);
  await copier.copy();
  await expectSame();
  const charges = "SELECT amount::int FROM tollgate.ledger_entries WHERE request_id = $1";
  expect(await stage.database.query(charges, [requestId])).toEqual([{ amount: -10 }]);
});

test("rows that the archive has lost are copied again", async () => {
  const key = await stage.givenKey();
  const copier = await stage.copier();
  const { requestId } = await stage.ended(key);
  await copier.copy();
  // As a restore from an older backup leaves it, beneath a running copier.
  await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE type = 'consume'");
  await stage.database.query("DELETE FROM tollgate.request_rows");
  await stage.database.query("DELETE FROM tollgate.api_key_versions");
  await stage.grant(key, "later");
  await copier.copy();
  expect(await expectSame()).toBe(3);
  expect(await stage.database.query("SELECT request_id FROM tollgate.requests")).toEqual([
    { request_id: requestId },
  ]);
  expect(await stage.database.query("SELECT FROM tollgate.api_keys")).toHaveLength(1);
});

test("a request that ends in the millisecond that was looked at last is copied soon, too", async () => {
  const key = await stage.givenKey();
  const copier = await stage.copier();
  const bound = [await stage.ended(key, "bound"), await stage.ended(key, "bound")];
  // Redis lists requests of the same score by their ids.
  const [late, early] = bound.sort((one, other) => (one.requestId < other.requestId ? -1 : 1));
  await early!.stage.observe(early!.generation, "completed");
  await copier.copy();
  await late!.stage.observe(late!.generation, "completed");
  const { done } = partitionNames(late!.partition);
  await stage.redis.zadd(done, (await stage.redis.zscore(done, early!.requestId))!, late!.requestId);
  await copier.copy();
  expect(await stage.database.query("SELECT request_id FROM tollgate.requests")).toHaveLength(2);
});

// Guarantee: usage in SQL and a restore know a task's end seconds after it, also behind one whose record is kept longer.
test("a task that ends after one that was too old is copied soon, and so is one that completed late", async () => {
  const copier = await stage.copier();
  const key = await stage.givenKey("acme");
  const late = await stage.expired(key);
  await copier.copy();
  const ended = await stage.ended(key);
  await copier.copy();
  const statuses = "SELECT request_id, status FROM tollgate.requests";
  const row = ({ requestId }: { requestId: string }, status: string) => ({ request_id: requestId, status });
  const byId = (one: { request_id: string }, other: { request_id: string }): number =>
    one.request_id < other.request_id ? -1 : 1;
  expect((await stage.database.query<{ request_id: string }>(statuses)).sort(byId)).toEqual(
    [row(late, "failed"), row(ended, "completed")].sort(byId),
  );
  await late.reclaim();
  await copier.copy();
  const after = await stage.ended(key, "failed");
  await copier.copy();
  expect((await stage.database.query<{ request_id: string }>(statuses)).sort(byId)).toEqual(
    [row(late, "completed"), row(ended, "completed"), row(after, "failed")].sort(byId),
  );
});

// Guarantee: the collector takes no end out of the copier's sight.
test("a restored task that ends is copied soon, though the collector comes to it before the copier", async () => {
  const key = await stage.givenKey("acme");
  const restored = await stage.ended(key, "bound");
  const { requestId, partition, generation } = restored;
  // As a restore leaves it.
  const name = requestName(partition, requestId);
  await changeRequest(stage.redis, name, { retention_ms: undefined, admitted_at: undefined });
  await stage.ended(key);
  const copier = await stage.copier();
  await copier.copy();
  await restored.stage.observe(generation, "completed");
  await stage.ended(key);
  await copier.copy();
  const { run } = scriptsOf(stage.redis);
  const { retentionMs } = generation;
  const collected = async () =>
    (await run(collect, { requestId, partition, retentionMs, taskId: undefined })).outcome;
  await collected();
  await stage.endLeases();
  await (await stage.copier()).copy();
  const row = "SELECT status FROM tollgate.requests WHERE request_id = $1";
  expect(await stage.database.query(row, [requestId])).toEqual([{ status: "completed" }]);
  expect(await collected()).toBe("kept");
});

// Guarantee: COLLECT forgets no request that the archive has not got, also one whose outcome stayed unknown.
test("requests are kept until they are copied, those of unknown outcome until they may be forgotten", async () => {
  const key = await stage.givenKey();
  const copier = await stage.copier();
  await copier.copy();
  const [completed, due] = [await stage.ended(key), await stage.ended(key, "due")];
  const { partition } = completed;
  const collected = async ({ requestId }: typeof due) => {
    await changeRequest(stage.redis, requestName(partition, requestId), {
      retention_ms: 0,
      finished_at: 1,
      void_at: 1,
    });
    const { run } = scriptsOf(stage.redis);
    return (await run(collect, { partition, requestId, taskId: undefined, retentionMs: 0 })).outcome;
  };
  expect(await collected(completed)).toBe("unarchived");
  await copier.copy();
  expect(await collected(completed)).toBe("collected");
  expect(await stage.database.query("SELECT status FROM tollgate.requests")).toEqual([
    { status: "completed" },
  ]);
  expect(await collected(due)).toBe("unarchived");
  // Its time has come.
  await stage.redis.zadd(partitionNames(partition).done, 1, due.requestId);
  const next = await stage.copier();
  await stage.endLeases();
  await next.copy();
  expect(await collected(due)).toBe("collected");
  expect(
    await stage.database.query("SELECT status, ended_by FROM tollgate.requests WHERE status = 'void'"),
  ).toEqual([{ status: "void", ended_by: "due" }]);
});

const lagOf = async ({ metrics }: { metrics: ArchiveStage["connection"]["metrics"] }) =>
  (await metrics.archiveLag.get()).values[0]!.value;

// Guarantee: a revocation that the archive does not get is no silence.
test("while copying fails the lag grows, though no entry waits", async () => {
  const { keyId } = await stage.givenKey();
  const copier = await stage.copier();
  await copier.copy();
  await revokeKey(stage.nodes, await findKey(stage.nodes, keyId), cliActor());
  copier.archive.close();
  await copier.round();
  expect(copier.fault()).toBeInstanceOf(Error);
  const first = await lagOf(copier);
  expect(first).toBeGreaterThan(0);
  await until(async () => {
    await copier.round();
    return (await lagOf(copier)) > first;
  }, "the lag to grow");
});

test("the lag is the age of the oldest entry that is not copied", async () => {
  const key = await stage.givenKey();
  const copier = await stage.copier();
  await copier.copy();
  expect(await lagOf(copier)).toBe(0);
  await stage.grant(key, "later");
  copier.archive.close();
  await copier.round();
  expect(copier.fault()).toBeInstanceOf(Error);
  const first = await lagOf(copier);
  await until(async () => {
    await copier.round();
    return (await lagOf(copier)) > first;
  }, "the lag to grow");
  await stage.endLeases();
  const next = await stage.copier();
  await next.copy();
  expect(await lagOf(next)).toBe(0);
  expect(Object.keys(await stage.redis.hgetall(archiveNames(0).archive))).toContain("generation");
});
