import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { type ArchiveReads, openArchiveReads } from "../../src/archive/reads.ts";
import {
  findTransaction,
  pageTransactions,
  type TransactionQuery,
  transactionOfAccount,
  transactionOfReference,
} from "../../src/operations/credits/transactions.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { listTasks, type TaskView } from "../../src/operations/tasks/task-lists.ts";
import { kindOf, type LedgerEntry, transactionId } from "../../src/records/ledger-entries.ts";
import { partitionOf, requestName } from "../../src/records/names.ts";
import { times } from "../support/store.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS, type TestCopier } from "./stage.ts";

// The transactions of an account, of which most have left Redis.

let stage: ArchiveStage;
const readsOf = (url: string) => {
  const { of, close } = openArchiveReads(url);
  return { ...of(stage.nodes), close };
};
let archive: ArchiveReads & { close(): void };
let copier: TestCopier;
let key: IssuedKey;
beforeAll(async () => {
  stage = await givenArchiveStage();
  archive = readsOf(stage.url);
  await stage.grant(await stage.givenKey(), "makes the store");
  copier = await stage.copier({ keepMs: 0 });
});
afterAll(async () => {
  archive.close();
  await stage.stop();
});
beforeEach(async () => {
  key = await stage.givenKey();
});

/** Charges, refunds and grants, all archived and most of them trimmed, and then some more. */
async function givenTrimmed(): Promise<LedgerEntry[]> {
  for (let at = 0; at < 15; at++) {
    await stage.ended(key, at % 3 === 0 ? "failed" : "completed");
    if (at % 5 === 0) await stage.grant(key, `order ${at}`);
  }
  const early = await pageTransactions(stage.nodes, key.accountId, { limit: 100 });
  await copier.copy();
  for (let at = 0; at < 3; at++) await stage.grant(key, `later ${at}`);
  const whole = await pages({ limit: 100 });
  expect(whole.slice(3).map(shown)).toEqual(early.entries.map(shown));
  expect((await stage.entries()).filter(({ accountId }) => accountId === key.accountId).length).toBeLessThan(
    10,
  );
  return whole;
}

/** The fields of an entry that both sources have. */
const shown = ({ previous: _, ...entry }: LedgerEntry) => entry;

async function pages(query: Omit<TransactionQuery, "cursor">): Promise<LedgerEntry[]> {
  const found: LedgerEntry[] = [];
  let cursor: string | undefined;
  do {
    const page = await pageTransactions(stage.nodes, key.accountId, { ...query, cursor }, archive);
    expect(page.reachesBackToMs).toBeUndefined();
    expect(page.entries.length).toBeLessThanOrEqual(query.limit);
    found.push(...page.entries);
    cursor = page.next;
  } while (cursor !== undefined);
  return found;
}

// Guarantee: the list goes back to an account's first entry, and shows none twice where Redis ends and the archive begins.
test("what has left Redis is read from the archive, in pages of any size", async () => {
  const whole = await givenTrimmed();
  expect(whole).toHaveLength(1 + 15 + 5 + 3 + 3);
  expect(new Set(whole.map(({ streamId }) => streamId)).size).toBe(whole.length);
  for (const limit of [1, 3, 7]) expect((await pages({ limit })).map(shown)).toEqual(whole.map(shown));
});

test("filters hold across the cut", async () => {
  const whole = await givenTrimmed();
  for (const kind of ["charge", "refund", "purchase", "adjustment"] as const) {
    const those = whole.filter((entry) => kindOf(entry) === kind);
    expect((await pages({ kind, limit: 2 })).map(shown)).toEqual(those.map(shown));
  }
  const [fromMs, toMs] = [whole[20]!.atMs, whole[2]!.atMs];
  const between = whole.filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
  expect((await pages({ fromMs, toMs, limit: 4 })).map(shown)).toEqual(between.map(shown));
});

test("refunds are wanted beyond the time of the charges, as far as asked for", async () => {
  const whole = await givenTrimmed();
  const [refund, charge] = [whole.find((one) => kindOf(one) === "refund")!, whole[12]!];
  const filter = { wanted: ["consume/charge", "recharge/refund"], toMs: charge.atMs };
  const read = async (refundsToMs?: number) => {
    const of = { ...filter, refundsToMs };
    return (await archive.history(key.accountId, of, `first ${whole[0]!.streamId}`, 100)).entries;
  };
  const isCharge = (one: LedgerEntry): boolean => kindOf(one) === "charge";
  const isEarlier = ({ atMs }: LedgerEntry): boolean => atMs < charge.atMs;
  const [before, all] = [await read(), await read(refund.atMs + 1)];
  expect(before.every(isEarlier)).toBe(true);
  expect(all.filter(isCharge)).toEqual(before.filter(isCharge));
  expect(all.filter((one) => !isCharge(one)).map(({ streamId }) => streamId)).toEqual(
    whole.filter((one) => kindOf(one) === "refund").map(({ streamId }) => streamId),
  );
  expect(all.length).toBeGreaterThan(before.length);
});

test("tasks that Redis has forgotten are those of the archive", async () => {
  await givenTrimmed();
  const tasks = async (): Promise<TaskView[]> => {
    const found: TaskView[] = [];
    let cursor: string | undefined;
    do {
      const page = await listTasks(stage.nodes, key.accountId, { limit: 4, cursor }, archive);
      found.push(...page.tasks);
      cursor = page.next;
    } while (cursor !== undefined);
    return found;
  };
  const known = await tasks();
  expect(known.map(({ status, refunded }) => [status, refunded])).toEqual(
    times(15, (at) => ((14 - at) % 3 === 0 ? ["failed", true] : ["completed", false])),
  );
  const partition = partitionOf(key.accountId, PARTITIONS);
  for (const { requestId } of known) expect(await stage.redis.del(requestName(partition, requestId))).toBe(1);
  expect(await tasks()).toEqual(known);
});

test("an archive that is away fails the pages that need it, and no others", async () => {
  await givenTrimmed();
  const away = readsOf("postgres://127.0.0.1:1/none");
  try {
    const first = await pageTransactions(stage.nodes, key.accountId, { limit: 100 }, away);
    expect(first.entries.length).toBeGreaterThanOrEqual(3);
    const rest = pageTransactions(stage.nodes, key.accountId, { limit: 100, cursor: first.next }, away);
    await expect(rest).rejects.toMatchObject({ code: "unavailable" });
    const without = pageTransactions(stage.nodes, key.accountId, { limit: 100, cursor: first.next });
    await expect(without).rejects.toMatchObject({ code: "unavailable" });
  } finally {
    away.close();
  }
});

test("a page of the archive looks at a bounded number of entries", async () => {
  await givenTrimmed();
  await copier.archive.query(
    `INSERT INTO tollgate.ledger_rows (partition, id, account_id, type, amount, balance_after, task_id, at)
     SELECT 0, (1000000000000 + n) || '-0', $1, 'consume', -1, 0, 'task', to_timestamp(1000000000 + n * 0.001)
     FROM generate_series(1, 7000) n`,
    [key.accountId],
  );
  const first = await pageTransactions(
    stage.nodes,
    key.accountId,
    { kind: "adjustment", limit: 10 },
    archive,
  );
  expect(first).toMatchObject({ entries: [], next: expect.any(String) });
  expect(await pages({ kind: "adjustment", limit: 10 })).toEqual([]);
  expect(await pages({ kind: "charge", limit: 100 })).toHaveLength(7015);
});

test("an entry that has left Redis is found by its id and by its reference in the archive, unless that is away", async () => {
  const whole = await givenTrimmed();
  const { readArchived, findEntry } = archiveLookUps(stage.url);
  const oldest = whole.at(-1)!;
  const first = whole.find(({ reference }) => reference === "order 0")!;
  const id = transactionId(oldest);
  const found = await findTransaction(stage.nodes, id, findEntry);
  expect(found && shown(found)).toEqual(shown(oldest));
  expect(await transactionOfAccount(stage.nodes, "other", id, findEntry)).toBeUndefined();
  const named = await transactionOfReference(stage.nodes, key.accountId, "order 0", readArchived);
  expect(named && shown(named)).toEqual(shown(first));
  expect(await findTransaction(stage.nodes, id, undefined)).toBeUndefined();
  const away = archiveLookUps("postgresql://127.0.0.1:1/none");
  for (const reading of [
    findTransaction(stage.nodes, id, away.findEntry),
    transactionOfReference(stage.nodes, key.accountId, "nowhere", away.readArchived),
  ])
    await expect(reading).rejects.toMatchObject({ code: "unavailable" });
});
