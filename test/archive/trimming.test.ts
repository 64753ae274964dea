import { afterEach, beforeEach, expect, test } from "vitest";
import { archivedGrants } from "../../src/ledger/archived-grants.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { grantCredits, readAccount } from "../../src/store/accounts.ts";
import { accountNames, META, partitionNames, partitionOf } from "../../src/store/names.ts";
import { scriptsOf } from "../../src/store/script-runner.ts";
import { trimLedger } from "../../src/store/trimming.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// What leaves Redis: only what the archive has at that moment, whatever copied it.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

/** As if gateways of earlier releases had had time to stop. */
const allow = () => stage.redis.hset(META, { layout: "3", trimmable_since: 1 });

const metricValue = async (metric: { get(): Promise<{ values: { value: number }[] }> }): Promise<number> =>
  (await metric.get()).values[0]?.value ?? 0;

/** An account with some entries in the ledger, all its tasks ended. */
async function givenTraffic(accountId: string) {
  const key = await stage.givenKey(accountId);
  for (const at of times(6, (at) => at)) await stage.ended(key, at % 2 === 0 ? "failed" : "completed");
  await stage.grant(key, "order-1", 70);
  return key;
}

test("what is archived and old enough leaves, once gateways of earlier releases had time to stop", async () => {
  const copier = await stage.copier({ keepMs: 0 });
  await givenTraffic("acme");
  const before = await stage.entries();
  await copier.copy();
  expect(await stage.entries()).toEqual(before);
  expect(await stage.redis.hget(META, "layout")).toBe("3");
  await allow();
  const { recent, balance } = await readAccount(stage.nodes, "acme");
  await copier.copy();
  expect(await stage.entries()).toEqual(before.slice(-1));
  expect(await stage.archived()).toEqual(before);
  expect(await metricValue(copier.metrics.archiveTrimmed)).toBe(before.length - 1);
  expect(await readAccount(stage.nodes, "acme")).toMatchObject({ recent, balance });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, entries: before.length });
  // What comes after it is copied and leaves as well: ten entries, since `order-1` is known.
  await givenTraffic("acme");
  await copier.copy();
  expect(await stage.entries()).toHaveLength(1);
  expect(await stage.archived()).toHaveLength(before.length + 10);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, entries: before.length + 10 });
});

test("what is younger than archive.keep stays, and so does everything while PostgreSQL is away", async () => {
  await givenTraffic("acme");
  const before = await stage.entries();
  await allow();
  const young = await stage.copier({ keepMs: 60_000 });
  await young.copy();
  await stage.endTurns();
  const away = await stage.copier({ keepMs: 0, url: "postgres://nobody:x@127.0.0.1:1/none" });
  await away.round();
  expect(away.fault()).toBeDefined();
  expect(await stage.entries()).toEqual(before);
});

// Guarantee: no entry is ever in neither of them; the archive may lose rows at any moment, as when a standby takes over.
test("what the archive has lost since it was committed does not leave", async () => {
  await givenTraffic("acme");
  await allow();
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
  await allow();
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
  await allow();
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
  const read = archivedGrants(stage.url);
  const { balance } = await readAccount(stage.nodes, "acme");
  expect(await grantCredits(stage.nodes, "acme", 70, "order-1", read)).toEqual({
    outcome: "duplicate",
    balance,
  });
  await expect(grantCredits(stage.nodes, "acme", 71, "order-1", read)).rejects.toThrow("another amount");
  expect(await grantCredits(stage.nodes, "acme", 5, "order-3", read)).toMatchObject({ outcome: "recharged" });
  const away = archivedGrants("postgres://nobody:x@127.0.0.1:1/none");
  await expect(grantCredits(stage.nodes, "acme", 5, "order-4", away)).rejects.toThrow(
    /^nothing is granted: only the archive knows .*, which does not answer \(nobody listens there/,
  );
  expect(archivedGrants(undefined)).toBeUndefined();
});
