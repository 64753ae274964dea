import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { expectStatus, givenGateway, limitsOf, type TestGateway, until } from "../support/gateway.ts";
import {
  BOAT,
  expectNobody,
  expectUnconsumed,
  givenTightKey,
  head,
  rawClient,
  rawGeneration,
  setStatus,
  TEXT_TO_VIDEO,
} from "./spec-stage.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
});
afterAll(() => gateway.stop());

async function client() {
  const raw = await rawClient(gateway.url);
  onTestFinished(() => raw.end());
  return raw;
}

const CREDITS = (...more: string[]) => head("GET /api/v1/credits HTTP/1.1", "Host: a", ...more);
const bearer = (key: string) => `Authorization: Bearer ${key}`;

describe("what a gateway must refuse though Node accepts it: 400 in an envelope, and the connection ends", () => {
  const T2V = `POST ${TEXT_TO_VIDEO} HTTP/1.1`;
  const JSON_TYPE = "Content-Type: application/json";
  const BODY = JSON.stringify(BOAT);
  const LENGTH = `Content-Length: ${BODY.length}`;
  const CHUNKED = `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`;
  const cases: [what: string, bytes: (auth: string) => string][] = [
    ["two Hosts", (auth) => head(T2V, "Host: a", "Host: b", auth, JSON_TYPE, LENGTH) + BODY],
    ["the same Host twice", (auth) => head(T2V, "Host: a", auth, "Host: a", JSON_TYPE, LENGTH) + BODY],
    ["no Host", (auth) => head(T2V, auth, JSON_TYPE, LENGTH) + BODY],
    ["an empty Host", (auth) => head(T2V, "Host:", auth, JSON_TYPE, LENGTH) + BODY],
    [
      "Transfer_Encoding",
      (auth) => head(T2V, "Host: a", auth, JSON_TYPE, LENGTH, "Transfer_Encoding: chunked") + BODY,
    ],
    ["Content_Length", (auth) => head(T2V, "Host: a", auth, JSON_TYPE, LENGTH, "Content_Length: 0") + BODY],
    [
      "absolute-form",
      (auth) => head(`POST http://a${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", auth, JSON_TYPE, LENGTH) + BODY,
    ],
    ["asterisk-form", (auth) => head("OPTIONS * HTTP/1.1", "Host: a", auth)],
    [
      "Transfer-Encoding: gzip, chunked",
      (auth) => head(T2V, "Host: a", auth, JSON_TYPE, "Transfer-Encoding: gzip, chunked") + CHUNKED,
    ],
    [
      "Transfer-Encoding twice",
      (auth) =>
        head(T2V, "Host: a", auth, JSON_TYPE, "Transfer-Encoding: gzip", "Transfer-Encoding: chunked") +
        CHUNKED,
    ],
    ["Content-Type twice", (auth) => head(T2V, "Host: a", auth, JSON_TYPE, JSON_TYPE, LENGTH) + BODY],
    [
      "a GET with a body",
      (auth) => `${head("GET /api/v1/credits HTTP/1.1", "Host: a", auth, "Content-Length: 2")}{}`,
    ],
    [
      "a GET with a chunked body",
      (auth) =>
        `${head("GET /api/v1/credits HTTP/1.1", "Host: a", auth, "Transfer-Encoding: chunked")}0\r\n\r\n`,
    ],
    [
      "HTTP/1.0 with Transfer-Encoding",
      (auth) =>
        head(`POST ${TEXT_TO_VIDEO} HTTP/1.0`, "Host: a", auth, JSON_TYPE, "Transfer-Encoding: chunked") +
        CHUNKED,
    ],
  ];

  test.each(cases)("%s", async (_, bytes) => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    raw.write(bytes(bearer(issued.key)));
    const reply = await raw.answer();
    expectStatus(reply, 400);
    expect(reply.body.code).toBe(400);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1, maxConcurrent: 1, active: 0 });
    await raw.closed();
    await expectUnconsumed(gateway, issued);
  });

  test("two Authorizations: neither is believed", async () => {
    const issued = await givenTightKey(gateway);
    for (const other of [issued.key, "sk_other"]) {
      const raw = await client();
      raw.write(CREDITS(bearer(issued.key), bearer(other)));
      const reply = await raw.answer();
      expectStatus(reply, 400);
      expectNobody(reply);
      await raw.closed();
    }
  });

  // These never become a request: Node's parser refuses them, and nobody is known.
  const unparsed: [what: string, status: number, bytes: string][] = [
    [
      "Transfer-Encoding with Content-Length",
      400,
      head(T2V, "Host: a", "Content-Length: 3", "Transfer-Encoding: chunked") + CHUNKED,
    ],
    ["two Content-Lengths", 400, head(T2V, "Host: a", "Content-Length: 3", "Content-Length: 4")],
    ["a Content-Length that is no number", 400, head(T2V, "Host: a", "Content-Length: 3x")],
    ["a negative Content-Length", 400, head(T2V, "Host: a", "Content-Length: -1")],
    [
      "a Transfer-Encoding that does not end in chunked",
      400,
      head(T2V, "Host: a", "Transfer-Encoding: chunked, gzip"),
    ],
    ["garbage for a request line", 400, "this is not HTTP\r\n\r\n"],
    ["TLS on the plain port", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"],
    ["the preface of HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a header line without a colon", 400, head("GET /api/v1/credits HTTP/1.1", "Host: a", "nonsense")],
    ["a request line that ends in a bare LF", 400, "GET /api/v1/credits HTTP/1.1\nHost: a\r\n\r\n"],
    ["a Host with a path", 400, head("GET /api/v1/credits HTTP/1.1", "Host: a b/c")],
    ["a space before the colon", 400, head("GET /api/v1/credits HTTP/1.1", "Host : a")],
    ["a folded header line", 400, head("GET /api/v1/credits HTTP/1.1", "Host: a", "X: b", " c")],
    ["a NUL in a header", 400, head("GET /api/v1/credits HTTP/1.1", "Host: a", "X: \0")],
    ["a bare LF behind a header line", 400, "GET /api/v1/credits HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"],
    ["a chunk size that is no number", 400, `${head(T2V, "Host: a", "Transfer-Encoding: chunked")}xyz\r\n`],
    ["CONNECT", 400, head("CONNECT a:443 HTTP/1.1", "Host: a")],
    ["HTTP/2.0 as version", 505, head("GET /api/v1/credits HTTP/2.0", "Host: a")],
    ["HTTP/1.2 as version", 505, head("GET /api/v1/credits HTTP/1.2", "Host: a")],
    ["HTTP/0.9 as version", 505, head("GET /api/v1/credits HTTP/0.9", "Host: a")],
    [
      "headers above 16 KiB",
      431,
      head("GET /api/v1/credits HTTP/1.1", "Host: a", `X: ${"x".repeat(17_000)}`),
    ],
    ["a request line above 16 KiB", 431, head(`GET /${"x".repeat(17_000)} HTTP/1.1`, "Host: a")],
  ];

  test.each(unparsed)("%s: %d", async (_, status, bytes) => {
    const raw = await client();
    raw.write(bytes);
    const reply = await raw.answer();
    expectStatus(reply, status);
    expect(reply.body.code).toBe(status);
    expectNobody(reply);
    await raw.closed();
    const line = gateway.logs
      .map((text) => JSON.parse(text))
      .find((one) => one.request_id === reply.body.request_id);
    expect(line).toMatchObject({ status, level: status >= 500 ? "warn" : "info" });
  });
});

describe("a body that turns out not to be well-formed, of a request whose head was", () => {
  test.each([
    [TEXT_TO_VIDEO, "application/json"],
    ["/api/v1/upload", "multipart/form-data; boundary=b"],
  ])("%s: 400 under the request's own id, with the key's numbers, and one log line", async (path, type) => {
    const issued = await givenTightKey(gateway);
    const mine = `mine-${issued.keyId}`;
    const raw = await client();
    const lines = [bearer(issued.key), `Content-Type: ${type}`, "Transfer-Encoding: chunked"];
    raw.write(
      `${head(`POST ${path} HTTP/1.1`, "Host: a", `X-Request-Id: ${mine}`, ...lines)}3\r\n--b\r\nxyz\r\n`,
    );
    const reply = await raw.answer();
    expectStatus(reply, 400);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1, maxConcurrent: 1, active: 0 });
    expect(reply.headers.get("x-request-id")).toBe(mine);
    const requestId = reply.headers.get("x-gateway-request-id") ?? "none";
    await raw.closed();
    const logged = () => gateway.logs.filter((line) => line.includes(issued.keyId));
    await until(() => logged().length > 0, "the log line");
    expect(logged().map((line) => JSON.parse(line))).toMatchObject([
      { request_id: requestId, status: 400, outcome: "invalid_request", key_id: issued.keyId },
    ]);
    expect(JSON.parse(logged()[0]!)).not.toHaveProperty("client_gone");
    await expectUnconsumed(gateway, issued);
  });

  test("of a suspended account: 403 Forbidden", async () => {
    const issued = await gateway.givenKey();
    await setStatus(gateway, issued, "suspended");
    const raw = await client();
    const answer = once(raw.socket, "data");
    const lines = [bearer(issued.key), "Content-Type: application/json", "Transfer-Encoding: chunked"];
    raw.write(`${head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", ...lines)}3\r\nabcxyz\r\n`);
    expect(String(await answer)).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
  });

  test("a request refused for another reason at that moment is answered once", async () => {
    const raw = await client();
    const lines = ["Authorization: Bearer sk_unknown", "Transfer-Encoding: chunked"];
    raw.write(`${head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", ...lines)}xyz\r\n`);
    expectStatus(await raw.answer(), 400);
    await raw.closed();
    await expect(raw.answer()).rejects.toThrow("left: ");
  });
});

describe("header lines", () => {
  test("100 of them are served, one more is 431 and the end of the connection", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(CREDITS(...Array(98).fill("a:"), bearer(key)));
    expectStatus(await raw.answer(), 200);
    raw.write(CREDITS(...Array(99).fill("a:"), bearer(key)));
    const reply = await raw.answer();
    expectStatus(reply, 431);
    expect(reply.body).toMatchObject({ code: 431, error: "Request headers too large: at most 100 lines" });
    await raw.closed();
  });

  test("more than 2,000 of them hide nothing: the request is still authenticated", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(CREDITS(...Array(2500).fill("a:"), bearer(key)));
    const reply = await raw.answer();
    expectStatus(reply, 431);
    expect(limitsOf(reply)).toMatchObject({ limit: 1000 });
  });

  test("a second Authorization behind 2,500 lines is still seen", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(CREDITS(bearer(key), ...Array(2500).fill("a:"), bearer("sk_other")));
    const reply = await raw.answer();
    expectStatus(reply, 431);
    expectNobody(reply);
  });

  test("how many there may be follows server.max_header_lines", async () => {
    const own = await givenGateway({
      generator: gateway.generator,
      config: { server: { maxHeaderLines: 10 } },
    });
    onTestFinished(() => own.stop());
    const raw = await rawClient(own.url);
    onTestFinished(() => raw.end());
    raw.write(CREDITS(...Array(10).fill("a:")));
    expect((await raw.answer()).body.error).toContain("at most 10 lines");
  });
});

describe("Upgrade and Expect", () => {
  test("a WebSocket upgrade is 426, with the key's numbers", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    const upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];
    raw.write(CREDITS(bearer(issued.key), ...upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="));
    const reply = await raw.answer();
    expectStatus(reply, 426);
    expect(reply.body.code).toBe(426);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1 });
    // RFC 9110, 15.5.22: a 426 must say what to upgrade to.
    expect(reply.headers.get("upgrade")).toBe("HTTP/1.1");
    const line = gateway.logs.find((text) => text.includes(reply.body.request_id));
    expect(JSON.parse(line ?? "{}")).toMatchObject({ key_id: issued.keyId, account_id: issued.accountId });
    await expectUnconsumed(gateway, issued);
  });

  const H2C = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"];

  test("Upgrade: h2c is ignored: each request is served, and ends its connection", async () => {
    const { key } = await gateway.givenKey();
    for (const request of [CREDITS(bearer(key), ...H2C), rawGeneration(key, BOAT, ...H2C)]) {
      const raw = await client();
      raw.write(request);
      const reply = await raw.answer();
      expectStatus(reply, 200);
      expect(reply.headers.get("connection")).toBe("close");
      await raw.closed();
    }
  });

  // Guarantee: no byte is lost unnoticed, so that no body is ever run as a request.
  test("a body whose head came behind an Upgrade is not run as a request", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    const body = rawGeneration(issued.key);
    raw.write(
      head("GET /api/v1/tasks/x HTTP/1.1", "Host: a", bearer(issued.key), ...H2C) +
        head("POST /api/v1/upload HTTP/1.1", "Host: a", bearer(issued.key), `Content-Length: ${body.length}`),
    );
    raw.write(body);
    expectStatus(await raw.answer(), 404);
    await raw.closed();
    await expectUnconsumed(gateway, issued);
  });

  test("what is pipelined behind an Upgrade is not served, and the client is told by the end of the connection", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    raw.write(CREDITS(bearer(issued.key), ...H2C) + rawGeneration(issued.key));
    expectStatus(await raw.answer(), 200);
    await raw.closed();
    await expect(raw.answer()).rejects.toThrow("left: ");
    await expectUnconsumed(gateway, issued);
  });

  test.each(["miracles", "100-continue, miracles"])("Expect: %s is 417", async (expected) => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    raw.write(rawGeneration(issued.key, BOAT, `Expect: ${expected}`));
    const reply = await raw.answer();
    expectStatus(reply, 417);
    expect(reply.body.code).toBe(417);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1 });
    await expectUnconsumed(gateway, issued);
  });

  test("Expect: 100-continue is told to go on only where the body is wanted", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    const [lines = "", body = ""] = rawGeneration(issued.key, BOAT, "Expect: 100-continue").split(
      /(?<=\r\n\r\n)/,
    );
    raw.write(lines);
    await until(() => raw.socket.bytesRead > 20, "100 Continue");
    raw.write(body);
    expectStatus(await raw.answer(), 200);
    expect(raw.interim).toEqual([100]);
  });

  test.each([
    [
      "a bad key",
      401,
      ["Authorization: Bearer sk_unknown", "Content-Type: application/json", "Content-Length: 9"],
    ],
    ["no key", 401, ["Content-Type: application/json", "Content-Length: 9"]],
    ["a wrong type", 415, ["Content-Type: text/plain", "Content-Length: 9"]],
    ["too large a body", 413, ["Content-Type: application/json", "Content-Length: 999999"]],
    [
      "a bad Idempotency-Key",
      400,
      ["Content-Type: application/json", "Content-Length: 9", "Idempotency-Key: a b"],
    ],
  ] as const)("with %s the final answer comes at once, without 100", async (_, status, lines) => {
    const { key } = await gateway.givenKey();
    const auth = status === 401 ? [] : [bearer(key)];
    const raw = await client();
    raw.write(head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", "Expect: 100-continue", ...auth, ...lines));
    expectStatus(await raw.answer(), status);
    expect(raw.interim).toEqual([]);
  });
});

// A body that comes whole with its head is read another way than one in pieces.
test("a body is read however the network cuts it, and the connection serves the next request", async () => {
  const { key } = await gateway.givenKey();
  const raw = await client();
  const request = rawGeneration(key, BOAT);
  const body = request.indexOf("\r\n\r\n") + 4;
  const cuts = [[], [body], [body + 1], [request.length - 1], [10, body, body + 5], []];
  for (const places of cuts) {
    for (const [at, from] of [0, ...places].entries()) {
      raw.write(request.slice(from, places[at]));
      await pause(20);
    }
    expectStatus(await raw.answer(), 200);
  }
  raw.write(request + request);
  expectStatus(await raw.answer(), 200);
  expectStatus(await raw.answer(), 200);
});

// Guarantee: a refused body costs no more than its bound, however it is cut. 88 MB in chunks of one byte took 3.8 s.
test("a refused body in chunks of one byte is answered, and its connection ends after 10,000 of them", async () => {
  const { key } = await gateway.givenKey();
  const raw = await client();
  const lines = ["Host: a", bearer(key), "Content-Type: text/plain", "Transfer-Encoding: chunked"];
  raw.write(head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, ...lines));
  expectStatus(await raw.answer(), 415);
  raw.write("1\r\nx\r\n".repeat(5_000));
  await pause(50);
  expect(raw.socket.destroyed).toBe(false);
  raw.write("1\r\nx\r\n".repeat(5_001));
  await raw.closed();
});

test("a JSON body in more than 10,000 pieces is refused", async () => {
  const { key } = await gateway.givenKey();
  const raw = await client();
  const lines = ["Host: a", bearer(key), "Content-Type: application/json", "Transfer-Encoding: chunked"];
  raw.write(head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, ...lines));
  raw.write("1\r\n \r\n".repeat(10_001));
  const reply = await raw.answer();
  expectStatus(reply, 400);
  expect(reply.body.error).toBe("Invalid request: the body comes in more than 10000 pieces");
});

test("431 reaches a client that goes on sending", async () => {
  const raw = await client();
  raw.write(`GET /api/v1/credits HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(1_000_000)}`);
  expectStatus(await raw.answer(), 431);
  await raw.closed();
});

test("HTTP/1.0 without Host is served, and HEAD has no body", async () => {
  const { key } = await gateway.givenKey();
  const raw = await client();
  raw.write(head("GET /api/v1/credits HTTP/1.0", bearer(key)));
  expectStatus(await raw.answer(), 200);
  await raw.closed();
  const headers = { authorization: `Bearer ${key}` };
  const headed = await fetch(`${gateway.url}/api/v1/credits`, { method: "HEAD", headers });
  expectStatus(headed, 405);
  expect(headed.headers.get("allow")).toBe("GET");
  expect(headed.headers.get("x-ratelimit-limit")).toBe("1000");
  expect(await headed.text()).toBe("");
});
