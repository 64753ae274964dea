import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { isWebSocketUpgrade, readHead } from "../../../src/gateway/protocol.ts";

interface Head {
  method?: string;
  url?: string;
  version?: [major: number, minor: number];
  lines?: string[];
}

/** A request as node:http hands it over. */
function request({
  method = "POST",
  url = "/api/v1/x",
  version = [1, 1],
  lines = [],
}: Head): IncomingMessage {
  const req = new IncomingMessage(new Socket());
  [req.httpVersionMajor, req.httpVersionMinor] = version;
  req.method = method;
  req.url = url;
  req.rawHeaders = lines;
  for (let at = 0; at < lines.length; at += 2) req.headers[lines[at]!.toLowerCase()] = lines[at + 1];
  return req;
}

const HOST = ["Host", "a"];
const read = (head: Head) => readHead(request(head), { maxHeaderLines: 100 });
const faultOf = (head: Head) => read(head).fault;

describe("readHead", () => {
  test("reads what matters, whatever the case of the names", () => {
    const lines = ["hOST", "a", "AUTHORIZATION", "Bearer x", "idempotency-KEY", "k", "Content-type", "t"];
    lines.push("CONTENT-LENGTH", "3", "Content-Encoding", "gzip");
    lines.push("X-Forwarded-For", "1.1.1.1", "x-forwarded-for", "2.2.2.2");
    expect(read({ lines })).toEqual({
      fault: undefined,
      head: {
        authorization: "Bearer x",
        idempotencyKey: "k",
        contentType: "t",
        contentLength: 3,
        contentEncoding: true,
        forwardedFor: "1.1.1.1,2.2.2.2",
        hasBody: true,
        upgrades: false,
      },
    });
  });

  test("a GET without a body has none, also with Content-Length: 0", () => {
    expect(read({ method: "GET", lines: HOST }).head.hasBody).toBe(false);
    const zero = read({ method: "GET", lines: [...HOST, "Content-Length", "0"] });
    expect(zero).toMatchObject({ fault: undefined, head: { hasBody: false } });
  });

  const SINGLE = ["Host", "Authorization", "Content-Type", "Content-Length", "Content-Encoding"];
  test.each([...SINGLE, "Transfer-Encoding", "Idempotency-Key", "Expect"])(
    "two %s lines are refused, also equal ones",
    (name) => {
      const lines = [...(name === "Host" ? [] : HOST), name, "chunked", name.toLowerCase(), "chunked"];
      expect(faultOf({ lines })).toMatchObject({
        status: 400,
        code: 400,
        text: expect.stringContaining(name.toLowerCase()),
      });
    },
  );

  test("of two Authorization lines neither is believed, also beside another fault", () => {
    const two = ["Authorization", "Bearer a", "Authorization", "Bearer b"];
    expect(read({ lines: [...HOST, ...two] }).head.authorization).toBeUndefined();
    expect(read({ lines: [...HOST, ...HOST, ...two] }).head.authorization).toBeUndefined();
  });

  test("other headers may come twice", () => {
    expect(
      faultOf({ lines: [...HOST, "Accept", "a", "Accept", "b", "Cookie", "a", "Cookie", "b"] }),
    ).toBeUndefined();
  });

  test.each([
    [[1, 1], undefined],
    [[1, 0], undefined],
    [[2, 0], 505],
    [[0, 9], 505],
    [[1, 2], 505],
    [[3, 1], 505],
  ] as [[number, number], number | undefined][])("HTTP/%j", (version, status) => {
    expect(faultOf({ version, lines: HOST })?.status).toBe(status);
  });

  // A program behind may read Transfer_Encoding as Transfer-Encoding, and frame the request by it.
  test.each(["Transfer_Encoding", "Content_Length", "X_Request_Id", "_", "a_"])(
    "a header named %s is refused",
    (name) => {
      expect(faultOf({ lines: [...HOST, name, "1"] })).toMatchObject({
        status: 400,
        text: "Invalid request: a header name has an underscore",
      });
    },
  );

  test("an underscore in a value is fine", () => {
    expect(faultOf({ lines: [...HOST, "X-Any", "a_b"] })).toBeUndefined();
  });

  test("as many header lines as the limit pass, one more is 431", () => {
    const lines = (count: number) => [
      ...HOST,
      ...Array(count - 1)
        .fill(["X-A", "1"])
        .flat(),
    ];
    expect(faultOf({ lines: lines(100) })).toBeUndefined();
    expect(faultOf({ lines: lines(101) })).toMatchObject({
      status: 431,
      text: "Request headers too large: at most 100 lines",
    });
  });

  test.each([[[1, 1]], [[1, 0]]] as [[number, number]][])(
    "an empty Host is refused in HTTP/%j",
    (version) => {
      expect(faultOf({ version, lines: ["Host", ""] })).toMatchObject({
        status: 400,
        text: "Invalid request: the Host header is empty",
      });
    },
  );

  test("Content-Encoding: identity is no encoding", () => {
    expect(read({ lines: [...HOST, "Content-Encoding", "Identity"] }).head.contentEncoding).toBe(false);
  });

  test("Host is required in HTTP/1.1 only", () => {
    expect(faultOf({})).toMatchObject({ status: 400, text: expect.stringContaining("Host") });
    expect(faultOf({ version: [1, 0] })).toBeUndefined();
  });

  test.each(["http://a/api/v1/credits", "*", "a:443", "api/v1/credits", ""])(
    "the target %j is no path",
    (url) => {
      expect(faultOf({ url, lines: HOST })).toMatchObject({ status: 400 });
    },
  );

  test.each([
    ["chunked", undefined],
    ["Chunked", undefined],
    ["gzip, chunked", 400],
    ["chunked, chunked", 400],
    ["identity", 400],
    ["xchunked", 400],
    ["", 400],
  ])("Transfer-Encoding: %j", (coding, status) => {
    expect(faultOf({ lines: [...HOST, "Transfer-Encoding", coding] })?.status).toBe(status);
  });

  test("Transfer-Encoding goes neither with Content-Length nor with HTTP/1.0", () => {
    const chunked = ["Transfer-Encoding", "chunked"];
    expect(faultOf({ lines: [...HOST, ...chunked, "Content-Length", "3"] })).toMatchObject({ status: 400 });
    expect(faultOf({ lines: [...HOST, ...chunked, "Content-Length", "0"] })).toMatchObject({ status: 400 });
    expect(faultOf({ version: [1, 0], lines: [...HOST, ...chunked] })).toMatchObject({ status: 400 });
  });

  test.each([
    ["100-continue", undefined],
    ["100-Continue", undefined],
    ["100-continue, foo", 417],
    ["100-continue; foo", 417],
    ["foo", 417],
    ["", 417],
  ])("Expect: %j", (expectation, status) => {
    const lines = [...HOST, "Expect", expectation];
    expect(faultOf({ lines })?.status).toBe(status);
    expect(faultOf({ version: [1, 0], lines }), "ignored in HTTP/1.0").toBeUndefined();
  });

  test.each(["GET", "HEAD"])(
    "a %s with a body is refused, and so is one that announces it in chunks",
    (method) => {
      expect(faultOf({ method, lines: [...HOST, "Content-Length", "1"] })).toMatchObject({ status: 400 });
      expect(faultOf({ method, lines: [...HOST, "Transfer-Encoding", "chunked"] })).toMatchObject({
        status: 400,
      });
    },
  );
});

test.each([
  ["websocket", true],
  ["WebSocket", true],
  ["websocket/13", true],
  ["h2c, websocket", true],
  ["h2c", false],
  ["notwebsocket", false],
  [undefined, false],
])("Upgrade: %s asks for a WebSocket: %s", (upgrade, asks) => {
  const lines = upgrade === undefined ? HOST : [...HOST, "Upgrade", upgrade];
  expect(isWebSocketUpgrade(request({ lines }))).toBe(asks);
});
