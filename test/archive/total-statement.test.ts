import { afterAll, beforeAll, expect, test } from "vitest";
import { type ArchiveReads, openArchiveReads } from "../../src/archive/reads.ts";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { totalStatement } from "../../src/ledger/total-statement.ts";
import { partitionNames } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

// The statement of all accounts of a store whose first entries have left Redis.

const DAY_MS = 86_400_000;
const monthOf = (ms: number): string => new Date(ms).toISOString().slice(0, 7);
const month = monthOf(Date.now());
const monthBefore = monthOf(Date.parse(`${month}-01`) - DAY_MS);

let stage: ArchiveStage;
const readsOf = (url: string) => {
  const { of, close } = openArchiveReads(url);
  return { ...of(stage.nodes), close };
};
let archive: ArchiveReads & { close(): void };
beforeAll(async () => {
  stage = await givenArchiveStage();
  archive = readsOf(stage.url);
  const key = await stage.givenKey();
  for (const end of ["completed", "failed"] as const) await stage.ended(key, end);
  await rollAll();
  const copier = await stage.copier({ keepMs: 0 });
  await copier.copy();
  const oldMs = Date.now() - 500 * DAY_MS;
  await copier.archive.query(
    `INSERT INTO tollgate.ledger_rows (partition, id, account_id, type, amount, balance_after, at)
     VALUES (0, $1 || '-0', 'old', 'recharge', 300, 300, $2)`,
    [oldMs, new Date(oldMs).toISOString()],
  );
  // Not copied.
  await stage.ended(key, "completed");
  await stage.grant(key, "late", 5);
  await rollAll();
});
afterAll(async () => {
  archive.close();
  await stage.stop();
});

const rollAll = () =>
  Promise.all(times(PARTITIONS, (partition) => rollUp(scriptsOf(stage.redis).run, { partition })));

// Guarantee: what is owed to customers is a second behind, however far the archive is.
test("it has what is not copied yet, and opens with what Redis does not reach", async () => {
  const left = await Promise.all(times(PARTITIONS, (at) => stage.redis.exists(partitionNames(at).trimmed)));
  expect(left).toContain(1);
  expect(await totalStatement(stage.nodes, month, archive)).toMatchObject({
    statement: { opening: 300, trials: 1000, purchases: 5, charges: 30, refunds: 10, closing: 1285 },
    ...{ source: "archive", sinceMs: undefined },
  });
});

test("a month begins with what the one before ended with", async () => {
  const { statement } = await totalStatement(stage.nodes, monthBefore, archive);
  expect(statement).toMatchObject({ opening: 300, charges: 0, closing: 300 });
});

test("an archive that is away leaves what Redis has of the month", async () => {
  const away = readsOf("postgres://127.0.0.1:1/none");
  const found = await totalStatement(stage.nodes, month, away);
  away.close();
  expect(found).toMatchObject({ statement: { opening: null, charges: 30, closing: null }, source: "redis" });
});
