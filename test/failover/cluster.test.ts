import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, startCluster } from "./cluster.ts";
import type { RedisNode } from "./node.ts";
import { evenRanges, PARTITIONS, slotOfPartition } from "./slots.ts";

const PARTITION = 5;
/** Of another primary. */
const OTHER_PARTITION = 6;
const nameOf = (name: string): string => `{p05}:${name}`;

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster?.stop());

/** Strikes the primary of PARTITION, before a busy machine can make another one of it. @returns it */
async function struck(strike: (primary: RedisNode) => Promise<void>): Promise<RedisNode> {
  const found: RedisNode[] = [];
  await cluster.withoutFailover(async () => {
    await cluster.healthy();
    found.push(await primary());
    await strike(found[0]!);
  });
  return found[0]!;
}

const primary = async (): Promise<RedisNode> => (await cluster.primaryOf(PARTITION))!;

test("the two partitions that these tests write to lie on two primaries", () => {
  const [first, second] = [PARTITION, OTHER_PARTITION].map((partition) =>
    evenRanges(3).findIndex(([, last]) => slotOfPartition(partition) <= last),
  );
  expect(first).not.toBe(second);
});

test("64 partitions lie on three primaries as 21, 21 and 22", async () => {
  const counts = new Map<string, number>();
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const { name } = (await cluster.primaryOf(partition))!;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  expect([...counts.values()].sort()).toEqual([21, 21, 22]);
});

test("all slots are covered again after a primary was killed, and it returns as a replica", async () => {
  const old = await struck(async (node) => {
    await node.client.set(nameOf("before"), "1");
    expect(await node.client.wait(1, 5000)).toBe(1);
    await node.kill();
  });
  const next = await cluster.promoted(PARTITION, old);
  await cluster.covered();
  expect(await next.client.get(nameOf("before"))).toBe("1");
  expect(await next.client.set(nameOf("after"), "1")).toBe("OK");
  await old.start();
  await cluster.healthy();
  expect(await (await primary()).client.get(nameOf("after"))).toBe("1");
});

test("all slots are covered again after a primary was cut off, and the others serve theirs all the while", async () => {
  const old = await struck(async ({ name }) => cluster.links.cut(name));
  const other = (await cluster.primaryOf(OTHER_PARTITION))!;
  expect(await other.client.set("{p06}:alone", "1")).toBe("OK");
  const next = await cluster.promoted(PARTITION, old);
  await cluster.covered(old);
  expect(await next.client.set(nameOf("alone"), "1")).toBe("OK");
  cluster.links.heal(old.name);
  await cluster.healthy();
  expect(await (await primary()).client.get(nameOf("alone"))).toBe("1");
});

test("a slot that its owner has forgotten is given back to it, as an operator would", async () => {
  await cluster.healthy();
  const owner = await primary();
  const slot = slotOfPartition(PARTITION);
  await owner.client.call("CLUSTER", "DELSLOTS", slot);
  expect(await cluster.primaryOf(PARTITION)).toBeUndefined();
  await cluster.healthy();
  expect(await cluster.primaryOf(PARTITION)).toBe(owner);
});

test("a primary whose replica lags is replaced without what the replica had not received", async () => {
  const old = await struck(async (node) => {
    const replica = (await cluster.replicaOf(node))!;
    cluster.links.cut(replica.name, { from: [node.name] });
    await node.client.set(nameOf("lagging"), "1");
    await node.kill();
    cluster.links.heal(replica.name, { discard: true });
  });
  const next = await cluster.promoted(PARTITION, old);
  expect(await next.client.get(nameOf("lagging"))).toBeNull();
});
