import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { listPartitions, thawPartitions } from "../../src/operations/store/freezing.ts";
import { cliActor } from "../../src/records/actor.ts";
import { partitionOf } from "../../src/records/names.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { randomId } from "../support/store.ts";
import { generate, PRICE, readyz, sent, settled } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { nodesOf } from "./cluster-nodes.ts";
import type { RedisNode } from "./node.ts";
import { PARTITIONS, slotOfPartition } from "./slots.ts";

// A partition that moves to another primary key by key, as redis-cli moves it, while a gateway serves all partitions.

const CREDITS = 100_000;
/** A round of generations takes some tenths of a second. */
const NAMES_BETWEEN = 10;

let cluster: Cluster;
let gateway: TestGateway;
/** A key of an account in each partition, with the number of its generations that were answered 200. */
let customers: { key: IssuedKey; made: number }[];

beforeAll(async () => {
  cluster = await startCluster({ patient: true });
  gateway = await givenGateway({ redisUrl: cluster.redisUrl });
  gateway.redis.disconnect();
  const isWhole = async () => (await gateway.metric("tollgate_store_up "))[0] === "tollgate_store_up 1";
  await until(isWhole, "three primaries to be usable");
  const nodes = await nodesOf(cluster);
  customers = await Promise.all(
    Array.from({ length: PARTITIONS }, async (_, partition) => ({
      key: await issueKey(
        nodes,
        {
          accountId: accountIn(partition),
          credits: CREDITS,
          limits: { rate_limit: 10_000, max_concurrent: 10_000, daily_limit: 10_000 },
        },
        cliActor(),
      ),
      made: 0,
    })),
  );
}, 60_000);
afterAll(async () => {
  await gateway?.stop();
  await cluster?.stop();
});

function accountIn(partition: number): string {
  for (;;) {
    const accountId = randomId("acc");
    if (partitionOf(accountId, PARTITIONS) === partition) return accountId;
  }
}

const tollgate = (...words: string[]) => runHere(words, { REDIS_URL: cluster.redisUrl });

/** One generation of each account, or of some. @returns the partitions whose account was not served */
async function partitionsRefused(some = [...customers.keys()]): Promise<number[]> {
  const refused = await Promise.all(
    some.map(async (partition) => {
      const { status } = await generate(gateway, customers[partition]!.key);
      if (status === 200) customers[partition]!.made++;
      return status === 200 ? [] : [partition];
    }),
  );
  return refused.flat();
}

/**
 * Moves the slot of a partition as `redis-cli --cluster reshard` does, name by name.
 * @param between runs before the first name, after some, and before the slot has its new owner
 */
async function move(
  partition: number,
  from: RedisNode,
  to: RedisNode,
  between: () => Promise<void>,
): Promise<number> {
  const slot = slotOfPartition(partition);
  const [fromId, toId] = await Promise.all([from, to].map(({ client }) => client.cluster("MYID")));
  await to.client.cluster("SETSLOT", slot, "IMPORTING", String(fromId));
  await from.client.cluster("SETSLOT", slot, "MIGRATING", String(toId));
  let moved = 0;
  for (;;) {
    if (moved % NAMES_BETWEEN === 0) await between();
    const [name] = (await from.client.cluster("GETKEYSINSLOT", slot, 1)) as string[];
    if (name === undefined) break;
    await from.client.migrate("127.0.0.1", to.port, name, 0, 5000);
    moved++;
  }
  await between();
  // The new owner first: until all know, it is asked by those that know, and nobody else answers for the slot.
  await to.client.cluster("SETSLOT", slot, "NODE", String(toId));
  await from.client.cluster("SETSLOT", slot, "NODE", String(toId));
  return moved;
}

async function ownersOf(partition: number): Promise<[from: RedisNode, to: RedisNode]> {
  const from = (await cluster.primaryOf(partition))!;
  const others = await Promise.all(Array.from({ length: PARTITIONS }, (_, at) => cluster.primaryOf(at)));
  return [from, others.find((node) => node !== from)!];
}

async function expectExactCharges(): Promise<void> {
  await settled(gateway);
  for (const { key, made } of customers) {
    const { body } = await gateway.request("GET", "/api/v1/credits", { key: key.key });
    expect(body.data.balance, key.accountId).toBe(CREDITS - made * PRICE);
  }
  expect((await verifyLedger(await nodesOf(cluster))).violations).toEqual([]);
}

// Guarantee: moving a frozen partition costs its accounts a wait, and nobody a credit or a request.
test("a frozen partition moves while all others are served, and no charge is lost or doubled", async () => {
  const partition = 11;
  const customer = customers[partition]!;
  const [from, to] = await ownersOf(partition);
  expect(await partitionsRefused()).toEqual([]);
  const logged = gateway.logs.length;
  const posted = sent(gateway).length;
  // Longer than the command takes that freezes, also on a busy machine: the charge must come behind it.
  const slow = generate(gateway, customer.key, "A boat [sandbox: delay=6s]");
  await until(() => sent(gateway).length > posted, "the generation to be sent");

  expect(await tollgate("partitions", "freeze", String(partition))).toMatchObject({ code: 0, stderr: "" });
  const moved = await move(partition, from, to, async () => {
    expect(await partitionsRefused()).toEqual([partition]);
    expect(await readyz(gateway)).toBe(200);
    const view = (await listPartitions(await nodesOf(cluster)))[partition];
    expect(view).toMatchObject({ isMoving: true, frozenSinceMs: expect.any(Number) });
    await expect(thawPartitions(await nodesOf(cluster), [partition])).rejects.toThrow("between two nodes");
  });
  expect(moved).toBeGreaterThan(5);
  expect((await slow).status).toBe(200);
  customer.made++;
  expect(await gateway.metric("tollgate_store_outbox_entries ")).toEqual(["tollgate_store_outbox_entries 1"]);
  expect(await tollgate("partitions", "thaw", String(partition))).toMatchObject({ code: 0, stderr: "" });
  await until(async () => (await partitionsRefused()).length === 0, "all accounts to be served");

  expect(await cluster.primaryOf(partition)).toBe(to);
  await expectExactCharges();
  expect(gateway.logs.slice(logged).filter((line) => line.includes("requests no longer wait"))).toEqual([]);
});

// Guarantee: a move that nobody announced costs waiting, and no credit.
test("a partition that moves without a freeze loses no charge and posts none twice", async () => {
  const partition = 12;
  const [from, to] = await ownersOf(partition);
  await move(partition, from, to, async () => void (await partitionsRefused([partition, partition + 1])));
  await until(async () => (await partitionsRefused()).length === 0, "all accounts to be served");
  expect(await cluster.primaryOf(partition)).toBe(to);
  await expectExactCharges();
});

// Guarantee: a freeze that a failover could lose is not taken for one.
test("a freeze that no replica has is said to be none yet", async () => {
  const partition = 13;
  const replica = (await cluster.replicaOf((await cluster.primaryOf(partition))!))!;
  replica.pause();
  const unknown = await tollgate("partitions", "freeze", String(partition));
  replica.resume();
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining("no replica of") });
  await until(async () => (await tollgate("partitions", "freeze", String(partition))).code === 0);
  expect(await tollgate("partitions", "thaw", String(partition))).toMatchObject({ code: 0 });
});
