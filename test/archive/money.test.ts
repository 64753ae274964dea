import { afterEach, beforeEach, expect, test } from "vitest";
import { connectArchive } from "../../src/archive/archive-connection.ts";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { restoreStore } from "../../src/archive/restore.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { readStatement } from "../../src/ledger/statements.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import { createToken } from "../../src/operations/access/tokens.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import {
  createAccount,
  patchAccount,
  readAccountObject,
} from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { reverseGrant } from "../../src/operations/credits/reversals.ts";
import { readKey } from "../../src/operations/keys/keys.ts";
import type { Actor } from "../../src/records/actor.ts";
import { accountNames, partitionNames, partitionOf, requestName } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { collect } from "../../src/scripts/tasks.ts";
import { taskOf } from "../support/store.ts";
import { givenRedis } from "../support/store-stage.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// Adjustments and refunds by operators in the archive, and what only the archive knows of a task.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

const ANN: Actor = { by: "tok_1 Ann's shop", requestId: "req_ann" };

test("adjustments and refunds are archived with who and why, counted apart, and restored", async () => {
  const key = await stage.givenKey("acme");
  const { requestId, generation } = await stage.ended(key);
  await stage.ended(key, "failed");
  await adjustCredits(stage.nodes, "acme", { amount: -30, reason: "typing error", reference: "a-1" }, ANN);
  await adjustCredits(stage.nodes, "acme", { amount: 7, reason: "goodwill", reference: "a-2" }, ANN);
  await refundTask(stage.nodes, requestId, { reason: "black picture", reference: "f-1" }, ANN);
  const bought = { package: "premium", package_price: "39.90", amount_paid: "39.90", currency: "USD" };
  const sold = { kind: "purchase", details: { ...bought, metadata: { invoice: 17 } } } as const;
  await grantCredits(stage.nodes, "acme", 500, "o-1", ANN, undefined, sold);
  for (const [kind, credits] of [
    ["trial", 50],
    ["goodwill", 9],
  ] as const)
    await grantCredits(stage.nodes, "acme", credits, kind, ANN, undefined, { kind, details: {} });
  await reverseGrant(
    stage.nodes,
    "acme",
    { of: "o-1", reference: "r-1", reason: "money back", amount: 100 },
    ANN,
  );
  await reverseGrant(stage.nodes, "acme", { of: "trial", reference: "r-2", reason: "unused" }, ANN);
  const label = { label: "Acme", metadata: { plan: "gold" }, status: "suspended" } as const;
  const terms = { limits: { daily_limit: 9 }, priceMultiplier: 0.8 };
  await patchAccount(stage.nodes, "acme", { ...label, ...terms }, ANN);
  const copier = await stage.copier();
  await copier.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect(
    await stage.database.query(
      "SELECT kind, amount::int, reason, reference, by, note FROM tollgate.ledger_entries WHERE by LIKE 'tok%' AND kind IN ('adjustment', 'refund') ORDER BY id_ms, id_number",
    ),
  ).toEqual([
    { kind: "adjustment", amount: -30, reason: "typing error", reference: "a-1", by: ANN.by, note: null },
    { kind: "adjustment", amount: 7, reason: "goodwill", reference: "a-2", by: ANN.by, note: null },
    { kind: "refund", amount: 10, reason: "refund", reference: "f-1", by: ANN.by, note: "black picture" },
  ]);
  expect(
    await stage.database.query(
      "SELECT kind, amount::int, package, amount_paid::text, currency, of_reference FROM tollgate.ledger_entries WHERE by LIKE 'tok%' AND kind NOT IN ('adjustment', 'refund') ORDER BY id_ms, id_number",
    ),
  ).toEqual([
    { ...NO_SALE, kind: "purchase", amount: 500, package: "premium", amount_paid: "39.90", currency: "USD" },
    { ...NO_SALE, kind: "trial", amount: 50 },
    { ...NO_SALE, kind: "goodwill", amount: 9 },
    { ...NO_SALE, kind: "reversal", amount: -100, of_reference: "o-1" },
    { ...NO_SALE, kind: "reversal", amount: -50, of_reference: "trial" },
  ]);
  expect(
    await stage.database.query(
      "SELECT purchases::int, trials::int, goodwill::int, charges::int, refunds::int, adjustments::int, reversals::int, closing::int, amounts_paid FROM tollgate.statements",
    ),
  ).toEqual([
    {
      ...{
        purchases: 500,
        trials: 1050,
        goodwill: 9,
        charges: 20,
        refunds: 20,
        adjustments: -23,
        reversals: 150,
      },
      ...{ closing: 1386, amounts_paid: { USD: "39.90" } },
    },
  ]);
  const archive = connectArchive(stage.url);
  const fresh = await givenRedis();
  const nodes = oneNode(fresh.client);
  try {
    await fresh.client.flushall();
    expect(await verifyArchive(stage.nodes, archive.query)).toMatchObject({ ok: true });
    await restoreStore(archive, nodes, {
      partitions: PARTITIONS,
      keepMs: 1e13,
      tasks: { maxAgeMs: 1e9, retentionMs: 1e9 },
    });
    expect(await readAccount(nodes, "acme")).toEqual(await readAccount(stage.nodes, "acme"));
    const restored = await readAccountObject(nodes, "acme");
    expect(restored).toEqual(await readAccountObject(stage.nodes, "acme"));
    expect(restored).toMatchObject({ priceMultiplier: "0.8" });
    const month = new Date().toISOString().slice(0, 7);
    expect(await readStatement(nodes, "acme", month)).toEqual(
      await readStatement(stage.nodes, "acme", month),
    );
    expect(await readKey(nodes, key.keyId, "acme")).toEqual(await readKey(stage.nodes, key.keyId, "acme"));
    const { references, refunds, reversed } = accountNames(partitionOf("acme", PARTITIONS), "acme");
    for (const name of [references, refunds, reversed])
      expect(await fresh.client.hgetall(name)).toEqual(await stage.redis.hgetall(name));
    expect(await fresh.client.hgetall(refunds)).toEqual({ [requestId]: "f-1" });
    expect(await verifyLedger(nodes)).toMatchObject({
      ok: true,
      credits: { adjusted: -23, refunded: 20, reversed: 150 },
    });
    const lookUps = archiveLookUps(stage.url);
    const again = { of: "o-1", reference: "r-3", reason: "money back" };
    expect((await reverseGrant(nodes, "acme", again, ANN, lookUps.readArchived)).entry).toMatchObject({
      amount: -400,
    });
    await expect(
      refundTask(
        nodes,
        taskOf(generation),
        { reason: "r", reference: "f-2" },
        ANN,
        archiveLookUps(stage.url),
      ),
    ).rejects.toMatchObject({ code: "conflict" });
  } finally {
    archive.close();
    await fresh.stop();
  }
});

// Guarantee: a reference that the archive may have lost, or that Redis has, is not taken for one that was never used.
test("an archive that does not fit to Redis is believed nothing about money", async () => {
  await stage.givenKey("acme");
  for (const reference of ["old", "older", "new"])
    await grantCredits(stage.nodes, "acme", 70, reference, ANN);
  await (await stage.copier()).copy();
  const partition = partitionOf("acme", PARTITIONS);
  const archivedTo = (await stage.entries()).filter((entry) => entry.partition === partition).at(-1)!;
  for (const _ of [1, 2])
    await trimLedger(scriptsOf(stage.redis).run, { partition, archivedTo, keepMs: 0, keepReferencesMs: 0 });
  const lookUps = archiveLookUps(stage.url);
  const again = () => grantCredits(stage.nodes, "acme", 70, "old", ANN, lookUps.readArchived);
  const refund = () => refundTask(stage.nodes, "task_1", { reason: "r", reference: "f" }, ANN, lookUps);
  await expect(refund()).rejects.toThrow("no task or request task_1 was charged");
  expect(await again()).toMatchObject({ outcome: "duplicate", balance: 1210 });
  const gap = [partition, "0-0", archivedTo.streamId];
  await stage.database.query(
    "INSERT INTO tollgate.ledger_gaps (partition, after, until) VALUES ($1, $2, $3)",
    gap,
  );
  expect(await again(), "none of the account's entries is in the gap").toMatchObject({ balance: 1210 });
  await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE reference LIKE 'key:%'");
  await expect(again()).rejects.toThrow("the archive lacks ledger entries that have left Redis");
  await stage.database.query("DELETE FROM tollgate.ledger_gaps");
  await stage.redis.xdel(partitionNames(partition).ledger, archivedTo.streamId);
  await expect(again()).rejects.toThrow("Redis has lost ledger entries that the archive has");
  await stage.database.query("DELETE FROM tollgate.ledger_rows WHERE reference IN ('older', 'new')");
  await expect(again()).rejects.toThrow("the archive lacks ledger entries that have left Redis");
  await expect(refund()).rejects.toThrow("the archive lacks ledger entries that have left Redis");
  expect((await readAccount(stage.nodes, "acme")).balance).toBe(1210);
});

const NO_SALE = { package: null, amount_paid: null, currency: null, of_reference: null };

// Guarantee: a grant that has left Redis is taken back as far as it is left, and only if the archive can be asked.
test("a grant of which only the archive knows is reversed once, whatever its kind", async () => {
  await stage.givenKey("acme");
  for (const [reference, kind] of [
    ["old", "purchase"],
    ["older", "trial"],
  ] as const)
    await grantCredits(stage.nodes, "acme", 70, reference, ANN, undefined, { kind, details: {} });
  await adjustCredits(stage.nodes, "acme", { amount: 1, reason: "r", reference: "a-1" }, ANN);
  await grantCredits(stage.nodes, "acme", 1, "new", ANN);
  const copier = await stage.copier();
  await copier.copy();
  const partition = partitionOf("acme", PARTITIONS);
  const archivedTo = (await stage.entries()).filter((entry) => entry.partition === partition).at(-1)!;
  const { run } = scriptsOf(stage.redis);
  // References that leave in one run are forgotten in the next.
  for (const _ of [1, 2]) await trimLedger(run, { partition, archivedTo, keepMs: 0, keepReferencesMs: 0 });
  const { references, reversed } = accountNames(partition, "acme");
  expect(await stage.redis.hkeys(references)).toEqual(["new"]);
  const lookUps = archiveLookUps(stage.url);
  const reverse = (of: string, reference: string, amount?: number, read = lookUps.readArchived) =>
    reverseGrant(stage.nodes, "acme", { of, reference, reason: "r", amount }, ANN, read);
  const alone = reverseGrant(stage.nodes, "acme", { of: "old", reference: "r-1", reason: "r" }, ANN);
  await expect(alone).rejects.toMatchObject({ problem: "unavailable" });
  const outcomes = await Promise.allSettled([1, 2, 3].map((at) => reverse("old", `r-${at}`)));
  expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected", "rejected"]);
  expect((await reverse("older", "r-4", 30)).entry).toMatchObject({ amount: -30 });
  expect((await reverse("older", "r-5")).entry).toMatchObject({ amount: -40 });
  await expect(reverse("older", "r-6")).rejects.toMatchObject({ problem: "nothing_left" });
  await expect(reverse("a-1", "r-6")).rejects.toMatchObject({ problem: "grant_not_found" });
  await expect(reverse("none", "r-6")).rejects.toMatchObject({ problem: "grant_not_found" });
  await expect(reverse("new", "older", 1)).rejects.toMatchObject({ problem: "reference_used" });
  expect(await stage.redis.hgetall(reversed)).toEqual({ "": "140", old: "70", older: "70" });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true });
  // The reversals leave, too: a repeat says what the first did, and no more.
  await grantCredits(stage.nodes, "acme", 1, "newer", ANN, lookUps.readArchived);
  await copier.copy();
  const archivedNow = (await stage.entries()).filter((entry) => entry.partition === partition).at(-1)!;
  for (const _ of [1, 2])
    await trimLedger(run, { partition, archivedTo: archivedNow, keepMs: 0, keepReferencesMs: 0 });
  expect(await stage.redis.hkeys(references)).toEqual(["newer"]);
  expect(await reverse("older", "r-4", 30)).toMatchObject({ outcome: "duplicate", entry: { amount: -30 } });
  expect(await reverse("older", "r-5")).toMatchObject({ outcome: "duplicate", entry: { amount: -40 } });
  for (const [of, reference, amount] of [
    ["older", "r-4", 31],
    ["older", "r-4", undefined],
    ["older", "r-5", 40],
    ["old", "r-4", 30],
  ] as const)
    await expect(reverse(of, reference, amount)).rejects.toMatchObject({ problem: "reference_mismatch" });
  expect(await stage.redis.hgetall(reversed)).toEqual({ "": "140", old: "70", older: "70" });
});

const auditRows = () =>
  stage.database.query<Record<string, unknown>>(
    "SELECT id, partition, by, token_id, label, action, account_id, target, request_id, before, after, at FROM tollgate.audit ORDER BY at, id",
  );

// Guarantee: who changed what is kept, each change once, whatever fails and whenever.
test("the audit is archived once, as it is, also after a fault in the middle", async () => {
  const BOB: Actor = { by: "cli bob", requestId: "" };
  const { accountId } = await createAccount(stage.nodes, { label: "Ann's" }, ANN);
  await createToken(stage.nodes, { label: "t", scopes: ["keys:read"] }, BOB);
  for (const step of ["read", "confirm", "write", "note"] as const) {
    let isFaulty = true;
    const faulty = await stage.copier({
      step: (name) => {
        if (name !== step || !isFaulty) return;
        isFaulty = false;
        throw new Error(`fault before ${name}`);
      },
    });
    await patchAccount(stage.nodes, accountId, { label: `after ${step}` }, BOB);
    await faulty.round();
    await stage.endLeases();
    await faulty.stop();
  }
  const copier = await stage.copier();
  await copier.copy();
  await patchAccount(stage.nodes, accountId, { label: null }, ANN);
  await copier.copy();
  await copier.copy();
  const { records } = await pageAudit(stage.nodes, { limit: 100 });
  const rows = await auditRows();
  expect(rows).toHaveLength(7);
  expect(new Map(rows.map(({ id, ...row }) => [id, row]))).toEqual(
    new Map(
      records.map(({ auditId, by, action, accountId, target, requestId, before, after, atMs }) => [
        auditId,
        {
          partition: Number(auditId.split("_")[1]),
          ...{ by, action, target, before, after, at: new Date(atMs) },
          ...(by === ANN.by ? { token_id: "tok_1", label: "Ann's shop" } : { token_id: null, label: null }),
          account_id: accountId || null,
          request_id: requestId || null,
        },
      ]),
    ),
  );
  const { values } = await copier.metrics.archiveRows.get();
  expect(values.find(({ labels }) => labels.kind === "audit")?.value).toBeGreaterThan(0);
});

// Guarantee: a damaged audit record does not keep money out of the archive.
test("an audit record that names no time does not stop the copying", async () => {
  const copier = await stage.copier();
  const key = await stage.givenKey("acme");
  const { audit } = partitionNames(partitionOf("acme", PARTITIONS));
  const record = { at: Date.now(), by: "x", action: "key.patch", account_id: "acme", before: "{}" };
  const fields = Object.entries({ ...record, after: '{"expires_at":"NaN"}' }).flat();
  await stage.redis.xadd(audit, "*", ...fields);
  await stage.grant(key, "order-1", 70);
  await copier.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect((await auditRows()).map(({ after }) => after)).toContainEqual({ expires_at: null });
});

// Guarantee: a task is refunded once, also when Redis has forgotten its record and its charge.
test("a task that only the archive knows is refunded once", async () => {
  const key = await stage.givenKey("acme");
  const partition = partitionOf("acme", PARTITIONS);
  const [completed, failed] = [await stage.ended(key), await stage.ended(key, "failed")];
  await stage.grant(key, "order-1");
  const copier = await stage.copier();
  await copier.copy();
  const { run } = scriptsOf(stage.redis);
  for (const { requestId } of [completed, failed]) {
    await changeRequest(stage.redis, `tg:{p0${partition}}:request:${requestId}`, {
      finished_at: 1,
      retention_ms: 1,
    });
    const call = { partition, requestId, taskId: undefined, retentionMs: 1 };
    expect(await run(collect, call)).toEqual({ outcome: "collected" });
  }
  const archivedTo = (await stage.entries()).findLast((entry) => entry.partition === partition)!;
  const trimmed = await trimLedger(run, { partition, archivedTo, keepMs: 0 });
  expect(trimmed).toMatchObject({ outcome: "trimmed", entries: 4 });
  expect(await stage.redis.xlen(partitionNames(partition).ledger)).toBe(1);

  const archive = archiveLookUps(stage.url);
  const refund = (id: string, reference: string, lookUps = archive) =>
    refundTask(stage.nodes, id, { reason: "late", reference }, ANN, lookUps);
  const { requestId, generation } = completed;
  const away = archiveLookUps("postgres://nobody:x@127.0.0.1:1/none");
  await expect(refund(requestId, "f-1", away)).rejects.toMatchObject({ code: "unavailable" });
  await expect(refund(requestId, "f-1", {})).rejects.toMatchObject({ code: "unavailable" });
  await expect(refund("task_none", "f-1")).rejects.toMatchObject({ code: "not_found" });
  await expect(refund(failed.requestId, "f-1")).rejects.toMatchObject({ code: "conflict" });
  const first = await refund(taskOf(generation), "f-1");
  expect(first).toMatchObject({ outcome: "refunded", requestId, entry: { amount: 10, note: "late" } });
  // Before and after the archive has the refund, too.
  await expect(refund(requestId, "f-2")).rejects.toMatchObject({ code: "conflict" });
  await copier.copy();
  await expect(refund(requestId, "f-2")).rejects.toMatchObject({ code: "conflict" });
  expect(await refund(requestId, "f-1")).toEqual({ ...first, outcome: "duplicate" });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true });
});

// Guarantee: an operator is told what became of a refund, also while the archive is behind Redis.
test("a refund that was taken back is said to be so though the archive has only the refund", async () => {
  const key = await stage.givenKey("acme");
  const late = await stage.expired(key);
  const copier = await stage.copier();
  await copier.copy();
  await late.reclaim();
  await stage.redis.del(requestName(late.partition, late.requestId));
  const wanted = { reason: "late", reference: "f-1" };
  const refund = () => refundTask(stage.nodes, late.requestId, wanted, ANN, archiveLookUps(stage.url));
  await expect(refund()).rejects.toMatchObject({ problem: "charged_again" });
  await copier.copy();
  await expect(refund()).rejects.toMatchObject({ problem: "charged_again" });
});

test("a task that only the archive knows gives room in the month of its admission", async () => {
  const key = await stage.givenKey("acme");
  const [now, earlier] = [await stage.ended(key), await stage.ended(key)];
  await changeRequest(stage.redis, requestName(now.partition, earlier.requestId), {
    admitted_at: (atMs) => atMs - 40 * 86_400_000,
  });
  const copier = await stage.copier();
  await copier.copy();
  for (const { requestId, partition } of [now, earlier])
    await stage.redis.del(requestName(partition, requestId));
  const spentAfter = async ({ requestId }: typeof now) => {
    const wanted = { reason: "late", reference: requestId };
    await refundTask(stage.nodes, requestId, wanted, ANN, archiveLookUps(stage.url));
    return (await readKey(stage.nodes, key.keyId, "acme"))?.spentThisMonth;
  };
  expect(await spentAfter(earlier)).toBe(20);
  expect(await spentAfter(now)).toBe(10);
});
