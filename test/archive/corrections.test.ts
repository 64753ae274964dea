import { afterEach, beforeEach, expect, test } from "vitest";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import {
  type CorrectionLookUps,
  type CorrectionTerms,
  correctCharges,
} from "../../src/ledger/corrections.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import type { Actor } from "../../src/records/actor.ts";
import { partitionNames, partitionOf, requestName } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { ENDPOINT } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// Charges by a wrong price that have left Redis for the archive.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

const ANN: Actor = { by: "tok_1 Ann", requestId: "req_ann" };
const PARTITION = partitionOf("acme", PARTITIONS);

const correct = (lookUps: CorrectionLookUps, more: Partial<CorrectionTerms> = {}) => {
  const period = { fromMs: Date.now() - 3_600_000, toMs: Date.now() + 3_600_000 };
  const prices = [{ endpoint: ENDPOINT, charged: 10, correct: 4 }];
  const terms = { ...period, prices, reference: "oops", reason: "wrong price", isDryRun: false, ...more };
  return correctCharges(stage.nodes, terms, ANN, lookUps);
};

/** Copies everything, after which all entries but the last leave Redis, or all before the charge of a running task. */
async function leave(copier: Awaited<ReturnType<ArchiveStage["copier"]>>, stay = 1): Promise<void> {
  await copier.copy();
  const archivedTo = (await stage.entries()).findLast(({ partition }) => partition === PARTITION)!;
  // References that leave in one run are forgotten in the next.
  for (const _ of [1, 2])
    await trimLedger(scriptsOf(stage.redis).run, {
      partition: PARTITION,
      archivedTo,
      keepMs: 0,
      keepReferencesMs: 0,
    });
  expect(await stage.redis.xlen(partitionNames(PARTITION).ledger)).toBe(stay);
}

// Guarantee: a wrong price is given back once per charge, wherever the charge is by then.
test("charges that have left Redis are corrected once, and none that was refunded", async () => {
  const key = await stage.givenKey("acme");
  const [collected, refunded, late] = [
    await stage.ended(key),
    await stage.ended(key),
    await stage.ended(key),
  ];
  const running = await stage.ended(key, "bound");
  await stage.ended(key, "failed");
  await refundTask(stage.nodes, refunded.requestId, { reason: "black", reference: "f-1" }, ANN);
  const copier = await stage.copier();
  await leave(copier, 4);
  for (const { requestId } of [collected, refunded, late])
    await stage.redis.del(requestName(PARTITION, requestId));
  // These charges are in Redis alone, and so is the refund of one that has left.
  await stage.ended(key);
  await stage.ended(key);
  const lookUps = archiveLookUps(stage.url);
  await refundTask(stage.nodes, late.requestId, { reason: "black", reference: "f-2" }, ANN, lookUps);
  const { balance } = await readAccount(stage.nodes, "acme");

  const away = archiveLookUps("postgres://nobody:x@127.0.0.1:1/none");
  for (const none of [{}, away])
    await expect(correct(none)).rejects.toMatchObject({ problem: "unavailable" });
  expect(await correct(lookUps, { isDryRun: true })).toMatchObject({
    charges: 4,
    refunded: 3,
    running: 1,
    credits: 18,
  });
  expect((await readAccount(stage.nodes, "acme")).balance).toBe(balance);

  const numbers = { charges: 4, corrected: 3, repeated: 0, refunded: 3, running: 1, credits: 18 };
  expect(await correct(lookUps)).toMatchObject(numbers);
  expect((await readAccount(stage.nodes, "acme")).balance).toBe(balance + 18);
  await running.stage.observe(running.generation, "completed");
  // The corrections are in the archive, too, and Redis has forgotten their references.
  await leave(copier);
  const again = { corrected: 1, repeated: 3, refunded: 3, running: 0, credits: 6 };
  expect(await correct(lookUps)).toMatchObject(again);
  expect(await correct(lookUps, { reference: "other" })).toMatchObject({ corrected: 0, refunded: 7 });
  const { requestId } = collected;
  const refund = refundTask(stage.nodes, requestId, { reason: "r", reference: "f-3" }, ANN, lookUps);
  await expect(refund).rejects.toMatchObject({ problem: "already_refunded" });
  expect((await readAccount(stage.nodes, "acme")).balance).toBe(balance + 24);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: who paid a wrong price gets the difference, also where the charge was given back and taken again before.
test("charges that were taken again are corrected, whether that has left Redis or not", async () => {
  const key = await stage.givenKey("acme");
  const [first, second] = [await stage.expired(key), await stage.expired(key)];
  await first.reclaim();
  await stage.ended(key, "failed");
  await leave(await stage.copier());
  await second.reclaim();
  const { balance } = await readAccount(stage.nodes, "acme");
  const numbers = { charges: 2, corrected: 2, refunded: 1, credits: 12 };
  expect(await correct(archiveLookUps(stage.url))).toMatchObject(numbers);
  expect((await readAccount(stage.nodes, "acme")).balance).toBe(balance + 12);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: the archive finds a charge by its list price, whatever the account's multiplier made of it.
test("charges with a multiplier that have left Redis are corrected by their list price", async () => {
  const key = await stage.givenKey("acme");
  await patchAccount(stage.nodes, "acme", { priceMultiplier: 0.5 }, ANN);
  await stage.ended(key);
  await patchAccount(stage.nodes, "acme", { priceMultiplier: 2 }, ANN);
  await stage.ended(key);
  await patchAccount(stage.nodes, "acme", { priceMultiplier: 1 }, ANN);
  await stage.ended(key, "failed");
  await leave(await stage.copier());
  const lookUps = archiveLookUps(stage.url);
  expect(await correct(lookUps)).toMatchObject({ charges: 2, corrected: 2, credits: 3 + 12 });
  const atFive = [{ endpoint: ENDPOINT, charged: 5, correct: 4 }];
  expect(await correct(lookUps, { prices: atFive, reference: "five" })).toMatchObject({ charges: 0 });
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: entries that leave Redis between the reading of the archive and that of Redis are in one of them.
test("charges that leave Redis during a correction are found, and a refund that goes with them, too", async () => {
  const key = await stage.givenKey("acme");
  const first = await stage.ended(key);
  await stage.ended(key);
  const copier = await stage.copier();
  await leave(copier);
  const lookUps = archiveLookUps(stage.url);
  let reads = 0;
  const found = await correct({
    ...lookUps,
    async findCharges(nodes, partition, of) {
      const answer = await lookUps.findCharges!(nodes, partition, of);
      if (partition !== PARTITION || ++reads > 1) return answer;
      await stage.ended(key);
      await refundTask(nodes, first.requestId, { reason: "black", reference: "f-1" }, ANN, lookUps);
      await stage.ended(key);
      await leave(copier);
      return answer;
    },
  });
  expect(found).toMatchObject({ charges: 3, corrected: 3, refunded: 1, credits: 18 });
  expect(reads).toBe(2);
  expect(await verifyLedger(stage.nodes)).toMatchObject({ ok: true, violations: [] });
});

test("a correction is refused where nobody has all charges of its time, and made where the gap is older", async () => {
  const key = await stage.givenKey("acme");
  await stage.ended(key);
  const copier = await stage.copier();
  await leave(copier);
  const gap = (untilMs: number) =>
    stage.database.query(
      "INSERT INTO tollgate.ledger_gaps (partition, after, until) VALUES ($1, '0-1', $2)",
      [PARTITION, `${untilMs}-0`],
    );
  const lookUps = archiveLookUps(stage.url);
  await gap(Date.now() - 4_000_000);
  expect(await correct(lookUps, { isDryRun: true })).toMatchObject({ charges: 1 });
  await gap(Date.now() - 1000);
  await expect(correct(lookUps)).rejects.toMatchObject({ problem: "unavailable" });
});
