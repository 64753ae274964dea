import { afterEach, beforeEach, expect, test } from "vitest";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { cliActor } from "../../src/records/actor.ts";
import { compareIds } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// Trimming: entries leave Redis only if the archive has them at that moment, whichever process copied them.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

const metricValue = async (metric: { get(): Promise<{ values: { value: number }[] }> }): Promise<number> =>
  (await metric.get()).values[0]?.value ?? 0;

/** An account with some entries in the ledger, all its tasks ended. */
async function givenTraffic(accountId: string) {
  const key = await stage.givenKey(accountId);
  for (const at of times(6, (at) => at)) await stage.ended(key, at % 2 === 0 ? "failed" : "completed");
  await stage.grant(key, "order-1", 70);
  return key;
}

test("what is archived and old enough leaves", async () => {
  const copier = await stage.copier({ keepMs: 0 });
  await givenTraffic("acme");
  const before = await stage.entries();
  const { recent, balance } = await readAccount(stage.nodes, "acme");
  await copier.copy();
  expect(await stage.entries()).toEqual(before.slice(-1));
  expect(await stage.archived()).toEqual(before);
  expect(await metricValue(copier.metrics.archiveTrimmed)).toBe(before.length - 1);
  expect(await readAccount(stage.nodes, "acme")).toMatchObject({ recent, balance });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, entries: before.length });
  // Entries that come after it are copied and leave as well: ten of them, since `order-1` is known.
  await givenTraffic("acme");
  await copier.copy();
  expect(await stage.entries()).toHaveLength(1);
  expect(await stage.archived()).toHaveLength(before.length + 10);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, entries: before.length + 10 });
});

test("what is younger than archive.keep stays, and so does everything while PostgreSQL is away", async () => {
  await givenTraffic("acme");
  const before = await stage.entries();
  const young = await stage.copier({ keepMs: 60_000 });
  await young.copy();
  await stage.endLeases();
  const away = await stage.copier({ keepMs: 0, url: "postgres://nobody:x@127.0.0.1:1/none" });
  await away.round();
  expect(away.fault()).toBeDefined();
  expect(await stage.entries()).toEqual(before);
});

// Guarantee: no entry is ever in neither of them; the archive may lose rows at any moment, as when a standby takes over.
test("what the archive has lost since it was committed does not leave", async () => {
  await givenTraffic("acme");
  const before = await stage.entries();
  const [fourth] = before.slice(3);
  const partition = partitionOf("acme", PARTITIONS);
  let hasLost = false;
  const copier = await stage.copier({
    keepMs: 0,
    async step(name) {
      if (name !== "note" || hasLost) return;
      hasLost = true;
      const [ms] = fourth!.streamId.split("-");
      await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE id_ms > $1", [ms]);
    },
  });
  await copier.round();
  expect(hasLost).toBe(true);
  const archived = (await stage.archived()).map(({ streamId }) => streamId);
  const stored = (await stage.entries()).map(({ streamId }) => streamId);
  const nowhere = before.filter(({ streamId }) => ![...archived, ...stored].includes(streamId));
  expect(nowhere).toEqual([]);
  expect(stored.length).toBeLessThan(before.length);
  await copier.round();
  await copier.copy();
  expect(await stage.archived()).toEqual(before);
  expect(await stage.redis.xlen(partitionNames(partition).ledger)).toBe(1);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true });
});

test("an archive that lacks what has left is said so, and loses nothing of what it has", async () => {
  await givenTraffic("acme");
  const first = await stage.copier({ keepMs: 0 });
  const before = await stage.entries();
  await first.copy();
  await first.stop();
  // A backup of it is restored.
  const [ms] = before[3]!.streamId.split("-");
  await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE id_ms > $1", [ms]);
  const has = await stage.archived();
  const second = await stage.copier({ keepMs: 0 });
  await second.copy();
  expect(await stage.archived()).toEqual([...has, before.at(-1)]);
  expect(second.lines.join("")).toContain("the archive lacks ledger entries that have left Redis");
  expect(await metricValue(second.metrics.archiveForks)).toBe(0);
});

test("a reference that Redis has forgotten is found in the archive", async () => {
  await givenTraffic("acme");
  const copier = await stage.copier();
  await copier.copy();
  const partition = partitionOf("acme", PARTITIONS);
  const archivedTo = (await stage.entries()).findLast((entry) => entry.partition === partition)!;
  const { run } = scriptsOf(stage.redis);
  const options = { partition, archivedTo, keepMs: 0, keepReferencesMs: 0 };
  await stage.grant({ accountId: "acme", keyId: "", key: "" }, "order-2");
  await copier.copy();
  const newest = (await stage.entries()).findLast((entry) => entry.partition === partition)!;
  for (const _ of times(2, (at) => at)) await trimLedger(run, { ...options, archivedTo: newest });
  // The grant that came with the key, and order-1.
  expect(await stage.redis.hlen(accountNames(partition, "acme").references)).toBe(1);
  const { readArchived: read } = archiveLookUps(stage.url);
  const { balance } = await readAccount(stage.nodes, "acme");
  expect(await grantCredits(stage.nodes, "acme", 70, "order-1", cliActor(), read)).toMatchObject({
    outcome: "duplicate",
    balance,
  });
  await expect(grantCredits(stage.nodes, "acme", 71, "order-1", cliActor(), read)).rejects.toThrow(
    "another grant",
  );
  expect(await grantCredits(stage.nodes, "acme", 5, "order-3", cliActor(), read)).toMatchObject({
    outcome: "recharged",
  });
  const { readArchived: away } = archiveLookUps("postgres://nobody:x@127.0.0.1:1/none");
  await expect(grantCredits(stage.nodes, "acme", 5, "order-4", cliActor(), away)).rejects.toThrow(
    /^nothing is changed: only the archive knows .*, which cannot be used \(nobody listens there/,
  );
  expect(archiveLookUps(undefined)).toEqual({});
});

/** Traffic of which all but the newest entry has left. */
async function givenTrimmed() {
  const copier = await stage.copier({ keepMs: 0 });
  await givenTraffic("acme");
  const all = await stage.entries();
  await copier.copy();
  const partition = partitionOf("acme", PARTITIONS);
  expect(await stage.redis.xlen(partitionNames(partition).ledger)).toBe(1);
  return { copier, all, partition, verify: () => verifyArchive(stage.nodes, copier.archive.query) };
}

// Guarantee: what has left Redis is proven by the checkpoints, to the credit and to the entry.
test("archive verify proves what has left by its checkpoint", async () => {
  const { all, partition, verify } = await givenTrimmed();
  expect(await verify()).toMatchObject({ ok: true, entries: all.length, in_redis: 1 });
  const { checkpoint } = accountNames(partition, "acme");
  const text = (await stage.redis.get(checkpoint))!;
  for (const [what, wrong] of [
    ["entries", text.replace(/ entries (\d+)/, (_, count) => ` entries ${Number(count) - 1}`)],
    ["consumed", text.replace(/ consumed (\d+)/, (_, credits) => ` consumed ${Number(credits) + 1}`)],
    ["is not in the archive", text.replace(/^entry \d+/, "entry 1")],
  ] as const) {
    expect(wrong).not.toBe(text);
    await stage.redis.set(checkpoint, wrong);
    const { violations } = await verify();
    expect(violations.map(({ message }) => message).join(), what).toContain(what);
  }
  await stage.redis.set(checkpoint, text);
  expect(await verify()).toMatchObject({ ok: true });
});

// Guarantee: a fork never hides what has left Redis, which nobody else has.
test("a ledger that has lost everything behind the cut hides nothing before it", async () => {
  const { copier, all, partition } = await givenTrimmed();
  const key = { accountId: "acme", keyId: "", key: "" };
  await stage.grant(key, "order-2");
  await copier.copy();
  const { ledger, trimmed } = partitionNames(partition);
  const cut = (await stage.redis.hget(trimmed, "last_entry"))!;
  const left = all.filter(({ streamId }) => compareIds(streamId, cut) <= 0);
  // All that Redis still had is another entry now.
  const [[id]] = (await stage.redis.xrevrange(ledger, "+", "-", "COUNT", 1)) as [[string, string[]]];
  await stage.redis.xtrim(ledger, "MAXLEN", 0);
  const account = {
    account_id: "acme",
    type: "recharge",
    amount: "1",
    balance_after: "1",
    at: "1",
    previous: cut,
  };
  await stage.redis.xadd(ledger, "*", ...Object.entries(account).flat());
  await copier.round();
  expect((await stage.archived()).map(({ streamId }) => streamId)).toEqual(
    expect.arrayContaining(left.map(({ streamId }) => streamId)),
  );
  expect((await stage.archived()).map(({ streamId }) => streamId)).not.toContain(id);
  const [fork] = await stage.database.query<{ after: string }>("SELECT after FROM tollgate.ledger_forks");
  expect(fork?.after).toBe(cut);
});

test("verified again and again while entries are made, copied and leave, nothing is wrong", async () => {
  const { copier, verify } = await givenTrimmed();
  const keys = await Promise.all(times(6, (at) => stage.givenKey(`busy-${at}`)));
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
    for (let at = 0; at < 12; at++) expect(await verify()).toMatchObject({ ok: true, violations: [] });
  } finally {
    goesOn = false;
    await Promise.all([traffic, copying]);
  }
  await copier.copy();
  expect(await verify()).toMatchObject({ ok: true });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true });
});

test("what is copied and leaves while a partition is verified is no violation", async () => {
  const { copier, partition } = await givenTrimmed();
  const { query } = copier.archive;
  let hasLeft = false;
  /** The first question about a partition is which entry is its newest. */
  const slowly: typeof query = async (text, values) => {
    const rows = await query<never>(text, values);
    if (hasLeft || values?.[0] !== partition) return rows;
    hasLeft = true;
    for (const reference of ["order-2", "order-3"])
      await stage.grant({ accountId: "acme", keyId: "", key: "" }, reference);
    await copier.copy();
    return rows;
  };
  expect(await verifyArchive(stage.nodes, slowly)).toMatchObject({ ok: true, violations: [] });
  expect(hasLeft).toBe(true);
  expect(await stage.redis.xlen(partitionNames(partition).ledger)).toBe(1);
});

// Guarantee: what passed while Redis was away is a row of 0 credits like any other, wherever the ledger goes.
test("an unmetered task is archived at price 0 with its reason, leaves Redis, and everything verifies", async () => {
  const copier = await stage.copier({ keepMs: 0 });
  const key = await givenTraffic("acme");
  const { stage: own, generation } = await stage.ended(key);
  const requestId = "unmetered_1";
  const passed = { ...generation, requestId, price: 0, admittedAtMs: Date.now() };
  expect(await own.bind(passed, "task_unmetered")).toBe("bound");
  await own.observe(passed, "failed", { taskId: "task_unmetered" });
  await stage.grant(key, "order-2");
  const before = await stage.entries();
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, violations: [] });
  await copier.copy();
  const { query } = stage.database;
  const rows = await query("SELECT amount, reason, kind FROM tollgate.ledger_entries WHERE request_id = $1", [
    requestId,
  ]);
  expect(rows).toEqual([{ amount: "0", reason: "unmetered", kind: "charge" }]);
  const requests = await query(
    "SELECT price, status, is_uncollected FROM tollgate.requests WHERE request_id = $1",
    [requestId],
  );
  expect(requests).toEqual([{ price: "0", status: "failed", is_uncollected: false }]);
  expect(await stage.entries()).toHaveLength(1);
  expect(await stage.archived()).toEqual(before);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, entries: before.length, violations: [] });
  expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({ ok: true, violations: [] });
});
