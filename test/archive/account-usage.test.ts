import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type ArchiveReads, openArchiveReads } from "../../src/archive/reads.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { accountUsage } from "../../src/ledger/account-usage.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { partitionNames, partitionOf, usageName } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS, type TestCopier } from "./stage.ts";

// An account's usage from the archive and from what is rolled up in Redis.

const DAY_MS = 86_400_000;

let stage: ArchiveStage;
const readsOf = (url: string) => {
  const { of, close } = openArchiveReads(url);
  return { ...of(stage.nodes), close };
};
let archive: ArchiveReads & { close(): void };
let copier: TestCopier;
let key: IssuedKey;
let partition: number;
beforeAll(async () => {
  stage = await givenArchiveStage();
  archive = readsOf(stage.url);
  await stage.grant(await stage.givenKey(), "makes the store");
  copier = await stage.copier();
});
afterAll(async () => {
  archive.close();
  await stage.stop();
});
beforeEach(async () => {
  key = await stage.givenKey();
  partition = partitionOf(key.accountId, PARTITIONS);
});

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
const today = dayOf(Date.now());
const usage = (more: object = {}, from: ArchiveReads = archive) =>
  accountUsage(stage.nodes, { accountId: key.accountId, by: ["day"], ...more }, from);
const rollAll = () => rollUp(scriptsOf(stage.redis).run, { partition });
const counts = (requests: number, credits: number, refunds: number, completed: number, failed: number) => ({
  ...{ requests, credits, refunds, completed, failed },
  // By the clock of Redis.
  seconds: expect.any(Number),
});

/** Two charges of today, one of them refunded; and a charge of 20 days ago that the archive alone has. */
async function givenUsage(): Promise<string> {
  for (const end of ["completed", "failed"] as const) await stage.ended(key, end);
  await copier.copy();
  const earlierMs = Date.now() - 20 * DAY_MS;
  await copier.archive.query(
    `INSERT INTO tollgate.ledger_rows (partition, id, account_id, type, amount, balance_after, endpoint, key_id, task_id, at)
     VALUES ($1, $2 || '-0', $3, 'consume', -25, 0, '/earlier', $4, 'task', $5)`,
    [partition, earlierMs, key.accountId, key.keyId, new Date(earlierMs).toISOString()],
  );
  return dayOf(earlierMs);
}

// Guarantee: a day comes from one of both, so nothing counts twice, and none is missing.
test("days that Redis has whole come from Redis, all others from the archive", async () => {
  const earlier = await givenUsage();
  const both = [
    { day: earlier, ...counts(1, 25, 0, 0, 0) },
    { day: today, ...counts(2, 20, 10, 1, 1) },
  ];
  expect(await usage()).toEqual({
    rows: both,
    source: "archive",
    sinceMs: undefined,
    endedSinceMs: undefined,
  });
  await rollAll();
  expect((await usage()).rows, "today is not whole in Redis").toEqual(both);
  const { rolled } = partitionNames(partition);
  await stage.redis.hset(rolled, { since: 0, ended_since: 0 });
  expect((await usage()).rows).toEqual(both);
  // Not copied yet.
  await stage.ended(key, "completed");
  await rollAll();
  expect((await usage()).rows).toEqual([both[0], { day: today, ...counts(3, 30, 10, 2, 1) }]);
  expect((await usage({ by: [] })).rows).toEqual([counts(4, 55, 10, 2, 1)]);
  expect((await usage({ from: today })).rows).toHaveLength(1);
  expect((await usage({ to: earlier })).rows).toEqual([both[0]]);
  expect((await usage({ by: ["endpoint"], to: earlier })).rows).toMatchObject([{ endpoint: "/earlier" }]);
});

// Guarantee: ledger, usage and archive say the same of a task that ended as too old, was refunded, and completed after all.
test("a task that completed late counts as completed, with its charge, in Redis and in the archive", async () => {
  const { rolled } = partitionNames(partition);
  await stage.expired(key);
  const late = await stage.expired(key);
  await rollAll();
  await stage.redis.hset(rolled, { since: 0, ended_since: 0 });
  await copier.copy();
  expect((await usage()).rows).toEqual([{ day: today, ...counts(2, 20, 20, 0, 2) }]);
  await late.reclaim();
  await rollAll();
  const both = [{ day: today, ...counts(2, 20, 10, 1, 1) }];
  expect((await usage()).rows).toEqual(both);
  await copier.copy();
  await stage.redis.del(rolled, usageName(partition, key.accountId, today.slice(0, 7)));
  const { rows, source } = await usage();
  expect({ rows, source }).toEqual({ rows: both, source: "archive" });
  const { violations } = await verifyArchive(stage.nodes, copier.archive.query);
  expect(violations.filter((found) => JSON.stringify(found).includes(key.accountId))).toEqual([]);
});

test("an archive that is away leaves what Redis has, and how far that goes", async () => {
  await rollAll();
  const { rolled } = partitionNames(partition);
  const startMs = Date.now() - 60_000;
  await stage.redis.hset(rolled, { since: startMs, ended_since: startMs });
  await stage.redis.hset(`tg:{p0${partition}}:account:${key.accountId}`, "created_at", startMs - DAY_MS);
  await givenUsage();
  await rollAll();
  const away = readsOf("postgres://127.0.0.1:1/none");
  try {
    expect(await usage({}, away)).toEqual({
      rows: [{ day: today, ...counts(2, 20, 10, 1, 1) }],
      source: "redis",
      looked: 2,
      sinceMs: startMs,
      endedSinceMs: startMs,
    });
  } finally {
    away.close();
  }
});

// Guarantee: usage of all accounts is a second behind, however far the archive is.
test("usage of all accounts has what is not copied yet, and what Redis does not reach from the archive", async () => {
  await copier.copy();
  const oldMs = Date.now() - 500 * DAY_MS;
  await copier.archive.query(
    `INSERT INTO tollgate.ledger_rows (partition, id, account_id, type, amount, balance_after, endpoint, key_id, task_id, at)
     VALUES ($1, $2 || '-0', $3, 'consume', -25, 0, '/earlier', $4, 'old task', $5)`,
    [partition, oldMs, key.accountId, key.keyId, new Date(oldMs).toISOString()],
  );
  const rollEach = () =>
    Promise.all(times(PARTITIONS, (at) => rollUp(scriptsOf(stage.redis).run, { partition: at })));
  await rollEach();
  for (const at of times(PARTITIONS, (at) => at))
    await stage.redis.hset(partitionNames(at).rolled, { since: 0, ended_since: 0 });
  const all = (more: object = {}, from: ArchiveReads = archive) =>
    allUsage(stage.nodes, { by: ["day"], limit: 100, ...more }, from);
  const creditsOf = ({ rows }: { rows: { day?: string; credits: number }[] }, day: string) =>
    rows.find((row) => row.day === day)?.credits;
  await copier.copy();
  const before = creditsOf(await all(), today) ?? 0;
  await stage.ended(key, "completed");
  await rollEach();
  const found = await all();
  expect([creditsOf(found, today), creditsOf(found, dayOf(oldMs))]).toEqual([before + 10, 25]);
  expect(found).toMatchObject({ source: "archive", sinceMs: undefined, endedSinceMs: undefined });
  expect(creditsOf(await all({ to: dayOf(oldMs) }), today)).toBeUndefined();
  const away = readsOf("postgres://127.0.0.1:1/none");
  const without = await all({}, away);
  away.close();
  expect([creditsOf(without, today), creditsOf(without, dayOf(oldMs))]).toEqual([before + 10, undefined]);
  expect(without).toMatchObject({ source: "redis", sinceMs: expect.any(Number) });
});
