import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { idempotencyName, type KeyRef, requestName, taskName } from "../../src/records/names.ts";
import { admit } from "../../src/scripts/holds.ts";
import {
  createStage,
  openConnection,
  type ScriptCall,
  type Stage,
  type TestConnection,
  taskOf,
} from "../support/store.ts";

// Several items in one call. The model (model.test.ts) plays them at random; here are the ways in which one can fail.

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

/** Outcomes, and of an item that failed the code of its error. */
const outcomes = async (calls: ScriptCall[]): Promise<unknown[]> =>
  (await stage.arriveTogether(calls)).map((reply) =>
    reply instanceof Error ? reply.message.split(" ")[0] : reply[0],
  );

const admitting = (key: KeyRef) => stage.onItsWay(() => stage.admit(stage.request(key)));

/** Records under the names of one key and its account, but for those that all of a partition share. */
const own = async (key: KeyRef) =>
  Object.entries(await stage.everything()).filter(
    ([name]) => name.endsWith(key.keyId) || name.endsWith(key.accountId),
  );

// The first read of each of these names comes before the script's first write.
test.each(["account", "slots", "window"] as const)(
  "an ADMIT whose %s cannot be read fails alone, and writes nothing",
  async (name) => {
    const [first, broken, last] = [await stage.givenKey(), await stage.givenKey(), await stage.givenKey()];
    await stage.redis.del(broken.names[name]);
    await stage.redis.set(broken.names[name], "of another type");
    const before = await own(broken);
    const calls = [await admitting(first), await admitting(broken), await admitting(last)];
    expect(await outcomes(calls)).toEqual(["admitted", "WRONGTYPE", "admitted"]);
    expect(await own(broken)).toEqual(before);
    expect(
      await stage.redis.exists(requestName(broken.partition, String(calls[1]!.item.args[0]))),
      "no record of the request",
    ).toBe(0);
    expect(await stage.redis.zcard(broken.names.due)).toBe(2);
    for (const key of [first, last]) {
      expect(await stage.credits(key)).toMatchObject({
        balance: 990,
        totalRequests: 1,
        state: { active: 1 },
      });
    }
  },
);

test("a BIND whose task cannot be read fails alone, and charges nothing", async () => {
  const key = await stage.givenKey();
  const generations = [stage.request(key), stage.request(key), stage.request(key)];
  for (const generation of generations) await stage.admit(generation);
  const calls: ScriptCall[] = [];
  for (const generation of generations) calls.push(await stage.onItsWay(() => stage.bind(generation)));
  const task = taskName(taskOf(generations[1]!), key.partition);
  await stage.redis.hset(task, "of another", "type");
  expect(await outcomes(calls)).toEqual(["bound", "WRONGTYPE", "bound"]);
  expect(await stage.requestRecord(generations[1]!)).toMatchObject({ state: "held" });
  expect(await stage.credits(key)).toMatchObject({ balance: 970, totalUsed: 20, state: { active: 3 } });
  expect(await stage.held(key)).toBe(10);
  await stage.redis.del(task);
  expect(await stage.bind(generations[1]!)).toBe("bound");
});

test("one item alone that fails throws what the store said of it", async () => {
  const key = await stage.givenKey();
  await stage.redis.del(key.names.slots);
  await stage.redis.set(key.names.slots, "of another type");
  const generation = stage.request(key);
  const call = { generation, tiers: stage.tiers, notAfterMs: Date.now() + 60_000 };
  await expect(connection.scripts.run(admit, call)).rejects.toThrow(/^WRONGTYPE/);
});

test("a mistake in the script itself is an error with a code, of that item alone", async () => {
  const key = await stage.givenKey();
  const [good, bad] = [await admitting(key), await admitting(key)];
  // No number where the price should be.
  bad.item = { ...bad.item, args: bad.item.args.with(4, "much") };
  const [, error] = await stage.arriveTogether([good, bad]);
  expect(error).toMatchObject({
    name: "ReplyError",
    message: expect.stringMatching(/^ERR user_script:\d+: /),
  });
  expect(await stage.credits(key)).toMatchObject({ balance: 990, totalRequests: 1, state: { active: 1 } });
});

test("as many items as a call may carry are each answered", async () => {
  const key = await stage.givenKey();
  const calls: ScriptCall[] = [];
  for (let at = 0; at < 32; at++) calls.push(await admitting(key));
  expect(await outcomes(calls)).toEqual(calls.map(() => "admitted"));
  expect(await stage.credits(key)).toMatchObject({ balance: 680, totalRequests: 32, state: { active: 32 } });
});

test("words arrive as they were sent, empty, long and in any script", async () => {
  const key = await stage.givenKey();
  const texts = ["", "x".repeat(5000), '{"\u00e9":"\u{1f3ac} \\u0000 \\n"}', "\u0001\u0002 %s \u001f\n"];
  const calls: ScriptCall[] = [];
  for (const [at, data] of texts.entries()) {
    const generation = stage.request(key, {
      idempotency: { digest: `words_${at}_${key.keyId}`, fingerprint: "f" },
    });
    await stage.admit(generation);
    calls.push(await stage.onItsWay(() => stage.bind(generation, taskOf(generation), data)));
  }
  expect(await outcomes(calls)).toEqual(["bound", "bound", "bound", "bound"]);
  const names = texts.map((_, at) => idempotencyName(key.partition, `words_${at}_${key.keyId}`));
  const kept = await Promise.all(names.map((name) => stage.redis.hget(name, "response")));
  expect(kept).toEqual(texts);
});

test("a word with a zero byte, which would end it early, is not sent at all", async () => {
  const key = await stage.givenKey();
  const [good, bad] = [await admitting(key), await admitting(key)];
  bad.item = { ...bad.item, args: bad.item.args.with(3, "/api\0v1") };
  const before = await stage.everything();
  await expect(stage.arriveTogether([good, bad])).rejects.toThrow("zero byte");
  expect(await stage.everything()).toEqual(before);
});
