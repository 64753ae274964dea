import type net from "node:net";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { ANSWER_BYTES_MAX } from "../../../src/upstream/upload-request.ts";
import { holdPort } from "../../support/held-port.ts";
import { imageOfSize, tinyImage } from "../../support/images.ts";
import {
  closeStage,
  type Gateway,
  givenGateway,
  givenRawUpstream,
  givenUpstream,
  imageForm,
  openPost,
  post,
  UPLOADED,
  until,
} from "./upload-stage.ts";

afterEach(closeStage);

const small = imageForm(tinyImage("image/png"));
const large = imageForm(imageOfSize("image/png", 8_000_000));
/** Enough to open a connection upstream. */
const opening = imageForm(imageOfSize("image/png", 100_000));
const success = JSON.stringify(UPLOADED);

/** An upstream that says `reply` once it has read so much, then does `after`. */
async function givenReply(reply: string, { readBytes = 1, after = (_: net.Socket) => {} } = {}) {
  let sockets = 0;
  const upstream = await givenRawUpstream((socket) => {
    sockets++;
    socket.on("close", () => sockets--);
    let bytes = 0;
    let done = false;
    socket.on("data", (chunk) => {
      bytes += chunk.length;
      if (done || bytes < readBytes) return;
      done = true;
      socket.write(reply, () => after(socket));
    });
  });
  return { ...upstream, sockets: () => sockets };
}

function http(status: string, body: string, headers = ""): string {
  return `HTTP/1.1 ${status}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;
}

describe("an upstream that answers before the form is complete", () => {
  test.each([
    [
      "401",
      http("401 Unauthorized", '{"code":401,"error":"Invalid API key"}'),
      { outcome: "refused_gateway" },
    ],
    [
      "413",
      http("413 Too Large", '{"code":413,"error":"too large"}'),
      { outcome: "upstream_refused", status: 413 },
    ],
    [
      "429",
      http("429 Slow", "", "Retry-After: 20\r\n"),
      { outcome: "upstream_rate_limited", retryAfterSeconds: 20 },
    ],
    ["503", http("503 No", "{}"), { outcome: "upstream_failed" }],
    ["402 in the body", http("200 OK", '{"code":402,"msg":"no credits"}'), { outcome: "refused_gateway" }],
    ["success", http("200 OK", success), { outcome: "upstream_failed" }],
  ])("with %s settles at once and breaks the upload off", async (_, reply, expected) => {
    const upstream = await givenReply(reply);
    const gateway = await givenGateway(upstream.url);
    const outcome = gateway.nextOutcome();
    const req = openPost(gateway);
    req.write(opening.subarray(0, -40)); // The client does not go on before it has its answer.
    expect(await outcome).toMatchObject(expected);
    await until(() => upstream.sockets() === 0);
    req.destroy();
  });

  test.each(["end", "destroySoon", "resetAndDestroy"] as const)(
    "and closes the connection by %s while bytes are on the way gives one outcome",
    async (close) => {
      const reply = http("413 Too Large", '{"code":413,"error":"too large"}', "Connection: close\r\n");
      for (let i = 0; i < 20; i++) {
        const upstream = await givenReply(reply, { readBytes: 100_000, after: (socket) => socket[close]() });
        const gateway = await givenGateway(upstream.url);
        const { outcome } = await post(gateway, large);
        // A reset may overtake the answer; an orderly end may not.
        expect(close === "end" ? ["upstream_refused"] : ["upstream_refused", "upstream_failed"]).toContain(
          outcome,
        );
        expect(gateway.outcomes).toHaveLength(1);
      }
    },
  );
});

// Guarantee: what the upstream says of our credential reaches neither customer nor log.
test("an upstream that repeats our credential in its words is not believed so far", async () => {
  const reply = http(
    "400 Bad Request",
    '{"code":400,"error":"bad key upstream\\/secret or upstream/secret"}',
  );
  const upstream = await givenReply(reply);
  const gateway = await givenGateway(upstream.url, { apiKey: "upstream/secret" });
  expect(await post(gateway, small)).toMatchObject({
    outcome: "upstream_refused",
    text: "bad key [redacted] or [redacted]",
  });
});

describe("an upstream that fails", () => {
  test("to be there: refused connections and unknown names", async () => {
    const { port, release } = await holdPort();
    onTestFinished(release);
    for (const url of [`http://127.0.0.1:${port}`, `http://[::1]:${port}`, "http://upstream.invalid"]) {
      const gateway = await givenGateway(url);
      expect(await post(gateway, small)).toMatchObject({
        outcome: "upstream_failed",
        detail: expect.stringMatching(/\w/),
      });
    }
  });

  test.each([
    ["a reset", "", (socket: net.Socket) => socket.resetAndDestroy()],
    ["an end without an answer", "", (socket: net.Socket) => socket.end()],
    ["a head cut short", "HTTP/1.1 200 OK\r\nContent-Le", (socket: net.Socket) => socket.end()],
    [
      "a body cut short",
      `HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n${success}`,
      (socket: net.Socket) => socket.end(),
    ],
    [
      "a chunked body cut short",
      `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${success.length.toString(16)}\r\n${success}\r\n`,
      (socket: net.Socket) => socket.end(),
    ],
    ["garbage", "\0\0\0 what?\r\n\r\n", undefined],
    ["an endless head", `HTTP/1.1 200 OK\r\nX: ${"a".repeat(100_000)}\r\n`, undefined],
    [
      "an upgrade",
      "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
      undefined,
    ],
    ["an answer too long", http("200 OK", success + " ".repeat(ANSWER_BYTES_MAX)), undefined],
    ["an endless answer", `HTTP/1.1 200 OK\r\n\r\n${" ".repeat(ANSWER_BYTES_MAX + 1)}`, undefined],
  ])("by %s", async (_, reply, after) => {
    for (const [form, readBytes] of [
      [small, small.length],
      [large, 1],
      [large, 4_000_000],
    ] as const) {
      const upstream = await givenReply(reply, { readBytes, ...(after ? { after } : {}) });
      const gateway = await givenGateway(upstream.url);
      expect((await post(gateway, form)).outcome).toBe("upstream_failed");
      expect(gateway.outcomes).toHaveLength(1);
      await until(() => upstream.sockets() === 0);
    }
  });

  test.each([
    ["a body in gzip", http("200 OK", "\x1f\x8b\b\0", "Content-Encoding: gzip\r\n")],
    ["500", http("500 No", '{"code":500}')],
  ])("by answering %s", async (_, reply) => {
    const upstream = await givenReply(reply, { readBytes: small.length });
    const gateway = await givenGateway(upstream.url);
    expect((await post(gateway, small)).outcome).toBe("upstream_failed");
  });
});

test("a redirect says that the upstream's address is wrong, and is not followed", async () => {
  const redirect = http("302 Found", "", "Location: http://127.0.0.1:1/\r\n");
  const upstream = await givenReply(redirect, { readBytes: small.length });
  const gateway = await givenGateway(upstream.url);
  expect((await post(gateway, small)).outcome).toBe("refused_gateway");
});

describe("an upstream that answers well in an unusual way", () => {
  test.each([
    ["until the connection closes", `HTTP/1.1 200 OK\r\n\r\n${success}`],
    ["after hints", `HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n${http("200 OK", success)}`],
    ["without being asked to go on", `HTTP/1.1 100 Continue\r\n\r\n${http("200 OK", success)}`],
    ["with 100 twice", `${"HTTP/1.1 100 Continue\r\n\r\n".repeat(2)}${http("200 OK", success)}`],
    [
      "with 100, 102 and 103",
      `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n${http("200 OK", success)}`,
    ],
    ["with 201", http("201 Created", success)],
    ["with 202", http("202 Accepted", success)],
    ["with as much as may be", http("200 OK", success + " ".repeat(ANSWER_BYTES_MAX - success.length))],
    ["in HTTP/1.0", `HTTP/1.0 200 OK\r\n\r\n${success}`],
  ])("%s", async (_, reply) => {
    const upstream = await givenRawUpstream((socket) => {
      let text = "";
      socket.on("data", (chunk) => {
        text = (text + chunk.toString("latin1")).slice(-20);
        if (text.endsWith("--\r\n\r\n0\r\n\r\n")) socket.end(reply);
      });
    });
    const gateway = await givenGateway(upstream.url);
    expect((await post(gateway, small)).outcome).toBe("answered");
  });
});

describe("an upstream that hangs", () => {
  const hangs: [string, string, Buffer, Partial<Parameters<typeof givenGateway>[1]>, string][] = [
    ["without an answer", "", small, { headersTimeoutMs: 60 }, "upstream_timeout"],
    ["within its answer's head", "HTTP/1.1 200", small, { headersTimeoutMs: 60 }, "upstream_timeout"],
    [
      "within its answer",
      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
      small,
      { headersTimeoutMs: 60 },
      "upstream_timeout",
    ],
    [
      "and lets nothing through",
      "",
      large,
      { totalTimeoutMs: 2500, idleTimeoutMs: 1000 },
      "upstream_timeout",
    ],
  ];

  test.each(hangs)("%s", async (_, reply, form, timeouts, outcome) => {
    const upstream = await givenReply(reply, { after: (socket) => socket.pause() });
    const gateway = await givenGateway(upstream.url, timeouts);
    expect((await post(gateway, form)).outcome).toBe(outcome);
    expect(gateway.outcomes).toHaveLength(1);
  });

  test("but drips: the deadline is for the whole answer", async () => {
    const upstream = await givenReply("HTTP/1.1 200 OK\r\n\r\n", {
      after: (socket) => {
        const drip = setInterval(() => socket.write(" "), 5);
        socket.on("close", () => clearInterval(drip));
      },
    });
    const gateway = await givenGateway(upstream.url, { headersTimeoutMs: 100 });
    expect((await post(gateway, small)).outcome).toBe("upstream_timeout");
    await until(() => upstream.sockets() === 0);
  });

  test("on all connections: a client that leaves while its upload waits for one sends nothing later", async () => {
    const upstream = await givenUpstream(() => {});
    const gateway = await givenGateway(upstream.url, { connections: 1, headersTimeoutMs: 2000 });
    const first = gateway.nextOutcome();
    const one = openPost(gateway);
    one.end(small);
    await until(() => upstream.opened() === 1);
    const req = openPost(gateway);
    req.write(small.subarray(0, -30));
    await until(() => gateway.reads() === 2);
    req.destroy();
    expect(await first).toEqual({ outcome: "client_gone" });
    expect((await nextOutcome(gateway, 2)).outcome).toBe("upstream_timeout");
    await until(async () => (await upstream.connected()) === 0);
    expect(upstream.received).toHaveLength(1);
  });

  test("before the connection stands: the connect timeout ends it", async () => {
    // A TLS handshake that nobody answers is a connection that does not come to stand, on every system.
    const upstream = await givenRawUpstream(() => {});
    const gateway = await givenGateway(upstream.url.replace("http:", "https:"), { connectTimeoutMs: 60 });
    expect(await post(gateway, small)).toEqual({ outcome: "upstream_failed", detail: "connect timeout" });
  });
});

// Guarantee: a client that hardly sends takes none of the connections that others need.
test("an upload opens a connection upstream once 64 KiB of its file are there, or its end", async () => {
  const upstream = await givenUpstream();
  const gateway = await givenGateway(upstream.url);
  const slow = openPost(gateway);
  slow.write(opening.subarray(0, 60_000));
  await until(() => gateway.reads() === 1);
  // A whole upload after it: what the first one would have opened would be there by now.
  expect((await post(gateway, small)).outcome).toBe("answered");
  expect(upstream.opened()).toBe(1);
  const outcome = gateway.nextOutcome();
  slow.end(opening.subarray(60_000));
  expect((await outcome).outcome).toBe("answered");
  expect(upstream.received.map(({ complete }) => complete)).toEqual([true, true]);
});

test("a connection that the connect timeout watched is left alone once it stands", async () => {
  const upstream = await givenUpstream((req, res) => {
    req.on("end", () => setTimeout(() => res.end(success), 2000));
  });
  const gateway = await givenGateway(upstream.url, { connectTimeoutMs: 1000 });
  expect((await post(gateway, small)).outcome).toBe("answered");
});

test("uploads of every kind at once leave no connection and one outcome each", async () => {
  let whim = 0;
  const upstream = await givenUpstream((req, res) => {
    whim++;
    if (whim % 4 === 0) req.socket.destroy();
    else if (whim % 4 === 1) res.writeHead(429).end();
    else req.on("end", () => res.end(success));
  });
  const gateway = await givenGateway(upstream.url, { connections: 5 });
  const forms = [
    small,
    large.subarray(0, 500_000),
    large.subarray(0, 70),
    imageForm(imageOfSize("image/gif", 200_000)),
  ];
  await Promise.all(
    Array.from({ length: 60 }, async (_, i) => {
      const req = openPost(gateway);
      if (i % 5 === 4) req.write(forms[1], () => req.destroy());
      else req.end(forms[i % 4]);
      await new Promise((resolve) => req.on("close", resolve).on("response", (res) => res.resume()));
    }),
  );
  await until(() => gateway.outcomes.length === gateway.requests.length);
  gateway.tunnel.close();
  await until(async () => (await upstream.connected()) === 0);
});

async function nextOutcome(gateway: Gateway, count: number) {
  await until(() => gateway.outcomes.length >= count);
  return gateway.outcomes[count - 1]!;
}
