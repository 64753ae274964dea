import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import { createUpstream } from "../../../src/upstream/upstream.ts";

const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";
const PROCESSING = "HTTP/1.1 102 Processing\r\nServer: x\r\n\r\n";
const HINTS = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
const certificate = selfSignedCertificate();

/** @param more of a task's data */
function http(taskId: string, more: object = {}): string {
  const data = { task_id: taskId, status: "processing", ...more };
  const body = JSON.stringify({ code: 200, msg: "success", data });
  return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

/** An upstream on a bare socket that answers each request by `answer`; it counts its connections. */
async function givenUpstream(answer: (socket: Socket) => void, scheme: "http" | "https" = "http") {
  let connections = 0;
  const serve = (socket: Socket) => {
    connections++;
    let text = "";
    socket.setNoDelay(true).on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      if (!text.includes("\r\n\r\n") || (text.startsWith("POST") && !text.endsWith("{}"))) return;
      text = "";
      answer(socket);
    });
  };
  const server = scheme === "http" ? createServer(serve) : createTlsServer(certificate, serve);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstream = createUpstream({
    url: `${scheme}://localhost:${(server.address() as AddressInfo).port}`,
    apiKey: "secret-of-ours",
    tlsCa: certificate.cert,
    connectTimeoutMs: 5000,
    headersTimeoutMs: 10_000,
    totalTimeoutMs: 10_000,
    keepAliveTimeoutMs: 10_000,
    connections: 1,
    pollConnections: 1,
    idempotent: false,
  });
  onTestFinished(async () => {
    await upstream.close();
    server.close();
  });
  return { upstream, connections: () => connections };
}

const whole = (text: string) => (socket: Socket) => void socket.write(text);
/** One byte at a time, each in a packet of its own. */
const dripping = (text: string) => async (socket: Socket) => {
  for (const char of text) {
    await new Promise((written) => socket.write(char, "latin1", written));
    await new Promise(setImmediate);
  }
};

// Guarantee: a task that was made is bound, however many interim answers come before its answer. RFC 9110 15.2.
test.each([
  ["100", CONTINUE],
  ["100 twice", CONTINUE + CONTINUE],
  ["100, 102, 103 and 100", CONTINUE + PROCESSING + HINTS + CONTINUE],
  ["103 and 100", HINTS + CONTINUE],
  ["100 of HTTP/1.0, without a reason", "HTTP/1.0 100 \r\n\r\n"],
  ["a hundred", CONTINUE.repeat(100)],
  ["none", ""],
])("generations and polls are answered behind %s, on one connection each", async (_, interim) => {
  for (const scheme of ["http", "https"] as const) {
    for (const send of interim.length < 200 ? [whole, dripping] : [whole]) {
      const { upstream, connections } = await givenUpstream(send(interim + http("t1")), scheme);
      for (const requestId of ["r1", "r2", "r3"]) {
        expect(await upstream.generate("/x", "{}", { accountId: "a", requestId })).toMatchObject({
          outcome: "accepted",
          taskId: "t1",
        });
        expect(await upstream.poll("t1", { accountId: "a", requestId })).toMatchObject({
          outcome: "task",
          status: "processing",
        });
      }
      expect(connections()).toBe(2);
    }
  }
});

test("what looks like an interim answer within an answer is part of it", async () => {
  const [head, body] = http("t1", { echo: `a${CONTINUE}b`.replaceAll("\r\n", "..") }).split("HTTP/1.1 100");
  const { upstream } = await givenUpstream(async (socket) => {
    socket.write(head!);
    await new Promise((resolve) => setTimeout(resolve, 30));
    // A chunk of the body that begins like one.
    socket.write(`HTTP/1.1 100${body}`);
  });
  const outcome = await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  expect(outcome).toMatchObject({
    outcome: "accepted",
    data: expect.stringContaining("aHTTP/1.1 100 Continue....b"),
  });
});

// Guarantee: what nobody asked for is no answer to the next request.
test("a connection on which an interim answer comes between two requests is not used again", async () => {
  const { upstream, connections } = await givenUpstream((socket) => {
    socket.write(http("t1"));
    setTimeout(() => socket.write(CONTINUE), 20);
  });
  for (const requestId of ["r1", "r2"]) {
    const outcome = await upstream.generate("/x", "{}", { accountId: "a", requestId });
    expect(outcome).toMatchObject({ outcome: "accepted" });
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  expect(connections()).toBe(2);
});

test.each([
  ["an interim answer without an end", `HTTP/1.1 100 Continue\r\n${"X: y\r\n".repeat(20_000)}`, "unclear"],
  ["101", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "unclear"],
])("%s ends the exchange", async (_, answer, outcome) => {
  const { upstream } = await givenUpstream(whole(answer));
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({ outcome });
});

// Guarantee: what an upstream sends without end is bounded by number, not only by time.
test.each([
  ["100", CONTINUE],
  ["103", HINTS],
])("interim answers %s without end close the connection", async (_, interim) => {
  const { upstream } = await givenUpstream((socket) => {
    const flood = (): void => {
      while (!socket.destroyed && socket.write(interim.repeat(100)));
    };
    socket.on("drain", flood);
    flood();
  });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toEqual({
    outcome: "unclear",
    detail: "more than 1000 interim answers",
  });
});
