import { expect, test } from "vitest";
import { META, partitionNames } from "../../../../src/records/names.ts";
import { merged, readSlotView, slotOf } from "../../../../src/redis/topology/cluster-slots.ts";
import { gapsIn } from "../../../../src/redis/topology/placement.ts";

const AT = { host: "10.0.0.9", port: 7009 };
const NODES = [
  "aaa 10.0.0.1:7001@17001,redis-1 myself,master - 0 0 3 connected 0-8000 [8001->-bbb]",
  "bbb 10.0.0.2:7002@17002 master,fail - 0 0 7 disconnected 8001-16383",
  "ccc 10.0.0.3:7003@17003 slave aaa 0 0 3 connected",
  "ddd 10.0.0.4:7004@17004 slave,fail? aaa 0 0 3 connected",
  "eee 10.0.0.5:7005@17005 slave,fail aaa 0 0 3 disconnected",
  "fff 10.0.0.6:7006@17006 slave,nofailover aaa 0 0 3 connected",
  "",
].join("\n");

test("each range has its primary, with the epoch and the replicas that the node knows of it", () => {
  const slots = [
    [0, 8000, ["10.0.0.1", 7001, "aaa", []], ["10.0.0.3", 7003, "ccc", []]],
    [8001, 16_383, ["10.0.0.2", 7002, "bbb", []]],
  ];
  expect(readSlotView({ slots, nodes: NODES, at: AT }).ranges).toEqual([
    {
      first: 0,
      last: 8000,
      primary: { host: "10.0.0.1", port: 7001, name: "10.0.0.1:7001", epoch: 3, replicas: 2 },
    },
    {
      first: 8001,
      last: 16_383,
      primary: { host: "10.0.0.2", port: 7002, name: "10.0.0.2:7002", epoch: 7, replicas: 0 },
    },
  ]);
});

test.each([null, "", "?"])("an endpoint %o is where the node was asked", (endpoint) => {
  const [range] = readSlotView({ slots: [[0, 1, [endpoint, 7001, "aaa"]]], nodes: NODES, at: AT }).ranges;
  expect(range!.primary.name).toBe("10.0.0.9:7001");
});

test("of what nodes say of a slot the highest epoch counts, and a slot that nobody has stays without", () => {
  const primary = (name: string, epoch: number, replicas = 0) => ({
    host: name,
    port: 1,
    name,
    epoch,
    replicas,
  });
  const { ofSlot, primaries } = merged([
    { ranges: [{ first: 0, last: 9, primary: primary("old", 3) }] },
    { ranges: [{ first: 5, last: 12, primary: primary("new", 4, 1) }] },
    { ranges: [{ first: 5, last: 12, primary: primary("new", 4, 2) }] },
    { ranges: [{ first: 0, last: 9, primary: primary("old", 3) }] },
  ]);
  expect([4, 5, 12].map((slot) => ofSlot(slot)?.name)).toEqual(["old", "new", "new"]);
  expect(ofSlot(13)).toBeUndefined();
  expect(primaries).toEqual([primary("old", 3), primary("new", 4, 2)]);
});

// Guarantee: a primary is not left and opened again and again because nodes call it by two names.
test("of two names of one epoch, the one in use stays", () => {
  const view = (name: string) => ({
    ranges: [{ first: 0, last: 16_383, primary: { host: name, port: 1, name, epoch: 3, replicas: 0 } }],
  });
  const before = merged([view("10.0.0.1")]);
  for (const views of [
    [view("10.0.0.1"), view("redis-1")],
    [view("redis-1"), view("10.0.0.1"), view("redis-1")],
  ])
    expect(merged(views, before).primaries.map(({ name }) => name)).toEqual(["10.0.0.1"]);
  expect(merged([view("redis-1")], before).primaries.map(({ name }) => name)).toEqual(["redis-1"]);
});

test("slots without a primary are counted, with the partitions that nobody serves", () => {
  const primary = { host: "a", port: 1, name: "a:1", epoch: 1, replicas: 0 };
  const placed = (...ranges: [number, number][]) =>
    gapsIn(merged([{ ranges: ranges.map(([first, last]) => ({ first, last, primary })) }]), 64);
  expect(placed([0, 16_383])).toBeUndefined();
  const [third, meta] = [slotOf(partitionNames(3).ledger), slotOf(META)];
  expect(placed([0, third - 1], [third + 1, 16_383])).toEqual({ slots: 1, partitions: [3] });
  expect(placed([0, meta - 1], [meta + 1, 16_383])).toEqual({ slots: 1, partitions: [], meta: true });
});
