import { afterAll, beforeAll, expect, test } from "vitest";
import { many } from "../../src/redis/pipelines.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";

let server: OwnStore;
beforeAll(async () => {
  server = await openOwnStore();
});
afterAll(() => server?.stop());

/** How many commands came together. */
async function tripsOf(read: (redis: OwnStore["client"]) => Promise<unknown>): Promise<number[]> {
  const trips: number[] = [];
  const counted = new Proxy(server.client, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name !== "pipeline") return typeof value === "function" ? value.bind(target) : value;
      return () => {
        const pipe = target.pipeline();
        const exec = pipe.exec.bind(pipe);
        pipe.exec = (...args) => {
          trips.push(pipe.length);
          return exec(...args);
        };
        return pipe;
      };
    },
  });
  await read(counted);
  return trips;
}

// Guarantee: however much an operator reads at a time, Redis serves customers in between.
test("a read of many items comes in bounded round trips, and answers in the order of the items", async () => {
  const items = Array.from({ length: 450 }, (_, at) => at);
  const trips = await tripsOf(async (redis) => {
    const answers = await many<string, number>(redis, items, (pipe, at) => pipe.echo(String(at)).echo("2"));
    expect(answers).toEqual(items.flatMap((at) => [String(at), "2"]));
  });
  expect(trips).toEqual([400, 400, 100]);
  expect(await tripsOf((redis) => many(redis, items, (pipe) => pipe.time(), 100))).toEqual([
    ...[100, 100, 100, 100, 50],
  ]);
  expect(await tripsOf((redis) => many(redis, [], (pipe) => pipe.time()))).toEqual([]);
});

test("the first error of a read of many items is thrown, and no more is asked", async () => {
  const trips = await tripsOf(async (redis) => {
    const read = many(redis, [1, 2, 3], (pipe, at) => (at === 2 ? pipe.call("nothing") : pipe.time()), 2);
    await expect(read).rejects.toThrow("unknown command");
  });
  expect(trips).toEqual([2]);
});
