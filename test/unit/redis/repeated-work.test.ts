import { expect, test } from "vitest";
import { repeated } from "../../../src/redis/repeated-work.ts";

test("a round that fails is reported, and the next one follows", async () => {
  const failures: unknown[] = [];
  const third = Promise.withResolvers<void>();
  let rounds = 0;
  const work = repeated(
    async () => {
      if (++rounds === 3) third.resolve();
      throw new Error(`round ${rounds}`);
    },
    { pauseMs: () => 0, failed: (error) => void failures.push(error) },
  );
  work.start();
  await third.promise;
  await work.stop();
  expect(failures).toEqual([new Error("round 1"), new Error("round 2"), new Error("round 3")]);
});

test("a stop waits for the round in progress, tells it, and starts no other", async () => {
  const begun = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  let rounds = 0;
  let told = false;
  const work = repeated(
    async (signal) => {
      rounds++;
      begun.resolve();
      await end.promise;
      told = signal.aborted;
    },
    { pauseMs: () => 0, failed: () => undefined },
  );
  work.start();
  await begun.promise;
  const stopped = work.stop();
  end.resolve();
  await stopped;
  work.start();
  await new Promise((resolve) => setImmediate(resolve));
  expect({ rounds, told }).toEqual({ rounds: 1, told: true });
});
