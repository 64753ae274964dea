import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PlacementFollower } from "../../../../src/redis/topology/follow-placement.ts";
import { everythingOnOne, type Placement } from "../../../../src/redis/topology/placement.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";

const on = (name: string, epoch: number): Placement =>
  everythingOnOne({ name, epoch, host: name, port: 6379, replicas: 0 });

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A follower whose polls are answered one by one; the last answer is given again and again. */
function givenFollower(...answers: (Placement | Error)[]) {
  const found: string[] = [];
  const logs: string[] = [];
  const outcomes: string[] = [];
  const state = { polls: 0, isAway: false, answerMs: 0 };
  const follower = new PlacementFollower({
    source: {
      async find() {
        const answer = answers[Math.min(state.polls++, answers.length - 1)]!;
        if (state.answerMs > 0) await new Promise((resolve) => setTimeout(resolve, state.answerMs));
        if (answer instanceof Error) throw answer;
        return answer;
      },
      silent: () => 0,
      close: () => undefined,
    },
    found: ({ primaries }) => void found.push(primaries.map(({ name }) => name).join()),
    isAway: () => state.isAway,
    counted: (outcome) => void outcomes.push(outcome),
    log: createLogger("info", { write: (line) => void logs.push(line) }),
  });
  return { follower, found, logs, outcomes, state };
}

test("another primary of a higher epoch is found without anybody polling for it", async () => {
  const { found, follower } = givenFollower(on("a", 1), on("a", 1), on("b", 2));
  await vi.advanceTimersByTimeAsync(10_000);
  expect(found).toEqual(["a", "b"]);
  expect(follower.placement()?.primaries[0]).toMatchObject({ name: "b", epoch: 2 });
});

test("a primary that was left is not used again for an answer of an earlier epoch", async () => {
  const answers = [on("a", 1), on("b", 2), on("a", 1), on("b", 2), on("a", 3)];
  const { found, logs, outcomes, state } = givenFollower(...answers);
  // The time between two polls is random.
  while (state.polls < 4) await vi.advanceTimersByTimeAsync(10);
  expect(found).toEqual(["a", "b"]);
  expect(logs.join("")).toContain('"named":"a (epoch 1)"');
  expect(outcomes.slice(0, 3)).toEqual(["answered", "answered", "outdated"]);
  await vi.advanceTimersByTimeAsync(3500);
  expect(found).toEqual(["a", "b", "a"]);
});

test("the epoch of a primary that stays is kept, so that no earlier answer counts against it", async () => {
  const { found } = givenFollower(on("a", 1), on("a", 5), on("b", 4));
  await vi.advanceTimersByTimeAsync(10_000);
  expect(found).toEqual(["a"]);
});

test("while nobody answers, the primary stays in use, and the log says why once a minute", async () => {
  const { found, logs } = givenFollower(on("a", 1), new Error("no Sentinel answers"));
  await vi.advanceTimersByTimeAsync(59_000);
  const warned = (): number => logs.filter((line) => line.includes("no Sentinel answers")).length;
  expect(found).toEqual(["a"]);
  expect(warned()).toBe(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(warned()).toBe(2);
});

test("polls are bounded: one a second, four a second for 30 s while a primary is away, ten when all want one", async () => {
  const { follower, state } = givenFollower(on("a", 1));
  const pollsIn = async (ms: number): Promise<number> => {
    const before = state.polls;
    await vi.advanceTimersByTimeAsync(ms);
    return state.polls - before;
  };
  expect(await pollsIn(60_000)).toBeLessThanOrEqual(81);
  state.isAway = true;
  expect(await pollsIn(10_000)).toBeGreaterThan(30);
  await pollsIn(40_000);
  expect(await pollsIn(60_000)).toBeLessThanOrEqual(81);
  state.answerMs = 2;
  const polling = setInterval(follower.poll, 1);
  expect(await pollsIn(10_000)).toBeLessThanOrEqual(101);
  clearInterval(polling);
  follower.close();
  expect(await pollsIn(10_000)).toBe(0);
});
