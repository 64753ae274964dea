import { expect, test } from "vitest";
import { createCallLimit } from "../../../../src/admin/api/authorize.ts";

// Guarantee: one token's calls, however many, leave room for another's, and no more run or wait than are allowed.

/** A limit whose calls end when they are told to, and are written down when they begin and when they are refused. */
function givenLimit() {
  const limit = createCallLimit();
  const started: string[] = [];
  const refused: string[] = [];
  const running: { name: string; end(): void }[] = [];
  /** Calls `a1`, `a2`, ... of the token `a`. */
  async function call(owner: string, from: number, count: number): Promise<void> {
    for (let number = from; number < from + count; number++) {
      const name = `${owner}${number}`;
      const { promise, resolve } = Promise.withResolvers<void>();
      limit
        .run(owner, () => {
          started.push(name);
          running.push({ name, end: resolve });
          return promise;
        })
        .catch((error) => refused.push(`${name} ${error.code}`));
    }
    await settled();
  }
  async function end(count: number): Promise<void> {
    for (let ended = 0; ended < count; ended++) {
      running.shift()?.end();
      await settled();
    }
  }
  return { call, end, started, refused, running };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("8 calls run and 32 wait; a token's own further ones are refused", async () => {
  const limit = givenLimit();
  await limit.call("a", 1, 44);
  expect(limit.running).toHaveLength(8);
  expect(limit.refused).toEqual(["a41", "a42", "a43", "a44"].map((name) => `${name} overloaded`));
  await limit.end(40);
  expect(limit.started).toHaveLength(40);
  expect(limit.running).toHaveLength(0);
});

test("a token that has all places gives one to each call of another, until both have as many", async () => {
  const limit = givenLimit();
  await limit.call("a", 1, 44);
  limit.refused.length = 0;
  await limit.call("b", 1, 20);
  const displaced = Array.from({ length: 16 }, (_, at) => `a${40 - at} overloaded`);
  expect(limit.refused.filter((line) => line.startsWith("a"))).toEqual(displaced);
  expect(limit.refused.filter((line) => line.startsWith("b"))).toEqual(
    ["b17", "b18", "b19", "b20"].map((name) => `${name} overloaded`),
  );
});

test("tokens take turns: another's call begins with the next place, or the one after it", async () => {
  const limit = givenLimit();
  await limit.call("a", 1, 44);
  await limit.call("b", 1, 2);
  await limit.end(4);
  expect(limit.started.slice(8)).toEqual(["a9", "b1", "a10", "b2"]);
});

test("a call that fails frees its place", async () => {
  const limit = createCallLimit();
  for (let at = 0; at < 20; at++)
    await expect(limit.run("a", () => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
  expect(await limit.run("a", async () => "done")).toBe("done");
});
