import { setImmediate as nextTick } from "node:timers/promises";
import { expect, test } from "vitest";
import { createBatcher } from "../../../src/redis/calls.ts";
import type { Item, Reply, Script } from "../../../src/scripts/script-definition.ts";

interface Call {
  script: string;
  items: Item[];
}

/** A batcher over a store that answers each item with its first own ARGV, unless the test says otherwise. */
function givenBatcher(
  options: { clustered?: boolean; answer?: (call: Call) => Promise<(Reply | Error)[]> } = {},
) {
  const calls: Call[] = [];
  const answer = options.answer ?? (async ({ items }) => items.map(({ args }): Reply => [args[0]!]));
  const batched = createBatcher({
    send({ name: script }, items) {
      const call = { script, items: [...items] };
      calls.push(call);
      return answer(call);
    },
    sendAgain({ name: script }, items) {
      const call = { script, items: [...items] };
      calls.push(call);
      return answer(call);
    },
    form: { checksFrozen: options.clustered ?? false, crossesSlots: false },
  });
  const ask = (name: string, item: Item): Promise<Reply> =>
    batched(scripts[name]!, undefined, item, async (_script, _call, _item, cause) => {
      throw new Error("the store failed", { cause });
    });
  return {
    calls,
    ask,
    ids: () => calls.map(({ script, items }) => [script, ...items.map(({ args }) => args[0])]),
  };
}

const scripts: Record<string, Script<unknown, Reply>> = Object.fromEntries(
  ["admit", "bind", "void", "inspect", "observe"].map((name) => [
    name,
    { name, isBatched: true, keys: () => [], args: () => [], read: (reply) => reply },
  ]),
);
const item = (partition: string, id: string, now = "", tiers = ";standard 1 1 1;"): Item => ({
  keys: [`tg:{${partition}}:key:k`, `tg:{${partition}}:account:a`],
  shared: [now, tiers],
  args: [id],
});

test("what one tick asks for goes out in one call, each with its own reply", async () => {
  const { calls, ask, ids } = givenBatcher();
  const results = ["a", "b", "c"].map((id) => ask("admit", item("p01", id)));
  await Promise.resolve();
  expect(calls, "nothing is sent before the tick ends").toEqual([]);
  results.push(ask("admit", item("p02", "d")));
  expect(await Promise.all(results)).toEqual([["a"], ["b"], ["c"], ["d"]]);
  expect(ids()).toEqual([["admit", "a", "b", "c", "d"]]);
  expect(calls[0]?.items[3]).toEqual(item("p02", "d"));
});

test("the next tick has a call of its own, even while the last is unanswered", async () => {
  const { promise, resolve } = Promise.withResolvers<Reply[]>();
  const { calls, ask, ids } = givenBatcher({
    answer: ({ items }) => (items[0]?.args[0] === "slow" ? promise : Promise.resolve([["quick"]])),
  });
  const slow = ask("admit", item("p01", "slow"));
  await nextTick();
  expect(calls).toHaveLength(1);
  expect(await ask("admit", item("p01", "next"))).toEqual(["quick"]);
  resolve([["done"]]);
  expect(await slow).toEqual(["done"]);
  expect(ids()).toEqual([
    ["admit", "slow"],
    ["admit", "next"],
  ]);
});

test("scripts, tiers and clocks are never mixed in one call", async () => {
  const { ask, ids } = givenBatcher();
  await Promise.all([
    ask("admit", item("p01", "a")),
    ask("bind", item("p01", "b")),
    ask("admit", item("p01", "c", "", ";standard 2 2 2;")),
    ask("admit", item("p01", "d", "1000")),
    ask("bind", item("p01", "e")),
    ask("admit", item("p01", "f")),
  ]);
  expect(ids()).toEqual([
    ["admit", "a", "f"],
    ["bind", "b", "e"],
    ["admit", "c"],
    ["admit", "d"],
  ]);
});

test("on a Redis Cluster partitions are never mixed in one call", async () => {
  const { ask, ids } = givenBatcher({ clustered: true });
  const partitions = ["p01", "p02", "p01", "p11", "p1"];
  await Promise.all(partitions.map((partition, at) => ask("void", item(partition, `${partition} ${at}`))));
  expect(ids()).toEqual([
    ["void", "p01 0", "p01 2"],
    ["void", "p02 1"],
    ["void", "p11 3"],
    ["void", "p1 4"],
  ]);
});

test("a call carries 32 items at the most", async () => {
  const { calls, ask } = givenBatcher();
  const replies = Array.from({ length: 70 }, (_, at) => ask("observe", item("p01", String(at))));
  expect(await Promise.all(replies)).toEqual(Array.from({ length: 70 }, (_, at) => [String(at)]));
  expect(calls.map(({ items }) => items.length)).toEqual([32, 32, 6]);
});

test("an item that fails rejects that item alone", async () => {
  const refused = new Error("WRONGTYPE");
  const { ask } = givenBatcher({
    answer: async ({ items }) => items.map(({ args }) => (args[0] === "b" ? refused : [args[0]!])),
  });
  const settled = await Promise.allSettled(["a", "b", "c"].map((id) => ask("bind", item("p01", id))));
  expect(settled).toEqual([
    { status: "fulfilled", value: ["a"] },
    { status: "rejected", reason: expect.objectContaining({ message: "the store failed", cause: refused }) },
    { status: "fulfilled", value: ["c"] },
  ]);
});

test("a call that fails rejects all its items, and no other call's", async () => {
  const away = new Error("Command timed out");
  const { ask } = givenBatcher({
    answer: async ({ script, items }) => {
      if (script === "admit") throw away;
      return items.map(({ args }) => [args[0]!]);
    },
  });
  const settled = await Promise.allSettled([
    ask("admit", item("p01", "a")),
    ask("inspect", item("p01", "b")),
    ask("admit", item("p01", "c")),
  ]);
  expect(settled).toEqual([
    { status: "rejected", reason: expect.objectContaining({ message: "the store failed", cause: away }) },
    { status: "fulfilled", value: ["b"] },
    { status: "rejected", reason: expect.objectContaining({ message: "the store failed", cause: away }) },
  ]);
});

test("a call that throws at once rejects its items too", async () => {
  const away = new Error("not connected");
  const { ask } = givenBatcher({
    answer: () => {
      throw away;
    },
  });
  await expect(ask("admit", item("p01", "a"))).rejects.toMatchObject({ cause: away });
});

test("a call that is refused for the slot of its first item is sent again, partition by partition", async () => {
  const moved = Object.assign(new Error("MOVED 5 10.0.0.1:6379"), { name: "ReplyError" });
  const { ask, ids } = givenBatcher({
    answer: async ({ items }) => {
      if (items[0]!.args[0] === "a") throw moved;
      return items.map(({ args }) => [args[0]!]);
    },
  });
  const results = ["p01 a", "p02 b", "p01 c", "p02 d"].map((text) => {
    const [partition, id] = text.split(" ") as [string, string];
    return ask("bind", item(partition, id));
  });
  const failed = {
    status: "rejected",
    reason: expect.objectContaining({ message: "the store failed", cause: moved }),
  };
  expect(await Promise.allSettled(results)).toEqual([
    failed,
    { status: "fulfilled", value: ["b"] },
    failed,
    { status: "fulfilled", value: ["d"] },
  ]);
  expect(ids()).toEqual([
    ["bind", "a", "b", "c", "d"],
    ["bind", "a", "c"],
    ["bind", "b", "d"],
  ]);
});
