import { afterAll, beforeAll, expect, test } from "vitest";
import { type IssuedKey, issueKey } from "../../src/store/accounts.ts";
import { partitionOf } from "../../src/store/names.ts";
import type { RedisNodes } from "../../src/store/nodes.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { randomId } from "../support/store.ts";
import { generate } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { PARTITIONS, slotOfName, slotOfPartition } from "./slots.ts";

let cluster: Cluster;
let gateway: TestGateway;
/** A key of an account in each partition. */
let keys: IssuedKey[];

beforeAll(async () => {
  cluster = await startCluster();
  gateway = await givenGateway({ redisUrl: cluster.redisUrl, config: { store: { commandTimeoutMs: 500 } } });
  const isWhole = (): boolean =>
    gateway.logs.filter((line) => line.includes("the store is usable")).length === 3;
  await until(isWhole, "three primaries to be usable");
  const nodes = await nodesNow();
  keys = await Promise.all(
    Array.from({ length: PARTITIONS }, (_, partition) =>
      issueKey(nodes, {
        accountId: accountIn(partition),
        credits: 100_000,
        limits: { rateLimit: 10_000, maxConcurrent: 1000, dailyLimit: 10_000 },
      }),
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

/** The partitions whose account does not get this status. */
async function partitionsWithout(status: number): Promise<number[]> {
  const replies = await Promise.all(keys.map((key) => generate(gateway, key)));
  return [...replies.keys()].filter((partition) => replies[partition]!.status !== status);
}

test("the accounts of all partitions are served, and charged where they are", async () => {
  expect(await partitionsWithout(200)).toEqual([]);
  const balances = await Promise.all(
    keys.map(async ({ key }) => (await gateway.request("GET", "/api/v1/credits", { key })).body.data.balance),
  );
  expect(balances).toEqual(keys.map(() => 99_990));
});
