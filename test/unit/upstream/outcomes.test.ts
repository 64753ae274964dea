import { describe, expect, test } from "vitest";
import { readGeneration } from "../../../src/upstream/generation-request.ts";
import type { ExchangeResult } from "../../../src/upstream/json-client.ts";
import { readPoll } from "../../../src/upstream/poll-request.ts";
import { interpretAnswer } from "../../../src/upstream/upload-answer.ts";

/** A complete answer; an object goes as JSON. */
function answered(status: number, body: unknown = "", retryAfter?: string): ExchangeResult {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { outcome: "answered", status, retryAfter, body: text };
}

const UNSENT: ExchangeResult = { outcome: "not_sent", detail: "ECONNREFUSED" };
const RESET: ExchangeResult = { outcome: "lost", timedOut: false, detail: "ECONNRESET" };
const TIMED_OUT: ExchangeResult = { outcome: "lost", timedOut: true, detail: "too late" };
const ok = (data: unknown) => answered(200, { code: 200, msg: "success", data });
const error = (code: number, text = "No") => ({ code, msg: text, error: text });

describe("a generation: the definite yes", () => {
  test("HTTP 200, code 200 and a task id", () => {
    const data = { task_id: "t.1~x_-", status: "pending", extra: [1] };
    expect(readGeneration(ok(data))).toEqual({
      outcome: "accepted",
      taskId: "t.1~x_-",
      data: JSON.stringify(data),
    });
  });

  test("a task id may have 200 characters", () => {
    expect(readGeneration(ok({ task_id: "x".repeat(200) })).outcome).toBe("accepted");
  });

  test("a number that a double cannot hold goes on as it came", () => {
    const data = '{"task_id":"t1","job":12345678901234567890,"parts":[9007199254740993,-1,0.5,1e3]}';
    const body = `{"code":200,"msg":"success","data":${data}}`;
    expect(readGeneration(answered(200, body))).toMatchObject({ data: data.replace("1e3", "1000") });
  });
});

test("a status of a new task that the API does not have is left out", () => {
  const outcome = readGeneration(ok({ task_id: "t1", status: "QUEUED", extra: 1 }));
  expect(outcome).toMatchObject({ outcome: "accepted", data: '{"task_id":"t1","extra":1}' });
});

describe("a generation: unknown, so that the hold stays", () => {
  test.each<[string, ExchangeResult]>([
    ["reset after the request was sent, or a truncated answer", RESET],
    ["HTTP 200 with HTML", answered(200, "<!doctype html>")],
    ["HTTP 200 with nothing", answered(200)],
    ["HTTP 200 with an array", answered(200, [])],
    ["HTTP 200 with null", answered(200, "null")],
    ["HTTP 200 without a code", answered(200, { data: { task_id: "x" } })],
    ["HTTP 200 with a code that is a string", answered(200, { code: "200", data: { task_id: "x" } })],
    ["no data", answered(200, { code: 200 })],
    ["no task id", ok({ status: "pending" })],
    ["a task id that is a number", ok({ task_id: 7 })],
    ["an empty task id", ok({ task_id: "" })],
    ["a task id of 201 characters", ok({ task_id: "x".repeat(201) })],
    ["a task id with a slash", ok({ task_id: "../x" })],
    ["a task id with a line end", ok({ task_id: "x\n" })],
    ["a task id with a space", ok({ task_id: "a b" })],
    ["the task id .", ok({ task_id: "." })],
    ["the task id ..", ok({ task_id: ".." })],
    ["HTTP 500", answered(500, error(500))],
    ["HTTP 500 with a success inside", answered(500, { code: 200, data: { task_id: "x" } })],
    ["HTTP 502", answered(502, "<html>")],
    ["HTTP 504", answered(504)],
    ["HTTP 505", answered(505)],
    ["HTTP 302", answered(302)],
    ["HTTP 204", answered(204)],
    ["HTTP 201 with a task id", answered(201, { code: 200, data: { task_id: "x" } })],
  ])("%s is unclear", (_, exchanged) => {
    expect(readGeneration(exchanged)).toMatchObject({ outcome: "unclear", detail: expect.any(String) });
  });

  test("no answer in time", () => {
    expect(readGeneration(TIMED_OUT)).toEqual({ outcome: "timed_out", detail: "too late" });
  });
});

describe("a generation: the definite no", () => {
  test.each<[string, ExchangeResult]>([
    ["connection refused, DNS, connect timeout", UNSENT],
    ["a complete 503", answered(503, error(503))],
    ["a complete 503 without an envelope", answered(503, "<html>")],
  ])("%s: unreachable", (_, exchanged) => {
    expect(readGeneration(exchanged)).toMatchObject({ outcome: "unreachable" });
  });

  test.each([401, 402, 403, 404, 405, 407])("HTTP or body code %d blames the gateway", (status) => {
    expect(readGeneration(answered(status, error(status)))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(status, "<html>"))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(200, error(status)))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(400, error(status)))).toMatchObject({ outcome: "refused_gateway" });
  });

  test.each([400, 406, 408, 409, 410, 413, 415, 418, 422, 451, 499])(
    "HTTP %d: the request was refused, and its text passes through",
    (status) => {
      expect(readGeneration(answered(status, error(status, "Bad prompt")))).toEqual({
        outcome: "refused",
        status,
        code: status,
        text: "Bad prompt",
      });
    },
  );

  test.each([
    ["a 4xx with a code of its own", answered(400, error(1001)), 400, 1001],
    ["a 4xx with a code that claims success", answered(400, error(200)), 400, 400],
    ["a 4xx without an envelope", answered(422, "<html>"), 422, 422],
    ["HTTP 200 with a 4xx code", answered(200, error(422)), 422, 422],
    ["HTTP 200 with a 5xx code", answered(200, error(500)), 502, 500],
    ["HTTP 200 with a code that is no status", answered(200, error(1001)), 502, 1001],
    ["HTTP 200 with code 0", answered(200, error(0)), 502, 0],
    ["HTTP 200 with a code that is no whole number", answered(200, error(422.5)), 502, 502],
    ["a 4xx with a code beyond any number", answered(400, '{"code":1e400}'), 400, 400],
  ] as [string, ExchangeResult, number, number][])("%s", (_, exchanged, status, code) => {
    expect(readGeneration(exchanged)).toMatchObject({ outcome: "refused", status, code });
  });

  // Guarantee: 2000 to 2099 are this gateway's: a customer's program acts on them.
  test.each([2000, 2002, 2003, 2005, 2006, 2007, 2050, 2099])(
    "an upstream's own code %d stays inside",
    (code) => {
      const refused = { outcome: "refused", text: "No" };
      expect(readGeneration(answered(422, error(code)))).toEqual({ ...refused, status: 422, code: 422 });
      expect(readGeneration(answered(200, error(code)))).toEqual({ ...refused, status: 502, code: 502 });
      expect(readPoll(answered(400, error(code)), "t1")).toEqual({
        ...refused,
        status: 400,
        code: 400,
        aboutTask: true,
      });
      expect(
        interpretAnswer({ status: 400, retryAfter: undefined, text: JSON.stringify(error(code)) }),
      ).toEqual({
        ...refused,
        outcome: "upstream_refused",
        status: 400,
        code: 400,
      });
    },
  );

  test.each([1999, 2100])("code %d is nobody's", (code) => {
    expect(readGeneration(answered(422, error(code)))).toMatchObject({ status: 422, code });
  });

  test("the text is error or msg, whichever says something, and never endless", () => {
    const textOf = (body: object): string => {
      const outcome = readGeneration(answered(422, body));
      return outcome.outcome === "refused" ? outcome.text : "";
    };
    expect(textOf({ code: 422, msg: "from msg" })).toBe("from msg");
    expect(textOf({ code: 422, error: "from error", msg: "x" })).toBe("from error");
    expect(textOf({ code: 422, error: "", msg: "from msg" })).toBe("from msg");
    expect(textOf({ code: 422, error: { no: "string" }, msg: "from msg" })).toBe("from msg");
    expect(textOf({ code: 422 })).not.toBe("");
    const long = textOf({ code: 422, msg: `x${"\u{1F600}".repeat(5000)}` });
    expect(long.length).toBeLessThanOrEqual(1000);
    expect(long.isWellFormed()).toBe(true);
  });

  test.each<[string, ExchangeResult, number | undefined]>([
    ["Retry-After in seconds", answered(429, error(429), "17"), 17],
    ["retryAfter of the envelope", answered(429, { ...error(429), retryAfter: 12 }), 12],
    ["the header before the envelope", answered(429, { ...error(429), retryAfter: 12 }, "17"), 17],
    ["neither", answered(429), undefined],
    ["nonsense", answered(429, { ...error(429), retryAfter: "soon" }, "soon"), undefined],
    ["HTTP 200 with code 429", answered(200, { ...error(429), retryAfter: 12 }), 12],
  ])("429, %s", (_, exchanged, retryAfterSeconds) => {
    expect(readGeneration(exchanged)).toEqual({ outcome: "rate_limited", retryAfterSeconds });
  });

  test("Retry-After as a date", () => {
    const outcome = readGeneration(answered(429, "", new Date(Date.now() + 20_000).toUTCString()));
    const seconds = outcome.outcome === "rate_limited" ? outcome.retryAfterSeconds : 0;
    expect(seconds).toBeGreaterThan(17);
    expect(seconds).toBeLessThanOrEqual(20);
  });
});

describe("a poll", () => {
  const ID = "task_1";
  const task = { task_id: ID, status: "processing", progress: 40, created_at: "2026-01-01T00:00:00Z" };

  test.each(["pending", "processing", "completed", "failed"])(
    "a task that is %s; its fields are passed on as they are",
    (status) => {
      const said = { ...task, status, error_reason: "x" };
      const outcome = readPoll(ok(said), ID);
      expect(outcome).toMatchObject({ outcome: "task", status });
      expect(outcome.outcome === "task" && JSON.parse(outcome.data)).toEqual(said);
    },
  );

  test.each([undefined, 1_700_000_000, null])(
    "created_at %j is filled in where it is known",
    (created_at) => {
      const data = (createdAtMs?: number) => {
        const outcome = readPoll(ok({ ...task, created_at }), ID, createdAtMs);
        return outcome.outcome === "task" && JSON.parse(outcome.data).created_at;
      };
      expect(data(Date.UTC(2030, 0, 1))).toBe("2030-01-01T00:00:00.000Z");
      expect(data()).toBe(created_at);
    },
  );

  test.each<[string, ExchangeResult]>([
    ["another task", ok({ ...task, task_id: "task_2" })],
    ["a task without its id", ok({ status: "completed" })],
    ["a task whose id is a number", ok({ ...task, task_id: 1 })],
    ["no status", ok({ task_id: ID })],
    ["a status that the API does not have", ok({ ...task, status: "done" })],
    ["a status that is a number", ok({ ...task, status: 1 })],
    ["no data", answered(200, { code: 200 })],
    ["data that is an array", ok([task])],
    ["HTML", answered(200, "<html>")],
    ["HTTP 500", answered(500)],
    ["HTTP 502", answered(502)],
    ["HTTP 503", answered(503)],
    ["HTTP 504", answered(504)],
    ["HTTP 302", answered(302)],
    ["HTTP 500 with a task", answered(500, { code: 200, data: task })],
    ["a refused connection", UNSENT],
    ["a reset", RESET],
  ])("%s makes no sense: failed", (_, exchanged) => {
    expect(readPoll(exchanged, ID)).toMatchObject({ outcome: "failed" });
  });

  test("no answer in time", () => {
    expect(readPoll(TIMED_OUT, ID)).toMatchObject({ outcome: "timed_out" });
  });

  test("an envelope with code 404, as HTTP 404 or 200: gone", () => {
    expect(readPoll(answered(404, error(404)), ID)).toEqual({ outcome: "gone" });
    expect(readPoll(answered(200, error(404)), ID)).toEqual({ outcome: "gone" });
  });

  // Guarantee: the page of an ingress or a wrong path never ends a task.
  test.each<[string, ExchangeResult]>([
    ["nothing", answered(404)],
    ["HTML", answered(404, "<html>404 page not found</html>")],
    ["a framework's JSON", answered(404, { statusCode: 404, error: "Not Found", message: "no route" })],
    ["a code that is a string", answered(404, { code: "404" })],
    ["an array", answered(404, [error(404)])],
    ["an envelope of success", answered(404, { code: 200, msg: "success", data: task })],
  ])("HTTP 404 with %s is not the API's: misrouted", (_, exchanged) => {
    expect(readPoll(exchanged, ID)).toMatchObject({ outcome: "misrouted", detail: expect.any(String) });
  });

  test("HTTP 500 with code 404 is a failure", () => {
    expect(readPoll(answered(500, error(404)), ID)).toMatchObject({ outcome: "failed" });
  });

  test.each([401, 402, 403, 405, 407])("%d blames the gateway", (status) => {
    expect(readPoll(answered(status, error(status)), ID)).toMatchObject({ outcome: "refused_gateway" });
    expect(readPoll(answered(200, error(status)), ID)).toMatchObject({ outcome: "refused_gateway" });
  });

  test("429 is the upstream's limit", () => {
    expect(readPoll(answered(429, "", "11"), ID)).toEqual({ outcome: "rate_limited", retryAfterSeconds: 11 });
    expect(readPoll(answered(200, error(429)), ID)).toMatchObject({ outcome: "rate_limited" });
  });

  test("other refusals pass through", () => {
    expect(readPoll(answered(410, error(410, "Too old")), ID)).toEqual({
      outcome: "refused",
      status: 410,
      code: 410,
      text: "Too old",
      aboutTask: true,
    });
    expect(readPoll(answered(200, error(1001)), ID)).toMatchObject({
      outcome: "refused",
      status: 502,
      code: 1001,
      aboutTask: true,
    });
  });

  test.each<[string, ExchangeResult]>([
    ["a proxy's 400", answered(400, "<html>")],
    ["HTTP 408", answered(408, error(408))],
    ["HTTP 425", answered(425, error(425))],
    ["HTTP 200 with code 500", answered(200, error(500))],
    ["HTTP 400 with code 503", answered(400, error(503))],
  ])("%s is a refusal, but not of the task", (_, exchanged) => {
    expect(readPoll(exchanged, ID)).toMatchObject({ outcome: "refused", aboutTask: false });
  });
});

test("an answer nested 100,000 levels deep overflows nothing", () => {
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  for (const data of [`{"task_id":"x","a":${deep}}`, `{"task_id":"x","status":"pending","a":${deep}}`]) {
    const exchanged = answered(200, `{"code":200,"data":${data}}`);
    expect(() => readGeneration(exchanged)).not.toThrow();
    expect(() => readPoll(exchanged, "x")).not.toThrow();
  }
});
