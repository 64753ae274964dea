import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { ownNetwork } from "../../../src/webhooks/guarded-agent.ts";
import { createSender, retryAfterS } from "../../../src/webhooks/sender.ts";
import { soon } from "../../support/soon.ts";
import { answered, givenReceiver, givenSender, LOOPBACK, messageTo } from "./receiver.ts";

/** Long enough for a busy machine to answer in, short enough to wait for. */
const SHORT = { ...LOOPBACK, timeoutMs: 400 };

async function resultOf(answer: (socket: Socket, request: string) => void, policy = LOOPBACK) {
  const receiver = await givenReceiver(answer);
  const result = await givenSender(policy).send(messageTo(receiver.url));
  return { result, receiver };
}

test.each([
  ["200 OK", { outcome: "delivered", status: 200, answer: "" }],
  ["201 Created", { outcome: "delivered", status: 201, answer: "" }],
  ["204 No Content", { outcome: "delivered", status: 204, answer: "" }],
  ["299 Fine", { outcome: "delivered", status: 299, answer: "" }],
  ["410 Gone", { outcome: "gone", status: 410, reason: "the receiver answered 410 and wants no more" }],
  ["400 Bad Request", { outcome: "failed", status: 400, reason: "answered 400" }],
  ["404 Not Found", { outcome: "failed", status: 404, reason: "answered 404" }],
  ["500 Oops", { outcome: "failed", status: 500, reason: "answered 500" }],
])("an answer %s is %j", async (head, expected) => {
  const head204 = head.startsWith("204") ? `${head}\r\nX: y\r\n\r\n` : undefined;
  const { result } = await resultOf(
    head204 === undefined
      ? answered(`${head}\r\n`.trimEnd())
      : (socket) => void socket.write(`HTTP/1.1 ${head204}`),
  );
  expect(result).toMatchObject(expected);
});

test.each([300, 301, 302, 303, 307, 308, 399])("a redirect %i is not followed", async (status) => {
  const elsewhere = await givenReceiver(answered("200 OK"));
  const { result } = await resultOf(answered(`${status} Moved\r\nLocation: ${elsewhere.url}`));
  expect(result).toMatchObject({
    outcome: "failed",
    status,
    reason: `answered ${status}: redirects are not followed`,
  });
  expect(elsewhere.connections()).toBe(0);
});

test("the message goes as a POST with its body, its signature and nothing of the gateway's", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  await givenSender().send(messageTo(`${receiver.url}?shop=1&b`));
  const [head = "", body] = receiver.requests[0]!.split("\r\n\r\n");
  const [line, ...headers] = head.split("\r\n");
  expect(line).toBe("POST /hook?shop=1&b HTTP/1.1");
  expect(headers.map((header) => header.toLowerCase()).sort()).toEqual([
    "accept-encoding: identity",
    "connection: keep-alive",
    "content-length: 15",
    "content-type: application/json",
    `host: 127.0.0.1:${receiver.port}`,
    "user-agent: tollgate-webhooks/1",
    "webhook-id: msg_1",
  ]);
  expect(body).toBe('{"type":"test"}');
});

test.each([
  ["hangs", () => undefined, 1],
  ["drips its headers", (socket: Socket) => drip(socket, "HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), 1],
  [
    "sends interim answers without end",
    (socket: Socket) => drip(socket, "", "HTTP/1.1 102 Processing\r\n\r\n"),
    1,
  ],
])("a receiver that %s is given up in time", async (_, answer, connections) => {
  const startedMs = performance.now();
  const { result, receiver } = await resultOf(answer, SHORT);
  expect(result).toEqual({ outcome: "failed", reason: "no answer within 400 ms" });
  expect(performance.now() - startedMs).toBeLessThan(5_000);
  expect(receiver.connections()).toBe(connections);
  await soon(() => expect(receiver.sockets.size).toBe(0));
});

function drip(socket: Socket, first: string, each: string): void {
  socket.write(first);
  const timer = setInterval(() => socket.write(each), 20);
  socket.on("close", () => clearInterval(timer));
}

test.each([
  ["drips", (socket: Socket) => drip(socket, "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n", "a"), /^a+$/],
  [
    "never ends",
    (socket: Socket) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome"),
    /^some$/,
  ],
  [
    "closes early",
    (socket: Socket) => void socket.end("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome"),
    /^some$/,
  ],
])("the status counts, whether or not the body %s", async (_, answer, body) => {
  const startedMs = performance.now();
  const { result, receiver } = await resultOf(answer, SHORT);
  // A body may take 2 s, but no longer than the message has left.
  expect(performance.now() - startedMs).toBeLessThan(2_000);
  expect(result).toEqual({ outcome: "delivered", status: 200, answer: expect.stringMatching(body) });
  await soon(() => expect(receiver.sockets.size).toBe(0));
});

// Guarantee: a receiver that has taken a message does not keep its place for all of the timeout.
test("a body that never ends is not waited for as long as an answer is", async () => {
  const { result } = await resultOf(
    (socket) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome"),
    { ...LOOPBACK, timeoutMs: 3_600_000 },
  );
  expect(result).toEqual({ outcome: "delivered", status: 200, answer: "some" });
});

test.each([
  ["once", "HTTP/1.1 100 Continue\r\n\r\n"],
  ["twice", "HTTP/1.1 100 Continue\r\n\r\n".repeat(2)],
  ["after early hints", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"],
])("a receiver that says `100 Continue` %s, unasked, has got its message", async (_, interim) => {
  const { result } = await resultOf(
    (socket) => void socket.write(`${interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`),
  );
  expect(result).toEqual({ outcome: "delivered", status: 200, answer: "ok" });
});

test("an answer that comes in pieces is read whole, in its order", async () => {
  const { result } = await resultOf((socket) => {
    socket.write("HTTP/1.1 500 Oops\r\nContent-Length: 7\r\n\r\none ");
    setTimeout(() => socket.write("two"), 20);
  });
  expect(result).toMatchObject({ status: 500, answer: "one two" });
});

test("of an endless answer 4 KiB are read, and the connection is closed", async () => {
  let written = 0;
  const flood = (socket: Socket): void => {
    socket.write("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n");
    const more = (): void => {
      const chunk = `10000\r\n${"x".repeat(65_536)}\r\n`;
      written += chunk.length;
      if (!socket.destroyed) socket.write(chunk, more);
    };
    more();
  };
  const { result, receiver } = await resultOf(flood);
  expect(result).toEqual({
    outcome: "failed",
    status: 500,
    answer: "x".repeat(4096),
    reason: "answered 500",
  });
  await soon(() => expect(receiver.sockets.size).toBe(0));
  expect(written).toBeLessThan(20_000_000);
});

test("headers of more than 8 KiB are refused", async () => {
  const { result } = await resultOf(answered(`200 OK\r\nX: ${"x".repeat(9_000)}`));
  expect(result).toEqual({ outcome: "failed", reason: "the headers of the answer are too large" });
});

test.each([
  [
    "closes without an answer",
    (socket: Socket) => void socket.end(),
    "the connection was closed before an answer",
  ],
  ["resets", (socket: Socket) => void socket.resetAndDestroy(), "the connection was closed before an answer"],
  [
    "speaks no HTTP",
    (socket: Socket) => void socket.end("SSH-2.0-OpenSSH_9.2\r\n"),
    "the answer is not HTTP/1.1",
  ],
  [
    "closes in its headers",
    (socket: Socket) => void socket.end("HTTP/1.1 200 OK\r\nX-"),
    "the connection was closed before an answer",
  ],
])("a receiver that %s has failed", async (_, answer, reason) => {
  const { result } = await resultOf(answer);
  expect(result).toEqual({ outcome: "failed", reason });
});

test("a compressed answer is not unpacked", async () => {
  const bomb = gzipSync(Buffer.alloc(10_000_000)).toString("latin1");
  const head = `500 Oops\r\nContent-Encoding: gzip\r\nContent-Length: ${bomb.length}`;
  const { result } = await resultOf(
    (socket) => void socket.write(`HTTP/1.1 ${head}\r\n\r\n${bomb}`, "latin1"),
  );
  expect(result).toEqual({ outcome: "failed", status: 500, answer: "(compressed)", reason: "answered 500" });
});

test("what does not show in an answer is escaped, and a character that was cut is left out", async () => {
  const text = `\u001b[31mred\u202e\n${"ä".repeat(3_000)}`;
  const body = Buffer.from(text).toString("latin1");
  const { result } = await resultOf(
    (socket) =>
      void socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`, "latin1"),
  );
  expect(result.answer).toMatch(/^\\u001b\[31mred\\u202e\n(ä)+$/);
  expect(result.answer!.length).toBeLessThanOrEqual(4096);
});

test.each([
  ["120", 120],
  [" 7 ", 7],
  ["0", 1],
  ["999999999999", 86_400],
  ["Fri, 27 Nov 2026 00:01:00 GMT", 60],
  ["Thu, 26 Nov 2026 00:00:00 GMT", 1],
  ["Fri, 27 Nov 2099 00:00:00 GMT", 86_400],
  ["-5", undefined],
  ["1e9", undefined],
  ["soon", undefined],
  ["2026-11-28", undefined],
  ["Fri, 99 Nov 2026 00:00:00 GMT", undefined],
  ["", undefined],
  [undefined, undefined],
])("Retry-After %j is %j seconds", (header, seconds) => {
  expect(retryAfterS(header, Date.UTC(2026, 10, 27))).toBe(seconds);
});

test("Retry-After of a failed answer comes with the result", async () => {
  const { result } = await resultOf(answered("429 Slow\r\nRetry-After: 30"));
  expect(result).toEqual({
    outcome: "failed",
    status: 429,
    answer: "",
    reason: "answered 429",
    retryAfterS: 30,
  });
});

test("messages to one endpoint share connections, one after the other", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const sender = givenSender();
  for (let i = 0; i < 10; i++) await sender.send(messageTo(receiver.url));
  expect(receiver.connections()).toBeLessThanOrEqual(2);
  await Promise.all(Array.from({ length: 8 }, () => sender.send(messageTo(receiver.url))));
  expect(receiver.requests).toHaveLength(18);
  expect(receiver.connections()).toBeLessThanOrEqual(10);
});

// Guarantee: a live reload interrupts no message, and what an earlier policy has allowed is used no more.
test("a policy that says the same keeps its connections, and another one opens its own", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  let policy = { ...LOOPBACK };
  const sender = givenSender(() => policy);
  const send = () => sender.send(messageTo(receiver.url));
  for (let reload = 0; reload < 10; reload++) {
    policy = { ...policy };
    expect(await send()).toMatchObject({ outcome: "delivered" });
  }
  const before = receiver.connections();
  expect(before).toBeLessThanOrEqual(2);
  const others = [{ allowPorts: [8443] }, { allowNetworks: ["127.0.0.1"] }, { timeoutMs: 9_000 }];
  for (const [at, other] of others.entries()) {
    policy = { ...policy, ...other };
    expect(await send()).toMatchObject({ outcome: "delivered" });
    expect(receiver.connections()).toBe(before + at + 1);
    await soon(() => expect(receiver.sockets.size).toBe(1));
  }
});

test("a slow receiver delays no other message, not even one to its own origin", async () => {
  const held: Socket[] = [];
  const receiver = await givenReceiver((socket, request) => {
    if (request.startsWith("POST /slow")) held.push(socket);
    else answered("200 OK")(socket);
  });
  const sender = givenSender();
  const slow = Array.from({ length: 20 }, () =>
    sender.send(messageTo(receiver.url.replace("/hook", "/slow"))),
  );
  await soon(() => expect(held).toHaveLength(20));
  expect(await sender.send(messageTo(receiver.url))).toMatchObject({ outcome: "delivered" });
  for (const socket of held) answered("200 OK")(socket);
  expect((await Promise.all(slow)).map(({ outcome }) => outcome)).toEqual(Array(20).fill("delivered"));
});

// A gateway that had stood still sent what another one was sending by then.
test("a message whose time was over while the process stood still is not sent", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const sender = givenSender(SHORT);
  // In a timer: what the kernel has comes before further timers.
  const { promise, resolve } = Promise.withResolvers<ReturnType<typeof sender.send>>();
  setTimeout(() => {
    const sending = sender.send(messageTo(receiver.url));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SHORT.timeoutMs + 100);
    resolve(sending);
  });
  expect(await promise).toMatchObject({ outcome: "failed", reason: "no answer within 400 ms" });
  await soon(() => expect(receiver.sockets.size).toBe(0));
  expect(receiver.requests).toEqual([]);
});

test("a message whose time was over before it had a connection is not sent", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const opening = Promise.withResolvers<void>();
  const network = ownNetwork();
  const sender = givenSender(SHORT, {
    ...network,
    async connect(...given) {
      await opening.promise;
      return network.connect(...given);
    },
  });
  const sent = await sender.send(messageTo(receiver.url));
  expect(sent).toEqual({ outcome: "failed", reason: "no answer within 400 ms" });
  opening.resolve();
  await soon(() => expect(receiver.connections()).toBe(1));
  expect(await sender.send(messageTo(receiver.url))).toMatchObject({ outcome: "delivered" });
  expect(receiver.requests).toHaveLength(1);
});

test("a sender that is closed ends what is in flight, also by an earlier policy, and leaves no connection", async () => {
  const receiver = await givenReceiver(() => undefined);
  let policy = { ...LOOPBACK, timeoutMs: 3_600_000 };
  const sender = createSender(() => policy);
  const sent = [sender.send(messageTo(receiver.url))];
  policy = { ...policy, allowPorts: [8443] };
  sent.push(sender.send(messageTo(receiver.url)));
  await soon(() => expect(receiver.requests).toHaveLength(2));
  await sender.close();
  const stopped = { outcome: "failed", reason: "the gateway stops" };
  expect(await Promise.all(sent)).toEqual([stopped, stopped]);
  expect(await sender.send(messageTo(receiver.url))).toEqual(stopped);
  expect(receiver.connections()).toBe(2);
  await soon(() => expect(receiver.sockets.size).toBe(0));
});
