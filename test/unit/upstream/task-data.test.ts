import { expect, test } from "vitest";
import { parseObject } from "../../../src/domain/json.ts";
import { dataText, TASK_DATA_CHARS_MAX } from "../../../src/upstream/answer.ts";

const TASK = {
  task_id: "t1",
  status: "completed",
  progress: 100,
  video_url: "https://a.example/v.mp4",
  thumbnail_url: null,
  created_at: "2026-01-01T00:00:00Z",
  completed_at: "2026-01-01T00:01:00Z",
};
const filled = (chars: number) => {
  const data = { ...TASK, echo: "" };
  return { ...data, echo: "x".repeat(chars - JSON.stringify(data).length) };
};

test("data up to the bound pass whole, long numbers as they came", () => {
  const data = filled(TASK_DATA_CHARS_MAX);
  expect(dataText(data)).toBe(JSON.stringify(data));
  const text = '{"task_id":"t1","id":12345678901234567890}';
  expect(dataText(parseObject(text)!)).toBe(text);
});

// Guarantee: what an upstream adds to a task cannot fill the store, nor make each poll of it dear.
test("beyond the bound the API's fields remain", () => {
  expect(JSON.parse(dataText(filled(TASK_DATA_CHARS_MAX + 1)))).toEqual(TASK);
});

test("of the API's fields those remain that are short themselves, so that the bound holds for any answer", () => {
  const long = "\u0001".repeat(2000);
  const { task_id, status } = TASK;
  const hostile = {
    ...Object.fromEntries(Object.keys(TASK).map((name) => [name, long])),
    ...{ task_id, status, progress: { a: [long] }, created_at: [long], echo: long.repeat(6) },
  };
  expect(JSON.parse(dataText(hostile))).toEqual({ task_id, status });
  const most = Object.fromEntries(Object.keys(TASK).map((name) => [name, "x".repeat(8000)]));
  expect(JSON.parse(dataText({ ...most, echo: long.repeat(6) }))).toEqual(most);
});

test("a field named as an object's prototype is left out like any other", () => {
  const parsed = parseObject(`{"task_id":"t1","__proto__":{"status":"${"x".repeat(TASK_DATA_CHARS_MAX)}"}}`)!;
  expect(dataText(parsed)).toBe('{"task_id":"t1"}');
});
