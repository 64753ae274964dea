import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { text as textOf } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type RequestOptions,
  type TestGateway,
} from "../support/gateway.ts";
import { priceListsOf } from "../support/prices.ts";
import {
  asking,
  BOAT,
  expectNobody,
  expectUnconsumed,
  givenTightKey,
  PRO_TEXT_TO_VIDEO,
  revoke,
  setLimits,
  TEXT_TO_VIDEO,
} from "./spec-stage.ts";

let gateway: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  gateway = await givenGateway({ config: { server: { unknownKeysPerMinute: 1_000_000 } } });
  ask = asking(gateway);
});
afterAll(() => gateway.stop());

const CREDITS = "/api/v1/credits";
const STORYBOARD = "/api/v1/gen2-pro/storyboard";

/** One request of each kind, all of which would succeed or be refused for the task alone with a good key. */
const EVERYWHERE: [method: string, path: string, body?: unknown][] = [
  ["POST", TEXT_TO_VIDEO, BOAT],
  ["POST", "/api/v1/gen2-pro/storyboard", { nonsense: 1 }],
  ["POST", "/api/v1/upload", "x"],
  ["GET", CREDITS],
  ["GET", "/api/v1/tasks/abc"],
  ["GET", "/api/v1/no/such/path"],
  ["DELETE", CREDITS],
];

// Guarantee: a browser gets no permission, and its developer reads why.
test.each([
  ["POST", TEXT_TO_VIDEO, 405],
  ["GET", CREDITS, 405],
  ["POST", "/api/v1/no/such/path", 404],
])("a preflight for %s %s is told that keys belong on servers", async (method, path, status) => {
  const origin = { origin: "https://shop.example", "access-control-request-method": method };
  const headers = { ...origin, "access-control-request-headers": "authorization" };
  const reply = await ask("OPTIONS", path, { headers });
  expectStatus(reply, status);
  expect(reply.body.error).toContain("API keys belong on servers, never in a browser");
  expect([...reply.headers.keys()].filter((name) => name.startsWith("access-control-"))).toEqual([]);
  expectNobody(reply);
  // Without the question it is a method like any other.
  expectStatus(await ask("OPTIONS", path, { headers: { origin: "https://shop.example" } }), 401);
});

test("a byte order mark is named", async () => {
  const { key } = await gateway.givenKey();
  const headers = { "content-type": "application/json; charset=UTF8", "content-encoding": "identity" };
  const text = JSON.stringify(BOAT);
  const marked = await ask("POST", TEXT_TO_VIDEO, { key, headers, body: `\ufeff${text}` });
  expect(marked.body.error).toBe(
    "Invalid request: the body begins with a byte order mark; send UTF-8 without one",
  );
  expectStatus(await ask("POST", TEXT_TO_VIDEO, { key, headers, body: text }), 200);
});

test.each([".", ".."])("a task id %s is 404, as it stands in the path", async (id) => {
  const { key } = await gateway.givenKey();
  const { hostname, port } = new URL(gateway.url);
  // fetch would take it for a step in the path.
  const request = get({
    hostname,
    port,
    path: `/api/v1/tasks/${id}`,
    headers: { authorization: `Bearer ${key}` },
  });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  expect(JSON.parse(await textOf(response))).toMatchObject({ code: 404, error: "Task not found" });
  expect(gateway.generator.requests.filter(({ path }) => path.includes("/tasks/."))).toEqual([]);
});

describe("authentication comes first, on every path", () => {
  test.each(EVERYWHERE)("%s %s without a key: 401 Missing API key, zeros", async (method, path, body) => {
    const request: RequestOptions = body === undefined ? {} : { body };
    for (const headers of [{}, { authorization: "Basic sk_x" }, { authorization: "Bearer" }]) {
      const reply = await ask(method, path, { ...request, headers });
      expect(reply.body).toMatchObject({ code: 401, error: "Missing API key" });
      expectStatus(reply, 401);
      expectNobody(reply);
    }
  });

  test.each(EVERYWHERE)(
    "%s %s with a bad key: 401 Invalid API key, whyever it is bad",
    async (method, path, body) => {
      const revoked = await gateway.givenKey();
      expectStatus(await ask("GET", CREDITS, { key: revoked.key }), 200);
      await revoke(gateway, revoked);
      const neverSeen = await gateway.givenKey();
      await revoke(gateway, neverSeen);
      const expired = await gateway.givenKey({ expiresAtMs: Date.now() - 1000 });
      const bodies = [];
      for (const key of [revoked.key, neverSeen.key, expired.key, "sk_unknown", "pk_unknown"]) {
        const reply = await ask(method, path, body === undefined ? { key } : { key, body });
        expectStatus(reply, 401);
        expectNobody(reply);
        bodies.push({ ...reply.body, request_id: "" });
      }
      const expected = { code: 401, msg: "Invalid API key", error: "Invalid API key", request_id: "" };
      expect(bodies).toEqual(Array(5).fill(expected));
    },
  );

  test("the scheme is case-insensitive", async () => {
    const { key } = await gateway.givenKey();
    for (const scheme of ["bearer", "BEARER", "Bearer"])
      expect((await ask("GET", CREDITS, { headers: { authorization: `${scheme} ${key}` } })).status).toBe(
        200,
      );
  });

  test("a key that expires while it is in use is refused from then on", async () => {
    const issued = await gateway.givenKey({ expiresAtMs: Date.now() + 3_600_000 });
    expectStatus(await ask("GET", CREDITS, { key: issued.key }), 200);
    await setLimits(gateway, issued, { expires_at: Date.now() - 1 });
    expectStatus(await ask("GET", CREDITS, { key: issued.key }), 401);
    expectStatus(await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT }), 401);
  });
});

/** Refusals to a key that may do exactly one thing, before anything is consumed. */
const REFUSALS: [
  what: string,
  status: number,
  code: number,
  method: string,
  path: string,
  request: RequestOptions,
][] = [
  ["no body", 400, 400, "POST", TEXT_TO_VIDEO, { body: "" }],
  ["no JSON", 400, 400, "POST", TEXT_TO_VIDEO, { body: "{" }],
  ["an array", 400, 400, "POST", TEXT_TO_VIDEO, { body: [] }],
  ["a missing parameter", 400, 400, "POST", TEXT_TO_VIDEO, { body: {} }],
  ["a duplicate parameter", 400, 400, "POST", TEXT_TO_VIDEO, { body: '{"prompt":"a","prompt":"b"}' }],
  ["a body nested too deeply", 400, 400, "POST", TEXT_TO_VIDEO, { body: `${"[".repeat(60_000)}` }],
  ["half a surrogate pair", 400, 400, "POST", TEXT_TO_VIDEO, { body: '{"prompt":"\\ud83d"}' }],
  [
    "a bad Idempotency-Key",
    400,
    400,
    "POST",
    TEXT_TO_VIDEO,
    { body: BOAT, headers: { "idempotency-key": "a b" } },
  ],
  ["insufficient credits", 402, 402, "POST", PRO_TEXT_TO_VIDEO, { body: BOAT }],
  ["an unknown path", 404, 404, "POST", "/api/v1/gen3/text-to-video", { body: BOAT }],
  ["a path outside", 404, 404, "GET", "/metrics", {}],
  ["an unknown task", 404, 404, "GET", "/api/v1/tasks/unknown", {}],
  ["a task id that cannot be", 404, 404, "GET", "/api/v1/tasks/a%20b", {}],
  ["a wrong method", 405, 405, "PUT", TEXT_TO_VIDEO, { body: BOAT }],
  ["a body over 256 KiB", 413, 413, "POST", TEXT_TO_VIDEO, { body: { prompt: "a".repeat(256 * 1024) } }],
  [
    "a wrong media type",
    415,
    415,
    "POST",
    TEXT_TO_VIDEO,
    { body: "{}", headers: { "content-type": "text/plain" } },
  ],
  [
    "a charset that is not UTF-8",
    415,
    415,
    "POST",
    TEXT_TO_VIDEO,
    { body: "{}", headers: { "content-type": "application/json; charset=latin1" } },
  ],
  [
    "a Content-Encoding",
    415,
    415,
    "POST",
    TEXT_TO_VIDEO,
    { body: BOAT, headers: { "content-encoding": "gzip" } },
  ],
  ["an upload that is no form", 415, 415, "POST", "/api/v1/upload", { body: BOAT }],
];

describe("refusals before admission consume nothing at all, and carry the key's true numbers", () => {
  test.each(REFUSALS)("%s: %d", async (_, status, code, method, path, request) => {
    const issued = await givenTightKey(gateway);
    const sentBefore = gateway.generator.requests.length;
    const reply = await ask(method, path, { ...request, key: issued.key });
    expect(reply.body).toMatchObject({ code });
    expectStatus(reply, status);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1, maxConcurrent: 1, active: 0 });
    expect(gateway.generator.requests.length).toBe(sentBefore);
    await expectUnconsumed(gateway, issued);
  });

  test("a refusal shows what is used by now, not what was when the key was new", async () => {
    const { key } = await gateway.givenKey({ limits: { rate_limit: 7, max_concurrent: 4 } });
    await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    for (const [method, path, body] of EVERYWHERE.slice(1)) {
      const reply = await ask(method, path, body === undefined ? { key } : { key, body });
      expect(limitsOf(reply)).toMatchObject({ limit: 7, remaining: 6, maxConcurrent: 4, active: 1 });
      expect(limitsOf(reply).reset! - Date.now() / 1000).toBeGreaterThan(50);
      expect(limitsOf(reply).reset! - Date.now() / 1000).toBeLessThan(62);
    }
  });
});

describe("texts and extra fields", () => {
  test("400 names the parameter and the rule, and lists all problems", async () => {
    const { key } = await gateway.givenKey();
    const reply = await ask("POST", TEXT_TO_VIDEO, { key, body: { promt: "a", aspectRatio: "4:3" } });
    expect(reply.body.error).toMatch(/prompt is required|aspectRatio must be one of|promt is not a known/);
    expect(reply.body.details).toHaveLength(3);
    expect(reply.body.details).toEqual(
      expect.arrayContaining([
        { path: "/prompt", message: "prompt is required" },
        { path: "/promt", message: "promt is not a known parameter; did you mean prompt?" },
        { path: "/aspectRatio", message: expect.stringContaining('"16:9"') },
      ]),
    );
  });

  test("402 names the price and the balance, and tells SDKs not to retry", async () => {
    const { key } = await gateway.givenKey({ credits: 149 });
    const reply = await ask("POST", PRO_TEXT_TO_VIDEO, { key, body: BOAT });
    expectStatus(reply, 402);
    expect(reply.body.error).toMatch(/150.*149/);
    expect(reply.headers.get("x-should-retry")).toBe("false");
    expect(reply.body.retryAfter).toBeUndefined();
  });

  test.each([
    ["GET", TEXT_TO_VIDEO, "POST"],
    ["GET", "/api/v1/upload", "POST"],
    ["POST", CREDITS, "GET"],
    ["DELETE", "/api/v1/tasks/abc", "GET"],
    ["PATCH", TEXT_TO_VIDEO, "POST"],
    ["OPTIONS", CREDITS, "GET"],
  ])("405 for %s %s allows %s", async (method, path, allow) => {
    const { key } = await gateway.givenKey();
    const reply = await ask(method, path, { key });
    expectStatus(reply, 405);
    expect(reply.headers.get("allow")).toBe(allow);
  });

  test("415 takes application/json with charset utf-8, in any spelling", async () => {
    const { key } = await gateway.givenKey();
    for (const type of [
      "application/json",
      "Application/JSON; charset=UTF-8",
      'application/json;charset="utf-8"',
    ])
      expect(
        (await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers: { "content-type": type } })).status,
      ).toBe(200);
    for (const type of [
      "application/json5",
      "text/json",
      "application/jsonx",
      "application/json; charset=utf-16",
    ])
      expect(
        (await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers: { "content-type": type } })).status,
      ).toBe(415);
  });

  test("413 begins one byte above 256 KiB", async () => {
    const { key } = await gateway.givenKey();
    const filler = (bytes: number) => {
      const shots = Array.from({ length: 27 }, () => ({ Scene: "x".repeat(9_000), duration: 10 / 27 }));
      const body = { nFrames: "10", shots, callBackUrl: "https://a.example/" };
      body.callBackUrl += "x".repeat(bytes - JSON.stringify(body).length);
      return JSON.stringify(body);
    };
    expectStatus(await ask("POST", STORYBOARD, { key, body: filler(262_144) }), 200);
    expectStatus(await ask("POST", STORYBOARD, { key, body: filler(262_145) }), 413);
  });

  test("a body that is not UTF-8 is 400", async () => {
    const { key } = await gateway.givenKey();
    const response = await fetch(gateway.url + TEXT_TO_VIDEO, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: Buffer.from('{"prompt":"\xff\xfe"}', "latin1"),
    });
    expectStatus(response, 400);
  });
});

test("a fault within is 500, leaks no detail, and consumes nothing", async () => {
  const priceLists = priceListsOf({ "gen2-pro/storyboard": { by_n_frames: { "25": undefined } } });
  const faulty = await givenGateway({ generator: gateway.generator, config: { priceLists } });
  const issued = await givenTightKey(faulty);
  const body = { nFrames: "25", shots: [{ Scene: "a", duration: 25 }] };
  const reply = await asking(faulty)("POST", "/api/v1/gen2-pro/storyboard", { key: issued.key, body });
  expectStatus(reply, 500);
  expect({ ...reply.body, request_id: "" }).toEqual({
    code: 500,
    msg: "Internal error",
    error: "Internal error",
    request_id: "",
  });
  expect(faulty.logs.join("")).toContain("no price for");
  await expectUnconsumed(faulty, issued);
  await faulty.stop();
});
