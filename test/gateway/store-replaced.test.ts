import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { META } from "../../src/records/names.ts";
import { oneNode, readFacts } from "../../src/redis/store-facts.ts";
import { runHere } from "../support/cli.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import { hasten } from "../support/hasten.ts";
import { generate, givenKey, givenRedis, ready, readyz, type TestRedis } from "../support/store-stage.ts";
import { until } from "../support/until.ts";

beforeAll(hasten);

let redis: TestRedis;
let folder: string;
let gateways: TestGateway[];
beforeEach(async () => {
  redis = await givenRedis();
  folder = await mkdtemp(join(tmpdir(), "tollgate-replaced-"));
  gateways = [];
});
afterEach(async () => {
  for (const gateway of gateways) await gateway.stop();
  await redis.stop();
  await rm(folder, { recursive: true, force: true });
});

async function givenGatewayOn(journal: string, store = {}, token = ""): Promise<TestGateway> {
  const config = { store: { journal, ...store }, admin: { token } };
  const gateway = await givenGateway({ redisUrl: redis.url, config });
  gateway.redis.disconnect();
  gateways.push(gateway);
  return gateway;
}

/** Redis starts again without its data. */
async function empty(): Promise<void> {
  await redis.end();
  await rm(join(redis.dir, "appendonlydir"), { recursive: true });
  await redis.startAgain();
}

/** Runs a command of the line against this Redis and journal folder. */
async function tollgate(...words: string[]) {
  const file = join(folder, "tollgate.yaml");
  await writeFile(file, `store:\n  journal: ${folder}\n`);
  return runHere([...words, "--json"], { REDIS_URL: redis.url, TOLLGATE_CONFIG: file });
}

const says = (gateway: TestGateway, words: string): Promise<void> =>
  until(() => gateway.logs.some((line) => line.includes(words)), words);
const replaced = async (gateway: TestGateway): Promise<string | undefined> =>
  (await gateway.metric("tollgate_store_replaced "))[0];
/** Names that remain once those that probes write have expired. */
const names = async (): Promise<string[]> =>
  (await redis.client.keys("*")).filter((name) => !name.includes(":probe:"));

// Guarantee: an empty Redis in the place of one with accounts is an outage, and no new store.
test("a Redis that comes back empty is refused, left empty, and used once an operator has accepted it", async () => {
  const gateway = await givenGatewayOn(folder, {}, "operator-token-123456");
  await ready(gateway);
  const key = await givenKey(redis.client);
  expectStatus(await generate(gateway, key), 200);
  expect(await replaced(gateway)).toBe("tollgate_store_replaced 0");

  await empty();
  await says(gateway, "Redis is empty");
  expect(await readyz(gateway)).toBe(503);
  expectStatus(await generate(gateway, key), 503);
  expect(await replaced(gateway)).toBe("tollgate_store_replaced 1");
  // A gateway that starts on the same folder, operators' commands and the management API, too.
  const later = await givenGatewayOn(folder);
  await says(later, "Redis is empty");
  expect(await readyz(later)).toBe(503);
  for (const words of [
    ["store", "show"],
    ["keys", "list"],
    ["keys", "create", "--account", "a"],
  ]) {
    const { code, stderr } = await tollgate(...words);
    expect([code, stderr], words.join(" ")).toEqual([1, expect.stringContaining("Redis is empty")]);
  }
  const listed = await fetch(`${gateway.adminUrl}/manage/v1/accounts`, {
    headers: { authorization: "Bearer operator-token-123456" },
  });
  expect(listed.status).toBe(503);
  const { checks } = JSON.parse((await tollgate("doctor")).stdout) as { checks: unknown[] };
  expect(checks).toContainEqual(expect.objectContaining({ name: "store", ok: false }));
  expect(await names(), "nothing has made a store of it").toEqual([]);

  const accepted = await tollgate("store", "accept");
  expect([accepted.code, JSON.parse(accepted.stdout)]).toMatchObject([0, { accepted: true }]);
  await Promise.all([ready(gateway), ready(later)]);
  expect(await replaced(gateway)).toBe("tollgate_store_replaced 0");
  expectStatus(await generate(gateway, key), 401);
  expectStatus(await generate(gateway, await givenKey(redis.client)), 200);
  expect((await tollgate("store", "accept")).code, "once").toBe(1);
});

test("another store is refused as well, though somebody who did not know has begun to fill it", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  await givenKey(redis.client);
  await empty();
  await says(gateway, "Redis is empty");
  const stranger = await givenGatewayOn(await mkdtemp(join(tmpdir(), "tollgate-stranger-")));
  await ready(stranger);
  await givenKey(redis.client);
  const id = await redis.client.hget(META, "id");
  await says(gateway, `Redis holds another store (${id})`);
  expect(await readyz(gateway)).toBe(503);
  expect((await tollgate("store", "accept")).code).toBe(0);
  await ready(gateway);
});

test("a Redis that is emptied under an open connection is noticed without a ledger, too", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  await givenKey(redis.client);
  await redis.client.flushall();
  await says(gateway, "Redis is empty");
  expect(await redis.client.exists(META), "nothing has made a store of it").toBe(0);
});

// A check that had begun before the store was emptied made a new one of it.
test("a store that is emptied while its facts are read is left empty", async () => {
  const rules = { partitions: 64, requireMeant: () => void redis.client.flushall() };
  await readFacts(oneNode(redis.client), { partitions: 64 });
  await readFacts(oneNode(redis.client), rules);
  expect(await redis.client.exists(META)).toBe(0);
});

test("a first store is used on an empty folder, and by the same gateway ever after", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  await gateway.stop();
  gateways.pop();
  await ready(await givenGatewayOn(folder));
});

// Guarantee: money is kept where a restart finds it.
test("a Redis without any persistence is refused, at the start and later, unless the settings allow it", async () => {
  const set = (name: string, value: string) => redis.client.config("SET", name, value);
  await set("appendonly", "no");
  await set("save", "");
  const gateway = await givenGatewayOn(folder, { allowNoPersistence: false });
  await says(gateway, "Redis keeps nothing on disk");
  expect(await readyz(gateway)).toBe(503);
  await ready(await givenGatewayOn(await mkdtemp(join(tmpdir(), "tollgate-demo-"))));

  await set("save", "3600 1");
  await ready(gateway);
  await set("save", "");
  // As it is checked regularly; a new connection does not wait for that.
  await redis.client.call("CLIENT", "KILL", "TYPE", "normal");
  await until(async () => (await readyz(gateway)) === 503, "the refusal");
  await set("appendonly", "yes");
  await ready(gateway);
});

test("where a hosted Redis does not show its configuration, what is not known is no reason to refuse it", async () => {
  await redis.client.config("SET", "appendonly", "no");
  await redis.client.call("ACL", "SETUSER", "default", "-config");
  await ready(await givenGatewayOn(folder, { allowNoPersistence: false }));
});
