import { expect, test } from "vitest";
import { endUnanswered, isAnswered, judge } from "../../../src/settlement/task-verdict.ts";
import type { PollOutcome } from "../../../src/upstream/poll-request.ts";

const MAX_AGE_MS = 7_200_000;
const AGES = {
  young: MAX_AGE_MS - 1,
  old: MAX_AGE_MS,
  stillOld: 2 * MAX_AGE_MS - 1,
  overdue: 2 * MAX_AGE_MS,
};

const task = (status: "pending" | "processing" | "completed" | "failed"): PollOutcome => ({
  outcome: "task",
  status,
  data: JSON.stringify({ task_id: "t", status, from: "upstream" }),
});
const refused = (aboutTask: boolean): PollOutcome => ({
  outcome: "refused",
  status: 410,
  code: 410,
  text: "Too old",
  detail: "HTTP 410",
  aboutTask,
});

const aged = (ageMs: number) => ({ taskId: "t", createdAtMs: 0, ageMs, maxAgeMs: MAX_AGE_MS });
const judged = (ageMs: number, answer: PollOutcome): string => {
  const verdict = judge(aged(ageMs), answer);
  expect(verdict?.unanswered ?? false).toBe(false);
  return verdict?.status ?? "nothing";
};

test.each<[string, PollOutcome, young: string, old: string, overdue: string]>([
  ["completed", task("completed"), "completed", "completed", "completed"],
  ["failed", task("failed"), "failed", "failed", "failed"],
  ["pending", task("pending"), "pending", "expired", "expired"],
  ["processing", task("processing"), "processing", "expired", "expired"],
  [
    "a state that is not known",
    { outcome: "unknown_status", word: "x", data: "" },
    "nothing",
    "expired",
    "expired",
  ],
  [
    "completed without a video",
    { ...task("processing"), lacksVideo: true } as PollOutcome,
    "processing",
    "expired",
    "expired",
  ],
  ["gone", { outcome: "gone" }, "gone", "gone", "expired"],
  ["a refusal of the task", refused(true), "nothing", "expired", "expired"],
  ["a refusal that is not of the task", refused(false), "nothing", "nothing", "nothing"],
  ...(["failed", "timed_out", "misrouted", "unroutable", "refused_gateway"] as const).map(
    (outcome): [string, PollOutcome, string, string, string] => [
      outcome,
      { outcome, detail: "" },
      "nothing",
      "nothing",
      "nothing",
    ],
  ),
  ["never sent", { outcome: "overloaded", detail: "" }, "nothing", "nothing", "nothing"],
  ["429", { outcome: "rate_limited", retryAfterSeconds: 7, detail: "" }, "nothing", "nothing", "nothing"],
])("%s ends a task only where it is evidence", (_, answer, young, old, overdue) => {
  expect(judged(AGES.young, answer), "below the maximum age").toBe(young);
  expect(judged(AGES.old, answer), "at the maximum age").toBe(old);
  expect(judged(AGES.stillOld, answer), "just below twice that").toBe(old);
  expect(judged(AGES.overdue, answer), "at twice the maximum age").toBe(overdue);
});

test("without an answer a task ends at twice its maximum age and not before", () => {
  expect(endUnanswered(aged(AGES.stillOld))).toBeUndefined();
  expect(endUnanswered(aged(AGES.overdue))).toMatchObject({ status: "expired", unanswered: true });
});

test("what the upstream says is recorded as it is; what ends without it is a failed task of the API", () => {
  const aging = { taskId: "t", createdAtMs: 0, ageMs: AGES.old, maxAgeMs: MAX_AGE_MS };
  expect(judge(aging, task("completed"))?.data).toBe(
    JSON.stringify({ task_id: "t", status: "completed", from: "upstream" }),
  );
  expect(JSON.parse(judge(aging, task("pending"))?.data ?? "")).toEqual({
    task_id: "t",
    status: "failed",
    created_at: "1970-01-01T00:00:00.000Z",
  });
});

test("a state that is not known leaves the last one, which then counts as fresh", () => {
  const aging = { taskId: "t", createdAtMs: 0, ageMs: AGES.young, maxAgeMs: MAX_AGE_MS };
  const last = { status: "pending", data: '{"task_id":"t","status":"pending"}' } as const;
  const unknown: PollOutcome = { outcome: "unknown_status", word: "upscaling", data: "{}" };
  expect(judge({ ...aging, last }, unknown)).toEqual({ ...last, unanswered: false });
});

test.each<[PollOutcome, boolean]>([
  [{ outcome: "unknown_status", word: "upscaling", data: "{}" }, true],
  [task("pending"), true],
  [{ outcome: "gone" }, true],
  [refused(true), true],
  [{ outcome: "failed", detail: "" }, false],
  [{ outcome: "timed_out", detail: "" }, false],
  [{ outcome: "misrouted", detail: "" }, false],
  [{ outcome: "unroutable", detail: "" }, false],
  [{ outcome: "overloaded", detail: "" }, false],
  [{ outcome: "refused_gateway", detail: "" }, false],
  [{ outcome: "rate_limited", retryAfterSeconds: undefined, detail: "" }, false],
])("%j: answered by the API %s", (outcome, answered) => {
  expect(isAnswered(outcome)).toBe(answered);
});
