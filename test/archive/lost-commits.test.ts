import { afterEach, beforeEach, expect, test } from "vitest";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { revokeKey } from "../../src/operations/keys/change-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { type ArchiveStage, givenArchiveStage } from "./stage.ts";

// A standby of PostgreSQL takes over that lacks the last commits: what they had is copied again, also without a ledger entry.

let stage: ArchiveStage;
beforeEach(async () => {
  stage = await givenArchiveStage();
  const copier = await stage.copier();
  await copier.copy();
  await copier.stop();
  // A lost commit brings back the batch that it has deleted. Here it is never deleted.
  await stage.database.query("ALTER TABLE tollgate.batches DISABLE TRIGGER latest_batch");
});
afterEach(() => stage.stop());

const TABLES = ["ledger_rows", "request_rows", "account_versions", "api_key_versions", "audit", "batches"];

/** Everything that the last transaction has written. @returns how many rows */
async function loseLastCommit(): Promise<number> {
  const newest = TABLES.map((table) => `SELECT xmin::text::bigint AS xid FROM tollgate.${table}`);
  const [last] = await stage.database.query<{ xid: string }>(
    `SELECT max(xid)::text AS xid FROM (${newest.join(" UNION ALL ")}) written`,
  );
  let lost = 0;
  for (const table of TABLES) {
    const rows = await stage.database.query(
      `DELETE FROM tollgate.${table} WHERE xmin::text = $1 RETURNING 1`,
      [last?.xid],
    );
    lost += rows.length;
  }
  return lost;
}

const revokedKeys = () =>
  stage.database.query("SELECT key_id FROM tollgate.api_keys WHERE revoked_at IS NOT NULL");

/** A key whose revocation the archive had for a moment. */
async function givenLostRevocation(keepMs?: number) {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier(keepMs === undefined ? {} : { keepMs });
  await copier.copy();
  await revokeKey(stage.nodes, await findKey(stage.nodes, key.keyId), cliActor());
  await copier.copy();
  expect(await revokedKeys()).toHaveLength(1);
  // The version of the key, the audit record and the batch.
  expect(await loseLastCommit()).toBe(3);
  expect(await revokedKeys()).toEqual([]);
  return { key, copier };
}

// Guarantee: a key that was revoked stays so, also through a disaster of both sides.
test("a revocation whose commit was lost is copied again by the copier that goes on", async () => {
  const { key, copier } = await givenLostRevocation();
  await stage.grant(key, "later");
  await copier.copy();
  expect(await revokedKeys()).toHaveLength(1);
  expect(await verifyArchive(stage.nodes, copier.archive.query)).toMatchObject({ ok: true, violations: [] });
  expect(await stage.database.query("SELECT FROM tollgate.audit WHERE action = 'key.revoke'")).toHaveLength(
    1,
  );
});

test("a revocation whose commit was lost is copied again by the next copier", async () => {
  const { copier } = await givenLostRevocation();
  await copier.stop();
  await (await stage.copier()).copy();
  expect(await revokedKeys()).toHaveLength(1);
});

test("a lost commit is found before entries leave Redis, though nothing is to be copied", async () => {
  const { copier } = await givenLostRevocation(0);
  await copier.round();
  await copier.copy();
  expect(await revokedKeys()).toHaveLength(1);
});

test("an ended request whose commit was lost is copied again", async () => {
  const key = await stage.givenKey("acme");
  const copier = await stage.copier();
  const { generation, stage: requests } = await stage.ended(key, "bound");
  await copier.copy();
  await requests.observe(generation, "completed");
  await copier.copy();
  const ended = () => stage.database.query("SELECT status FROM tollgate.requests");
  expect(await ended()).toHaveLength(1);
  await loseLastCommit();
  expect(await ended()).toEqual([]);
  await stage.grant(key, "later");
  await copier.copy();
  expect(await ended()).toEqual([{ status: "completed" }]);
});

// Guarantee: whoever writes after a loss cannot hide it.
test.each([
  { from: "announce", end: "goes on", endsAtNote: false },
  { from: "announce", end: "ends before it notes that", endsAtNote: true },
  { from: "write", end: "goes on", endsAtNote: false },
  { from: "write", end: "ends before it notes that", endsAtNote: true },
])(
  "what a lost commit had is copied again, though a copier slow from $from on has written the entries with it and $end",
  async ({ from, endsAtNote }) => {
    const key = await stage.givenKey("acme");
    const first = await stage.copier();
    await first.copy();
    const { generation, stage: requests } = await stage.ended(key, "bound");
    await first.copy();
    await stage.endLeases();
    let isOver = false;
    const slow = await stage.copier({
      async step(name) {
        if (name === "note" && isOver && endsAtNote) throw new Error("the copier ends");
        if (name !== from || isOver) return;
        isOver = true;
        // Another one writes entry and request; the commit is lost, after the store has noted it.
        await stage.endLeases();
        await requests.observe(generation, "completed");
        await first.copy();
        await loseLastCommit();
      },
    });
    await stage.grant(key, "later");
    if (endsAtNote) {
      await slow.round();
      await slow.stop();
    }
    await (endsAtNote ? await stage.copier() : slow).copy();
    expect(await stage.archived()).toEqual(await stage.entries());
    expect(await stage.database.query("SELECT status FROM tollgate.requests")).toEqual([
      { status: "completed" },
    ]);
  },
);
