import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { createSurveys } from "../../src/operations/store/survey.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, keyNames, keyRef, requestName } from "../../src/records/names.ts";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { history } from "../../src/scripts/ledger.ts";
import { ELEMENTS_AT_ONCE } from "../../src/scripts/snapshot.ts";
import { accountIn } from "../support/account-money.ts";
import { givenLargeAccount } from "../support/large-account.ts";
import { createStage, openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { changeCounters, setKeyFields } from "../support/stored-records.ts";
import { changeRequest, readRequest } from "../support/stored-requests.ts";
import { holdToBounds } from "./bounds.ts";
import { plantForTest } from "./mutant-client.ts";
import { SLICE_MUTANTS } from "./mutants.ts";

// Guarantee: no call holds Redis for longer because an account is large. All scripts here fail beyond the bounds in their headers.

/** `LARGE_ACCOUNT=100000` takes two minutes. More elements than the highest bound of a script has steps, so a call that reads all of them fails here as well. */
const MANY = Number(process.env.LARGE_ACCOUNT ?? 5000);
/** More than fits in many slices; what is wrong is looked for in these. */
const SEVERAL = 2000;
/** Adds to what is held, in one step: there is traffic meanwhile. */
const HOLD = `
local text = redis.call("HGET", KEYS[1], "money"):gsub("^(%S+) (%S+)", function(balance, held)
  return balance .. " " .. string.format("%d", held + ARGV[1])
end)
return redis.call("HSET", KEYS[1], "money", text)`;
let server: TestRedis;
let redis: Redis;
let connection: TestConnection;
let account: Awaited<ReturnType<typeof givenLargeAccount>>;
let longKey: Awaited<ReturnType<typeof givenLargeAccount>>;
let smaller: Awaited<ReturnType<typeof givenLargeAccount>>;
let shorterKey: Awaited<ReturnType<typeof givenLargeAccount>>;

beforeAll(async () => {
  server = await givenRedis();
  connection = await openConnection(server.url);
  redis = new Redis(server.url);
  for (const client of [redis, connection.redis]) holdToBounds(client);
  const partitions = await partitionsOf(oneNode(redis));
  const given = (accountId: string, keys: number, tasks: number) =>
    givenLargeAccount(redis, accountId, partitions, { keys, tasks, held: 2 });
  account = await given("acc-of-many-keys", MANY, 1);
  longKey = await given("acc-of-one-key", 1, MANY);
  smaller = await given("acc-of-several-keys", SEVERAL, 1);
  shorterKey = await given("acc-of-a-shorter-key", 1, SEVERAL);
}, 120_000);
afterAll(async () => {
  redis?.disconnect();
  await connection?.close();
  await server?.stop();
});

const TIMEOUT = { timeout: 240_000 };
const nodes = () => oneNode(redis);

async function verify(accountId: string) {
  const { violations, accounts } = await verifyLedger(nodes(), { accountIds: [accountId] });
  expect(accounts).toBe(1);
  return violations
    .map(({ invariant, request_id = "", message }) => `${invariant}: ${request_id} ${message}`)
    .sort();
}

test("a bound that is too low fails", async () => {
  const other = new Redis(server.url);
  holdToBounds(other, () => 20);
  await expect(verifyLedger(oneNode(other), { accountIds: [account.accountId] })).rejects.toThrow(
    "takes more steps than 20",
  );
  other.disconnect();
});

test(
  "accounts with many keys and with many open tasks are verified in slices, with rests",
  TIMEOUT,
  async () => {
    let rests = 0;
    const rest = async (): Promise<void> => void rests++;
    const result = await verifyLedger(nodes(), { rest });
    expect(result).toMatchObject({ ok: true, accounts: 4, violations: [] });
    expect(rests).toBeGreaterThan((2 * MANY) / ELEMENTS_AT_ONCE);
  },
);

test("an account with many keys gets limits over all of them while tasks are open", TIMEOUT, async () => {
  const { accountId, partition } = account;
  await patchAccount(nodes(), accountId, { limits: { max_concurrent: 2 * MANY } }, cliActor("test"));
  expect(await redis.scard(accountNames(partition, accountId).slots)).toBe(MANY);
});

test("what is wrong in any slice of a large account is found", TIMEOUT, async () => {
  const { accountId, partition, keyId, requestId } = smaller;
  const { slots } = accountNames(partition, accountId);
  const record = (key: number): string => requestName(partition, requestId(key, 1));
  await patchAccount(nodes(), accountId, { limits: { max_concurrent: 2 * SEVERAL } }, cliActor("test"));
  await redis.sadd(keyNames(partition, keyId(SEVERAL)).slots, "nobody");
  await changeRequest(redis, record(1100), { state: "void" });
  await changeCounters(redis, keyNames(partition, keyId(1400)).key, { day_count: 0 });
  await redis.del(keyNames(partition, keyId(1601)).window);
  await redis.srem(slots, requestId(1800, 1));
  await redis.sadd(slots, "stranger");
  // One of those that are held.
  await changeRequest(redis, record(1999), { price: 15 });
  const held = Number((await accountIn(redis, accountNames(partition, accountId).account)).held);
  const found = await verify(accountId);
  expect(found.filter((text) => !text.includes(requestId(1100, 1)))).toEqual([
    `day_count:  ${keyId(1400)}: 0 counted, at least 1 admitted`,
    `held:  stored ${held}, its open holds make ${held + 5}`,
    `slots: ${requestId(1800, 1)} has a slot of its key, but none of its account`,
    `slots: nobody has a slot of ${keyId(SEVERAL)}, but is unknown`,
    "slots: nobody has a slot of its key, but none of its account",
    "slots: stranger has a slot of its account, but of none of its keys",
    expect.stringMatching(`^window:  ${keyId(1601)}: 1 admitted at \\d+, 0 counted$`),
  ]);
  expect(found).toContain(`slots: ${requestId(1100, 1)} has a slot of ${keyId(1100)}, but is void`);
  await redis.srem(keyNames(partition, keyId(SEVERAL)).slots, "nobody");
  await redis.srem(slots, "stranger");
  await redis.sadd(slots, requestId(1800, 1));
  await changeRequest(redis, record(1100), { state: "bound" });
  await changeRequest(redis, record(1999), { price: 10 });
  await changeCounters(redis, keyNames(partition, keyId(1400)).key, { day_count: 1 });
  await redis.lpush(
    keyNames(partition, keyId(1601)).window,
    (await readRequest(redis, record(1601))).admitted_at ?? "",
  );
});

test("what is wrong anywhere in a key with many open tasks is found", TIMEOUT, async () => {
  const { accountId, partition, keyId, requestId } = shorterKey;
  const { key, window, slots } = keyNames(partition, keyId(1));
  const moment = (await readRequest(redis, requestName(partition, requestId(1, 800)))).admitted_at ?? "";
  // Its window is of now again, however long the tests before took.
  await redis.lrem(window, 1, moment);
  await redis.sadd(slots, "nobody");
  await changeCounters(redis, key, { limits: `${SEVERAL} ${SEVERAL - 1} ${SEVERAL}` });
  expect(await verify(accountId)).toEqual([
    `slots:  ${keyId(1)}: ${SEVERAL} open at a time, ${SEVERAL - 1} were allowed`,
    `slots: nobody has a slot of ${keyId(1)}, but is unknown`,
    expect.stringMatching(`^window:  ${keyId(1)}: \\d+ admitted at ${moment}, \\d+ counted$`),
  ]);
  await redis.srem(slots, "nobody");
  await changeCounters(redis, key, { limits: `${SEVERAL} ${SEVERAL} ${SEVERAL}` });
  await redis.rpush(window, moment);
  await redis.del(window);
});

// A sum over slices says nothing of an account that has changed in between.
test(
  "an account that changes while it is read is never called wrong, and a wrong sum is found all the same",
  TIMEOUT,
  async () => {
    const { accountId, partition, keyId } = smaller;
    const stage = createStage(connection, { clock: "redis", partition });
    let going = true;
    let moved = 0;
    const live = async (number: number): Promise<void> => {
      const key = keyRef(keyId(number), accountId, partition);
      while (going) {
        const request = stage.request(key, { price: 1 });
        await stage.admit(request);
        moved++;
        if (moved % 3 === 0) await stage.void(request, moved % 2 === 0 ? "refused" : "unsent");
        else {
          await stage.bind(request);
          await stage.observe(request, moved % 2 === 0 ? "failed" : "completed");
        }
        // Its limits are those of its tier again.
        await setKeyFields(redis, key.names.key, { rate_limit: 1_000_000, daily_limit: 1_000_000 });
      }
    };
    const traffic = [3, 600, 1200, 1998].map(live);
    const { account: record } = accountNames(partition, accountId);
    try {
      expect(await verify(accountId)).toEqual([]);
      await redis.eval(HOLD, 1, record, 7);
      expect(await verify(accountId)).toEqual([
        expect.stringMatching(/^held: {2}stored \d+, its open holds make \d+$/),
      ]);
      await redis.eval(HOLD, 1, record, -7);
    } finally {
      going = false;
      await Promise.all(traffic);
    }
    expect(moved).toBeGreaterThan(100);
  },
);

test("everything else stays within its bound beside many keys and many open tasks", TIMEOUT, async () => {
  const stages = [account, longKey].map(({ accountId, partition, keyId }) => ({
    stage: createStage(connection, {
      clock: "redis",
      partition,
      scripts: createScriptRunner(connection.redis),
    }),
    key: keyRef(keyId(1), accountId, partition),
  }));
  for (const { stage, key } of stages) {
    const limits = { rate_limit: 4 * MANY, daily_limit: 4 * MANY, max_concurrent: 4 * MANY };
    await setKeyFields(redis, key.names.key, limits);
    const [first, second] = [stage.request(key), stage.request(key)];
    expect((await stage.admit(first)).outcome).toBe("admitted");
    await stage.bind(first);
    await stage.observe(first, "completed", { poller: key });
    expect((await stage.admit(second)).outcome).toBe("admitted");
    await stage.void(second, "unsent");
    await stage.store.inspect(key, stage.tiers);
    await stage.credits(key);
    await stage.recharge(key, 5, "more");
    await stage.sweeps.lease("polls", key.partition, 100);
    const { run } = scriptsOf(redis);
    const { partition, accountId } = key;
    const last = (await accountIn(redis, key.names.account)).last_entry ?? "";
    await rollUp(run, { partition, slicesMax: 20 });
    await run(history, { partition, accountId, from: last, lookedAtMax: 50, answeredMax: 50 });
  }
  await createSurveys(connection).take();
});

/** Two accounts with something wrong in many slices: one with more keys than SNAPSHOT may take steps, one with a long key. */
async function givenWrong(): Promise<string[]> {
  const partitions = await partitionsOf(nodes());
  const wide = await givenLargeAccount(redis, randomId("acc"), partitions, { keys: 3100, tasks: 1 });
  const deep = await givenLargeAccount(redis, randomId("acc"), partitions, { keys: 1, tasks: 1000 });
  for (let key = 1; key <= 250; key++)
    await redis.sadd(keyNames(wide.partition, wide.keyId(key)).slots, `nobody-${key}`);
  await redis.sadd(keyNames(deep.partition, deep.keyId(1)).slots, ...times(400, (at) => `nobody-${at}`));
  return [wide.accountId, deep.accountId];
}
const found = (client: Redis, accountIds: readonly string[]) =>
  verifyLedger(oneNode(client), { accountIds }).then(
    ({ violations }) => violations.map(({ request_id, message }) => `${request_id} ${message}`).sort(),
    (error: Error) => error.message,
  );
async function findWrong() {
  const accountIds = await givenWrong();
  const right = await found(redis, accountIds);
  expect(right).toHaveLength(650);
  return { accountIds, right };
}
let wrong: ReturnType<typeof findWrong> | undefined;

// Each slice of these is read, and none is longer than it should be.
test.each(SLICE_MUTANTS)("$what: the check does not find what it finds else", TIMEOUT, async (mutant) => {
  wrong ??= findWrong();
  const { accountIds, right } = await wrong;
  const folder = await plantForTest(mutant);
  const reader = new Redis(server.url);
  holdToBounds(reader, undefined, folder);
  try {
    expect(await found(reader, accountIds)).not.toEqual(right);
  } finally {
    reader.disconnect();
  }
});
