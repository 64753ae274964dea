import { expect, test } from "vitest";
import { list } from "../../src/commands/keys-list.ts";
import { topKeysByUse } from "../../src/operations/keys/operator-keys.ts";
import { accountNames, keyRef, partitionNames, partitionOf } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { changeMoney } from "../support/account-money.ts";
import { runHere, runProcess } from "../support/cli.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

/** More than fit as arguments on this stack. */
const COUNT = 20_000;
const SMALL_STACK = ["--stack-size=130"];

/** Makes keys of one account, the newest of them first. */
async function givenKeys(redis: TestRedis, accountId: string, count: number): Promise<void> {
  const partitions = await partitionsOf(oneNode(redis.client));
  const partition = partitionOf(accountId, partitions);
  const { keys } = accountNames(partition, accountId);
  await redis.client.zadd(partitionNames(partition).accounts, 0, accountId);
  await changeMoney(redis.client, accountNames(partition, accountId).account, {});
  const script = `for n = 1, tonumber(ARGV[3]) do
    local id = string.format("key_%07d", n)
    redis.call("ZADD", KEYS[1], 2000000000000 - n, id)
    redis.call("HSET", ARGV[2] .. id, "account_id", ARGV[1], "tier", "standard", "created_at", 2000000000000 - n)
  end`;
  await redis.client.eval(script, 1, keys, accountId, keyRef("", accountId, partition).names.key, count);
}

// Guarantee: a listing ends with every key once, in order, however many there are, and no reply of Redis holds them all.
test("keys list shows 20,000 keys of one account, each once, the oldest first", async () => {
  const redis = await givenRedis();
  try {
    await runHere(["keys", "create"], { REDIS_URL: redis.url });
    await givenKeys(redis, "acc_many", COUNT);
    await redis.client.config("RESETSTAT");
    const listed = await runProcess(["keys", "list"], { REDIS_URL: redis.url }, SMALL_STACK);
    expect({ code: listed.code, stderr: listed.stderr }).toEqual({ code: 0, stderr: "" });
    const ids = listed.stdout.split("\n").flatMap((line) => /^key_\d{7} /.exec(line)?.[0].trim() ?? []);
    const all = Array.from({ length: COUNT }, (_, at) => `key_${String(COUNT - at).padStart(7, "0")}`);
    expect(ids.length).toBe(COUNT);
    expect(ids.every((id, at) => id === all[at])).toBe(true);
    expect(listed.stdout.match(/KEY ID/g)).toHaveLength(1);

    const shown = await runProcess(["credits", "show", "acc_many"], { REDIS_URL: redis.url }, SMALL_STACK);
    expect(shown).toMatchObject({ code: 0, stderr: expect.stringContaining("more keys") });
    await topKeysByUse(
      oneNode(redis.client),
      { standard: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 } },
      10,
    );
    expect(await redis.client.info("commandstats")).not.toContain("cmdstat_zrange:");
  } finally {
    await redis.stop();
  }
});

test("pages of a listing make one table and one JSON object", async () => {
  const redis = await givenRedis();
  try {
    await runHere(["keys", "create"], { REDIS_URL: redis.url });
    await givenKeys(redis, "acc_pages", 1234);
    const scans: number[] = [];
    for (const pageKeys of [100, 1234, 5000]) {
      await redis.client.config("RESETSTAT");
      const written: string[] = [];
      const { stdout } = process;
      const write = stdout.write;
      stdout.write = ((text: string) => written.push(text) > 0) as typeof stdout.write;
      try {
        await list(oneNode(redis.client), { account: "acc_pages", json: true }, pageKeys);
      } finally {
        stdout.write = write;
      }
      const { keys, next } = JSON.parse(written.join(""));
      expect([keys.length, keys[0].key_id, next]).toEqual([1234, "key_0001234", undefined]);
      const stats = await redis.client.info("commandstats");
      scans.push(Number(/cmdstat_zscan:calls=(\d+)/.exec(stats)?.[1]));
    }
    // Each page reads the keys anew: what is held at a time is one page.
    expect(scans[0]).toBe(13 * scans[2]!);
  } finally {
    await redis.stop();
  }
});

test("a page of a listing says where the next begins, and an empty listing is one, too", async () => {
  const redis = await givenRedis();
  try {
    const env = { REDIS_URL: redis.url };
    await runHere(["keys", "create"], env);
    await givenKeys(redis, "acc_few", 3);
    const page = await runHere(["keys", "list", "--account", "acc_few", "--limit", "2", "--json"], env);
    expect(JSON.parse(page.stdout)).toMatchObject({
      keys: [{ key_id: "key_0000003" }, { key_id: "key_0000002" }],
      next: "key_0000002",
    });
    const rest = await runHere(["keys", "list", "--after", "key_0000001", "--tier", "none", "--json"], env);
    expect(JSON.parse(rest.stdout)).toEqual({ keys: [] });
    const none = await runHere(["keys", "list", "--tier", "none"], env);
    expect(none.stdout).toMatch(/^KEY ID.*\n$/);
  } finally {
    await redis.stop();
  }
});
