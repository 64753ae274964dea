import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { detachArchive } from "../../src/archive/archive-record.ts";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { migrate } from "../../src/archive/migrations.ts";
import { openArchiveReads } from "../../src/archive/reads.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { namedTransactions, pageTransactions } from "../../src/operations/credits/transactions.ts";
import type { Actor } from "../../src/records/actor.ts";
import { transactionId } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  archiveNames,
  claimName,
  partitionNames,
  partitionOf,
  requestName,
  taskName,
} from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { runHere } from "../support/cli.ts";
import { createDatabase, type TestDatabase } from "../support/postgres.ts";
import { taskOf, times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// A look-up trusts no archive: it has to be this store's, with all that has left Redis and nothing that Redis has lost.

let stage: ArchiveStage;
let fresh: TestDatabase;
beforeEach(async () => {
  stage = await givenArchiveStage();
  fresh = await createDatabase();
});
afterEach(async () => {
  await stage.stop();
  await fresh.drop();
});

const ANN: Actor = { by: "tok_1 Ann", requestId: "req_ann" };
const BOB: Actor = { by: "tok_2 Bob", requestId: "req_bob" };
const PARTITION = partitionOf("acme", PARTITIONS);

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "done",
    (error: Error & { code?: string }) => error.code ?? error.message,
  );
const balance = async (): Promise<number> => (await readAccount(stage.nodes, "acme")).balance;
const grant = (reference: string, url = stage.url, amount = 70) =>
  grantCredits(stage.nodes, "acme", amount, reference, ANN, archiveLookUps(url).readArchived);
const refund = (id: string, reference: string, url = stage.url, actor = ANN) =>
  refundTask(stage.nodes, id, { reason: "late", reference }, actor, archiveLookUps(url));

type Ended = Awaited<ReturnType<ArchiveStage["ended"]>>;

/** As after its retention. */
async function forgetRequest({ requestId, generation, partition }: Ended): Promise<void> {
  const taskId = taskOf(generation);
  for (const name of [requestName(partition, requestId), taskName(taskId, partition), claimName(taskId)])
    await stage.redis.del(name);
}

/** Everything but the newest entry leaves Redis, with the references of grants. */
async function trimAll(): Promise<void> {
  const archivedTo = (await stage.entries()).findLast(({ partition }) => partition === PARTITION)!;
  const { run } = scriptsOf(stage.redis);
  for (const _ of times(2, (at) => at))
    await trimLedger(run, { partition: PARTITION, archivedTo, keepMs: 0, keepReferencesMs: 0 });
}

/** An account whose grant `order-1` Redis has forgotten. */
async function givenForgotten() {
  const key = await stage.givenKey("acme");
  await stage.grant(key, "order-1", 70);
  const ended = await stage.ended(key, "failed");
  await stage.grant(key, "order-2");
  const copier = await stage.copier();
  await copier.copy();
  const entries = await stage.entries();
  await trimAll();
  await forgetRequest(ended);
  expect(await stage.redis.hexists(accountNames(PARTITION, "acme").references, "order-1")).toBe(0);
  await stage.endLeases();
  return { key, copier, ended, entries };
}

// Guarantee: what only an archive can know is refused with any archive but this store's own.
describe("an archive that is not the one that this store is copied to", () => {
  const SORTS = {
    "an empty database": () => undefined,
    "one that nobody has used": () =>
      stage.copier({ url: fresh.url }).then(({ archive }) => migrate(archive)),
    "another store's": async () => {
      const other = await givenArchiveStage();
      await other.givenKey("acme");
      await (await other.copier({ url: fresh.url })).copy();
      await other.stop();
    },
    "a new one of this store, after `archive detach`": async () => {
      await detachArchive(stage.nodes);
      await (await stage.copier({ url: fresh.url })).copy();
    },
    "a second one of this store": async () => {
      const records = await stage.redis.hgetall(archiveNames(PARTITION).archive);
      await detachArchive(stage.nodes);
      await (await stage.copier({ url: fresh.url })).copy();
      await stage.redis.del(archiveNames(PARTITION).archive);
      await stage.redis.hset(archiveNames(PARTITION).archive, records);
    },
  };

  test.each(Object.keys(SORTS) as (keyof typeof SORTS)[])("%s decides nothing about money", async (sort) => {
    const { ended } = await givenForgotten();
    const before = await balance();
    await SORTS[sort]();
    for (const reference of ["order-1", "order-9"])
      expect(await codeOf(grant(reference, fresh.url)), reference).toBe("unavailable");
    const { readArchived } = archiveLookUps(fresh.url);
    const wanted = { amount: 70, reason: "r", reference: "order-1" };
    expect(await codeOf(adjustCredits(stage.nodes, "acme", wanted, ANN, readArchived))).toBe("unavailable");
    for (const id of [ended.requestId, taskOf(ended.generation)])
      expect(await codeOf(refund(id, "f-1", fresh.url)), id).toBe("unavailable");
    expect(await balance()).toBe(before);
  });

  const READ_REFUSED = [
    "an empty database",
    "one that nobody has used",
    "another store's",
    "a second one of this store",
  ] as const;
  test.each(READ_REFUSED)("%s shows nothing", async (sort) => {
    const { entries } = await givenForgotten();
    await SORTS[sort]();
    const { of, close } = openArchiveReads(fresh.url);
    const reads = of(stage.nodes);
    const { readArchived, findEntry } = archiveLookUps(fresh.url);
    const all = { limit: 100 };
    const first = await pageTransactions(stage.nodes, "acme", all, reads);
    try {
      for (const shown of [
        () => pageTransactions(stage.nodes, "acme", { ...all, cursor: first.next }, reads),
        () => namedTransactions(stage.nodes, "acme", { ...all, reference: "order-1" }, { readArchived }),
        () =>
          namedTransactions(stage.nodes, "acme", { ...all, id: transactionId(entries[0]!) }, { findEntry }),
        () => reads.requests(["req_x"]),
        () => reads.usage({ accountId: "acme", by: [] }),
        () => reads.copiedUntilMs(PARTITION),
      ])
        expect(await codeOf(shown())).toBe("unavailable");
    } finally {
      close();
    }
    const env = { ARCHIVE_URL: fresh.url, REDIS_URL: `redis://127.0.0.1:${stage.redis.options.port}` };
    for (const words of [["usage"], ["usage", "--account", "acme"], ["statement", "acme", "2025-10"]])
      expect(await runHere([...words, "--json"], env)).toMatchObject({
        ...{ code: 1, stdout: "", stderr: expect.stringContaining("the archive") },
      });
    const words = ["credits", "grant", "acme", "70", "--reference", "order-1"];
    expect(await runHere(words, env)).toMatchObject({
      ...{ code: 1, stdout: "", stderr: expect.stringContaining("nothing is changed") },
    });
  });
});

test("this store's own archive still knows, and grants what it does not", async () => {
  const { ended } = await givenForgotten();
  const before = await balance();
  expect(await grant("order-1")).toMatchObject({ outcome: "duplicate", balance: before });
  expect(await codeOf(refund(ended.requestId, "f-1"))).toBe("conflict");
  expect(await codeOf(refund("task_none", "f-1"))).toBe("not_found");
  expect(await grant("order-9")).toMatchObject({ outcome: "recharged", balance: before + 70 });
});

// Guarantee: where Redis came back older, the archive's charges are not refunded that nobody has paid.
test("a charge that Redis has lost is not refunded, before and after a copier has found that", async () => {
  const key = await stage.givenKey("acme");
  const kept = await stage.ended(key);
  const lost = await stage.ended(key);
  const copier = await stage.copier();
  await copier.copy();
  await stage.loseLast("acme", 1);
  await forgetRequest(lost);
  expect(await balance()).toBe(990);
  for (const id of [lost.requestId, taskOf(lost.generation)])
    expect(await codeOf(refund(id, "f-1"))).toBe("unavailable");
  await copier.copy();
  expect(await codeOf(refund(lost.requestId, "f-1"))).toBe("not_found");
  expect(await balance()).toBe(990);
  // A task that Redis still has is refunded as ever.
  expect(await refund(kept.requestId, "f-2")).toMatchObject({ outcome: "refunded", balance: 1000 });
});

test("a reference of a grant that Redis has lost with an older copy is not taken for used", async () => {
  const { copier } = await givenForgotten();
  await grant("order-3", stage.url, 5);
  await copier.copy();
  await stage.loseLast("acme", 1);
  await stage.redis.hdel(accountNames(PARTITION, "acme").references, "order-3");
  expect(await codeOf(grant("order-3", stage.url, 5))).toBe("unavailable");
  await copier.copy();
  expect(await grant("order-3", stage.url, 5)).toMatchObject({ outcome: "recharged" });
});

describe("a backup of PostgreSQL is restored that lacks what has left Redis", () => {
  /** A failed task whose refund has left Redis, and which a backup of before does not have. */
  async function givenBackup() {
    const key = await stage.givenKey("acme");
    const ended = await stage.ended(key, "bound");
    await (await stage.copier()).copy();
    const has = new Set((await stage.archived()).map(({ streamId }) => streamId));
    await ended.stage.observe(ended.generation, "failed");
    await stage.grant(key, "order-1", 70);
    await stage.grant(key, "order-2");
    await stage.endLeases();
    const copier = await stage.copier();
    await copier.copy();
    await trimAll();
    await forgetRequest(ended);
    expect(await stage.redis.xlen(partitionNames(PARTITION).ledger)).toBe(1);
    await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE NOT id = ANY ($1::text[])", [
      [...has],
    ]);
    return { key, ended };
  }

  test("nothing is decided by it, also once copying goes on behind the gap", async () => {
    const { key, ended } = await givenBackup();
    const before = await balance();
    const check = async (): Promise<void> => {
      for (const id of [ended.requestId, taskOf(ended.generation)])
        expect(await codeOf(refund(id, "f-1"))).toBe("unavailable");
      for (const reference of ["order-1", "order-9"])
        expect(await codeOf(grant(reference))).toBe("unavailable");
      expect(await balance()).toBe(before);
    };
    await check();
    expect(await codeOf(refund("task_none", "f-1"))).toBe("unavailable");
    await stage.endLeases();
    const later = await stage.copier();
    await later.copy();
    expect(later.lines.join("")).toContain("the archive lacks ledger entries that have left Redis");
    expect(await stage.database.query("SELECT partition FROM tollgate.ledger_gaps")).toEqual([
      { partition: PARTITION },
    ]);
    await check();
    await stage.ended(key);
    await later.copy();
    await trimAll();
    const after = await balance();
    expect(await codeOf(refund(ended.requestId, "f-1"))).toBe("unavailable");
    expect(await codeOf(grant("order-1"))).toBe("unavailable");
    expect(await balance()).toBe(after);
  });

  test("accounts of which it lacks nothing are served", async () => {
    await givenBackup();
    await stage.endLeases();
    const copier = await stage.copier();
    await copier.copy();
    const other = times(100, (at) => `other-${at}`).find((id) => partitionOf(id, PARTITIONS) === PARTITION)!;
    const key = await stage.givenKey(other);
    const ended = await stage.ended(key);
    await stage.grant(key, "order-1");
    await copier.copy();
    await trimAll();
    await forgetRequest(ended);
    expect(await refund(ended.requestId, "f-1")).toMatchObject({ outcome: "refunded", balance: 1005 });
  });
});

// Guarantee: whoever repeats a refund, and however late, moves nothing and leaves no second record.
test("a refund whose answer was lost is repeated after the retention, with another token", async () => {
  const key = await stage.givenKey("acme");
  const ended = await stage.ended(key);
  const copier = await stage.copier();
  await copier.copy();
  // The gateway was killed after the script and before its answer.
  await refund(ended.requestId, "f-1");
  await copier.copy();
  await stage.grant(key, "order-1");
  await copier.copy();
  for (const step of ["kept", "collected", "left", "older than 400 days"]) {
    if (step === "collected") await forgetRequest(ended);
    if (step === "left" || step.startsWith("older")) await trimAll();
    for (const id of [ended.requestId, taskOf(ended.generation)]) {
      expect(await refund(id, "f-1", stage.url, BOB), step).toMatchObject({ outcome: "duplicate" });
      expect(await codeOf(refund(id, "f-2", stage.url, BOB)), step).toBe("conflict");
    }
  }
  expect(await balance()).toBe(1005);
  const { records } = await pageAudit(stage.nodes, { limit: 100 });
  expect(records.filter(({ action }) => action === "task.refund").map(({ by }) => by)).toEqual([ANN.by]);
  await copier.copy();
  expect(await stage.database.query("SELECT by FROM tollgate.ledger_entries WHERE kind = 'refund'")).toEqual([
    { by: ANN.by },
  ]);
});
