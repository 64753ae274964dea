import type { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { trimLedger } from "../../src/archive/trimming.ts";
import { createRollup, rollUp } from "../../src/jobs/rollup-work.ts";
import { accountUsage, moneyByDay, moneyNow } from "../../src/ledger/account-usage.ts";
import { pageTransactions } from "../../src/operations/credits/transactions.ts";
import { META, partitionNames, requestName, totalsName, usageName } from "../../src/records/names.ts";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { type RollupCall, rollup } from "../../src/scripts/ledger.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { changeMoney } from "../support/account-money.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, ENDPOINT, NOON_MS, type TestConnection, taskOf, times } from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { until } from "../support/until.ts";
import { plantForTest } from "./mutant-client.ts";
import { ENDED_MUTANTS, inShare, type Mutant, ROLLUP_MUTANTS } from "./mutants.ts";

// ROLLUP, and the usage that is read of it. Cursors are those of a partition, so the store is a test's own.

const DAY_MS = 86_400_000;
/** Noon of a day of last month. */
const nowMs = Date.now();
const LATELY_MS = Math.floor(nowMs / DAY_MS) * DAY_MS - 40 * DAY_MS + DAY_MS / 2;
const day = (at = 0): string => new Date(LATELY_MS + at * DAY_MS).toISOString().slice(0, 10);

let server: OwnStore;
let redis: Redis;
let nodes: RedisNodes;
let connection: TestConnection;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
  redis = server.client;
  nodes = oneNode(redis);
});
afterAll(() => server?.stop());
beforeEach(() => server.empty());

const { ledger, rolled, ended, trimmed } = partitionNames(0);
const rollAll = () => rollUp(scriptsOf(redis).run, { partition: 0 });
const usage = (
  by: Parameters<typeof accountUsage>[1]["by"] = ["day"],
  more: { from?: string; to?: string } = {},
) => accountUsage(nodes, { accountId: "acc", by, ...more });
const counts = (
  requests: number,
  credits: number,
  refunds = 0,
  completed = 0,
  failed = 0,
  seconds: unknown = 0,
) => ({ requests, credits, refunds, completed, failed, seconds });

const charge = (at: number, more: Partial<GivenEntry> = {}): GivenEntry => ({
  ...{ accountId: "acc", amount: -10, atMs: LATELY_MS + at, keyId: "key_1", endpoint: ENDPOINT },
  ...{ taskId: `task_${at}`, requestId: `req_${at}`, ...more },
});
const refund = (at: number): GivenEntry => charge(at, { type: "recharge", amount: 10, reason: "refund" });

/** Two days, two endpoints and two keys of an account, beside another account. */
const LEDGER: readonly GivenEntry[] = [
  { accountId: "acc", amount: 1000, atMs: LATELY_MS, reference: "order" },
  charge(1),
  charge(2, { keyId: "key_2" }),
  charge(3, { endpoint: "/other", amount: -7 }),
  { ...charge(4), accountId: "else" },
  refund(5),
  { accountId: "acc", type: "consume", amount: -30, atMs: LATELY_MS + 6, reason: "goodwill back" },
  { accountId: "acc", type: "recharge", amount: 4, atMs: LATELY_MS + 7, reason: "goodwill" },
  { accountId: "acc", amount: 50, atMs: LATELY_MS + 8, reference: "try it", kind: "trial" },
  { accountId: "acc", amount: 9, atMs: LATELY_MS + 9, reference: "sorry", kind: "goodwill" },
  { accountId: "acc", amount: -20, atMs: LATELY_MS + 10, reason: "money back", kind: "reversal" },
  charge(DAY_MS),
];

describe("what is counted", () => {
  test("is charges, refunds, purchases and adjustments by day, endpoint and key", async () => {
    await writeEntries(redis, 0, LEDGER);
    expect(await rollAll()).toEqual({ entries: LEDGER.length, ended: 0, more: false, unexplained: 0 });
    const { rows, source, sinceMs } = await usage(["day", "endpoint", "key"]);
    const of = (at: number, endpoint: string, key_id: string) => ({ day: day(at), endpoint, key_id });
    expect(rows).toEqual([
      { ...of(0, ENDPOINT, "key_1"), ...counts(1, 10, 10) },
      { ...of(0, ENDPOINT, "key_2"), ...counts(1, 10) },
      { ...of(0, "/other", "key_1"), ...counts(1, 7) },
      { ...of(1, ENDPOINT, "key_1"), ...counts(1, 10) },
    ]);
    expect([source, sinceMs]).toEqual(["redis", undefined]);
    expect((await usage(["day"])).rows).toEqual([
      { day: day(0), ...counts(3, 27, 10) },
      { day: day(1), ...counts(1, 10) },
    ]);
    expect((await usage([], { to: day(0) })).rows).toEqual([counts(3, 27, 10)]);
    expect((await usage(["key"], { from: day(1) })).rows).toEqual([{ key_id: "key_1", ...counts(1, 10) }]);
    expect((await moneyByDay(nodes, day(0), day(0))).days).toMatchObject([
      {
        day: day(0),
        requests: 4,
        charged: 37,
        refunded: 10,
        purchased: 1000,
        adjusted: -26,
        trials: 50,
        goodwill: 9,
        reversed: 20,
      },
    ]);
    expect((await moneyByDay(nodes, day(0), day(1))).days).toHaveLength(2);
  });

  test("is tasks that completed, failed or were not charged, each once", async () => {
    const stage = createStage(connection, { partition: 0, clock: "redis" });
    const key = await stage.givenKey({ accountId: "acc", credits: 25 });
    const [done, failed, open, late] = times(4, () => stage.request(key, { price: 10 }));
    for (const request of [done!, failed!]) await stage.givenTask(request);
    for (const { requestId } of [done!, failed!])
      await changeRequest(redis, requestName(0, requestId), { bound_at: (atMs) => atMs - 83_000 });
    for (const status of ["completed", "completed", "failed"] as const) await stage.observe(done!, status);
    await stage.observe(failed!, "failed");
    await stage.givenTask(open!);
    await stage.admit({ ...late!, price: 5, holdMs: 0 });
    await stage.void({ ...late!, price: 5 }, "due");
    await changeMoney(redis, key.names.account, { balance: 0 });
    expect(await stage.bind({ ...late!, price: 5 })).toBe("uncollected");
    expect(await redis.zcard(ended)).toBe(3);
    await rollAll();
    expect(await redis.zcard(ended)).toBe(0);
    await rollAll();
    const { rows, endedSinceMs } = await usage([]);
    expect(rows).toEqual([counts(3, 30, 10, 1, 1, expect.any(Number))]);
    expect(rows[0]!.seconds).toBeGreaterThanOrEqual(83);
    expect(rows[0]!.seconds).toBeLessThan(120);
    expect(endedSinceMs).toBeGreaterThanOrEqual(nowMs);
    const { today, month } = await moneyNow(nodes);
    expect(today).toMatchObject({ charged: 30, refunded: 10, completed: 1, failed: 1, uncollected: 1 });
    expect(today).toMatchObject({ uncollected_credits: 5, purchased: 25, adjusted: 0 });
    expect(month).toEqual(today);
  });

  // Guarantee: whoever rolls up, and however often, each entry counts once.
  test("counts once, however many do it at a time", async () => {
    await writeEntries(
      redis,
      0,
      times(1500, (at) => charge(at)),
    );
    const runs = await Promise.all(times(5, () => rollAll()));
    expect(runs.reduce((sum, { entries }) => sum + entries, 0)).toBe(1500);
    expect((await usage([])).rows).toEqual([counts(1500, 15_000)]);
    expect(await rollAll()).toMatchObject({ entries: 0, unexplained: 0 });
  });

  test("is kept for 400 days after its month, and what is older is not counted at all", async () => {
    await writeEntries(redis, 0, [
      { ...charge(0), atMs: nowMs - 500 * DAY_MS },
      { ...charge(1), atMs: nowMs },
    ]);
    await rollAll();
    const month = (atMs: number): string => new Date(atMs).toISOString().slice(0, 7);
    expect(await redis.exists(usageName(0, "acc", month(nowMs - 500 * DAY_MS)))).toBe(0);
    const begin = Date.parse(`${month(nowMs)}-01T00:00:00Z`);
    for (const name of [usageName(0, "acc", month(nowMs)), totalsName(0, month(nowMs))])
      expect(await redis.pexpiretime(name)).toBe(begin + 431 * DAY_MS);
    const { rows, sinceMs } = await accountUsage(nodes, { accountId: "acc", by: [] });
    expect(rows).toEqual([counts(1, 10)]);
    expect(sinceMs, "the account may be older than that").toBeLessThan(nowMs - 370 * DAY_MS);
  });

  test("goes to a key named * once an account has many", async () => {
    const bounds = { slice: 5, fields: 3 };
    await writeEntries(
      redis,
      0,
      times(12, (at) => charge(at, { keyId: `key_${at}` })),
    );
    while ((await scriptsOf(redis).run(rollup, { partition: 0, bounds })).more);
    const { rows } = await usage(["key"]);
    expect(rows.find(({ key_id }) => key_id === "*")).toMatchObject({ requests: 9 });
    expect(rows).toHaveLength(4);
    expect(await redis.hlen(usageName(0, "acc", day().slice(0, 7)))).toBe(4);
  });
});

test("days and months are those of the calendar", async () => {
  const dates = [
    "2000-02-28",
    "2000-02-29",
    "2000-03-01",
    "2023-12-31",
    "2024-01-01",
    "2024-02-29",
    "2027-02-28",
    "2028-02-29",
  ];
  await redis.hset(META, { partitions: 1 });
  const far = times(3000, (at) => new Date(Date.UTC(2040, 0, 1) + at * DAY_MS).toISOString().slice(0, 10));
  const entries = [...dates, ...far]
    .sort()
    .map((date, at) => charge(at, { atMs: Date.parse(`${date}T23:59:59.999Z`) }));
  await writeEntries(redis, 0, entries);
  await rollAll();
  const found: string[] = [];
  for (const name of (await redis.keys(totalsName(0, "*"))).sort())
    for (const field of Object.keys(await redis.hgetall(name)).sort())
      if (!field.includes(" ")) found.push(`${name.slice(-7)}-${field}`);
  // Days of long ago are over 400 days old, and gone.
  expect(found).toEqual([...dates.filter((date) => date > "2027"), ...far].sort());
});

describe("the cursor", () => {
  test("holds back what would leave the ledger uncounted", async () => {
    await writeEntries(redis, 0, LEDGER);
    const bounds = { slice: 3 };
    await scriptsOf(redis).run(rollup, { partition: 0, bounds });
    const [newest] = (await pageTransactions(nodes, "acc", { limit: 1 })).entries;
    const trim = () => trimLedger(scriptsOf(redis).run, { partition: 0, archivedTo: newest!, keepMs: 0 });
    expect(await trim()).toMatchObject({ outcome: "trimmed", entries: 3 });
    expect(await rollAll()).toMatchObject({ entries: LEDGER.length - 3, unexplained: 0 });
    expect(await trim()).toMatchObject({ outcome: "trimmed", entries: LEDGER.length - 4 });
    expect(await rollAll()).toMatchObject({ entries: 0, unexplained: 0 });
    expect((await usage([])).rows).toEqual([counts(4, 37, 10)]);
  });

  test("begins where the ledger does, and says from when on usage counts", async () => {
    await writeEntries(redis, 0, LEDGER);
    const [newest] = (await pageTransactions(nodes, "acc", { limit: 1 })).entries;
    await trimLedger(scriptsOf(redis).run, {
      partition: 0,
      archivedTo: newest!,
      keepMs: 0,
      slicesMax: 1,
      sliceMax: 4,
    });
    expect(await rollAll()).toMatchObject({ entries: LEDGER.length - 4, unexplained: 0 });
    const { rows, sinceMs } = await usage([]);
    expect(rows).toEqual([counts(1, 10, 10)]);
    expect(sinceMs).toBe(LATELY_MS + 3 + 1);
    expect((await usage([], { from: day(1) })).sinceMs).toBeUndefined();
  });

  // Guarantee: usage that no longer follows from the ledger is noticed.
  test("notices entries that somebody removed, and says so once", async () => {
    const ids = await writeEntries(redis, 0, LEDGER);
    await rollAll();
    await redis.xdel(ledger, ids[2]!);
    expect(await rollAll()).toMatchObject({ unexplained: -1 });
    const lines: string[] = [];
    const log = createLogger("error", { write: (line) => void lines.push(line) });
    const work = createRollup({ connection, metrics: connection.metrics, log });
    for (const _ of times(3, () => 0)) await work.round();
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0]!)).toMatchObject({ partition: 0, entries: -1 });
    expect((await connection.metrics.usageUnexplained.get()).values[0]?.value).toBe(1);
    await redis.hincrby(rolled, "skipped", -1);
    await work.round();
    expect((await connection.metrics.usageUnexplained.get()).values[0]?.value).toBe(0);
    await work.stop();
  });
});

// Guarantee: a busy store is rolled up half as often, any other once a second, and again once it is no longer busy.
test.each([
  { entries: 999, pauseMs: 1000 },
  { entries: 1000, pauseMs: 2000 },
  // More than one call reads of a partition, and less than a busy store has in the next one.
  { entries: 5900, pauseMs: 2000 },
])("after a round of $entries entries the next one is $pauseMs ms later", async ({ entries, pauseMs }) => {
  await writeEntries(
    redis,
    0,
    times(entries, (at) => charge(at)),
  );
  const turnsMs: number[] = [];
  const ofName: typeof connection.ofName = () => ({
    ...connection.ofName(),
    async run(script, call) {
      turnsMs.push((call as { leaseMs: number }).leaseMs);
      return connection.run(script, call);
    },
  });
  const log = createLogger("silent");
  const work = createRollup({ connection: { ...connection, ofName }, metrics: connection.metrics, log });
  work.start(0);
  await until(async () => {
    await redis.zadd("tg:{p00}:something", 1, "new");
    return turnsMs.length >= 3;
  });
  await work.stop();
  // A turn is over half a second before the next round, which may begin early.
  expect(turnsMs.slice(0, 3)).toEqual([1000, pauseMs, 1000].map((ms) => ms - 500));
});

// Guarantee: what is read depends on days, endpoints and keys, not on the number of entries.
test("the usage of an account with 20,000 entries is read with a handful of commands", async () => {
  await writeEntries(
    redis,
    0,
    times(20_000, (at) => charge(at * 100_000)),
  );
  await rollAll();
  await redis.config("RESETSTAT");
  const { rows } = await usage(["day"]);
  expect(rows.reduce((sum, { requests }) => sum + requests, 0)).toBe(20_000);
  const stats = await redis.info("commandstats");
  const calls = [...stats.matchAll(/cmdstat_(\w+):calls=(\d+)/g)].map(([, name, count]) => [
    name,
    Number(count),
  ]);
  const reads = Object.fromEntries(calls);
  expect(reads).not.toHaveProperty("xrange");
  expect(reads.hscan).toBeLessThanOrEqual(17);
});

// Guarantee: usage adds up to what is on the statement, also of a day whose numbers cancel each other out.
test("a day has its row although a refund that was taken back weighs as much as what was completed", async () => {
  const stage = createStage(connection, { partition: 0 });
  stage.clock.nowMs = LATELY_MS;
  const key = await stage.givenKey({ accountId: "acc", credits: 10 });
  const generation = stage.request(key, { price: 1 });
  await stage.givenTask(generation);
  await stage.observe(generation, "expired");
  stage.clock.nowMs += DAY_MS;
  const task = { taskId: taskOf(generation), requestId: generation.requestId, creatorKeyId: key.keyId };
  await stage.reclaim({ partition: 0, accountId: "acc", task, data: "{}" });
  await rollAll();
  const days = await usage();
  expect(days.rows).toEqual([
    { day: day(), ...counts(1, 1, 1) },
    { day: day(1), ...counts(0, 0, -1, 1, 0, expect.any(Number)) },
  ]);
});

test("days in the wrong order and an account that does not exist are refused", async () => {
  await writeEntries(redis, 0, LEDGER);
  await expect(usage([], { from: day(1), to: day(0) })).rejects.toMatchObject({ code: "invalid" });
  await expect(accountUsage(nodes, { accountId: "nobody", by: [] })).rejects.toMatchObject({
    code: "not_found",
  });
});

const LATER_MS = NOON_MS + DAY_MS;

test.each(inShare(ENDED_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await notedBy();
  expect(good).toEqual([
    `completed ${NOON_MS} at ${NOON_MS}`,
    `completed ${NOON_MS} at ${LATER_MS}`,
    `failed ${NOON_MS} at ${NOON_MS}`,
    `failed ${NOON_MS} at ${NOON_MS}`,
    `uncollected 5 at ${LATER_MS}`,
    `unfailed ${NOON_MS} at ${NOON_MS}`,
  ]);
  expect(await notedBy(mutant)).not.toEqual(good);
});

/** Notes of the ends of tasks, one of which completed on the day after it had failed. */
async function notedBy(mutant?: Mutant): Promise<string[]> {
  const folder = mutant && (await plantForTest(mutant));
  await server.empty();
  const scripts = createScriptRunner(redis, folder === undefined ? {} : { folder });
  const stage = createStage(connection, { scripts, partition: 0 });
  const key = await stage.givenKey({ accountId: "acc", credits: 20 });
  const [done, failed, expired, late] = times(4, () => stage.request(key, { price: 5 }));
  for (const request of [done!, failed!, expired!]) await stage.givenTask(request);
  for (const status of ["completed", "completed"] as const) await stage.observe(done!, status);
  await stage.observe(failed!, "failed");
  await stage.observe(expired!, "expired");
  stage.clock.nowMs = LATER_MS;
  const task = { taskId: taskOf(expired!), requestId: expired!.requestId, creatorKeyId: key.keyId };
  await stage.reclaim({ partition: 0, accountId: "acc", task, data: '{"status":"completed"}' });
  await stage.admit({ ...late!, holdMs: 0 });
  await stage.void(late!, "due");
  await changeMoney(redis, key.names.account, { balance: 0 });
  for (const _ of [1, 2]) await stage.bind(late!);
  const notes = await redis.zrange(ended, "0", "-1", "WITHSCORES");
  const ofKey = notes.flatMap((note, at) =>
    note.endsWith(` acc ${key.keyId} ${ENDPOINT}`) ? [`${note} ${notes[at + 1]}`.split(" ")] : [],
  );
  return ofKey.map((words) => `${words[1]} ${words[2]} at ${words.at(-1)}`).sort();
}

test.each(inShare(ROLLUP_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await seenBy();
  expect(await seenBy(mutant)).not.toEqual(good);
});

/** Everything that ROLLUP and TRIM leave of a ledger, in small steps. */
async function seenBy(mutant?: Mutant): Promise<unknown> {
  const folder = mutant && (await plantForTest(mutant));
  await server.empty();
  const scripts = createScriptRunner(redis, {
    ...(folder === undefined ? {} : { folder }),
    form: { checksFrozen: false, crossesSlots: false },
  });
  const entries = [...LEDGER, ...times(4, (at) => charge(DAY_MS + 1 + at, { keyId: `key_${at}` }))];
  const ids = await writeEntries(redis, 0, entries);
  for (const [at, what] of ["completed", "failed", "uncollected"].entries())
    await redis.zadd(ended, LATELY_MS + at, `req_${at} ${what} ${LATELY_MS - 83_600} acc key_1 ${ENDPOINT}`);
  // The task that failed completed late.
  await redis.zadd(ended, LATELY_MS + 1, `req_1 unfailed ${LATELY_MS} acc key_1 ${ENDPOINT}`);
  // The clock of another server is ahead.
  await redis.zadd(ended, LATELY_MS, `req_ahead completed ${LATELY_MS + 9000} acc key_2 ${ENDPOINT}`);
  const step = (call: Partial<RollupCall>) => scripts.run(rollup, { partition: 0, ...call });
  const answers: unknown[] = [await step({ bounds: { slice: 2 } })];
  const [archivedTo] = (await pageTransactions(nodes, "acc", { limit: 1 })).entries;
  answers.push(await trimLedger(scripts.run, { partition: 0, archivedTo: archivedTo!, keepMs: 0 }));
  answers.push(
    await step({ bounds: { slice: 4, fields: 3 } }),
    await step({ bounds: { slice: 50, fields: 1 } }),
  );
  answers.push(await step({}));
  const kept: Record<string, unknown> = { answers, rest: await redis.zrange(ended, "0", "-1") };
  for (const name of (await redis.keys("tg:{p00}:*")).sort()) {
    if (!/usage|totals|rolled/.test(name)) continue;
    const { ended_since: _, ...fields } = await redis.hgetall(name);
    kept[name] = [fields, await redis.pexpiretime(name)];
  }
  await redis.hset(trimmed, { last_entry: ids[8]!, at: LATELY_MS, entries: 7 });
  await redis.del(rolled);
  kept.again = [await step({}), (await redis.hgetall(rolled)).since];
  return kept;
}
