import { setImmediate as tick } from "node:timers/promises";
import { expect, test } from "vitest";
import { SpacedWork } from "../../../src/upstream/large-answers.ts";

/** Work whose time is what each piece says it takes; the rests are recorded, and end when the test says so. */
function givenWork() {
  let nowMs = 0;
  const rests: { ms: number; end: () => void }[] = [];
  const done: string[] = [];
  const work = new SpacedWork(
    () => nowMs,
    (end, ms) => void rests.push({ ms, end }),
  );
  const add = (name: string, tookMs: number): void =>
    work.add(() => {
      done.push(name);
      nowMs += tookMs;
      // Work that follows from it, such as parsing, is a part of it.
      void Promise.resolve().then(() => {
        nowMs += 1;
      });
    });
  return { add, done, rests };
}

// Guarantee: large answers leave half of the thread to everybody else.
test("between two pieces the event loop goes on for as long as the first took, what it resolved included", async () => {
  const { add, done, rests } = givenWork();
  add("a", 10);
  add("b", 20);
  expect(done, "nothing runs in the tick of whoever adds it").toEqual([]);
  for (let n = 0; n < 3; n++) await tick();
  expect(done).toEqual(["a"]);
  expect(rests.map(({ ms }) => ms)).toEqual([11]);
  rests[0]!.end();
  for (let n = 0; n < 3; n++) await tick();
  expect(done).toEqual(["a", "b"]);
  expect(rests.map(({ ms }) => ms)).toEqual([11, 21]);
});

test("work that comes during a rest waits for its end, and work after all is done begins anew", async () => {
  const { add, done, rests } = givenWork();
  add("a", 10);
  for (let n = 0; n < 3; n++) await tick();
  add("b", 10);
  for (let n = 0; n < 3; n++) await tick();
  expect(done).toEqual(["a"]);
  rests[0]!.end();
  for (let n = 0; n < 3; n++) await tick();
  rests[1]!.end();
  expect(done).toEqual(["a", "b"]);
  add("c", 10);
  for (let n = 0; n < 3; n++) await tick();
  expect(done).toEqual(["a", "b", "c"]);
});

test("with its own clock and timers it runs all that was added, in order", async () => {
  const work = new SpacedWork();
  const done: number[] = [];
  await new Promise<void>((resolve) => {
    for (let n = 0; n < 20; n++) work.add(() => void done.push(n));
    work.add(resolve);
  });
  expect(done).toEqual(Array.from({ length: 20 }, (_, n) => n));
});
