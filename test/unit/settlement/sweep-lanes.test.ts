import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { OpenRequest } from "../../../src/scripts/tasks.ts";
import { createSweepLanes } from "../../../src/settlement/sweep-lanes.ts";
import type { PollOutcome } from "../../../src/upstream/poll-request.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

const FAILED: PollOutcome = { outcome: "failed", detail: "" };
const ANSWERED: PollOutcome = { outcome: "task", status: "processing", data: "{}" };

/** Outcomes of every poll at each upstream, by its name. */
function givenLanes(says: Record<string, PollOutcome | "hangs">) {
  const asked: Record<string, number> = {};
  const lanes = createSweepLanes({
    perSecond: () => 50,
    upstreamName: (tag) => tag ?? "present",
    async poll({ upstream = "present" }, ended) {
      asked[upstream] = (asked[upstream] ?? 0) + 1;
      const outcome = says[upstream];
      if (outcome === "hangs") await new Promise(() => undefined);
      else if (outcome) ended(outcome);
    },
  });
  const add = (upstream: string | undefined, tasks: number): number =>
    Array.from({ length: tasks }, () => lanes.add({ upstream } as OpenRequest)).filter(Boolean).length;
  return { lanes, add, asked };
}

// Guarantee: a provider that is down delays no task of another.
test.each<[string, PollOutcome | "hangs"]>([
  ["fails", FAILED],
  ["hangs", "hangs"],
  ["limits us", { outcome: "rate_limited", retryAfterSeconds: 30, detail: "" }],
])("while a former upstream %s, the present one is asked at its whole pace", async (_, outcome) => {
  const { add, asked } = givenLanes({ old: outcome, present: ANSWERED });
  add("old", 150);
  await vi.advanceTimersByTimeAsync(1000);
  add(undefined, 150);
  await vi.advanceTimersByTimeAsync(3500);
  expect(asked.present).toBe(150);
  expect(asked.old).toBeLessThan(15);
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
  const { add, asked } = givenLanes({ unknown: { outcome: "unroutable", detail: "" } });
  add("unknown", 150);
  await vi.advanceTimersByTimeAsync(3500);
  expect(asked.unknown).toBe(150);
});

test("so many upstreams have a lane, and one that is not used any more makes room", async () => {
  const { add } = givenLanes(
    Object.fromEntries(Array.from({ length: 40 }, (_, nth) => [`u${nth}`, ANSWERED])),
  );
  const added = () => Array.from({ length: 40 }, (_, nth) => add(`u${nth}`, 1)).filter(Boolean).length;
  expect(added()).toBe(16);
  await vi.advanceTimersByTimeAsync(11 * 60_000);
  expect(add("u39", 1)).toBe(1);
});
