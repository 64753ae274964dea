import { setImmediate as tick } from "node:timers/promises";
import { expect, test } from "vitest";
import { atTickEnd } from "../../../src/gateway/request-lifecycle.ts";

test("what comes in one tick is handed over together, in order; what comes meanwhile waits for the next", async () => {
  const taken: number[][] = [];
  const add = atTickEnd<number>((items) => {
    taken.push([...items]);
    if (items[0] === 1) add(4);
  });
  add(1);
  await Promise.resolve();
  add(2);
  process.nextTick(() => add(3));
  await Promise.resolve();
  expect(taken).toEqual([]);
  await tick();
  expect(taken).toEqual([[1, 2, 3]]);
  await tick();
  expect(taken).toEqual([[1, 2, 3], [4]]);
});
