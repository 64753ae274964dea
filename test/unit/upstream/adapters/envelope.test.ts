import { expect, test } from "vitest";
import { parseObject } from "../../../../src/domain/json.ts";
import type { AdapterResponse } from "../../../../src/upstream/adapter.ts";
import { ENVELOPE } from "../../../../src/upstream/adapters/envelope.ts";

const TASK = { taskId: "t1", endpoint: undefined };

function response(status: number, body: unknown): AdapterResponse {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { status, body: text, json: parseObject(text), retryAfter: undefined };
}

test("a generation and a poll are sent as the interface has them, the body as it was priced", () => {
  const body = { prompt: "A boat" };
  const text = JSON.stringify(body);
  expect(ENVELOPE.create({ endpoint: "gen2/text-to-video", body, text }, {})).toEqual({
    method: "POST",
    path: "/api/v1/gen2/text-to-video",
    text,
  });
  expect(ENVELOPE.poll(TASK, {})).toEqual({ method: "GET", path: "/api/v1/tasks/t1" });
  expect(ENVELOPE.upload?.({}, "n1")).toEqual({ path: "/api/v1/upload" });
});

test("no id that another adapter got changes the path of a poll", () => {
  const pathOf = (taskId: string) => ENVELOPE.poll({ taskId, endpoint: undefined }, {}).path;
  expect(pathOf("Az09_.~-")).toBe("/api/v1/tasks/Az09_.~-");
  expect(pathOf("a/../../b?c#d\r\n")).toBe("/api/v1/tasks/a%2F..%2F..%2Fb%3Fc%23d%0D%0A");
});

test.each<[number, unknown, object]>([
  [200, { code: 200, data: { task_id: "t1" } }, { outcome: "accepted", taskId: "t1" }],
  [201, { code: 500, data: { task_id: "t1" } }, { outcome: "accepted", taskId: "t1" }],
  [
    200,
    { code: 200, task_id: "t1", status: "pending" },
    { outcome: "accepted", task: { status: "pending" } },
  ],
  [200, { code: 200, task_id: "t1", data: { status: "pending" } }, { outcome: "accepted", taskId: "t1" }],
  [200, { code: 422, task_id: "t1" }, { outcome: "unclear" }],
  [200, { code: 200, data: {} }, { outcome: "unclear" }],
  [200, { code: 200, data: { task_id: "a/b" } }, { outcome: "unclear" }],
  [200, "<html>", { outcome: "unclear" }],
  [500, { code: 200, data: { task_id: "t1" } }, { outcome: "unclear" }],
  [503, "", { outcome: "unavailable" }],
  [503, '{"task_id":"t1"}', { outcome: "unclear" }],
  [401, "", { outcome: "refused_gateway" }],
  [404, "", { outcome: "refused_gateway" }],
  [302, "", { outcome: "refused_gateway" }],
  [200, { code: 429, retryAfter: 11 }, { outcome: "rate_limited", retryAfterSeconds: 11 }],
  [422, { code: 1001, msg: "No" }, { outcome: "refused", status: 422, code: 1001, text: "No" }],
  [403, { code: 403, msg: "NSFW prompt" }, { outcome: "refused", status: 403 }],
])("an answer to a generation: %i %j", (status, body, expected) => {
  expect(ENVELOPE.created(response(status, body), {})).toMatchObject(expected);
});

test.each<[number, unknown, object]>([
  [200, { code: 200, data: { task_id: "t1", status: "running" } }, { outcome: "task", status: "running" }],
  [200, { code: 200, task_id: "t1", status: "running" }, { outcome: "task", status: "running" }],
  [200, { code: 200, task_id: "t1", data: { status: "running" } }, { outcome: "task", status: "running" }],
  [200, { code: 200, data: { status: "running" } }, { outcome: "failed", why: "the answer has no task_id" }],
  [200, { code: 404 }, { outcome: "gone" }],
  [404, { code: 404 }, { outcome: "gone" }],
  [404, "<html>", { outcome: "misrouted" }],
  [307, "", { outcome: "misrouted" }],
  [410, { code: 410 }, { outcome: "refused", isFinal: true }],
  [408, { code: 408 }, { outcome: "refused", isFinal: false }],
  [401, { code: 401 }, { outcome: "refused_gateway" }],
  [500, { code: 404 }, { outcome: "failed" }],
])("an answer to a poll: %i %j", (status, body, expected) => {
  expect(ENVELOPE.polled(response(status, body), TASK, {})).toMatchObject(expected);
});

const IMAGE = { url: "https://files.example/a.png", expires_at: "2026-01-01T00:05:00Z" };

test.each<[number, unknown, object]>([
  [200, { code: 200, data: IMAGE }, { outcome: "uploaded", url: IMAGE.url, expiresAt: IMAGE.expires_at }],
  [200, { code: 200, data: { ...IMAGE, url: "http://files.example/a.png" } }, { outcome: "failed" }],
  [200, { code: 200, data: { ...IMAGE, expires_at: "soon" } }, { outcome: "failed" }],
  [200, { data: IMAGE }, { outcome: "failed" }],
  [413, "", { outcome: "refused", status: 413 }],
  // An upload costs nothing: programs may send it again.
  [408, { code: 408 }, { outcome: "failed" }],
  [425, "", { outcome: "failed" }],
  [200, { code: 503 }, { outcome: "failed" }],
  [400, { code: 500 }, { outcome: "failed" }],
])("an answer to an upload: %i %j", (status, body, expected) => {
  expect(ENVELOPE.uploaded?.(response(status, body), {})).toMatchObject(expected);
});
