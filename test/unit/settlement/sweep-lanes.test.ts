import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { OpenRequest } from "../../../src/scripts/tasks.ts";
import { createSweepLanes } from "../../../src/settlement/sweep-lanes.ts";
import type { PollOutcome } from "../../../src/upstream/poll-request.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

const MINUTE_MS = 60_000;
const FAILED: PollOutcome = { outcome: "failed", detail: "" };
const ANSWERED: PollOutcome = { outcome: "task", status: "processing", data: "{}" };

/** Outcomes of every poll at each upstream, by its name. */
function givenLanes(says: Record<string, PollOutcome | "hangs">) {
  const polls: Record<string, number> = {};
  const lanes = createSweepLanes({
    perSecond: () => 50,
    upstreamName: (tag) => tag ?? "present",
    async poll({ upstream = "present" }, ended) {
      polls[upstream] = (polls[upstream] ?? 0) + 1;
      const outcome = says[upstream];
      if (outcome === "hangs") await new Promise(() => undefined);
      else if (outcome) ended(outcome);
    },
  });
  const add = (upstream: string | undefined, tasks: number): number =>
    Array.from({ length: tasks }, () => lanes.add({ upstream } as OpenRequest)).filter(Boolean).length;
  return { lanes, add, polls };
}

// Guarantee: a provider that is down delays no task of another.
test.each<[string, PollOutcome | "hangs"]>([
  ["fails", FAILED],
  ["hangs", "hangs"],
  ["limits us", { outcome: "rate_limited", retryAfterSeconds: 30, detail: "" }],
])("while a former upstream %s, the present one is asked at its whole pace", async (_, outcome) => {
  const { add, polls } = givenLanes({ old: outcome, present: ANSWERED });
  add("old", 150);
  await vi.advanceTimersByTimeAsync(1000);
  add(undefined, 150);
  await vi.advanceTimersByTimeAsync(3500);
  expect(polls.present).toBe(150);
  expect(polls.old).toBeLessThan(15);
});

test("a full lane takes no more; it holds up the claims for others only while it moves", async () => {
  const says: Record<string, PollOutcome> = { old: ANSWERED, present: ANSWERED };
  const { lanes, add } = givenLanes(says);
  expect(lanes.room()).toBe(200);
  expect(add("old", 300), "four under way, the others wait").toBeLessThan(210);
  expect(lanes.room(), "it has room in a moment").toBe(0);
  says.old = FAILED;
  await vi.advanceTimersByTimeAsync(1000);
  add("old", 300);
  expect(lanes.room(), "it stands still").toBe(200);
  expect(add(undefined, 1)).toBe(1);
});

test("with nobody who answers, no more is claimed than there is room for", async () => {
  const { lanes, add } = givenLanes({ present: FAILED });
  add(undefined, 300);
  await vi.advanceTimersByTimeAsync(1000);
  add(undefined, 300);
  expect(lanes.room()).toBe(0);
});

test("what cannot be sent does not slow its lane down", async () => {
  const { add, polls } = givenLanes({ unknown: { outcome: "unroutable", detail: "" } });
  add("unknown", 150);
  await vi.advanceTimersByTimeAsync(3500);
  expect(polls.unknown).toBe(150);
});

test("so many upstreams have a lane, and one that is not used any more makes room", async () => {
  const { add } = givenLanes(
    Object.fromEntries(Array.from({ length: 40 }, (_, nth) => [`u${nth}`, ANSWERED])),
  );
  const added = () => Array.from({ length: 40 }, (_, nth) => add(`u${nth}`, 1)).filter(Boolean).length;
  expect(added()).toBe(16);
  await vi.advanceTimersByTimeAsync(9 * MINUTE_MS);
  expect(add("u39", 1)).toBe(0);
  await vi.advanceTimersByTimeAsync(MINUTE_MS);
  expect(add("u39", 1)).toBe(1);
});

test("an upstream keeps its lane while polls of it hang, and while it is used", async () => {
  const { lanes, add, polls } = givenLanes({ old: "hangs", used: FAILED, present: ANSWERED });
  add("old", 5);
  add("used", 1);
  await vi.advanceTimersByTimeAsync(9 * MINUTE_MS);
  add("used", 1);
  await vi.advanceTimersByTimeAsync(MINUTE_MS);
  expect(add("new", 1)).toBe(1);
  add("old", 1);
  await vi.advanceTimersByTimeAsync(1000);
  expect(polls.old, "four at a time").toBe(4);
  expect(lanes.silentMs("used")).toBe(10 * MINUTE_MS + 1000);
});

// Guarantee: a task past twice its age ends unpolled only while its upstream answers nothing.
test("an upstream is silent from its first unanswered poll to its next answer", async () => {
  const says: Record<string, PollOutcome> = { present: FAILED, other: FAILED };
  const { lanes, add } = givenLanes(says);
  const poll = async (upstream: string | undefined, outcome: PollOutcome): Promise<void> => {
    says[upstream ?? "present"] = outcome;
    add(upstream, 1);
    await vi.advanceTimersByTimeAsync(MINUTE_MS);
  };
  expect(lanes.isSilent(0), "nothing was asked").toBe(false);
  for (const outcome of ["overloaded", "unroutable"] as const) {
    await poll(undefined, { outcome, detail: "" });
    expect(lanes.silentMs(undefined), outcome).toBe(0);
  }
  await poll(undefined, FAILED);
  await poll(undefined, { outcome: "overloaded", detail: "" });
  expect(lanes.silentMs(undefined)).toBe(2 * MINUTE_MS);
  expect(lanes.isSilent(2 * MINUTE_MS)).toBe(true);
  expect(lanes.isSilent(2 * MINUTE_MS + 1)).toBe(false);
  await poll("other", ANSWERED);
  expect(lanes.isSilent(MINUTE_MS), "another answers").toBe(false);
  await poll("other", FAILED);
  expect(lanes.isSilent(4 * MINUTE_MS), "one is silent for so long, and none answers").toBe(true);
  await poll(undefined, ANSWERED);
  expect(lanes.silentMs(undefined)).toBe(0);
});

// Guarantee: a process that stood still takes none of that time for the upstream's silence.
test("time without polls counts neither as polled nor as silent", async () => {
  const { lanes, add } = givenLanes({ present: FAILED });
  const state = () => [lanes.polledMs(undefined), lanes.silentMs(undefined)];
  expect(state()).toEqual([0, 0]);
  for (let minute = 0; minute < 3; minute++) {
    add(undefined, 1);
    await vi.advanceTimersByTimeAsync(MINUTE_MS);
  }
  expect(state()).toEqual([3 * MINUTE_MS, 3 * MINUTE_MS]);
  await vi.advanceTimersByTimeAsync(10 * MINUTE_MS);
  expect(state()).toEqual([0, 0]);
  add(undefined, 1);
  await vi.advanceTimersByTimeAsync(MINUTE_MS);
  expect(state()).toEqual([MINUTE_MS, MINUTE_MS]);
});

test.each([
  [undefined, 10],
  [3, 10],
  [20, 20],
  [99, 30],
])("an upstream that limits us for %s seconds is left alone for %d", async (retryAfterSeconds, seconds) => {
  const { add, polls } = givenLanes({ present: { outcome: "rate_limited", retryAfterSeconds, detail: "" } });
  add(undefined, 2);
  await vi.advanceTimersByTimeAsync(1000 * seconds - 1);
  expect(polls.present).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(polls.present).toBe(2);
});
