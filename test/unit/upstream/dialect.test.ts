import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Adapter } from "../../../src/upstream/adapter.ts";
import type { Answer } from "../../../src/upstream/answer.ts";
import { checkForm, checkRequest, Dialect } from "../../../src/upstream/dialect.ts";
import { readPoll, readResult } from "../../../src/upstream/poll-answer.ts";
import { interpretAnswer } from "../../../src/upstream/upload-stream.ts";
import { createRequest, readGeneration } from "../../../src/upstream/upstream.ts";

const BASE: Adapter = {
  name: "own",
  create: ({ text }) => ({ method: "POST", path: "/x", text }),
  created: () => ({ outcome: "unclear" }),
  poll: () => ({ method: "GET", path: "/x" }),
  polled: () => ({ outcome: "gone" }),
};

/** A dialect whose adapter has one function that returns this, or throws it. */
function returning(
  called: string,
  value: unknown,
  observer?: ConstructorParameters<typeof Dialect>[1],
): Dialect {
  const run = () => {
    if (value instanceof Error) throw value;
    return value;
  };
  const adapter = () => ({ ...BASE, [called]: run }) as Adapter;
  return new Dialect({ name: "own", id: "own", adapter, options: {} }, observer);
}

const answer = (body = "{}", status = 200): Answer => ({ status, body, retryAfter: undefined });
const NONSENSE = [
  undefined,
  null,
  7,
  "accepted",
  [],
  {},
  { outcome: "made" },
  Promise.resolve({}),
  new Error("no"),
];

describe("nonsense of an adapter", () => {
  test.each([
    ...NONSENSE,
    { outcome: "accepted" },
    { outcome: "accepted", taskId: "" },
    { outcome: "accepted", taskId: 12 },
    { outcome: "accepted", taskId: "x".repeat(10_000) },
    { outcome: "refused", text: 7 },
    { outcome: "refused", text: "no", status: 200 },
    { outcome: "refused", text: "no", code: "400" },
  ])("to a generation is unclear, never a charge and never a refusal: %#", (value) => {
    const fault = vi.fn();
    const dialect = returning("created", value, { fault, slow: vi.fn() });
    const outcome = readGeneration(answer(), "", undefined, dialect);
    expect(outcome).toMatchObject({
      outcome: "unclear",
      detail: expect.stringMatching(/^adapter own: created /),
    });
    expect(fault).toHaveBeenCalledExactlyOnceWith("own", "created");
  });

  test.each([
    null,
    "none",
    { price: 1n },
    {
      toJSON: () => {
        throw new Error("no");
      },
    },
    { toJSON: () => undefined },
  ])("beside the id of a task is left out, and the task is charged: %#", (task) => {
    const fault = vi.fn();
    const dialect = returning(
      "created",
      { outcome: "accepted", taskId: "t1", task },
      { fault, slow: vi.fn() },
    );
    const data = '{"task_id":"t1"}';
    const outcome = readGeneration(answer(), "", undefined, dialect);
    expect(outcome).toEqual({ outcome: "accepted", taskId: "t1", data });
    expect(fault).toHaveBeenCalledExactlyOnceWith("own", "created");
  });

  test.each([...NONSENSE, { outcome: "task", status: "done", task: null }])(
    "to a poll is a failed one: %j",
    (value) => {
      const outcome = readPoll(answer(), { taskId: "t1" }, returning("polled", value));
      expect(outcome).toMatchObject({
        outcome: "failed",
        detail: expect.stringMatching(/^adapter own: polled /),
      });
    },
  );

  test.each([...NONSENSE, { outcome: "uploaded", url: "http://a.example/", expiresAt: undefined }])(
    "to an upload is a failed one: %j",
    (value) => {
      const outcome = interpretAnswer(answer(), returning("uploaded", value));
      expect(outcome).toMatchObject({ outcome: "upstream_failed" });
    },
  );

  test.each([
    undefined,
    {},
    { method: "PUT", path: "/" },
    { method: "POST", path: "x", json: {} },
    { method: "POST", path: "/a b", json: {} },
    { method: "POST", path: "/\r\nx: y", json: {} },
    { method: "POST", path: "/a/../b", json: {} },
    { method: "POST", path: "/a/.?b", json: {} },
    { method: "POST", path: "/a/%2E.", json: {} },
    { method: "POST", path: "/x" },
    { method: "GET", path: "/x" },
    { method: "POST", path: "/x", json: () => "no JSON" },
    { method: "POST", path: "/x", json: {}, headers: { "content-length": "1" } },
    { method: "POST", path: "/x", json: {}, headers: { a: "1\r\nb: 2" } },
    { unsupported: [] },
    { unsupported: "shots" },
    new Error("no"),
  ])("instead of a request sends nothing: %j", (value) => {
    const generation = { endpoint: "gen2/text-to-video", body: {}, text: "{}" } as const;
    const request = createRequest(returning("create", value), generation);
    expect(request).toMatchObject({
      outcome: "adapter_fault",
      detail: expect.stringMatching(/^adapter own: create/),
    });
  });

  test("says where a module threw, and nothing of the request", () => {
    const error = new Error("cannot read A secret prompt");
    error.stack = "Error: x\n    at created (file:///etc/own.0123456789abcdef.ts:12:3)";
    const outcome = readGeneration(
      answer(),
      '{"prompt":"A secret prompt"}',
      undefined,
      returning("created", error),
    );
    expect(outcome).toMatchObject({ detail: expect.stringContaining("cannot read [request] (own.ts:12)") });
  });

  test("that throws a whole answer holds nobody up", () => {
    const dialect = returning("created", new Error("a".repeat(50_000)));
    const fromMs = performance.now();
    expect(readGeneration(answer(), "", undefined, dialect)).toMatchObject({ outcome: "unclear" });
    expect(performance.now() - fromMs).toBeLessThan(1000);
  });

  test("is at no place that its message names", () => {
    const dialect = returning("created", new Error("see secret.ts:1"));
    const outcome = readGeneration(answer(), '{"prompt":"see secret.ts:1"}', undefined, dialect);
    expect(outcome).toMatchObject({ detail: expect.not.stringContaining("secret") });
  });

  test("is also what throws something that cannot be read", () => {
    const evil = Object.defineProperty(new Error("x"), "message", {
      get: () => {
        throw new Error("again");
      },
    });
    const outcome = readGeneration(answer(), "", undefined, returning("created", evil));
    expect(outcome).toMatchObject({ outcome: "unclear" });
  });
});

test("a promise is no result, and its rejection ends no process", async () => {
  const unhandled = vi.fn();
  process.on("unhandledRejection", unhandled);
  onTestFinished(() => void process.off("unhandledRejection", unhandled));
  const rejected = (called: string) => returning(called, Promise.reject(new Error("later")));
  const generation = { endpoint: "gen2/text-to-video", body: {}, text: "{}" } as const;
  const task = { taskId: "t1" };
  const outcomes = [
    createRequest(rejected("create"), generation),
    readGeneration(answer(), "", undefined, rejected("created")),
    readPoll(answer(), task, rejected("polled")),
    readResult(answer(), task, rejected("result")),
    interpretAnswer(answer(), rejected("uploaded")),
  ];
  for (const outcome of outcomes)
    expect(outcome).toMatchObject({ detail: expect.stringContaining("returned a promise") });
  for (const check of [checkRequest, checkForm])
    expect(() => check(Promise.reject(new Error("later")) as never)).toThrow("returned a promise");
  await new Promise((resolve) => setTimeout(resolve, 10));
  expect(unhandled).not.toHaveBeenCalled();
});

test("a slow function is reported", () => {
  const slow = vi.fn();
  const dialect = new Dialect(
    { name: "own", id: "own", adapter: () => BASE, options: {} },
    { fault: vi.fn(), slow },
  );
  const until = performance.now() + 60;
  dialect.call("created", "", () => {
    while (performance.now() < until);
  });
  expect(slow).toHaveBeenCalledExactlyOnceWith("own", "created", expect.any(Number));
});

test("an id that is not fit for a path is shown encoded, in the data as well", () => {
  const dialect = returning("created", { outcome: "accepted", taskId: "a/b", task: { eta: 5 } });
  const taskId = "~e~YS9i";
  const data = JSON.stringify({ task_id: taskId, eta: 5 });
  expect(readGeneration(answer(), "", undefined, dialect)).toEqual({ outcome: "accepted", taskId, data });
});

test("a polled task is read by the same rules, whatever adapter: words, times, and no video before it is completed", () => {
  const task = { progress: "45%", created_at: 1_767_225_600_000, video_url: "https://v.example/1", more: 1 };
  const outcome = readPoll(
    answer(),
    { taskId: "a/b" },
    returning("polled", { outcome: "task", status: "Running", task }),
  );
  const created_at = "2026-01-01T00:00:00.000Z";
  const data = { task_id: "~e~YS9i", progress: 45, created_at, more: 1, status: "processing" };
  expect(outcome).toMatchObject({ outcome: "task", status: "processing" });
  expect(JSON.parse((outcome as { data: string }).data)).toEqual(data);
});

test("an id in the data of a task is the one that customers have", () => {
  const polled = { outcome: "task", status: "running", task: { task_id: "a/b" } };
  expect(readPoll(answer(), { taskId: "a/b" }, returning("polled", polled))).toMatchObject({
    data: '{"task_id":"~e~YS9i","status":"processing"}',
  });
});

test("a task of the adapter's is never changed: it may be one object for all", () => {
  const task = Object.freeze({ status: "x", progress: "1%" });
  const dialect = returning("polled", { outcome: "task", status: "done", task });
  expect(readPoll(answer(), { taskId: "t1" }, dialect)).toMatchObject({
    status: "processing",
    lacksVideo: true,
  });
  expect(task).toEqual({ status: "x", progress: "1%" });
});

test("why an answer has failed is an excerpt in the log, without values of addresses", () => {
  const failed = { outcome: "failed", why: `https://a.example/?key=secret ${"x".repeat(100_000)}` };
  const outcomes = [
    readPoll(answer(), { taskId: "t1" }, returning("polled", failed)),
    interpretAnswer(answer(), returning("uploaded", failed)),
  ];
  for (const outcome of outcomes) {
    const { detail } = outcome as { detail: string };
    expect(detail).toMatch(/^https:\/\/a\.example\/\?key=\[redacted\] x+$/);
    expect(detail.length).toBeLessThanOrEqual(200);
  }
});

test("an answer about another task is no answer about this one", () => {
  const dialect = returning("polled", { outcome: "task", status: "done", task: { task_id: "t2" } });
  expect(readPoll(answer(), { taskId: "t1" }, dialect)).toMatchObject({
    detail: "the answer is about another task",
  });
});

test("a result at a third address is not fetched", () => {
  const elsewhere = { outcome: "result_elsewhere", request: { method: "GET", path: "/r" } };
  expect(readPoll(answer(), { taskId: "t1" }, returning("polled", elsewhere))).toMatchObject({
    request: { path: "/r", body: null },
  });
  expect(readResult(answer(), { taskId: "t1" }, returning("result", elsewhere))).toMatchObject({
    outcome: "failed",
  });
});

test("an image whose end is not known ends as the interface says", () => {
  const uploaded = { outcome: "uploaded", url: "https://a.example/1", expiresAt: undefined };
  const outcome = interpretAnswer(answer(), returning("uploaded", uploaded)) as { expiresAt: string };
  const leftMs = Date.parse(outcome.expiresAt) - Date.now();
  expect(leftMs).toBeGreaterThan(240_000);
  expect(leftMs).toBeLessThanOrEqual(300_000);
});

test("requests and forms are as the adapter wrote them", () => {
  const path = "/a..b/.c/...%2F..%2F?d=/../e";
  expect(checkRequest({ method: "GET", path })).toMatchObject({ path });
  expect(checkRequest({ method: "POST", path: "/x?a=1", json: { a: 1 }, headers: { "X-V": "2" } })).toEqual({
    method: "POST",
    path: "/x?a=1",
    body: '{"a":1}',
    headers: ["X-V", "2"],
  });
  expect(checkForm({ path: "/u", fields: { uploadPath: "images" } })).toEqual({
    path: "/u",
    headers: [],
    fields: [["uploadPath", "images"]],
    fileField: "file",
  });
  for (const fields of [{ 'a"b': "x" }, { a: 1 }, { a: "x".repeat(5000) }])
    expect(() => checkForm({ path: "/u", fields: fields as Record<string, string> })).toThrow();
});
