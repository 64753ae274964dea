import { expect, onTestFinished, test, vi } from "vitest";
import { atTick, repeated } from "../../../src/redis/repeated-work.ts";

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
  let isToldToStop = false;
  const work = repeated(
    async (signal) => {
      rounds++;
      begun.resolve();
      await end.promise;
      isToldToStop = signal.aborted;
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
  expect({ rounds, isToldToStop }).toEqual({ rounds: 1, isToldToStop: true });
});

test("regular work of a second or more is due together, on the second next to its time", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  onTestFinished(() => void vi.useRealTimers());
  vi.advanceTimersByTime(1000 - (performance.now() % 1000));
  const ran: string[] = [];
  const at = (name: string, delayMs: number) => atTick(() => ran.push(name), delayMs);
  at("a", 1000);
  at("at its time", 700);
  vi.advanceTimersByTime(400);
  at("b", 1000);
  const cancel = at("cancelled", 1000);
  vi.advanceTimersByTime(200);
  at("c", 1000);
  cancel();
  vi.advanceTimersByTime(399);
  expect(ran).toEqual(["at its time"]);
  expect(vi.getTimerCount()).toBe(2);
  vi.advanceTimersByTime(1);
  expect(ran).toEqual(["at its time", "a", "b"]);
  vi.advanceTimersByTime(999);
  expect(ran).not.toContain("c");
  vi.advanceTimersByTime(1);
  expect(ran).toEqual(["at its time", "a", "b", "c"]);
});
