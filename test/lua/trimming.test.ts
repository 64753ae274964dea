import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type TrimOptions, trimLedger } from "../../src/archive/trimming.ts";
import { LastConfirmedFile } from "../../src/durability/losses/last-confirmed.ts";
import { missingEntries } from "../../src/durability/losses/loss-report.ts";
import { listMissing } from "../../src/durability/losses/missing-entries.ts";
import { createEntryReader } from "../../src/durability/losses/new-entries.ts";
import type { RecentEntry } from "../../src/durability/losses/recent-entries.ts";
import { createCharges } from "../../src/ledger/charges.ts";
import { completeSinceMs, exportLedger } from "../../src/ledger/export.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { pageTransactions } from "../../src/operations/credits/transactions.ts";
import { cliActor } from "../../src/records/actor.ts";
import { type Checkpoint, checkpointOf, readCut } from "../../src/records/checkpoints.ts";
import { LEDGER_START, type LedgerEntry, readLedger } from "../../src/records/ledger-entries.ts";
import { accountNames, type KeyRef, partitionNames, requestName } from "../../src/records/names.ts";
import { readsOfAll } from "../../src/redis/partition-reads.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { accountIn, addMoney, changeMoney } from "../support/account-money.ts";
import { checkpointText } from "../support/checkpoint-text.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, openConnection, type TestConnection, taskOf, times } from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { changeRequest } from "../support/stored-requests.ts";

// Trimming a partition concerns all its accounts, so these tests have a store of their own, with one partition.

let server: OwnStore;
let connection: TestConnection;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  nodes = oneNode(connection.redis);
});
beforeEach(() => server.empty());
afterAll(() => server?.stop());

const { ledger, trimmed } = partitionNames(0);
const entriesNow = (): Promise<LedgerEntry[]> => readLedger(connection.redis, 0, LEDGER_START);

/** Removes all that may leave, as if the archive had everything. */
async function trimAll(more: Partial<TrimOptions> = {}) {
  const archivedTo = (await entriesNow()).at(-1)!;
  return trimLedger(scriptsOf(connection.redis).run, { partition: 0, archivedTo, keepMs: 0, ...more });
}

/** An account with 12 grants, a charge that was refunded, and one that was not; its tasks have ended. */
async function givenLedger() {
  const stage = createStage(connection, { partition: 0, clock: "redis" });
  const key = await stage.givenKey({ accountId: "acc", credits: 0 });
  for (const at of times(12, (at) => at)) await stage.recharge(key, 100, `order ${at}`);
  const requests = [stage.request(key), stage.request(key)] as const;
  for (const request of requests) await stage.givenTask(request);
  await stage.observe(requests[0], "failed");
  await stage.observe(requests[1], "completed");
  return { stage, key, requests };
}

describe("a ledger that is trimmed", () => {
  // Guarantee: what is exported or rolled up since then is complete.
  test("says the time of its youngest entry that has left, also after a step of the clock", async () => {
    const stage = createStage(connection, { partition: 0 });
    const key = await stage.givenKey({ accountId: "acc", credits: 0 });
    const nowMs = Date.now();
    const made = {
      ahead: nowMs - 3_600_000,
      back: nowMs - 7_200_000,
      again: nowMs - 7_199_000,
      newest: nowMs,
    };
    for (const [reference, atMs] of Object.entries(made)) {
      stage.clock.nowMs = atMs;
      await stage.recharge(key, 5, reference);
      if (reference === "again") await trimAll();
    }
    expect((await readCut(connection.redis, 0)).atMs).toBe(made.ahead);
    await trimAll();
    expect(await readCut(connection.redis, 0)).toMatchObject({ atMs: made.ahead });
  });

  test("loses what is archived a slice at a time, and can be stopped between two of them", async () => {
    await givenLedger();
    const ending = new AbortController();
    ending.abort();
    expect(await trimAll({ signal: ending.signal })).toMatchObject({ entries: 0, more: true });
    expect(await trimAll({ sliceMax: 4, slicesMax: 2 })).toMatchObject({ entries: 8, more: true });
    expect(await trimAll({ sliceMax: 4 })).toEqual({
      outcome: "trimmed",
      entries: 6,
      references: 0,
      more: false,
    });
    expect(await entriesNow()).toHaveLength(1);
    expect(await trimAll()).toMatchObject({ entries: 0, more: false });
    expect(await verifyLedger(nodes)).toMatchObject({ ok: true, entries: 15 });
  });

  test("shows operators the latest ten transactions, and the pages that it has", async () => {
    const { key } = await givenLedger();
    const before = await entriesNow();
    const { recent } = await readAccount(nodes, key.accountId);
    await trimAll();
    expect((await readAccount(nodes, key.accountId)).recent).toEqual(recent);
    const ids = (entries: LedgerEntry[]): string[] => entries.map(({ streamId }) => streamId);
    const first = await pageTransactions(nodes, key.accountId, { limit: 4 });
    expect(ids(first.entries)).toEqual(ids(before.toReversed().slice(0, 4)));
    const second = await pageTransactions(nodes, key.accountId, { cursor: first.next, limit: 20 });
    // The ten of the checkpoint stand behind the one entry that is still there.
    expect(ids(second.entries)).toEqual(ids(before.toReversed().slice(4, 11)));
    expect(second.next).toBeUndefined();
    expect(second.reachesBackToMs, "four more are in the archive alone").toBe(before[4]!.atMs);
  });

  test("says from when on it is complete, and exports what it has", async () => {
    await givenLedger();
    expect(await completeSinceMs(nodes, undefined)).toBe(0);
    const before = await entriesNow();
    await trimAll({ sliceMax: 5, slicesMax: 1 });
    expect(await completeSinceMs(nodes, "acc")).toBe(before[4]!.atMs + 1);
    const exported = async (after?: string): Promise<string[]> => {
      const cursor = new Map(after === undefined ? [] : [[0, after]]);
      const ids: string[] = [];
      for await (const page of exportLedger(nodes, cursor)) ids.push(...page.entries.map((e) => e.streamId));
      return ids;
    };
    const rest = before.slice(5).map(({ streamId }) => streamId);
    expect(await exported()).toEqual(rest);
    // Guarantee: who exports with a cursor never misses an entry unsaid.
    expect(await exported(before[4]!.streamId)).toEqual(rest);
    await expect(exported(before[3]!.streamId)).rejects.toThrow("have left Redis for the archive");
    await expect(exported("99999999999999-0")).rejects.toThrow("the cursor is ahead of this ledger");
  });

  test("is no store that has lost something", async () => {
    await givenLedger();
    const before = await entriesNow();
    const marks = new LastConfirmedFile(undefined, createLogger("silent"));
    const reader = createEntryReader(marks, { keep: async () => {} });
    const part = { redis: connection.redis, has: () => true, confirmed: undefined };
    expect(await reader.readNewEntries(part, "store", 1)).toBe(true);
    const known = marks.of("store").entries;
    expect(known.get(ledger)?.id).toBe(before.at(-1)!.streamId);
    const stage = createStage(connection, { partition: 0, clock: "redis" });
    await stage.recharge({ ...(await stage.givenKey({ accountId: "acc" })) }, 1, "later");
    await trimAll();
    expect(await connection.redis.hget(trimmed, "last_entry")).toBe(before.at(-1)!.streamId);
    expect(await missingEntries(connection.redis, known)).toEqual([]);
    // A gateway that was away reads on behind the gap.
    expect(await reader.readNewEntries(part, "store", 1)).toBe(true);
    expect(known.get(ledger)?.id).toBe((await entriesNow())[0]!.streamId);
    const recent = before.map(({ streamId: id, accountId }, at): [string, RecentEntry] => [
      id,
      { id, accountId, kind: "grant", credits: 1, reference: "", after: before[at - 1]?.streamId },
    ]);
    const lost = await listMissing(readsOfAll(nodes), new Map([[ledger, new Map(recent)]]));
    expect([lost.entries, lost.unknownBeforeMs.size]).toEqual([[], 0]);
    // An entry that it should still have is lost all the same, and so is one that came after the cut.
    await connection.redis.xdel(ledger, known.get(ledger)!.id);
    expect(await missingEntries(connection.redis, known)).toHaveLength(1);
    expect(await reader.readNewEntries(part, "store", 1)).toBe(false);
  });
});

describe("a reference that Redis has forgotten", () => {
  async function givenForgotten(): Promise<KeyRef> {
    const { key } = await givenLedger();
    await trimAll();
    expect(await trimAll({ keepReferencesMs: 0 })).toMatchObject({ references: 12 });
    expect(await connection.redis.hlen(accountNames(0, "acc").references)).toBe(0);
    expect(await verifyLedger(nodes)).toMatchObject({ ok: true });
    return key;
  }
  const balance = async (): Promise<number> => (await readAccount(nodes, "acc")).balance;

  test("is looked up in the archive, and credits nothing again", async () => {
    await givenForgotten();
    const lookUps: string[][] = [];
    const like = { ...(await entriesNow()).at(-1)!, requestId: "", taskId: "", endpoint: "", reason: "" };
    const archive =
      (amount: number | undefined) => async (_: RedisNodes, accountId: string, reference: string) => {
        lookUps.push([accountId, reference]);
        return amount === undefined ? undefined : { ...like, accountId, reference, type: "recharge", amount };
      };
    const grant = (reference: string, amount: number | undefined) =>
      grantCredits(nodes, "acc", 100, reference, cliActor(), archive(amount));
    const entry = { reference: "order 3", amount: 100 };
    expect(await grant("order 3", 100)).toMatchObject({ outcome: "duplicate", balance: 1190, entry });
    await expect(grant("order 3", 99)).rejects.toThrow("was used for another grant before");
    expect(await balance()).toBe(1190);
    expect(await grant("order 99", undefined)).toMatchObject({ outcome: "recharged", balance: 1290 });
    expect(lookUps).toEqual([
      ["acc", "order 3"],
      ["acc", "order 3"],
      ["acc", "order 99"],
    ]);
    // A reference that Redis knows is not looked up.
    expect(await grant("order 99", 1)).toMatchObject({ outcome: "duplicate", balance: 1290 });
    expect(lookUps).toHaveLength(3);
    expect(await verifyLedger(nodes)).toMatchObject({ ok: true });
  });

  test("credits nothing while the archive is away, in plain words", async () => {
    await givenForgotten();
    const away = async (): Promise<never> => Promise.reject(new Error("nobody listens there"));
    await expect(grantCredits(nodes, "acc", 100, "order 3", cliActor(), away)).rejects.toThrow(
      "nothing is changed: only the archive knows whether this reference was used long ago, which cannot be used " +
        "(nobody listens there); run this again later",
    );
    await expect(grantCredits(nodes, "acc", 100, "order 3", cliActor())).rejects.toThrow("set ARCHIVE_URL");
    expect(await balance()).toBe(1190);
  });

  test("that is forgotten between look-up and grant is looked up again", async () => {
    const { key, stage } = await givenLedger();
    await trimAll();
    await trimAll({ keepReferencesMs: 0, sliceMax: 6, slicesMax: 1 });
    let lookUps = 0;
    const archive = async (): Promise<undefined> => {
      if (++lookUps === 1) await trimAll({ keepReferencesMs: 0 });
    };
    expect(await grantCredits(nodes, "acc", 5, "new", cliActor(), archive)).toMatchObject({
      outcome: "recharged",
    });
    expect(lookUps).toBe(2);
    // Nothing of other accounts is looked up.
    await stage.givenKey({ accountId: "other", credits: 0 });
    expect(await grantCredits(nodes, "other", 5, "order 3", cliActor())).toMatchObject({
      outcome: "recharged",
    });
    expect((await stage.account(key)).balance).toBe(1195);
  });
});

type Ledger = Awaited<ReturnType<typeof givenLedger>>;

async function changeCheckpoint(change: (checkpoint: Checkpoint) => Partial<Checkpoint>): Promise<void> {
  const { checkpoint: name } = accountNames(0, "acc");
  const checkpoint = checkpointOf((await connection.redis.get(name))!)!;
  await connection.redis.set(name, checkpointText({ ...checkpoint, ...change(checkpoint) }));
}

/** Posts an entry as `post` does. */
async function post({ key }: Ledger, amount: number, fields: Record<string, string>): Promise<void> {
  const { redis } = connection;
  const account = key.names.account;
  const balance = await addMoney(redis, account, "balance", amount);
  const previous = (await accountIn(redis, account)).last_entry!;
  const entry = { account_id: "acc", amount, balance_after: balance, endpoint: "", at: Date.now(), previous };
  const id = await redis.xadd(
    ledger,
    "*",
    ...Object.entries({ ...entry, ...fields })
      .flat()
      .map(String),
  );
  await changeMoney(redis, account, { last_entry: id! });
  if (fields.reference === undefined) await addMoney(redis, account, "total_used", -amount);
}

const ofRequest = ({ requests: [failed, completed], key }: Ledger, isFailed: boolean) => {
  const request = isFailed ? failed : completed;
  return { request_id: request.requestId, key_id: key.keyId, task_id: taskOf(request) };
};

/** Changes of a trimmed ledger, and the names under which `ledger verify` finds each. */
const BREAKAGES: [string, string[], (ledger: Ledger) => Promise<unknown>][] = [
  [
    "a checkpoint's balance that is one off",
    ["chain"],
    () => changeCheckpoint(({ balance }) => ({ balance: balance + 1 })),
  ],
  [
    "a checkpoint that is one entry behind",
    ["chain", "references", "total_used"],
    () => changeCheckpoint(({ tail }) => ({ entry: tail[1]!.streamId })),
  ],
  [
    "charges that are one off",
    ["total_used"],
    () => changeCheckpoint(({ consumed }) => ({ consumed: consumed + 1 })),
  ],
  [
    "refunds that are one off",
    ["total_used"],
    () => changeCheckpoint(({ refunded }) => ({ refunded: refunded - 1 })),
  ],
  [
    "a reference that is not counted",
    ["references"],
    () => changeCheckpoint(({ references }) => ({ references: references - 1 })),
  ],
  [
    "a forgotten reference that is there",
    ["references"],
    () => changeCheckpoint(() => ({ forgotten: 1, forgotten_credits: 100 })),
  ],
  [
    "a checkpoint that is gone",
    ["chain", "references", "total_used"],
    () => connection.redis.del(accountNames(0, "acc").checkpoint),
  ],
  [
    "a charge that has left and was made again",
    ["requests"],
    (ledger) => post(ledger, -10, { type: "consume", reason: "", ...ofRequest(ledger, false) }),
  ],
  [
    "a refund that has left and was made again",
    ["requests"],
    (ledger) => post(ledger, 10, { type: "recharge", reason: "refund", ...ofRequest(ledger, true) }),
  ],
  [
    "more refunds than charges that have left",
    ["requests"],
    (ledger) =>
      post(ledger, 30, { type: "recharge", reason: "refund", request_id: "r", key_id: "k", task_id: "t" }),
  ],
  [
    "a finished request whose charge is nowhere",
    ["requests"],
    ({ requests: [, completed] }) =>
      changeRequest(connection.redis, requestName(0, completed.requestId), { trimmed_charge: undefined }),
  ],
  [
    "an entry that has left and is there",
    ["chain"],
    async () => connection.redis.hset(trimmed, "last_entry", (await entriesNow())[0]!.streamId),
  ],
];

test.each(BREAKAGES)("ledger verify finds across the cut: %s", async (_, names, breakIt) => {
  const given = await givenLedger();
  await given.stage.recharge(given.key, 7, "stays 1");
  await given.stage.recharge(given.key, 7, "stays 2");
  await trimAll({ sliceMax: 15, slicesMax: 1 });
  expect(await entriesNow()).toHaveLength(2);
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, entries: 17 });
  await breakIt(given);
  const { violations } = await verifyLedger(nodes);
  expect([...new Set(violations.map(({ invariant }) => invariant))].sort()).toEqual(names);
});

/** Requests that fall to so many different readings of a ledger. */
const requestsOf = (readings: number): string[] =>
  times(readings, (part) => {
    const { concerns } = createCharges({ part, parts: readings });
    return times(1000, (at) => `req_${at}`).find(concerns)!;
  });

// Guarantee: a ledger that is read several times is verified as one that is read once.
test.each(BREAKAGES)(
  "ledger verify finds across the cut in several readings: %s",
  async (_, names, breakIt) => {
    const given = await givenLedger();
    for (const reference of ["stays 1", "stays 2"]) await given.stage.recharge(given.key, 7, reference);
    await trimAll({ sliceMax: 15, slicesMax: 1 });
    expect(await verifyLedger(nodes, { chargesAtOnce: 1 })).toMatchObject({ ok: true, entries: 17 });
    await breakIt(given);
    const once = await verifyLedger(nodes);
    const several = await verifyLedger(nodes, { chargesAtOnce: 1 });
    expect([...new Set(once.violations.map(({ invariant }) => invariant))].sort()).toEqual(names);
    const words = ({ violations }: typeof once) => violations.map((one) => JSON.stringify(one)).sort();
    expect(words(several)).toEqual(words(once));
  },
);

// Each reading once had all credits of the charges that have left, so the second refund of them was not found.
test("charges that have left are refunded once, in whichever reading their requests are", async () => {
  const given = await givenLedger();
  await trimAll({ sliceMax: 14, slicesMax: 1 });
  const wrong = { type: "recharge", reason: "refund", key_id: "k", task_id: "t" };
  const readings = (await entriesNow()).length + 2;
  const found = async () =>
    (await verifyLedger(nodes, { chargesAtOnce: 1 })).violations.map(({ invariant, message }) =>
      `${invariant}: ${message}`.replace(/\d+-\d+/, "ID"),
    );
  const [first, second] = requestsOf(readings).slice(-2);
  await post(given, 10, { ...wrong, request_id: first! });
  expect(await found(), "10 credits of charges are left").toEqual([]);
  await post(given, 10, { ...wrong, request_id: second! });
  expect((await entriesNow()).length).toBe(readings);
  expect(await found()).toEqual(["requests: entry ID refunds what was never charged"]);
});

// Guarantee: a refund that leaves between two readings is not taken off twice.
test("refunds may leave at any point of several readings, without a false alarm", async () => {
  const refund = { type: "recharge", reason: "refund", key_id: "k", task_id: "t" };
  for (let at = 1, isOver = false; !isOver; at++) {
    await server.empty();
    const given = await givenLedger();
    const { stage, key } = given;
    const second = stage.request(key);
    await stage.givenTask(second);
    await stage.observe(second, "completed");
    await stage.recharge(key, 7, "stays");
    await trimAll({ sliceMax: 16, slicesMax: 1 });
    // Both are sound: two charges of 10 have left.
    for (const requestId of requestsOf(3).slice(0, 2))
      await post(given, 10, { ...refund, request_id: requestId });
    let rests = 0;
    const rest = async (): Promise<void> => {
      if (++rests === at) await trimAll({ sliceMax: 2, slicesMax: 1 });
    };
    const { violations } = await verifyLedger(nodes, { chargesAtOnce: 1, rest });
    expect(violations, `trimmed at the rest ${at}`).toEqual([]);
    isOver = rests < at;
    if (!isOver) expect(await entriesNow()).toHaveLength(1);
    expect(at).toBeLessThan(200);
  }
});

// Guarantee: entries may leave at any point of a verification, without a false alarm.
test("a ledger that is trimmed while it is read is never called wrong", { timeout: 60_000 }, async () => {
  const { stage, key } = await givenLedger();
  const keys = [
    key,
    ...(await Promise.all(times(3, (at) => stage.givenKey({ accountId: `acc${at}`, credits: 500 })))),
  ];
  let going = true;
  let moved = 0;
  const live = async (owner: KeyRef): Promise<void> => {
    while (going) {
      const request = stage.request(owner, { price: 1 });
      if ((await stage.admit(request)).outcome !== "admitted") {
        await connection.redis.del(owner.names.window);
        await stage.recharge(owner, 100, `more ${moved++}`);
        continue;
      }
      await stage.bind(request);
      await stage.observe(request, moved++ % 2 === 0 ? "failed" : "completed");
    }
  };
  const trimming = async (): Promise<void> => {
    while (going) await trimAll({ keepReferencesMs: 0, sliceMax: 3 });
  };
  for (const { names } of keys)
    await setKeyFields(connection.redis, names.key, { rate_limit: 1_000_000, daily_limit: 1_000_000 });
  const reader = await openConnection(server.url);
  const work = [...keys.map(live), trimming()];
  try {
    for (let round = 0; round < 20; round++) {
      const { violations } = await verifyLedger(oneNode(reader.redis));
      expect(violations).toEqual([]);
    }
  } finally {
    going = false;
    await Promise.all(work);
    await reader.close();
  }
  expect(moved).toBeGreaterThan(100);
  expect(Number(await connection.redis.hget(trimmed, "entries"))).toBeGreaterThan(100);
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true });
});
