import { describe, expect, test } from "vitest";
import type { Answer } from "../../../src/upstream/answer.ts";
import type { ExchangeResult } from "../../../src/upstream/json-client.ts";
import {
  generationOutcome,
  interpretAnswer,
  pollOutcome,
  readPoll as readAnswer,
  readGeneration,
} from "../../support/envelope-answers.ts";

/** A complete answer; an object goes as JSON. */
function answered(status: number, body: unknown = "", retryAfter?: string): Answer {
  return { status, retryAfter, body: typeof body === "string" ? body : JSON.stringify(body) };
}

const readPoll = (answer: Answer, taskId: string, createdAtMs?: number) =>
  readAnswer(answer, { taskId, createdAtMs });

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

// Guarantee: no video for nothing. Where there is an id, the task is bound, and polls tell what becomes of it.
describe("a generation whose answer has a task id is bound, whatever stands beside it", () => {
  const data = { task_id: "x", status: "pending" };
  test.each<[string, Answer]>([
    ...[201, 202, 203, 206].map((status): [string, Answer] => [
      `HTTP ${status}`,
      answered(status, { code: 200, data }),
    ]),
    ["HTTP 202 with code 202", answered(202, { code: 202, data })],
    ["code 0", answered(200, { code: 0, error: "ok", data })],
    ["no code", answered(200, { data })],
    ["a code that is a string", answered(200, { code: "200", data })],
    ["a code that is a word", answered(200, { code: "SUCCESS", data })],
    ["a code that means an error", answered(200, { code: 1001, error: "warned", data })],
    ["an id outside of the data", answered(200, { code: 200, task_id: "x", data: { status: "pending" } })],
    ["no data", answered(200, { code: 200, msg: "success", ...data })],
  ])("%s", (_, answer) => {
    expect(readGeneration(answer)).toEqual({ outcome: "accepted", taskId: "x", data: JSON.stringify(data) });
  });

  test.each<[string, Answer]>([
    ["HTTP 400", answered(400, { code: 400, data })],
    ["HTTP 401", answered(401, { code: 401, data })],
    ["HTTP 409", answered(409, { code: 409, error: "exists", data })],
    ["HTTP 429", answered(429, { code: 429, data })],
    ["HTTP 500", answered(500, { code: 200, data })],
    ["HTTP 503", answered(503, { code: 503, data })],
    ["HTTP 302", answered(302, { code: 200, data })],
    ["HTTP 200 with code 422, outside data", answered(200, { code: 422, task_id: "x" })],
  ])("%s and a task id is no refusal: unclear, and the log has the id", (_, answer) => {
    expect(readGeneration(answer)).toMatchObject({
      outcome: "unclear",
      detail: expect.stringContaining("task id x"),
    });
  });
});

// Guarantee: the upstream's bill can be matched by the log.
test("the detail of an answer has its status, its code and 200 characters, without what may be a credential", () => {
  const long = answered(500, {
    code: 1500,
    request: "r-7",
    at: `https://a.example/?token=secret&x=y1"`,
    more: "x".repeat(500),
  });
  const outcome = readGeneration(long);
  const detail = outcome.outcome === "unclear" ? outcome.detail : "";
  expect(detail).toMatch(/^HTTP 500, code 1500: \{"code":1500,"request":"r-7",/);
  expect(detail).not.toMatch(/secret|y1/);
  expect(detail.length).toBe("HTTP 500, code 1500: ".length + 200);
  expect(readGeneration(answered(502))).toMatchObject({ detail: "HTTP 502, no code: no body" });
  for (const answer of [
    answered(422, error(422, "Bad")),
    answered(429, error(429)),
    answered(401, error(401)),
    answered(503, "busy"),
  ])
    expect(readGeneration(answer)).toMatchObject({
      detail: expect.stringMatching(`^HTTP ${answer.status}, .*: .*${answer.body.slice(0, 9)}`),
    });
});

test.each([
  '<a href="https://files.example/v?a=1&amp;X-Amz-Signature=secret&#38;b=secret">',
  "see https://files.example/v#access_token=secret",
  '{"at":"https:\\/\\/user:secret@files.example\\/v"}',
  "https://secret@files.example/v",
])("the detail of an answer has no credential of the address in %s", (answerText) => {
  const outcome = readGeneration(answered(403, answerText));
  expect(outcome).toMatchObject({ detail: expect.stringContaining("[redacted]") });
  expect(outcome).toMatchObject({ detail: expect.not.stringContaining("secret") });
});

// Guarantee: no line of the log has text from a customer's body, though the upstream repeats it.
test("the detail of an answer has nothing of the request, however it is spelt", () => {
  const sent = JSON.stringify({ prompt: "a secret garden \u00e4m Fluss", imageUrl: "https://c.example/me" });
  for (const message of [
    "no: a secret garden \u00e4m Fluss",
    "near 'secret gar'",
    "https://c.example/me is away",
  ]) {
    for (const text of [
      JSON.stringify({ code: 400, id: "r-77", error: message }),
      `{"code":400,"id":"r-77","error":"${message.replace("\u00e4", "\\u00e4")}"}`,
    ]) {
      const outcome = readGeneration(answered(400, text), sent);
      const detail = outcome.outcome === "refused" ? outcome.detail : "";
      expect(detail).toContain("r-77");
      expect(detail).toContain("[request]");
      expect(detail).not.toMatch(/secret|garden|Fluss|example/);
      expect(outcome).toMatchObject({ text: message });
    }
  }
});

test.each([
  answered(500, { code: 500, msg: "away", data: { task_id: "t1", prompt: "a secret garden" } }),
  answered(400, { code: 400, msg: "away", prompt: "a secret garden", input: { prompt: "a secret garden" } }),
])("the detail of a poll has nothing of the request that its answer describes: %j", (answer) => {
  const { detail } = readPoll(answer, "t1") as { detail: string };
  expect(detail).toMatch(/^HTTP \d+, code \d+(, task id t1)?: .*away/);
  expect(detail).not.toContain("secret");
});

test("a large body whose refusal almost repeats it does not hold up the process", () => {
  // Each place of the answer was looked for in the whole body, 0.5 s for one refusal.
  const shots = Array.from({ length: 25 }, () => ({ Scene: "a".repeat(10_000), duration: 0.4 }));
  const sent = JSON.stringify({ nFrames: "10", shots });
  const answer = answered(400, JSON.stringify({ code: 400, error: "aaaaa0aaaaa1aaaaa2aaaaa3".repeat(20) }));
  const fromMs = performance.now();
  for (let times = 0; times < 5; times++)
    expect(readGeneration(answer, sent)).toMatchObject({
      outcome: "refused",
      detail: expect.stringContaining("aaaaa0aaaaa1"),
    });
  expect(performance.now() - fromMs).toBeLessThan(1000);
});

test("a status of a new task is one of the API's: a known word is read, another is left out", () => {
  const dataOf = (status: string): string => {
    const outcome = readGeneration(ok({ task_id: "t1", status, extra: 1 }), "", { boarding: "pending" });
    return outcome.outcome === "accepted" ? outcome.data : outcome.outcome;
  };
  expect(dataOf("GOING")).toBe('{"task_id":"t1","extra":1}');
  expect(dataOf("QUEUED")).toBe('{"task_id":"t1","status":"pending","extra":1}');
  expect(dataOf("Boarding")).toBe('{"task_id":"t1","status":"pending","extra":1}');
  expect(dataOf("completed"), "without a video").toBe('{"task_id":"t1","status":"processing","extra":1}');
});

test.each(["GOING", undefined])("a new task of the state %s has no video", (status) => {
  const outcome = readGeneration(ok({ task_id: "t1", status, video_url: "https://v.example/1" }));
  expect(outcome).toMatchObject({ outcome: "accepted", data: '{"task_id":"t1"}' });
});

describe("a generation: unknown, so that the hold stays", () => {
  test.each<[string, Answer]>([
    ["HTTP 200 with HTML", answered(200, "<!doctype html>")],
    ["HTTP 200 with nothing", answered(200)],
    ["HTTP 200 with an array", answered(200, [])],
    ["HTTP 200 with null", answered(200, "null")],
    ["HTTP 200 without a code", answered(200, { data: { task: "x" } })],
    ["HTTP 200 with a code that is a word", answered(200, { code: "INVALID", data: { task: "x" } })],
    ["HTTP 200 with a text code of success", answered(200, { code: "200", data: { task: "x" } })],
    ["HTTP 200 with code 0", answered(200, error(0, "ok"))],
    ["HTTP 202 with code 202", answered(202, error(202, "accepted"))],
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
    ["HTTP 303, after which it may run", answered(303)],
    ["HTTP 304", answered(304)],
    ["HTTP 204", answered(204)],
  ])("%s is unclear", (_, exchanged) => {
    expect(readGeneration(exchanged)).toMatchObject({ outcome: "unclear", detail: expect.any(String) });
  });

  test("no answer in time, and a reset after the request was sent, or a truncated answer", () => {
    expect(generationOutcome(TIMED_OUT)).toEqual({ outcome: "timed_out", detail: "too late" });
    expect(generationOutcome(RESET)).toEqual({ outcome: "unclear", detail: "ECONNRESET" });
  });
});

describe("a generation: the definite no", () => {
  test.each<[string, Answer]>([
    ["a complete 503", answered(503, error(503))],
    ["a complete 503 without an envelope", answered(503, "<html>")],
  ])("%s: unreachable", (_, answer) => {
    expect(readGeneration(answer)).toMatchObject({ outcome: "unreachable" });
  });

  test("connection refused, DNS, connect timeout: unreachable", () => {
    expect(generationOutcome(UNSENT)).toMatchObject({ outcome: "unreachable" });
  });

  test.each([301, 302, 307, 308])("HTTP %d: our address is wrong", (status) => {
    expect(readGeneration(answered(status, "<html>Moved"))).toEqual({
      outcome: "refused_gateway",
      detail: `HTTP ${status}, no code: <html>Moved`,
    });
    expect(readPoll(answered(status), "t1")).toMatchObject({ outcome: "misrouted" });
    expect(interpretAnswer(answered(status))).toMatchObject({ outcome: "refused_gateway" });
  });

  test.each([
    ["Your prompt was rejected by our safety system", "refused"],
    ["The image was flagged by moderation", "refused"],
    ["NSFW", "refused"],
    ["Request violates the content policy", "refused"],
    ["Invalid API key; the prompt was not read", "refused_gateway"],
    ["Your account may not use this prompt", "refused_gateway"],
    ["Forbidden", "refused_gateway"],
    ["Access denied by policy", "refused_gateway"],
  ])("403 with the text %j: %s", (text, outcome) => {
    for (const answer of [answered(403, error(403, text)), answered(200, error(403, text))]) {
      expect(readGeneration(answer)).toMatchObject({
        outcome,
        ...(outcome === "refused" && { status: 403, text }),
      });
    }
    expect(readGeneration(answered(403, { detail: text }))).toMatchObject({ outcome });
    // Of what no text excuses.
    expect(readGeneration(answered(401, error(401, text)))).toMatchObject({ outcome: "refused_gateway" });
  });

  test.each([401, 402, 403, 404, 405, 407])("HTTP or body code %d blames the gateway", (status) => {
    expect(readGeneration(answered(status, error(status)))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(status, "<html>"))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(200, error(status)))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(400, error(status)))).toMatchObject({ outcome: "refused_gateway" });
    expect(readGeneration(answered(status, error(1001)))).toMatchObject({ outcome: "refused_gateway" });
  });

  test.each([400, 406, 408, 409, 410, 413, 415, 418, 422, 451, 499])(
    "HTTP %d: the request was refused, and its text passes through",
    (status) => {
      expect(readGeneration(answered(status, error(status, "Bad prompt")))).toEqual({
        outcome: "refused",
        status,
        code: status,
        text: "Bad prompt",
        detail: `HTTP ${status}, code ${status}: ${JSON.stringify(error(status, "Bad prompt"))}`,
      });
    },
  );

  test.each([
    ["a 4xx with a code of its own", answered(400, error(1001)), 400, 1001],
    ["a 4xx with a code that claims success", answered(400, error(200)), 400, 400],
    ["a 4xx without an envelope", answered(422, "<html>"), 422, 422],
    ["HTTP 200 with a 4xx code", answered(200, error(422)), 422, 422],
    ["HTTP 200 with a 4xx code as text", answered(200, { code: "422", data: { task: "x" } }), 422, 422],
    ["a 4xx with a code of its own as text", answered(400, { code: "1001" }), 400, 1001],
    ["HTTP 200 with a 5xx code", answered(200, error(500)), 502, 500],
    ["HTTP 200 with a code that is no status", answered(200, error(1001)), 502, 1001],
    ["HTTP 200 with a code that is no whole number", answered(200, error(422.5)), 502, 502],
    ["a 4xx with a code beyond any number", answered(400, '{"code":1e400}'), 400, 400],
  ] as [string, Answer, number, number][])("%s", (_, exchanged, status, code) => {
    expect(readGeneration(exchanged)).toMatchObject({ outcome: "refused", status, code });
  });

  // Guarantee: 2000 to 2099 are this gateway's: a customer's program acts on them.
  test.each([2000, 2002, 2003, 2005, 2006, 2007, 2050, 2099])(
    "an upstream's own code %d stays inside",
    (code) => {
      const refused = { outcome: "refused", text: "No", detail: expect.stringContaining(`code ${code}: `) };
      expect(readGeneration(answered(422, error(code)))).toEqual({ ...refused, status: 422, code: 422 });
      expect(readGeneration(answered(200, error(code)))).toEqual({ ...refused, status: 502, code: 502 });
      expect(readPoll(answered(400, error(code)), "t1")).toEqual({
        ...refused,
        status: 400,
        code: 400,
        aboutTask: true,
      });
      expect(interpretAnswer(answered(400, error(code)))).toEqual({
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
    expect(textOf({ error: { message: "from error.message", code: "x" } })).toBe("from error.message");
    expect(textOf({ message: "from message" })).toBe("from message");
    expect(textOf({ detail: "from detail" })).toBe("from detail");
    expect(textOf({ detail: [{ loc: ["body"], msg: "from detail[].msg" }] })).toBe("from detail[].msg");
    expect(textOf({ detail: [], errors: [] })).toContain("refused the request (422)");
    expect(textOf({ code: 422 })).not.toBe("");
    const long = textOf({ code: 422, msg: `x${"\u{1F600}".repeat(5000)}` });
    expect(long.length).toBeLessThanOrEqual(1000);
    expect(long.isWellFormed()).toBe(true);
  });

  test.each<[string, Answer, number | undefined]>([
    ["Retry-After in seconds", answered(429, error(429), "17"), 17],
    ["retryAfter of the envelope", answered(429, { ...error(429), retryAfter: 12 }), 12],
    ["the header before the envelope", answered(429, { ...error(429), retryAfter: 12 }, "17"), 17],
    ["neither", answered(429), undefined],
    ["nonsense", answered(429, { ...error(429), retryAfter: "soon" }, "soon"), undefined],
    ["HTTP 200 with code 429", answered(200, { ...error(429), retryAfter: 12 }), 12],
    ["HTTP 429 with a code of its own", answered(429, { ...error(1001), retryAfter: 12 }), 12],
    ["HTTP 200 with code 2001", answered(200, { ...error(2001), retryAfter: 12 }), 12],
    ["HTTP 200 with code 2004", answered(200, { ...error(2004), retryAfter: 12 }), 12],
  ])("429, %s", (_, exchanged, retryAfterSeconds) => {
    const detail = expect.stringMatching(/^HTTP (429|200), /);
    expect(readGeneration(exchanged)).toEqual({ outcome: "rate_limited", retryAfterSeconds, detail });
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
  const task = {
    task_id: ID,
    status: "processing",
    progress: 40,
    created_at: "2026-01-01T00:00:00Z",
  };
  const video_url = "https://v.example/1.mp4";

  test.each(["pending", "processing", "completed", "failed"])(
    "a task that is %s; its fields are passed on as they are",
    (status) => {
      const data = {
        ...task,
        status,
        error_reason: "x",
        ...(status === "completed" && { video_url, progress: 100 }),
      };
      const outcome = readPoll(ok(data), ID);
      expect(outcome).toMatchObject({ outcome: "task", status });
      expect(outcome.outcome === "task" && JSON.parse(outcome.data)).toEqual(data);
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
      // As the API has it, or not at all.
      expect(data()).toBe(created_at ? "2023-11-14T22:13:20.000Z" : undefined);
    },
  );

  test.each<[string, Answer]>([
    ["another task", ok({ ...task, task_id: "task_2" })],
    ["a task without its id", ok({ status: "completed" })],
    ["a task whose id is a number", ok({ ...task, task_id: 1 })],
    ["no status", ok({ task_id: ID })],
    ["a status that is a number", ok({ ...task, status: 1 })],
    ["no data", answered(200, { code: 200 })],
    ["data that is an array", ok([task])],
    ["HTML", answered(200, "<html>")],
    ["HTTP 500", answered(500)],
    ["HTTP 502", answered(502)],
    ["HTTP 503", answered(503)],
    ["HTTP 504", answered(504)],
    ["HTTP 303", answered(303)],
    ["HTTP 500 with a task", answered(500, { code: 200, data: task })],
  ])("%s makes no sense: failed", (_, exchanged) => {
    expect(readPoll(exchanged, ID)).toMatchObject({ outcome: "failed" });
  });

  test("no answer in time, a refused connection, a reset", () => {
    expect(pollOutcome(TIMED_OUT, { taskId: ID })).toMatchObject({ outcome: "timed_out" });
    for (const result of [UNSENT, RESET])
      expect(pollOutcome(result, { taskId: ID })).toMatchObject({ outcome: "failed" });
  });

  // Guarantee: an upstream whose generations are understood is understood when it is polled.
  test.each<[string, Answer]>([
    ...[201, 202, 203, 206].map((status): [string, Answer] => [
      `HTTP ${status}`,
      answered(status, { code: 200, data: task }),
    ]),
    ["code 0", answered(200, { code: 0, data: task })],
    ["no code", answered(200, { data: task })],
    ["code null", answered(200, { code: null, data: task })],
    ["a code that is a string", answered(200, { code: "200", data: task })],
    ["a code that is a word", answered(200, { code: "SUCCESS", data: task })],
  ])("%s with the task is the task", (_, answer) => {
    expect(readPoll(answer, ID)).toEqual({
      outcome: "task",
      status: "processing",
      data: JSON.stringify(task),
    });
  });

  test.each([
    ["pending", "queued QUEUED waiting Not-Started"],
    ["processing", "running in_progress IN-PROGRESS InProgress generating"],
    ["completed", "succeeded SUCCESS COMPLETED done"],
    ["failed", "cancelled canceled expired fail error timeout Timed-Out"],
  ] as const)("%s has other names: %s", (status, words) => {
    for (const word of [...words.split(" "), status.toUpperCase()]) {
      const data = status === "completed" ? { ...task, video_url, progress: 100 } : task;
      const outcome = readPoll(ok({ ...data, status: word }), ID);
      expect(outcome, word).toEqual({ outcome: "task", status, data: JSON.stringify({ ...data, status }) });
    }
    expect(readPoll(ok({ ...task, status: "in progress" }), ID)).toMatchObject({ status: "processing" });
  });

  test("upstream.statuses adds to the known words and overrides them", () => {
    const statuses = { upscaling: "processing", done: "failed", pending: "processing" } as const;
    const statusOf = (status: string) => readAnswer(ok({ ...task, status }), { taskId: ID, statuses });
    expect(statusOf("UpScaling")).toMatchObject({ outcome: "task", status: "processing" });
    expect(statusOf("done")).toMatchObject({ outcome: "task", status: "failed" });
    expect(statusOf("pending")).toMatchObject({ outcome: "task", status: "processing" });
    expect(statusOf("running")).toMatchObject({ outcome: "task", status: "processing" });
    for (const word of ["constructor", "__proto__", "toString"])
      expect(statusOf(word)).toMatchObject({ outcome: "unknown_status" });
  });

  test("a word that nobody knows is an answer all the same, and is named in part", () => {
    const word = `going ${"x".repeat(100)}`;
    expect(readPoll(ok({ ...task, status: word }), ID)).toEqual({
      outcome: "unknown_status",
      word: word.slice(0, 32),
      data: JSON.stringify(task),
    });
  });

  // Guarantee: a result without what was paid for is not a result.
  test.each([undefined, null, "", "  ", 7, "soon", "/v/1.mp4", "ftp://v.example/1", "https://", {}])(
    "completed with video_url %j counts as processing",
    (video_url) => {
      const data = { ...task, status: "completed", video_url, completed_at: "2026-01-01T00:00:00Z" };
      expect(readPoll(ok(data), ID)).toEqual({
        outcome: "task",
        status: "processing",
        data: JSON.stringify(task),
        lacksVideo: true,
      });
    },
  );

  test.each<[string, unknown, unknown]>([
    ["progress", "45%", 45],
    ["progress", "45.5 %", 45.5],
    ["progress", "45", 45],
    ["progress", 0.5, 0.5],
    ["progress", 101, undefined],
    ["progress", -1, undefined],
    ["progress", "half", undefined],
    ["progress", null, undefined],
    ["completed_at", 1_700_000_000, "2023-11-14T22:13:20.000Z"],
    ["completed_at", 1_700_000_000_123, "2023-11-14T22:13:20.123Z"],
    ["completed_at", "1700000000", "2023-11-14T22:13:20.000Z"],
    ["completed_at", "2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000Z"],
    ["completed_at", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.5Z"],
    ["completed_at", "2026-01-01T00:00:00", undefined],
    ["completed_at", "2026-01-01", undefined],
    ["completed_at", "2026-13-01T00:00:00Z", undefined],
    ["completed_at", 7, undefined],
    ["completed_at", true, undefined],
    ["created_at", "2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000Z"],
    ["created_at", "2026-01-01T00:00:00", "2030-01-01T00:00:00.000Z"],
    ["created_at", "0000-00-00T00:00:00Z", "2030-01-01T00:00:00.000Z"],
    ["created_at", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.5Z"],
    ["thumbnail_url", null, undefined],
    ["thumbnail_url", { small: "https://v.example/1.png" }, undefined],
    ["failure_reason", null, undefined],
    ["failure_reason", { code: 7 }, undefined],
    ["failure_reason", "no boat", "no boat"],
  ])("%s %j reaches the customer as %j", (name, value, shown) => {
    const outcome = readPoll(ok({ ...task, [name]: value }), ID, Date.UTC(2030, 0, 1));
    const data = outcome.outcome === "task" && JSON.parse(outcome.data);
    expect(data).toEqual({ ...task, [name]: shown });
    expect(name in data).toBe(shown !== undefined);
  });

  // The spec, section 2.2.
  test.each([0, 99, "45%"])(
    "a completed task has a progress of 100 where the upstream says %j",
    (progress) => {
      const data = { ...task, status: "completed", video_url: "https://v.example/1", progress };
      const outcome = readPoll(ok(data), ID);
      expect(outcome.outcome === "task" && JSON.parse(outcome.data)).toEqual({ ...data, progress: 100 });
    },
  );

  test("an envelope with code 404, as HTTP 404 or 200: gone", () => {
    expect(readPoll(answered(404, error(404)), ID)).toEqual({ outcome: "gone" });
    expect(readPoll(answered(200, error(404)), ID)).toEqual({ outcome: "gone" });
    expect(readPoll(answered(404, { code: "404" }), ID)).toEqual({ outcome: "gone" });
  });

  // Guarantee: the page of an ingress or a wrong path never ends a task.
  test.each<[string, Answer]>([
    ["nothing", answered(404)],
    ["HTML", answered(404, "<html>404 page not found</html>")],
    ["a framework's JSON", answered(404, { statusCode: 404, error: "Not Found", message: "no route" })],
    ["a code that is a word", answered(404, { code: "NOT_FOUND" })],
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
    expect(readPoll(answered(429, "", "11"), ID)).toEqual({
      outcome: "rate_limited",
      retryAfterSeconds: 11,
      detail: "HTTP 429, no code: no body",
    });
    expect(readPoll(answered(200, error(429)), ID)).toMatchObject({ outcome: "rate_limited" });
  });

  test("other refusals pass through", () => {
    expect(readPoll(answered(410, error(410, "Too old")), ID)).toEqual({
      outcome: "refused",
      status: 410,
      code: 410,
      text: "Too old",
      detail: `HTTP 410, code 410: ${JSON.stringify(error(410, "Too old"))}`,
      aboutTask: true,
    });
    expect(readPoll(answered(200, error(1001)), ID)).toMatchObject({
      outcome: "refused",
      status: 502,
      code: 1001,
      aboutTask: true,
    });
  });

  test.each<[string, Answer]>([
    ["HTTP 200 with code 501 and a text about the task", answered(200, error(501, "task_1 failed"))],
    ["HTTP 202 with code 501 as text and a task", answered(202, { code: "501", data: task })],
    ["a proxy's 400", answered(400, "<html>")],
    ["HTTP 408", answered(408, error(408))],
    ["HTTP 425", answered(425, error(425))],
    ["HTTP 200 with code 500", answered(200, error(500))],
    [
      "HTTP 200 with code 500 and a task that failed",
      answered(200, { code: 500, data: { ...task, status: "failed" } }),
    ],
    ["HTTP 400 with code 503", answered(400, error(503))],
    ["HTTP 408 with a code of its own", answered(408, error(1001))],
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
