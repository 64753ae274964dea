import { describe, expect, test } from "vitest";
import type { Answer } from "../../../src/upstream/answer.ts";
import { readGeneration, readPoll } from "../../support/envelope-answers.ts";

const answered = (status: number, body: string): Answer => ({ status, retryAfter: undefined, body });

/** Values as JSON that convert to no text or number by themselves: a number beyond a double is an object here. */
const HOSTILE = ["1764180000000000000", '{"toString":1,"valueOf":1}', "[[]]", '{"__proto__":null}', "1e400"];
const FIELDS = [
  "status",
  "progress",
  "video_url",
  "thumbnail_url",
  "created_at",
  "completed_at",
  "error_reason",
];

// Guarantee: no field beside it loses an id. A throw would leave the task unbound and its poll without an end.
describe.each(FIELDS)("%s", (field) => {
  const taskWith = (value: string): string => {
    const rest = { task_id: "t1", status: "completed", video_url: "https://v.example/1", [field]: undefined };
    return `{"code":200,"data":${JSON.stringify(rest).slice(0, -1)},"${field}":${value}}}`;
  };

  test.each(HOSTILE)("as %s loses no task", (value) => {
    expect(readGeneration(answered(200, taskWith(value)))).toMatchObject({
      outcome: "accepted",
      taskId: "t1",
    });
    const polled = readPoll(answered(200, taskWith(value)), { taskId: "t1", createdAtMs: 0 });
    expect(polled.outcome).toBe(field === "status" ? "failed" : "task");
  });
});

// Guarantee: an id in hand is never called a refusal, whatever its form, and wherever it is.
test.each<[string, number, string]>([
  ["a number", 200, '{"code":500,"data":{"task_id":123}}'],
  ["a text that is no id", 409, '{"code":409,"data":{"task_id":"a/b"}}'],
  ["of a 503", 503, '{"code":503,"data":{"task_id" : "a:b"}}'],
  ["of a redirect", 302, '{"task_id":"a:b"}'],
  ["in an answer that was cut", 409, '{"code":409,"data":{"task_id":"abc"'],
  ["beside data nested too deep", 400, `{"data":{"task_id":"t1"},"x":${"[".repeat(500)}${"]".repeat(500)}}`],
  ["of a name that comes twice", 400, '{"code":400,"data":{"task_id":"t1"},"data":{}}'],
  ["in a list", 400, '[{"task_id":"t1"}]'],
  ["deeper", 429, '{"code":429,"result":{"task":{"task_id":"t1"}}}'],
])("an id that is %s leaves the outcome unknown", (_, status, body) => {
  expect(readGeneration(answered(status, body))).toMatchObject({
    outcome: "unclear",
    detail: expect.stringContaining("task_id"),
  });
});

test.each([
  '{"code":400,"data":{"task_id":null}}',
  '{"code":400,"data":{"task_id":""}}',
  '{"detail":[{"loc":["body","task_id"],"msg":"unknown"}]}',
  JSON.stringify({ code: 400, error: 'bad prompt: "task_id": "t1"' }),
])("%s names no task: it is refused", (body) => {
  expect(readGeneration(answered(400, body))).toMatchObject({ outcome: "refused" });
});

// Guarantee: no video for nothing. A task that may yet fail, or has failed, and is refunded, shows none.
test.each(["pending", "processing", "failed", "upscaling"])(
  "a task that is %s has no video_url",
  (status) => {
    const data = {
      task_id: "t1",
      status,
      video_url: "https://v.example/1",
      created_at: "2026-01-01T00:00:00Z",
    };
    const polled = readPoll(answered(200, JSON.stringify({ code: 200, data })), { taskId: "t1" });
    expect("data" in polled && JSON.parse(polled.data)).not.toHaveProperty("video_url");
  },
);
