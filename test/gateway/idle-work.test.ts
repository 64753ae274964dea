import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readInfo } from "../../src/redis/server-info.ts";
import { createWriteWatch } from "../../src/redis/write-watch.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { generate, givenKey, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";

// Its own Redis: what others write there would count.
let redis: TestRedis;
beforeAll(async () => {
  redis = await givenRedis();
});
afterAll(() => redis?.stop());

const commandsOf = async (client: Redis): Promise<number> =>
  Number(readInfo(await client.info("stats")).get("total_commands_processed"));

// Guarantee: what a command may have changed in a ledger, a list or a count is looked at, and nothing else is.
test("each command that may bring something new is news, once", async () => {
  const { client } = redis;
  const { news } = createWriteWatch();
  const isNews = async (subject = "all"): Promise<boolean> => {
    const looked = await news(client, subject);
    looked?.();
    return looked !== undefined;
  };
  const changes: Record<string, () => Promise<unknown>> = {
    XADD: () => client.xadd("watch:stream", "*", "a", "1"),
    "XADD in a script": () => client.eval("redis.call('XADD', KEYS[1], '*', 'a', '1')", 1, "watch:stream"),
    XTRIM: () => client.xtrim("watch:stream", "MAXLEN", 1),
    ZADD: () => client.zadd("watch:zset", 1, "a"),
    ZREM: () => client.zrem("watch:zset", "a"),
    HINCRBY: () => client.hincrby("watch:hash", "a", 1),
    RENAME: () => client.rename("watch:stream", "watch:other"),
    DEL: () => client.del("watch:other"),
    "RESTORE of a copy": async () =>
      client.restore("watch:copy", 0, (await client.dumpBuffer("watch:hash")) as Buffer),
    "DEBUG RELOAD": () => client.call("DEBUG", "RELOAD").catch(() => client.flushdb("SYNC")),
    "FLUSHDB of a database of its own": async () => {
      await client.call("SELECT", "9");
      await client.flushdb();
      await client.call("SELECT", "0");
    },
    "other partitions": async () => undefined,
  };
  expect(await isNews()).toBe(true);
  for (const [name, change] of Object.entries(changes)) {
    const subject = name === "other partitions" ? name : "all";
    expect(await isNews(), `before ${name}`).toBe(false);
    await change();
    expect(await isNews(subject), name).toBe(true);
  }
  for (const read of [() => client.set("watch:text", "a"), () => client.hset("watch:hash", "a", "2")]) {
    await isNews();
    await read();
    expect(await isNews()).toBe(false);
  }
});

// Guarantee: a look that failed, or a Redis that does not count its commands, is repeated.
test("what was not looked at stays news", async () => {
  const { client } = redis;
  const { news } = createWriteWatch();
  expect(await news(client, "all")).toBeDefined();
  expect(await news(client, "all")).toBeDefined();
  (await news(client, "all"))!();
  expect(await news(client, "all")).toBeUndefined();
  const withoutInfo = { info: () => Promise.reject(new Error("NOPERM")) } as unknown as Redis;
  for (let look = 0; look < 2; look++) {
    const looked = await news(withoutInfo, "all");
    expect(looked).toBeDefined();
    looked!();
  }
});

// Guarantee: looks that come together ask the server once, and what came since is seen a second later.
test("looks share what one of them has read, and miss nothing", async () => {
  const { client } = redis;
  const infoCalls = async (): Promise<number> =>
    Number(/calls=(\d+)/.exec(readInfo(await client.info("commandstats")).get("cmdstat_info") ?? "")?.[1]);
  const [own, ...shared] = [{}, { late: true }, { late: true }].map((options) => createWriteWatch(options));
  (await own!.news(client, "all"))!();
  const before = await infoCalls();
  for (const looked of await Promise.all([own!, ...shared].map(({ news }) => news(client, "all"))))
    looked?.();
  // And the one that asks how many there were.
  expect((await infoCalls()) - before).toBe(2);
  await client.zadd("watch:zset", 1, "b");
  for (const { news } of shared) await until(async () => (await news(client, "all")) !== undefined);
});

// Guarantee: a gateway without requests reads nothing partition by partition; with some, what they leave is found.
test.each([
  ["", {}],
  [" that sends webhooks", { webhooks: { secretKey: "a key of a gateway that has nothing to send" } }],
])("an idle gateway%s sends a few commands a second, and notices the first request", async (_, config) => {
  const { client } = redis;
  const gateway: TestGateway = await givenGateway({ redisUrl: redis.url, config });
  try {
    await ready(gateway);
    const key = await givenKey(client, { credits: 1000 });
    let before = await commandsOf(client);
    const perSecond: number[] = [];
    // One look at each list and ledger of 64 partitions would be 192.
    await until(async () => {
      await new Promise((done) => setTimeout(done, 1000));
      const now = await commandsOf(client);
      perSecond.push(now - before);
      before = now;
      return perSecond.length >= 3 && perSecond.slice(-3).every((commands) => commands < 20);
    }, "three quiet seconds in a row");
    expect((await generate(gateway, key)).status).toBe(200);
    await until(
      async () => (await client.keys(`tg:{p*}:usage:${key.accountId}:*`)).length === 1,
      "the charge to be counted",
    );
  } finally {
    await gateway.stop();
  }
});
