import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { cliActor } from "../../src/records/actor.ts";
import { readEvent } from "../../src/records/deliveries.ts";
import { keyRef, partitionNames, webhookNames } from "../../src/records/names.ts";
import { createScriptRunner, itemOf, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { account, suspend } from "../../src/scripts/accounts.ts";
import { change, expiring, issue, type ReplacedKey, revoke } from "../../src/scripts/keys.ts";
import type { Script } from "../../src/scripts/script-definition.ts";
import { changeAccount } from "../support/account-money.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, randomId, type Stage, type TestConnection } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { EVENT_MUTANTS, inShare } from "./mutants.ts";

// Events beside those of tasks: written by the script that makes them come true.

const DAY_MS = 86_400_000;

let server: OwnStore;
let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  // Its own, since `eventNames` looks at every name that there is.
  server = await openOwnStore();
  connection = server.connection;
});
afterAll(() => server?.stop());
beforeEach(() => {
  stage = createStage(connection);
});

type Key = Awaited<ReturnType<Stage["givenKey"]>>;

async function givenAccount(credits: number, more: Record<string, string> = {}): Promise<Key> {
  const key = await stage.givenKey({ credits, rate_limit: 1000, daily_limit: 1000, max_concurrent: 1000 });
  const webhooks = "we_1:credits.low,key.revoked,key.expiring,account.suspended";
  await changeAccount(stage.redis, key.names.account, { webhooks, ...more });
  return key;
}

/** Runs a script at the stage's time. */
async function run<Call, Result>(script: Script<Call, Result>, call: Call): Promise<Result> {
  const item = itemOf(script, call, String(stage.clock.nowMs));
  const [reply] = await scriptsOf(stage.redis).send(script, [item]);
  if (!Array.isArray(reply)) throw reply;
  return script.read(reply, call);
}

const patchAccount = (
  scripts: ScriptRunner,
  { accountId, partition }: Key,
  fields: Record<string, string | null>,
) => {
  const call = { partition, accountId, action: "account.patch" as const, mayReinstate: true };
  return scripts.run(account, { ...call, fields, actor: cliActor() });
};

/** Of all accounts of its partition. */
function eventNames(key: Key): Promise<string[]> {
  const tag = /^tg:\{p\d+\}/.exec(key.names.account)?.[0];
  return stage.redis.keys(`${tag?.replace(/[{}]/g, "?")}:event:*`);
}

/** Events of an account, without their ids, in the order in which they were made. */
async function eventsOf(key: Key): Promise<{ type: string; data: unknown }[]> {
  const names = await eventNames(key);
  const texts = await Promise.all(names.map((name) => stage.redis.hget(name, "event")));
  const events = texts
    .map((text) => readEvent(text ?? ""))
    .filter(({ accountId }) => accountId === key.accountId);
  return events.sort((a, b) => a.atMs - b.atMs).map(({ type, data }) => ({ type, data: JSON.parse(data) }));
}

const low = (balance: number, threshold: number) => ({ type: "credits.low", data: { balance, threshold } });

async function charge(key: Key, price: number): Promise<void> {
  stage.clock.nowMs += 1000;
  await stage.givenTask(stage.request(key, { price }));
}

/** Runs while the account's events have all the bytes that they may. */
async function withoutRoom({ accountId, partition }: Key, work: () => Promise<void>): Promise<void> {
  const { totals } = webhookNames(partition);
  await stage.redis.hset(totals, accountId, 8 * 1024 * 1024);
  await work();
  await stage.redis.hdel(totals, accountId);
}

test("the credits are told of once as they fall below a threshold, and again after a recharge left them above", async () => {
  const key = await givenAccount(130, { alerts: "100 10" });
  await charge(key, 30);
  expect(await eventsOf(key), "at the line is not below it").toEqual([]);
  for (const price of [1, 1, 1]) await charge(key, price);
  expect(await eventsOf(key)).toEqual([low(99, 100)]);
  await charge(key, 88);
  await charge(key, 1);
  expect(await eventsOf(key)).toEqual([low(99, 100), low(9, 10)]);
  await stage.recharge(key, 42, randomId("order"));
  for (const price of [41, 1]) await charge(key, price);
  expect(await eventsOf(key), "50 armed the lower one alone").toEqual([low(99, 100), low(9, 10), low(9, 10)]);
  await stage.recharge(key, 1000, randomId("order"));
  await charge(key, 950);
  expect((await eventsOf(key)).slice(3)).toEqual([low(58, 100)]);
});

test("a recharge while much is held does not take a lower threshold for told", async () => {
  const key = await givenAccount(130, { alerts: "100 10" });
  await charge(key, 35);
  const held = stage.request(key, { price: 90 });
  await stage.admit(held);
  await stage.recharge(key, 1, randomId("order"));
  stage.clock.nowMs += 1000;
  await stage.bind(held);
  expect(await eventsOf(key)).toEqual([low(95, 100), low(6, 10)]);
});

// An alert that hovered at the line once fired ten times a day.
test("failed tasks at the line, whose refunds lift the balance above it, are told of once", async () => {
  const key = await givenAccount(100, { alerts: "100" });
  for (let time = 0; time < 10; time++) {
    stage.clock.nowMs += 1000;
    const generation = stage.request(key, { price: 5 });
    await stage.givenTask(generation);
    await stage.observe(generation, "failed");
  }
  expect((await stage.account(key)).balance).toBe(100);
  expect(await eventsOf(key)).toEqual([low(95, 100)]);
});

// An alert once never fired when one charge crossed three lines at once.
test("one charge that crosses three lines is told of once, with the lowest", async () => {
  const key = await givenAccount(500, { alerts: "300 200 100" });
  await charge(key, 450);
  expect(await eventsOf(key)).toEqual([low(50, 100)]);
});

test("an adjustment downwards counts as a charge, one upwards as a recharge", async () => {
  const key = await givenAccount(500, { alerts: "300" });
  const { partition, accountId } = key;
  const adjust = (amount: number) =>
    stage.adjust({
      partition,
      accountId,
      amount,
      reference: randomId("ref"),
      reason: "by hand",
      actor: cliActor(),
    });
  for (const amount of [-250, 200, -200]) {
    stage.clock.nowMs += 1000;
    await adjust(amount);
  }
  expect(await eventsOf(key)).toEqual([low(250, 300), low(250, 300)]);
});

test("changed thresholds are all armed, and an account without endpoints or thresholds has no events", async () => {
  const key = await givenAccount(500, { alerts: "300" });
  await charge(key, 300);
  await changeAccount(stage.redis, key.names.account, { alerts: "300 250" });
  await charge(key, 1);
  expect(await eventsOf(key)).toEqual([low(200, 300), low(199, 250)]);
  const silent = await givenAccount(500);
  const deaf = await givenAccount(500, { alerts: "300" });
  await stage.redis.hdel(deaf.names.account, "webhooks");
  for (const one of [silent, deaf]) {
    await charge(one, 400);
    expect(await eventsOf(one)).toEqual([]);
    expect(await stage.redis.hexists(one.names.account, "alerted")).toBe(0);
  }
});

test("a threshold that was crossed while no endpoint wanted to be told is told of once one does", async () => {
  const key = await givenAccount(130, { alerts: "100", webhooks: "we_1:task.failed,key.revoked" });
  await charge(key, 40);
  expect(await eventsOf(key)).toEqual([]);
  await changeAccount(stage.redis, key.names.account, { webhooks: "we_1:task.failed we_2:credits.low" });
  for (const price of [1, 1]) await charge(key, price);
  expect(await eventsOf(key)).toEqual([low(89, 100)]);
});

test("a refund is no charge: it tells of no threshold, and the next charge does", async () => {
  const key = await givenAccount(130, { alerts: "100", webhooks: "we_1:task.failed" });
  await charge(key, 40);
  const failing = stage.request(key, { price: 5 });
  await stage.givenTask(failing);
  await changeAccount(stage.redis, key.names.account, { webhooks: "we_1:credits.low" });
  await stage.observe(failing, "failed");
  expect(await eventsOf(key)).toEqual([]);
  await charge(key, 1);
  expect(await eventsOf(key)).toEqual([low(89, 100)]);
});

test("a threshold whose message was dropped for want of room is told of with the next charge", async () => {
  const key = await givenAccount(130, { alerts: "100" });
  await withoutRoom(key, () => charge(key, 40));
  expect(await eventsOf(key)).toEqual([]);
  for (const price of [1, 1]) await charge(key, price);
  expect(await eventsOf(key)).toEqual([low(89, 100)]);
});

// A receiver of both ignores the id of a message that it has seen.
test("two accounts of two partitions whose latest entries have one id are told with ids of their own", async () => {
  const names = new Set<string>();
  for (let time = 0; time < 2; time++) {
    stage = createStage(connection);
    const key = await givenAccount(130, { alerts: "100" });
    const money = (await stage.redis.hget(key.names.account, "money")) ?? "";
    await stage.redis.hset(key.names.account, "money", money.replace(/\d+-\d+/, "1795790400000-0"));
    await charge(key, 100);
    for (const name of await eventNames(key)) names.add(name.slice(name.indexOf(":event:")));
  }
  expect(names.size).toBe(2);
});

test("thresholds that were taken away and set again are armed again", async () => {
  const key = await givenAccount(130, { alerts: "100 10" });
  await charge(key, 125);
  const patch = (alerts: string | null) => patchAccount(scriptsOf(stage.redis), key, { alerts });
  await patch(null);
  await stage.recharge(key, 1000, randomId("order"));
  await patch("100 10");
  await charge(key, 1000);
  await patch("100 10");
  await charge(key, 1);
  expect(await eventsOf(key), "the same again changes nothing").toEqual([low(5, 10), low(5, 10)]);
});

test("a key that is revoked is told of once", async () => {
  const key = await givenAccount(10);
  const { keyId, partition } = key;
  await stage.redis.hset(key.names.key, "label", 'the "shop"');
  for (const outcome of ["revoked", "already_revoked"])
    expect(await run(revoke, { keyId, partition, actor: cliActor() })).toBe(outcome);
  expect(await eventsOf(key)).toEqual([
    { type: "key.revoked", data: { key_id: keyId, label: 'the "shop"' } },
  ]);
});

test("a key that a rotation revokes at once is told of, and one that a rotation leaves valid for a while is not", async () => {
  const key = await givenAccount(10);
  const replace = (keyId: string, heir: string, end: ReplacedKey["end"]) =>
    run(issue, {
      ...{ key: keyRef(heir, key.accountId, key.partition), tier: "standard", digest: heir, limits: {} },
      ...{ credits: 0, reference: "", actor: cliActor(), replaces: { keyId, revision: 0, end } },
    });
  const [second, third] = [randomId("key"), randomId("key")];
  const endMs = stage.clock.nowMs + 30 * DAY_MS;
  await replace(key.keyId, second, { field: "expires_at", atMs: endMs });
  const now = { field: "revoked_at", atMs: stage.clock.nowMs } as const;
  for (const outcome of ["issued", "stale"]) {
    const heir = outcome === "issued" ? third : randomId("key");
    expect(await replace(second, heir, now)).toMatchObject({ outcome });
  }
  expect(await eventsOf(key)).toEqual([{ type: "key.revoked", data: { key_id: second } }]);
});

test("an account that is suspended or closed is told so each time, and not that it is active again", async () => {
  const key = await givenAccount(10);
  const { accountId, partition } = key;
  const call = { partition, accountId, actor: cliActor() };
  await run(suspend, { ...call, status: "suspended" });
  await run(suspend, { ...call, status: "suspended" });
  const patch = (status: string | null) =>
    run(account, {
      ...call,
      action: "account.patch",
      mayReinstate: true,
      fields: { status, label: `${status}` },
    });
  await patch(null);
  await patch("closed");
  expect((await eventsOf(key)).map(({ data }) => data)).toEqual(
    expect.arrayContaining([{ status: "suspended" }, { status: "closed" }]),
  );
  expect(await eventsOf(key)).toHaveLength(2);
});

test("a key that ends is told of seven days ahead, once, unless its end was moved or it is revoked", async () => {
  const key = await givenAccount(10);
  const { accountId, partition } = key;
  const endMs = stage.clock.nowMs + 10 * DAY_MS;
  const made = async (expiresAtMs: number): Promise<string> => {
    const keyId = randomId("key");
    const one = {
      key: keyRef(keyId, accountId, partition),
      tier: "standard",
      digest: randomId("sha"),
      limits: {},
    };
    await run(issue, { ...one, expiresAtMs, credits: 0, reference: `key:${keyId}`, actor: cliActor() });
    return keyId;
  };
  const [plain, moved, revoked, kept] = [
    await made(endMs),
    await made(endMs),
    await made(endMs),
    await made(endMs),
  ];
  const changeTo = (keyId: string, expires_at: number | null) =>
    run(change, { partition, keyId, fields: { expires_at }, actor: cliActor() });
  await changeTo(moved, endMs + 20 * DAY_MS);
  await changeTo(kept, null);
  await run(revoke, { keyId: revoked, partition, actor: cliActor() });
  const look = async (): Promise<unknown[]> => {
    await run(expiring, { partition, most: 50 });
    return (await eventsOf(key)).filter(({ type }) => type === "key.expiring").map(({ data }) => data);
  };
  expect(await look(), "too early").toEqual([]);
  stage.clock.nowMs = endMs - 7 * DAY_MS;
  const notice = { key_id: plain, expires_at: new Date(endMs).toISOString() };
  expect(await look()).toEqual([notice]);
  expect(await look()).toEqual([notice]);
  stage.clock.nowMs = endMs + 20 * DAY_MS;
  expect(await look(), "it has ended unnoticed").toEqual([notice]);
  expect(await stage.redis.zcard(partitionNames(partition).expiring)).toBe(0);
});

/** Everything at once, for mistakes in the scripts: what the accounts were told. */
async function toldBy(scripts: ScriptRunner): Promise<unknown> {
  stage = createStage(connection, { scripts });
  const at = (call: () => Promise<unknown>) => {
    stage.clock.nowMs += 1000;
    return call();
  };
  const key = await givenAccount(130, { alerts: "100 50 10" });
  for (const price of [30, 1, 1, 93]) await charge(key, price);
  for (const amount of [55, 500]) {
    await at(() => stage.recharge(key, amount, randomId("order")));
    // The highest line was told of, and stays above.
    if (amount === 55) await charge(key, 1);
    await charge(key, amount === 55 ? 55 : 490);
  }
  await changeAccount(stage.redis, key.names.account, { alerts: "200" });
  await charge(key, 1);
  for (const alerts of [null, "200"]) await at(() => patchAccount(scripts, key, { alerts }));
  await charge(key, 1);
  const hovering = await givenAccount(100, { alerts: "100" });
  for (const _ of [1, 2]) {
    const generation = stage.request(hovering, { price: 5 });
    await at(() => stage.givenTask(generation));
    await at(() => stage.observe(generation, "failed"));
  }
  const holding = await givenAccount(130, { alerts: "100" });
  await stage.admit(stage.request(holding, { price: 40 }));
  await charge(holding, 1);
  const rescued = await givenAccount(130, { alerts: "100 10" });
  await charge(rescued, 35);
  const large = stage.request(rescued, { price: 90 });
  await stage.admit(large);
  await at(() => stage.recharge(rescued, 1, randomId("order")));
  await at(() => stage.bind(large));
  const unasked = await givenAccount(130, { alerts: "100", webhooks: "we_1:task.failed" });
  await charge(unasked, 40);
  await changeAccount(stage.redis, unasked.names.account, { webhooks: "we_1:credits.low" });
  await charge(unasked, 1);
  const dropped = await givenAccount(130, { alerts: "100" });
  await withoutRoom(dropped, () => charge(dropped, 40));
  await charge(dropped, 1);
  const barred = await givenAccount(10);
  const { accountId, partition, keyId } = barred;
  const actor = cliActor();
  await at(() => scripts.run(revoke, { keyId, partition, actor }));
  const asWord = async (status: string | null): Promise<void> => {
    await at(() => patchAccount(scripts, barred, { status, label: String(status) }));
  };
  await at(() => scripts.run(suspend, { partition, accountId, actor, status: "suspended" }));
  await asWord(null);
  await at(() => scripts.run(suspend, { partition, accountId, actor, status: "suspended" }));
  await asWord("closed");
  const events = [key, hovering, holding, rescued, unasked, dropped, barred].map(async (one) =>
    (await eventsOf(one)).map(({ type, data }) => [type, type === "key.revoked" ? "" : data]),
  );
  return { events: await Promise.all(events), keys: await toldOfKeys(scripts) };
}

/** Which of four keys an account is told of, and how many stay listed. */
async function toldOfKeys({ send }: ScriptRunner): Promise<unknown> {
  const owner = await givenAccount(10);
  const { accountId, partition } = owner;
  const actor = cliActor();
  const now = <Call, Result>(script: Script<Call, Result>, call: Call) =>
    send(script, [itemOf(script, call, String(stage.clock.nowMs))]);
  const endMs = stage.clock.nowMs + 10 * DAY_MS;
  const ids = ["plain", "revoked", "endless", "late", "rotated"].map((name) => `${name}-${randomId("key")}`);
  for (const keyId of ids) {
    const one = { key: keyRef(keyId, accountId, partition), tier: "standard", digest: keyId, limits: {} };
    // The late one is looked at only once it has ended.
    const expiresAtMs = keyId === ids[3] ? endMs + 1 : endMs;
    await now(issue, { ...one, expiresAtMs, credits: 0, reference: keyId, actor });
  }
  await now(revoke, { keyId: ids[1]!, partition, actor });
  await now(change, { keyId: ids[2]!, partition, fields: { expires_at: null }, actor });
  const { expiring: list } = partitionNames(partition);
  await now(change, { keyId: ids[4]!, partition, fields: { revoked_at: endMs }, actor });
  const listed = [await stage.redis.zcard(list), (await eventsOf(owner)).length];
  for (const atMs of [endMs - 7 * DAY_MS - 1, endMs - 7 * DAY_MS, endMs + 1]) {
    stage.clock.nowMs = atMs;
    await now(expiring, { partition, most: 50 });
    listed.push(await stage.redis.zcard(list), (await eventsOf(owner)).length);
  }
  await stage.redis.del(list);
  return listed;
}

const rightly = async (): Promise<unknown> => toldBy(createScriptRunner(connection.redis));

test.each(inShare(EVENT_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const messages = await toldBy(createScriptRunner(connection.redis, { folder })).catch(
    (error: Error) => error,
  );
  expect(messages).not.toBeInstanceOf(SyntaxError);
  expect(messages).not.toEqual(await rightly());
});
