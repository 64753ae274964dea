import type { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { trimLedger } from "../../src/archive/trimming.ts";
import { pageTransactions, type TransactionQuery } from "../../src/operations/credits/transactions.ts";
import type { LedgerEntry } from "../../src/records/ledger-entries.ts";
import { kindOf } from "../../src/records/ledger-entries.ts";
import { META, partitionNames } from "../../src/records/names.ts";
import { OperatorError } from "../../src/records/operator-error.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { ENDPOINT, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { HISTORY_MUTANTS, inShare } from "./mutants.ts";

// HISTORY, and the pages that operators read with it. Ledgers of one partition each, so the store is a test's own.

const START_MS = Date.UTC(2025, 4, 6);
const MINUTE_MS = 60_000;

let server: TestRedis;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await givenRedis();
  redis = server.client;
  nodes = oneNode(redis);
});
afterAll(() => server.stop());
beforeEach(async () => {
  await redis.flushall();
  await redis.hset(META, { partitions: 1, id: "store", layout: "1" });
});

/** A grant, then charges of which every third is refunded, an adjustment each way; one each minute, another account between. */
async function givenAccount(): Promise<string[]> {
  const charge = (at: number): GivenEntry => ({
    ...{ accountId: "acc", amount: -10, atMs: 0, keyId: "key" },
    ...{ taskId: `task_${at}`, requestId: `req_${at}`, endpoint: at % 2 === 0 ? ENDPOINT : "/other" },
  });
  const of = times(9, (at): GivenEntry[] => [
    charge(at),
    ...(at % 3 === 0 ? [{ ...charge(at), type: "recharge", amount: 10, reason: "refund" } as const] : []),
  ]).flat();
  const own: GivenEntry[] = [
    { accountId: "acc", amount: 1000, atMs: 0, reference: "order 1" },
    ...of,
    { accountId: "acc", type: "consume", amount: -5, atMs: 0, reason: "goodwill back", reference: "a1" },
    { accountId: "acc", type: "recharge", amount: 7, atMs: 0, reason: "goodwill", reference: "a2" },
  ];
  const all = own.flatMap((entry): GivenEntry[] => [entry, { accountId: "other", amount: 1, atMs: 0 }]);
  const ids = await writeEntries(
    redis,
    0,
    all.map((entry, at) => ({ ...entry, atMs: START_MS + at * MINUTE_MS })),
  );
  return ids.filter((_, at) => at % 2 === 0);
}

const idsOf = (entries: readonly LedgerEntry[]): string[] => entries.map(({ streamId }) => streamId);

/** All pages of a list, as they come. */
async function pagesOf(query: Omit<TransactionQuery, "cursor">, from = nodes) {
  const pages: Awaited<ReturnType<typeof pageTransactions>>[] = [];
  let cursor: string | undefined;
  do {
    pages.push(await pageTransactions(from, "acc", { ...query, cursor }));
    cursor = pages.at(-1)!.next;
  } while (cursor !== undefined);
  return pages;
}
const listed = async (query: Omit<TransactionQuery, "cursor">, from = nodes): Promise<string[]> =>
  (await pagesOf(query, from)).flatMap(({ entries }) => idsOf(entries));

test("transactions go back to the first one, newest first, each once, whatever the size of a page", async () => {
  const ids = (await givenAccount()).toReversed();
  for (const limit of [1, 4, ids.length, 100]) expect(await listed({ limit })).toEqual(ids);
  const [page] = await pagesOf({ limit: 100 });
  expect(page).toMatchObject({ next: undefined });
  expect(page!.reachesBackToMs).toBeUndefined();
  expect(page!.entries.at(-1)).toMatchObject({ amount: 1000, reference: "order 1", previous: "" });
});

test("they are filtered by type, kind and time, from both sides of each limit", async () => {
  await givenAccount();
  const [{ entries } = { entries: [] }] = await pagesOf({ limit: 100 });
  const those = (keep: (entry: LedgerEntry) => boolean): string[] => idsOf(entries.filter(keep));
  for (const type of ["consume", "recharge"] as const)
    expect(await listed({ type, limit: 2 })).toEqual(those((entry) => entry.type === type));
  const kinds = Object.groupBy(entries, kindOf);
  expect(Object.keys(kinds).sort()).toEqual(["adjustment", "charge", "purchase", "refund"]);
  for (const kind of ["charge", "refund", "purchase", "adjustment"] as const)
    expect(await listed({ kind, limit: 2 })).toEqual(idsOf(kinds[kind]!));
  expect(await listed({ type: "consume", kind: "adjustment", limit: 5 })).toEqual([entries[1]!.streamId]);
  const [fromMs, toMs] = [entries[9]!.atMs, entries[3]!.atMs];
  expect(await listed({ fromMs, toMs, limit: 3 })).toEqual(idsOf(entries.slice(4, 10)));
  expect(await listed({ fromMs: fromMs + 1, toMs: toMs + 1, limit: 3 })).toEqual(idsOf(entries.slice(3, 9)));
});

test("a page that finds little looks at a bounded number of entries, and the next one goes on", async () => {
  const charges = times(
    7000,
    (at): GivenEntry => ({ accountId: "acc", amount: -1, atMs: START_MS + at, taskId: `t${at}` }),
  );
  await writeEntries(redis, 0, [{ accountId: "acc", amount: 9000, atMs: START_MS - 1 }, ...charges]);
  const pages = await pagesOf({ kind: "purchase", limit: 10 });
  expect(pages.map(({ entries }) => entries.length)).toEqual([0, 0, 1]);
  expect(await listed({ type: "consume", limit: 100 })).toHaveLength(7000);
});

// Guarantee: who asks for a day long ago does not wait for all that came since, nor for all accounts of the partition.
test("entries of a time long ago are found without reading what came since", async () => {
  const others = times(2000, (at): GivenEntry => ({ accountId: "other", amount: 1, atMs: START_MS + at }));
  const later = times(
    20_000,
    (at): GivenEntry => ({ accountId: "acc", amount: 1, atMs: START_MS + 3_600_000 + at }),
  );
  const first: GivenEntry = { accountId: "acc", amount: 5, atMs: START_MS - 10 };
  const [id] = await writeEntries(redis, 0, [first, ...others, ...later]);
  const before = await callsOf();
  const page = await pageTransactions(nodes, "acc", { toMs: START_MS + 1000, limit: 10 });
  expect(idsOf(page.entries)).toEqual([id]);
  expect((await callsOf()) - before, "calls of the script").toBeLessThanOrEqual(60);
});

const callsOf = async (): Promise<number> =>
  Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info("commandstats"))?.[1] ?? 0);

test("a list that has left Redis ends there and says so", async () => {
  const ids = (await givenAccount()).toReversed();
  const whole = await pagesOf({ limit: 100 });
  await trimAll();
  const [page, ...more] = await pagesOf({ limit: 100 });
  expect(more).toEqual([]);
  // Of what has left, the account's checkpoint has ten entries.
  expect(idsOf(page!.entries)).toEqual(ids.slice(0, 10));
  expect(page!.reachesBackToMs).toBe(whole[0]!.entries[9]!.atMs);
  for (const limit of [1, 4, 9]) expect(await listed({ limit })).toEqual(ids.slice(0, 10));
  expect(await listed({ kind: "refund", limit: 100 })).toEqual(
    idsOf(whole[0]!.entries.slice(0, 10).filter((entry) => kindOf(entry) === "refund")),
  );
  const early = await pageTransactions(nodes, "acc", { toMs: START_MS + 1, limit: 10 });
  expect(early).toMatchObject({ entries: [], next: undefined, reachesBackToMs: page!.reachesBackToMs });
});

/** Removes all but the last entry, which is another account's. */
async function trimAll(): Promise<void> {
  const { run } = scriptsOf(redis);
  const [newest] = await redis.xrevrange(partitionNames(0).ledger, "+", "-", "COUNT", 1);
  const other = await pageTransactions(nodes, "other", { limit: 1 });
  expect(other.entries[0]?.streamId).toBe(newest?.[0]);
  expect(await trimLedger(run, { partition: 0, archivedTo: other.entries[0]!, keepMs: 0 })).toMatchObject({
    outcome: "trimmed",
  });
}

test("a cursor that is made up, of another account or of other filters is refused", async () => {
  await givenAccount();
  const first = await pageTransactions(nodes, "acc", { limit: 2 });
  const cursor = first.next!;
  const ofOther = (await pageTransactions(nodes, "other", { limit: 2 })).next!;
  const reasons: [string, Partial<TransactionQuery>][] = [
    ...[
      "",
      "x",
      "0",
      "*",
      "1790000000000-0",
      "../..",
      `${cursor}A`,
      cursor.slice(1),
      ofOther,
      "A".repeat(9000),
    ].map((made): [string, Partial<TransactionQuery>] => ["invalid", { cursor: made }]),
    ["invalid", { cursor, type: "consume" }],
    ["invalid", { cursor, fromMs: 1 }],
    ["invalid", { limit: 0 }],
    ["invalid", { limit: 101 }],
    ["invalid", { limit: 1.5 }],
    ["invalid", { fromMs: 2, toMs: 1 }],
  ];
  for (const [code, query] of reasons) {
    const refused = await pageTransactions(nodes, "acc", { limit: 2, ...query }).catch(
      (error: unknown) => error,
    );
    expect(refused, JSON.stringify(query)).toBeInstanceOf(OperatorError);
    expect(refused).toMatchObject({ code });
  }
  await expect(pageTransactions(nodes, "nobody", { limit: 2 })).rejects.toMatchObject({ code: "not_found" });
  expect((await pageTransactions(nodes, "acc", { cursor, limit: 2 })).entries).toHaveLength(2);
});

const isId = (found: unknown): found is string => typeof found === "string";

test.each(inShare(HISTORY_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const seen = async (from: RedisNodes): Promise<unknown> => {
    const lists: Omit<TransactionQuery, "cursor">[] = [
      ...([1, 4, 100] as const).map((limit) => ({ limit })),
      ...(["consume", "recharge"] as const).map((type) => ({ type, limit: 3 })),
      ...(["charge", "refund", "purchase", "adjustment"] as const).map((kind) => ({ kind, limit: 3 })),
      { fromMs: START_MS + 10 * MINUTE_MS + 500, limit: 2 },
      { fromMs: START_MS + 10 * MINUTE_MS, toMs: START_MS + 20 * MINUTE_MS, limit: 2 },
    ];
    const found: unknown[] = [];
    for (const query of lists) found.push(await listed(query, from).catch(String));
    const { run } = scriptsOf(from.of(0));
    const { history } = await import("../../src/scripts/ledger.ts");
    const of = { partition: 0, accountId: "acc", lookedAtMax: 5, answeredMax: 2, endpoint: "" };
    for (const at of [
      `(${START_MS + 20 * MINUTE_MS}-0`,
      `(${START_MS}-0`,
      `${START_MS + MINUTE_MS}-0`,
      "1-0",
    ])
      found.push(
        await run(history, { ...of, from: at }),
        await run(history, { ...of, endpoint: ENDPOINT, from: at }),
      );
    found.push(
      await run(history, { ...of, from: found.flat().find(isId)!, lookedAtMax: 3, answeredMax: 100 }),
    );
    const until = { toMs: START_MS + 9 * MINUTE_MS, lookedAtMax: 100, answeredMax: 100 };
    for (const refundsToMs of [undefined, START_MS + 30 * MINUTE_MS])
      found.push(
        await run(history, { ...of, from: `(${START_MS + 60 * MINUTE_MS}-0`, ...until, refundsToMs }),
      );
    const { trimmed } = partitionNames(0);
    await redis.hset(trimmed, "last_entry", "1-0");
    found.push(await run(history, { ...of, from: `(${START_MS}-0` }));
    await redis.del(trimmed);
    return found;
  };
  await givenAccount();
  const good = await seen(nodes);
  expect(await withMutant(server.url, mutant, seen)).not.toEqual(good);
});
