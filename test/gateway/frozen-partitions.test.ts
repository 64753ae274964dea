import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { createOperatorSession } from "../../src/operations/access/operator-session.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { freezePartitions, thawPartitions } from "../../src/operations/store/freezing.ts";
import { cliActor } from "../../src/records/actor.ts";
import { frozenName, partitionOf } from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import type { RunningRedis } from "../../src/sandbox/redis.ts";
import { runHere } from "../support/cli.ts";
import { startClusterNode } from "../support/cluster-node.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { randomId } from "../support/store.ts";
import { expectStoreAway, generate, PRICE, ready, readyz, sent, settled } from "../support/store-stage.ts";

// A store on a Redis Cluster of one node, of which partitions are frozen.

const PARTITIONS = 64;
const FROZEN = 7;

let dir: string;
let server: RunningRedis;
let redis: Redis;
let nodes: RedisNodes;
let gateway: TestGateway;
/** Of an account in the partition that is frozen, and of another one. */
let frozen: IssuedKey;
let other: IssuedKey;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-frozen-"));
  server = await startClusterNode(dir);
  redis = new Redis(server.url);
  await redis.cluster("ADDSLOTSRANGE", 0, 16_383);
  await until(async () => (await redis.cluster("INFO")).includes("cluster_state:ok"));
  nodes = oneNode(redis);
  gateway = await started();
  frozen = await givenKeyIn(FROZEN);
  other = await givenKeyIn(FROZEN + 1);
  for (const key of [frozen, other]) expect((await generate(gateway, key)).status).toBe(200);
});
afterAll(async () => {
  await gateway?.stop();
  redis?.disconnect();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

async function started(options: Parameters<typeof givenGateway>[0] = {}): Promise<TestGateway> {
  const one = await givenGateway({ ...options, redisUrl: server.url });
  one.redis.disconnect();
  await ready(one);
  return one;
}

function givenKeyIn(partition: number): Promise<IssuedKey> {
  for (;;) {
    const accountId = randomId("acc");
    if (partitionOf(accountId, PARTITIONS) !== partition) continue;
    return issueKey(
      nodes,
      { accountId, credits: 1000, limits: { rate_limit: 1000, max_concurrent: 1000 } },
      cliActor(),
    );
  }
}

const tollgate = (...words: string[]) => runHere(words, { REDIS_URL: server.url });
const freeze = async (): Promise<void> =>
  expect(await tollgate("partitions", "freeze", String(FROZEN))).toMatchObject({ code: 0 });
const thaw = async (): Promise<void> =>
  expect(await tollgate("partitions", "thaw", String(FROZEN))).toMatchObject({ code: 0 });
const served = (key: IssuedKey): Promise<void> =>
  until(async () => (await generate(gateway, key)).status === 200, "the account to be served");
const frozenCount = async (value: number): Promise<void> =>
  until(async () => (await gateway.metric("tollgate_partitions_frozen "))[0]?.endsWith(` ${value}`) === true);
const balance = async (key: IssuedKey): Promise<number> =>
  (await gateway.request("GET", "/api/v1/credits", { key: key.key })).body.data.balance;

/** The client of the one server, with something that happens before one of its commands is sent for the first time. */
function before(command: "set" | "hdel", happens: () => Promise<unknown>): RedisNodes {
  let hasHappened = false;
  const hooked = async (...words: unknown[]) => {
    if (!hasHappened) {
      hasHappened = true;
      await happens();
    }
    return redis.call(command, ...(words as string[]));
  };
  return oneNode(Object.assign(Object.create(redis) as Redis, { [command]: hooked }));
}

// Guarantee: a frozen partition is always listed, so gateways leave it alone and the alert comes.
test.each([
  [
    "thawed in the middle of a freeze",
    () =>
      freezePartitions(
        before("set", () => thawPartitions(nodes, [FROZEN])),
        [FROZEN],
      ),
  ],
  [
    "frozen in the middle of a thaw",
    () =>
      thawPartitions(
        before("hdel", () => freezePartitions(nodes, [FROZEN])),
        [FROZEN],
      ),
  ],
])("a partition that is %s is frozen and listed", async (_, both) => {
  await freezePartitions(nodes, [FROZEN]);
  await both();
  const [listed] = JSON.parse((await tollgate("partitions", "list", "--frozen", "--json")).stdout).partitions;
  expect(listed).toMatchObject({ partition: FROZEN, state: "frozen" });
  await thaw();
  await served(frozen);
});

// Guarantee: a frozen partition stops its own accounts alone, at once and in words, and is no outage.
test("while a partition is frozen its accounts get 503, and all others are served", async () => {
  const logged = gateway.logs.length;
  const keys = (await redis.keys(`tg:{p0${FROZEN}}:*`)).length;
  await freeze();
  try {
    for (let round = 0; round < 2; round++) {
      const refused = await generate(gateway, frozen);
      expectStoreAway(refused);
      expect(refused.body.error).toContain("maintenance");
      expect((await generate(gateway, other)).status).toBe(200);
      await frozenCount(1);
    }
    expectStoreAway(await gateway.request("GET", "/api/v1/credits", { key: frozen.key }));
    expect(await readyz(gateway)).toBe(200);
    const restarted = await started({ config: { store: { fallbackStrategy: "allow" } } });
    expectStoreAway(await generate(restarted, frozen));
    expect((await generate(restarted, other)).status).toBe(200);
    await restarted.stop();
    const [listed] = JSON.parse(
      (await tollgate("partitions", "list", "--frozen", "--json")).stdout,
    ).partitions;
    expect(listed).toMatchObject({ partition: FROZEN, state: "frozen", frozen_since: expect.any(String) });
    const { checks } = JSON.parse((await tollgate("doctor", "--json")).stdout);
    expect(checks).toContainEqual(
      expect.objectContaining({ name: "frozen", status: "warn", message: expect.stringContaining("7") }),
    );
    expect((await redis.keys(`tg:{p0${FROZEN}}:*`)).length, "the mark alone is new").toBe(keys + 1);
  } finally {
    await thaw();
  }
  await served(frozen);
  await frozenCount(0);
  expect(gateway.logs.slice(logged).filter((line) => line.includes("requests no longer wait"))).toEqual([]);
  expect((await tollgate("partitions", "list", "--frozen")).stdout).toBe("No partition is frozen.\n");
});

// Guarantee: a charge waits for its partition, is posted once when it is thawed, and nothing else waits for it.
test("a generation that ends while its partition is frozen is charged once it is thawed", async () => {
  const before = await balance(frozen);
  const posted = sent(gateway).length;
  const slow = generate(gateway, frozen, "A boat [sandbox: delay=1s]");
  await until(() => sent(gateway).length > posted, "the generation to be sent");
  await freeze();
  try {
    expect((await slow).status).toBe(200);
    expect(await gateway.metric("tollgate_store_outbox_entries ")).toEqual([
      "tollgate_store_outbox_entries 1",
    ]);
    // A probe of the primary sends what waits for others, and does not wait for this one.
    await redis.call("CLIENT", "KILL", "TYPE", "normal");
    await until(async () => (await generate(gateway, other)).status === 200, "others to be served");
    expect(await gateway.metric("tollgate_store_outbox_entries ")).toEqual([
      "tollgate_store_outbox_entries 1",
    ]);
  } finally {
    await thaw();
  }
  await settled(gateway);
  await served(frozen);
  expect(await balance(frozen)).toBe(before - 2 * PRICE);
  expect((await verifyLedger(nodes)).violations).toEqual([]);
});

// Guarantee: an accepted task is never unknown, also while a gateway has not learned yet that its partition is frozen.
test("a task whose charge waits for a frozen partition is 404 at no gateway", async () => {
  const another = await started();
  const { key } = frozen;
  const pollAt = async (at: TestGateway, taskId: string): Promise<number> =>
    (await at.request("GET", `/api/v1/tasks/${taskId}`, { key })).status;
  expect(await pollAt(another, "task_that_nobody_made")).toBe(404);
  const posted = sent(gateway).length;
  const slow = generate(gateway, frozen, "A boat [sandbox: delay=1s]");
  await until(() => sent(gateway).length > posted, "the generation to be sent");
  // Only the mark: the list follows it within a second at each gateway.
  await redis.set(frozenName(FROZEN), "1");
  const taskId = (await slow).body.data.task_id;
  try {
    expect(await pollAt(another, taskId)).toBe(503);
  } finally {
    await redis.del(frozenName(FROZEN));
  }
  await settled(gateway);
  await until(async () => (await pollAt(another, taskId)) === 200, "the task to be known");
  await another.stop();
});

test("no operator's command changes a frozen partition", async () => {
  const records = async () => [
    await redis.hgetall(`tg:{p0${FROZEN}}:key:${frozen.keyId}`),
    await redis.hgetall(`tg:{p0${FROZEN}}:account:${frozen.accountId}`),
  ];
  const before = await records();
  await freeze();
  try {
    for (const words of [
      ["credits", "grant", frozen.accountId, "5", "--reference", "order-1"],
      ["keys", "revoke", frozen.keyId],
      ["keys", "set", frozen.keyId, "--tier", "enterprise"],
      ["keys", "rotate", frozen.keyId],
      ["keys", "create", "--account", frozen.accountId],
    ]) {
      const { code, stderr } = await tollgate(...words);
      expect(stderr, words.join(" ")).toContain("has frozen the partition of this account");
      expect(code).toBe(1);
    }
    expect(await records()).toEqual(before);
  } finally {
    await thaw();
  }
  expect((await tollgate("credits", "grant", frozen.accountId, "5", "--reference", "order-1")).code).toBe(0);
});

test("what cannot be frozen is said in words", async () => {
  expect((await tollgate("partitions", "freeze", "64")).stderr).toContain("no partition 64");
  expect((await tollgate("partitions", "freeze", "3-1")).stderr).toContain("numbers and ranges");
  const onOneServer = await runHere(["partitions", "freeze", "1"]);
  expect(onOneServer.stderr).toContain("only partitions of a Redis Cluster");
  const listed = await runHere(["partitions", "list", "--json"]);
  expect(JSON.parse(listed.stdout).partitions[0]).toMatchObject({ partition: 0, state: "in use" });
});

test("the command line and the console find the primaries of a cluster by asking its nodes", async () => {
  const address = server.url.replace("redis:", "redis+cluster:");
  const config = join(dir, "tollgate.yaml");
  writeFileSync(config, "store: { confirm_replicas: 0 }\n");
  const env = { REDIS_URL: address, TOLLGATE_CONFIG: config };
  const runJson = async (...words: string[]) => JSON.parse((await runHere([...words, "--json"], env)).stdout);
  const { account_id } = await runJson("keys", "create", "--credits", "7");
  expect(await runJson("credits", "show", account_id)).toMatchObject({ balance: 7 });
  expect(await runJson("ledger", "verify")).toMatchObject({ ok: true });
  const { checks } = await runJson("doctor");
  expect(checks).toContainEqual(expect.objectContaining({ name: "scripts", status: "ok" }));
  const session = createOperatorSession({
    redisUrl: address,
    partitions: PARTITIONS,
    allowNoPersistence: true,
  });
  expect(await session.run((found) => found.of(FROZEN).get("tg:{p07}:none"))).toBeNull();
  session.close();
});
