import { describe, expect, test } from "vitest";
import { interpretAnswer } from "../../support/envelope-answers.ts";
import { UPLOADED } from "./upload-stage.ts";

const read = (status: number, body: unknown, retryAfter?: string) =>
  interpretAnswer({ status, retryAfter, body: typeof body === "string" ? body : JSON.stringify(body) });
const uploaded = (data: object) => read(200, { code: 200, data: { ...UPLOADED.data, ...data } }).outcome;

test("only HTTP 2xx with a code of success, a URL and an expiry is a success", () => {
  const success = {
    outcome: "answered",
    url: UPLOADED.data.url,
    expiresAt: UPLOADED.data.expires_at,
    data: UPLOADED.data,
  };
  for (const status of [200, 201, 202, 203, 206]) expect(read(status, UPLOADED)).toEqual(success);
  for (const code of [0, 201, 202, "200"]) expect(read(200, { ...UPLOADED, code })).toEqual(success);
  for (const status of [204, 303, 304]) expect(read(status, "").outcome).toBe("upstream_failed");
  for (const status of [303, 304]) expect(read(status, UPLOADED).outcome).toBe("upstream_failed");
  for (const status of [301, 302, 307, 308]) expect(read(status, UPLOADED).outcome).toBe("refused_gateway");
  expect(uploaded({ url: "https://127.0.0.1:1/a?b=%20#c" })).toBe("answered");
});

test.each([
  ["nothing", ""],
  ["no JSON", "<html>"],
  ["JSON cut short", '{"code":200,"data":{"url":"https://a"'],
  ["an array", "[200]"],
  ["null", "null"],
  ["a string", '"ok"'],
  ["no code", { data: UPLOADED.data }],
  ["a code that is a word", { ...UPLOADED, code: "OK" }],
  ["a code that is no whole number", { ...UPLOADED, code: 200.5 }],
  ["no data", { code: 200 }],
  ["data that is a list", { code: 200, data: [UPLOADED.data] }],
  [
    "data beyond any depth",
    `{"code":200,"data":{"url":"https://a.b/","expires_at":"2026-01-01T00:00:00Z","x":${"[".repeat(30_000)}${"]".repeat(30_000)}}}`,
  ],
])("200 with %s makes no sense", (_, body) => {
  expect(read(200, body).outcome).toBe("upstream_failed");
});

test.each([
  undefined,
  null,
  7,
  "",
  "files/a.png",
  "//files.example/a.png",
  "ftp://files.example/a.png",
  "javascript:alert(1)",
  "https:127.0.0.1",
  " https://files.example/a.png",
  "https://files.example/a b.png",
  "https://files.example/\r\nX: y",
  "https://",
  "http://files.example/a.png",
  "https://files.example/a\\b.png",
  "https://files.example/\u00e4.png",
  "https://files.example/\ud800.png",
  "https:///files.example/a.png",
])("a URL of %j is none that customers can use as imageUrl", (url) => {
  expect(uploaded({ url })).toBe("upstream_failed");
});

test.each([
  undefined,
  null,
  1_700_000_000,
  "",
  "soon",
  "5",
  "2026",
  "2026-01-01",
  "2026-01-01T00:05:00",
  "2026-01-01 00:05:00Z",
  "2026-01-01T00:05:00+01:00",
  "2026-13-01T00:05:00Z",
  "2026-01-01T00:05:00Z\n",
  "Thu, 01 Jan 2026 00:05:00 GMT",
])("an expiry of %j is no ISO 8601 time in UTC", (expires_at) => {
  expect(uploaded({ expires_at })).toBe("upstream_failed");
});

test.each([
  "2026-01-01T00:05:00Z",
  "2026-01-01T00:05:00.000Z",
  "2026-01-01T00:05:00.123456789Z",
  "2026-01-01T00:05:00+00:00",
  "2026-01-01T00:05:00.123456+00:00",
])("an expiry of %j goes on as it came", (expires_at) => {
  const data = { ...UPLOADED.data, expires_at };
  expect(read(200, { ...UPLOADED, data })).toMatchObject({ outcome: "answered", expiresAt: expires_at });
});

// Strict readers of ISO 8601 fail at them.
test.each([
  ["2026-02-31T00:05:00Z", "2026-03-03T00:05:00.000Z"],
  ["2026-01-01T24:00:00+00:00", "2026-01-02T00:00:00.000Z"],
])("an expiry of %j, which no calendar has, goes on as %j", (expires_at, expiresAt) => {
  const data = { ...UPLOADED.data, expires_at };
  expect(read(200, { ...UPLOADED, data })).toMatchObject({ outcome: "answered", expiresAt });
});

describe("a refusal", () => {
  test("by HTTP 4xx keeps the status, the code and the text", () => {
    expect(read(415, { code: 4150, error: "not an image", msg: "no" })).toEqual({
      outcome: "upstream_refused",
      status: 415,
      code: 4150,
      text: "not an image",
      detail: 'HTTP 415, code 4150: {"code":4150,"error":"not an image","msg":"no"}',
    });
    expect(read(400, { msg: "bad" })).toMatchObject({ status: 400, code: 400, text: "bad" });
    expect(read(422, "<html>denied</html>")).toMatchObject({
      status: 422,
      code: 422,
      text: expect.stringContaining("refused"),
    });
  });

  test("by the body's code under HTTP 200 is no success", () => {
    const body = { ...UPLOADED, code: 422, msg: "not an image" };
    expect(read(200, body)).toEqual({
      outcome: "upstream_refused",
      status: 422,
      code: 422,
      text: "not an image",
      detail: expect.stringContaining("HTTP 200, code 422: {"),
    });
    expect(read(200, { code: 1001, error: "" })).toMatchObject({
      outcome: "upstream_refused",
      status: 502,
      code: 1001,
    });
    for (const code of [500, "500"])
      expect(read(200, { code, error: "" })).toMatchObject({ outcome: "upstream_failed" });
  });

  test("by HTTP 4xx never carries code 200, which customers take for a success", () => {
    expect(read(400, { code: 200, error: "x" })).toEqual({
      outcome: "upstream_refused",
      status: 400,
      code: 400,
      text: "x",
      detail: 'HTTP 400, code 200: {"code":200,"error":"x"}',
    });
    expect(read(413, UPLOADED)).toMatchObject({ outcome: "upstream_refused", status: 413, code: 413 });
  });

  test.each([401, 402, 403, 404, 405, 407])("with HTTP or body code %d blames the gateway", (code) => {
    for (const status of [200, 400, 429, code])
      expect(read(status, { code, error: "No" })).toEqual({
        outcome: "refused_gateway",
        detail: `HTTP ${status}, code ${code}: {"code":${code},"error":"No"}`,
      });
    expect(read(code, "<html>").outcome).toBe("refused_gateway");
    expect(read(code, { code: 2001 }).outcome).toBe("refused_gateway");
  });

  test("has a text that is bounded and well-formed", () => {
    const outcome = read(400, { error: `${"x".repeat(999)}\u{1F600}${"y".repeat(9_000)}` });
    if (outcome.outcome !== "upstream_refused") throw new Error(outcome.outcome);
    expect(outcome.text).toHaveLength(1_000);
    expect(outcome.text.isWellFormed()).toBe(true);
  });
});

describe("rate limiting", () => {
  const wait = (status: number, body: unknown, header?: string) => {
    const outcome = read(status, body, header);
    return outcome.outcome === "upstream_rate_limited" ? outcome.retryAfterSeconds : outcome.outcome;
  };

  test("is 429 as status, whatever the body, or as the body's code", () => {
    expect(wait(429, "<html>", "7")).toBe(7);
    expect(wait(429, { code: 2001, retryAfter: 12.2 })).toBe(13);
    expect(wait(200, { code: 429, retryAfter: 5 })).toBe(5);
    expect(wait(429, { retryAfter: 5 }, "9")).toBe(9);
  });

  test.each([429, 2001, 2004])("is body code %d under HTTP 4xx as under HTTP 200", (code) => {
    for (const status of [200, 400, 422, 429]) expect(wait(status, { code, retryAfter: 5 })).toBe(5);
  });

  test("without a usable wait names none", () => {
    for (const header of [undefined, "", "soon", "-1", "1.5", "9".repeat(30)])
      expect(wait(429, { retryAfter: "5" }, header)).toBeUndefined();
    expect(wait(429, { retryAfter: -1 })).toBeUndefined();
  });

  test("may name a date; one that has passed means now", () => {
    const inOneMinute = new Date(Date.now() + 60_000).toUTCString();
    expect(wait(429, {}, inOneMinute)).toBeGreaterThan(50);
    expect(wait(429, {}, "Wed, 21 Oct 2020 07:28:00 GMT")).toBe(0);
  });
});

test("5xx is a failure, whatever the body says", () => {
  for (const status of [500, 502, 503, 504]) expect(read(status, UPLOADED).outcome).toBe("upstream_failed");
});
