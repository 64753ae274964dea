import { afterEach, beforeEach, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { accountNames, requestName } from "../../src/records/names.ts";
import { addMoney } from "../support/account-money.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { type ArchiveStage, givenArchiveStage, givenSignal } from "./stage.ts";

// A copier that hangs between two steps while another one has taken over.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
});
afterEach(() => stage.stop());

/** A copier that stops once before a step, until it may go on. */
async function givenPaused(at: "read" | "write", keepMs?: number) {
  const [here, there] = [givenSignal(), givenSignal()];
  let isArmed = false;
  const copier = await stage.copier({
    ...(keepMs === undefined ? {} : { keepMs }),
    async step(name) {
      if (!isArmed || name !== at) return;
      isArmed = false;
      here.reach();
      await there.reached;
    },
  });
  return {
    copier,
    /** Its next round, which has begun to wait. */
    async pause(): Promise<{ round: Promise<boolean> }> {
      isArmed = true;
      const round = copier.round();
      await here.reached;
      return { round };
    },
    resume: there.reach,
  };
}

// Guarantee: what Redis has lost before it was written to the archive is not written any more.
test("a copier that pauses before it writes does not write what Redis has lost meanwhile", async () => {
  const key = await stage.givenKey("acme");
  const { copier, pause, resume } = await givenPaused("write");
  await copier.copy();
  const { requestId, partition, generation, stage: requests } = await stage.ended(key, "bound");
  await stage.grant(key, "order-1", 70);
  const { round } = await pause();
  // The charge is sent again, the grant is not.
  await stage.loseLast("acme", 2);
  await changeRequest(stage.redis, requestName(partition, requestId), { state: "held" });
  await addMoney(stage.redis, accountNames(partition, "acme").account, "held", 10);
  await stage.redis.hdel(accountNames(partition, "acme").references, "order-1");
  await requests.bind(generation);
  await stage.endLeases();
  const other = await stage.copier();
  await other.copy();
  resume();
  await round;
  expect(copier.fault()).toBeUndefined();
  expect(await stage.archived()).toEqual(await stage.entries());
  await stage.endLeases();
  await other.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect(await verifyArchive(stage.nodes, other.archive.query)).toMatchObject({ ok: true, violations: [] });
});

test("a copier that pauses before it reads does not miss what another one has copied and trimmed", async () => {
  const key = await stage.givenKey("acme");
  const { copier, pause, resume } = await givenPaused("read", 0);
  await stage.grant(key, "order-1", 70);
  await copier.copy();
  const { round } = await pause();
  await stage.endLeases();
  for (const reference of ["order-2", "order-3", "order-4"]) await stage.grant(key, reference);
  const other = await stage.copier({ keepMs: 0 });
  await other.copy();
  await stage.grant(key, "order-5");
  resume();
  await round;
  await other.copy();
  expect([...copier.lines, ...other.lines].join("")).not.toContain("lacks");
  expect(await stage.archived()).toHaveLength(6);
  expect(await verifyArchive(stage.nodes, other.archive.query)).toMatchObject({ ok: true, violations: [] });
});
