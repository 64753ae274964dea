import { afterAll, beforeAll, expect, test } from "vitest";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { createConnection } from "../../src/redis/connection.ts";
import type { Primary } from "../../src/redis/primary.ts";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import { inspect } from "../../src/scripts/tasks.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { NO_CLAIMS } from "../support/cluster-node.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { randomId, TIERS } from "../support/store.ts";
import { generate, PRICE, readyz } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { PARTITIONS, slotOfName, slotOfPartition } from "./slots.ts";

let cluster: Cluster;
let gateway: TestGateway;
/** A key of an account in each partition. */
let keys: IssuedKey[];

beforeAll(async () => {
  cluster = await startCluster({ patient: true });
  gateway = await givenGateway({ redisUrl: cluster.redisUrl, config: { store: { commandTimeoutMs: 500 } } });
  await until(() => timesUsable() === 3, "three primaries to be usable");
  const nodes = await nodesNow();
  keys = await Promise.all(
    Array.from({ length: PARTITIONS }, (_, partition) =>
      issueKey(
        nodes,
        {
          accountId: accountIn(partition),
          credits: 100_000,
          limits: { rate_limit: 10_000, max_concurrent: 1000, daily_limit: 10_000 },
        },
        cliActor(),
      ),
    ),
  );
}, 60_000);
afterAll(async () => {
  await gateway?.stop();
  await cluster?.stop();
});

/** For operators' functions. */
async function nodesNow(): Promise<RedisNodes> {
  const ownerOf = await cluster.owners();
  const clientOf = (slot: number) => ownerOf(slot)!.client;
  return {
    of: (partition) => clientOf(slotOfPartition(partition)),
    ofName: (name) => clientOf(slotOfName(name)),
    all: () => cluster.nodes.map(({ client }) => client),
  };
}

function accountIn(partition: number): string {
  for (;;) {
    const accountId = randomId("acc");
    if (partitionOf(accountId, PARTITIONS) === partition) return accountId;
  }
}

/** How many generations of each partition were answered with a task. */
const served: number[] = new Array(PARTITIONS).fill(0);

const balances = (): Promise<number[]> =>
  Promise.all(
    keys.map(async ({ key }) => (await gateway.request("GET", "/api/v1/credits", { key })).body.data.balance),
  );
const balancesDue = (): number[] => served.map((generations) => 100_000 - generations * PRICE);

/** The partitions whose account does not get this status. */
async function partitionsWithout(status: number): Promise<number[]> {
  const replies = await Promise.all(keys.map((key) => generate(gateway, key)));
  for (const [partition, reply] of replies.entries()) if (reply.status === 200) served[partition]! += 1;
  return [...replies.keys()].filter((partition) => replies[partition]!.status !== status);
}

/** Polls a new task of each of these keys. @param at where it is polled @returns the statuses of the polls */
async function pollNewTasks(chosen: typeof keys, at = gateway): Promise<number[]> {
  const polls = chosen.map(async (key) => {
    const { body } = await generate(gateway, key);
    served[partitionOf(key.accountId, PARTITIONS)]! += 1;
    return (await at.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key: key.key })).status;
  });
  return await Promise.all(polls);
}

const pollUnknown = async ({ key }: IssuedKey): Promise<number> =>
  (await gateway.request("GET", "/api/v1/tasks/task_that_nobody_made", { key })).status;

const timesUsable = (): number => gateway.logs.filter((line) => line.includes("the store is usable")).length;

const allServed = (): Promise<void> =>
  until(
    async () => (await partitionsWithout(200)).length === 0,
    "the accounts of all partitions to be served",
  );

test("the accounts of all partitions are served, and charged where they are", async () => {
  expect(await partitionsWithout(200)).toEqual([]);
  expect(await balances()).toEqual(balancesDue());
});

test("a script whose partition has moved is sent once more to its primary, and those beside it are served", async () => {
  const ownerOf = await cluster.owners();
  const [here, moved] = [5, 6].map((partition) => keys[partition]!);
  expect(ownerOf(slotOfPartition(5))).not.toBe(ownerOf(slotOfPartition(6)));
  const metrics = createMetrics();
  const connection = createConnection({
    redisUrl: cluster.redisUrl,
    commandTimeoutMs: 2000,
    partitions: PARTITIONS,
    allowNoPersistence: true,
    // It knows of no move: each partition is on the primary of the first.
    place: (open) => {
      const all = cluster.nodes
        .filter((node) =>
          Array.from({ length: PARTITIONS }, (_, p) => slotOfPartition(p)).some(
            (slot) => ownerOf(slot) === node,
          ),
        )
        .map((node) => ({
          node,
          primary: open(
            { redisUrl: cluster.redisUrl, at: { host: "127.0.0.1", port: node.announced } },
            node.name,
          ),
        }));
      const at = (slot: number): Primary => all.find(({ node }) => node === ownerOf(slot))!.primary;
      return {
        all: all.map(({ primary }) => primary),
        of: () => at(slotOfPartition(5)),
        ofName: (name) => at(slotOfName(name)),
        partitionOn: (primary) =>
          Array.from({ length: PARTITIONS }, (_, p) => p).find((p) => at(slotOfPartition(p)) === primary)!,
      };
    },
    log: createLogger("silent"),
    metrics,
  });
  await connection.usable();
  const { run, breaker } = connection.of(5);
  const answers = await Promise.all(
    [moved!, here!, moved!].map((key) =>
      run(inspect, {
        key: keyRef(key.keyId, key.accountId, partitionOf(key.accountId, PARTITIONS)),
        tiers: TIERS,
      }),
    ),
  );
  expect(answers.map(({ outcome }) => outcome)).toEqual(["known", "known", "known"]);
  expect(breaker.isOpen).toBe(false);
  expect(await metrics.registry.getSingleMetricAsString("tollgate_store_failures_total")).toContain(
    '{reason="moved"} 2',
  );
  await connection.close();
});

test("while a primary is away only its accounts get 503, until another node has its slots", async () => {
  const ownerOf = await cluster.owners();
  const old = ownerOf(slotOfPartition(0))!;
  const isOfOld = (partition: number): boolean => ownerOf(slotOfPartition(partition)) === old;
  const usableBefore = timesUsable();
  await cluster.withoutFailover(async () => {
    await old.kill();
    await until(async () => (await partitionsWithout(200)).every(isOfOld), "only its accounts to be away");
    expect(await partitionsWithout(503)).toEqual([...keys.keys()].filter((partition) => !isOfOld(partition)));
    expect(await readyz(gateway)).toBe(200);
    const statuses = await pollNewTasks(keys.filter((_, partition) => !isOfOld(partition)));
    expect(new Set(statuses), "of tasks whose claim waits, and of others").toEqual(new Set([200, 503]));
  });
  await until(() => timesUsable() > usableBefore, "another node to have taken over");
  const ofOld = keys.filter((_, partition) => isOfOld(partition));
  const statuses = await Promise.all(ofOld.map(pollUnknown));
  expect(new Set(statuses), "of tasks that another gateway may still have to bind").toEqual(new Set([503]));
  await until(async () => (await pollUnknown(ofOld[0]!)) === 404, "others to have had their time");
  await allServed();
  // Also those whose claim was with the primary that was away.
  await until(async () => String(await balances()) === String(balancesDue()), "all charges to be posted");
  await old.start();
  await cluster.healthy();
});

const timesOpened = (): number =>
  gateway.logs.filter((line) => line.includes("requests no longer wait")).length;

// Guarantee: a primary that has no memory left costs its own accounts alone, and no charge, as on one server.
test("while a primary has no memory only its accounts get 503, and all charges are made", async () => {
  const ownerOf = await cluster.owners();
  const full = ownerOf(slotOfPartition(0))!;
  const isOfFull = (partition: number): boolean => ownerOf(slotOfPartition(partition)) === full;
  const before = timesOpened();
  await cluster.withoutFailover(async () => {
    await full.client.config("SET", "maxmemory", "1");
    try {
      expect((await partitionsWithout(200)).every(isOfFull)).toBe(true);
      const statuses = await pollNewTasks(keys.filter((_, partition) => !isOfFull(partition)));
      expect(new Set(statuses)).toEqual(new Set([200]));
      expect(await balances()).toEqual(balancesDue());
    } finally {
      await full.client.config("SET", "maxmemory", "0");
    }
  });
  expect(timesOpened()).toBe(before);
});

test("while a primary refuses claims all are served, and the charges are posted afterwards", async () => {
  const { client } = (await cluster.owners())(slotOfPartition(0))!;
  const before = timesOpened();
  const another = await givenGateway({ redisUrl: cluster.redisUrl });
  await cluster.withoutFailover(async () => {
    await client.call("ACL", "SETUSER", "default", ...NO_CLAIMS);
    try {
      expect(await partitionsWithout(200)).toEqual([]);
      for (const at of [gateway, another])
        expect(
          new Set(await pollNewTasks(keys, at)),
          "of tasks whose claim was refused, and of others",
        ).toEqual(new Set([200, 503]));
      expect(await gateway.metric("tollgate_store_outbox_entries "), "some wait").not.toEqual([
        "tollgate_store_outbox_entries 0",
      ]);
    } finally {
      await client.call("ACL", "SETUSER", "default", "allkeys");
      await another.stop();
    }
  });
  await until(async () => String(await balances()) === String(balancesDue()), "all charges to be posted");
  expect(timesOpened()).toBe(before);
});
