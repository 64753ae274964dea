import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { many } from "../../src/redis/pipelines.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { redisBinary } from "../support/redis-binary.ts";
import { times } from "../support/store.ts";
import { generate, givenRedis, PRICE, type TestRedis } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { nodesOf } from "./cluster-nodes.ts";

// docs/operations/redis-cluster.md, "Moving a store to a cluster", step by step on real servers.

const ACCOUNTS = 8;

let folder: string;
let old: TestRedis;
let cluster: Cluster;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-to-cluster-"));
  [old, cluster] = await Promise.all([givenRedis(), startCluster({ patient: true })]);
}, 120_000);
afterAll(async () => {
  await cluster?.stop();
  await old?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function redisCli(...words: string[]): Promise<string> {
  const { path, env } = await redisBinary();
  const { stdout } = await promisify(execFile)(join(dirname(path), "redis-cli"), words, { env });
  return stdout;
}

async function started(redisUrl: string, generator?: TestGateway["generator"]): Promise<TestGateway> {
  const gateway = await givenGateway({
    redisUrl,
    ...(generator ? { generator } : {}),
    config: { store: { journal: join(folder, "journal") } },
  });
  gateway.redis.disconnect();
  // All primaries, not one of them.
  const isWhole = async () => (await gateway.metric("tollgate_store_up "))[0] === "tollgate_store_up 1";
  await until(isWhole, "the store to be usable");
  return gateway;
}

/** Names of a server that do not expire: the others may, while they are copied. */
async function lastingNames(redis: Redis): Promise<string[]> {
  const names = await redis.keys("*");
  const lives = await many<number, string>(redis, names, (pipe, name) => pipe.pttl(name));
  return names.filter((_, at) => lives[at] === -1);
}

const balance = async (gateway: TestGateway, { key }: IssuedKey): Promise<number> =>
  (await gateway.request("GET", "/api/v1/credits", { key })).body.data.balance;

// Guarantee: a store that grew up on one server goes on in a cluster, with all that it knew.
test("a store moves to a cluster, and goes on where it was", async () => {
  const before = await started(old.url);
  const keys = await Promise.all(
    times(ACCOUNTS, () =>
      issueKey(oneNode(old.client), { credits: 1000, limits: { rate_limit: 1000 } }, cliActor()),
    ),
  );
  const tasks = await Promise.all(
    keys.map(async (key) => (await generate(before, key)).body.data.task_id as string),
  );
  // 1. Gateways end, and have nothing that waits.
  expect(await before.metric("tollgate_store_outbox_entries ")).toEqual(["tollgate_store_outbox_entries 0"]);
  await before.drain();
  // 2. All names are copied, and the old server ends.
  const names = await lastingNames(old.client);
  const imported = await redisCli(
    "--cluster",
    "import",
    `127.0.0.1:${cluster.nodes[0]!.announced}`,
    "--cluster-from",
    `127.0.0.1:${old.port}`,
    "--cluster-copy",
  );
  expect(imported).toContain("OK");
  const copied = await Promise.all(cluster.nodes.slice(0, 3).map(({ client }) => lastingNames(client)));
  expect(copied.flat().sort()).toEqual(names.sort());
  await old.end();
  // 3. The ledger adds up, and gateways go on.
  const nodes = await nodesOf(cluster);
  expect(await verifyLedger(nodes)).toMatchObject({ violations: [] });
  const after = await started(cluster.redisUrl, before.generator);
  for (const [at, key] of keys.entries()) {
    expect(await balance(after, key)).toBe(1000 - PRICE);
    expect((await after.request("GET", `/api/v1/tasks/${tasks[at]}`, { key: key.key })).status).toBe(200);
    expect((await generate(after, key)).status).toBe(200);
    expect(await balance(after, key)).toBe(1000 - 2 * PRICE);
  }
  expect(await verifyLedger(nodes)).toMatchObject({ violations: [] });
  await after.stop();
  await before.generator.stop();
});
