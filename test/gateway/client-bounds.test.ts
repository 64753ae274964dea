import { randomUUID } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { connect, type Socket } from "node:net";
import { Redis } from "ioredis";
import { beforeEach, describe, expect, inject, onTestFinished, test } from "vitest";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, givenGateway, limitsOf, send, type TestGateway, until } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/processes.ts";
import {
  BOAT,
  expectNobody,
  expectUnconsumed,
  givenTightKey,
  head,
  rawClient,
  rawGeneration,
} from "./spec-stage.ts";

const CREDITS = (...more: string[]) => head("GET /api/v1/credits HTTP/1.1", "Host: a", ...more);
const bearer = (key: string) => `Authorization: Bearer ${key}`;

/** An upstream that answers a generation only when it is told to, and whose tasks are large. */
async function givenHeldUpstream() {
  const held: ServerResponse[] = [];
  let open = false;
  let silent = false;
  const answer = (res: ServerResponse) =>
    void res.end(JSON.stringify({ code: 200, msg: "success", data: { task_id: `held-${randomUUID()}` } }));
  const server = createServer((req, res) => {
    if (req.method === "POST") {
      req.resume();
      if (open) answer(res);
      else held.push(res);
      return;
    }
    if (silent) {
      held.push(res);
      return;
    }
    const note = "x".repeat(60_000);
    const data = { task_id: req.url?.split("/").at(-1), status: "processing", note };
    res.end(JSON.stringify({ code: 200, msg: "success", data }));
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    held,
    /** Polls get no answer from now on. */
    silence(): void {
      silent = true;
    },
    release(): void {
      open = true;
      for (const res of held.splice(0)) answer(res);
    },
  };
}

let upstream: Awaited<ReturnType<typeof givenHeldUpstream>>;
beforeEach(async () => {
  upstream = await givenHeldUpstream();
});

async function givenBounded(server: Partial<TestGateway["config"]["server"]> = {}) {
  const gateway = await givenGateway({ config: { server }, upstreamUrl: upstream.url });
  onTestFinished(async () => {
    upstream.release();
    await gateway.stop();
  });
  return gateway;
}

async function client(gateway: TestGateway) {
  const raw = await rawClient(gateway.url);
  onTestFinished(() => raw.end());
  return raw;
}

/** A connection from a loopback address of its own, that says nothing unless it is told to. */
async function socketFrom(gateway: { url: string }, localAddress = "127.0.0.1"): Promise<Socket> {
  const { port } = new URL(gateway.url);
  const socket = connect({ host: "127.0.0.1", port: Number(port), localAddress });
  socket.on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  await new Promise((resolve) => socket.once("connect", resolve));
  return socket;
}

async function number(gateway: TestGateway, name: string): Promise<number> {
  return Number((await gateway.metric(`${name} `))[0]?.split(" ").at(-1));
}
const overloads = (gateway: TestGateway, bound: string) =>
  number(gateway, `tollgate_overload_total{bound="${bound}"}`);
const openConnections = (gateway: TestGateway) => number(gateway, "tollgate_connections");

describe("pipelined requests", () => {
  test("of one connection at most 8 are worked on at a time; all are answered, in their order", async () => {
    const gateway = await givenBounded();
    const { key } = await gateway.givenKey();
    const raw = await client(gateway);
    raw.write(rawGeneration(key).repeat(20) + CREDITS());
    await until(() => upstream.held.length >= 8, "eight generations");
    // Everything that was sent has been read by then, for one connection is served after the other.
    expectStatus(await gateway.request("GET", "/api/v1/credits", { key }), 200);
    expect(await number(gateway, "tollgate_requests_in_flight")).toBe(8);
    expect(upstream.held).toHaveLength(8);
    upstream.release();
    const ids = new Set();
    for (let n = 0; n < 20; n++) {
      const reply = await raw.answer();
      expectStatus(reply, 200);
      ids.add(reply.body.data.task_id);
    }
    expect(ids.size).toBe(20);
    expectStatus(await raw.answer(), 401);
    raw.write(CREDITS(bearer(key)));
    expectStatus(await raw.answer(), 200);
  });

  test("a request whose body is not whole waits for its turn with the others, and is then read", async () => {
    const gateway = await givenBounded();
    const { key } = await gateway.givenKey();
    const raw = await client(gateway);
    const last = rawGeneration(key);
    raw.write(rawGeneration(key).repeat(11) + last.slice(0, -5));
    await until(() => upstream.held.length >= 8, "eight generations");
    upstream.release();
    for (let n = 0; n < 11; n++) expect((await raw.answer()).status).toBe(200);
    raw.write(last.slice(-5));
    expectStatus(await raw.answer(), 200);
  });

  test("garbage behind requests that wait is answered behind all of them", async () => {
    const gateway = await givenBounded();
    const { key } = await gateway.givenKey();
    const raw = await client(gateway);
    raw.write(`${rawGeneration(key).repeat(12)}GARBAGE\r\n\r\n`);
    await until(() => upstream.held.length >= 8, "eight generations");
    upstream.release();
    for (let n = 0; n < 12; n++) expect((await raw.answer()).status).toBe(200);
    expectStatus(await raw.answer(), 400);
    await raw.closed();
  });

  test("a connection that sends more than a hundred ahead is ended, and nothing of it stays", async () => {
    const gateway = await givenBounded();
    for (const request of [CREDITS(), CREDITS("Authorization: Bearer sk_unknown")]) {
      const before = await overloads(gateway, "pipelined_requests");
      const raw = await client(gateway);
      raw.write(request.repeat(500));
      await raw.closed();
      expect(await overloads(gateway, "pipelined_requests")).toBe(before + 1);
    }
    await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 0, "all to end");
    expect(await openConnections(gateway)).toBe(0);
    const polite = await client(gateway);
    polite.write(CREDITS().repeat(60));
    for (let n = 0; n < 60; n++) expect((await polite.answer()).status).toBe(401);
  });
});

describe("pipelined requests of all connections", () => {
  // Guarantee: many connections together hold no more requests that wait than the gateway works on.
  test("wait as many as may be in flight; the connection that sends one more is ended", async () => {
    const gateway = await givenBounded({ maxRequestsInFlight: 20 });
    const { key } = await gateway.givenKey();
    const first = await client(gateway);
    first.write(rawGeneration(key).repeat(8 + 15));
    await until(() => upstream.held.length === 8, "eight generations");
    const second = await client(gateway);
    second.write(rawGeneration(key).repeat(8 + 15));
    await second.closed();
    expect(await overloads(gateway, "pipelined_requests")).toBe(1);
    upstream.release();
    for (let n = 0; n < 23; n++) expect((await first.answer()).status).toBe(200);
  });
});

describe("requests in flight", () => {
  test("above the bound a request is 503 with Retry-After at once, costs nothing, and is taken when there is room", async () => {
    const gateway = await givenBounded({ maxRequestsInFlight: 2 });
    const issued = await givenTightKey(gateway);
    const { key } = await gateway.givenKey();
    const busy = await client(gateway);
    busy.write(rawGeneration(key).repeat(2));
    await until(() => upstream.held.length === 2, "both");
    const raw = await client(gateway);
    raw.write(rawGeneration(issued.key));
    const reply = await raw.answer();
    expectStatus(reply, 503);
    expect(reply.body).toMatchObject({ code: 503, retryAfter: 1 });
    expectNobody(reply);
    expect(await overloads(gateway, "requests_in_flight")).toBe(1);
    upstream.release();
    for (let n = 0; n < 2; n++) expect((await busy.answer()).status).toBe(200);
    await expectUnconsumed(gateway, issued);
  });
});

describe("requests in flight of one key", () => {
  async function expectOthersServed(gateway: TestGateway) {
    const { key } = await gateway.givenKey();
    expectStatus(await gateway.request("GET", "/api/v1/credits", { key }), 200);
  }

  test("are a quarter of all while their bodies do not come; the next one is 503, and other keys are served", async () => {
    const gateway = await givenBounded({ maxRequestsInFlight: 32, maxBodyBytesInFlight: 1024 * 1024 });
    const { key } = await gateway.givenKey({ credits: 0 });
    const lines = [bearer(key), "Content-Type: application/json", "Transfer-Encoding: chunked"];
    const clients = await Promise.all(Array.from({ length: 40 }, () => client(gateway)));
    // One after the other: together they might meet the bound of all requests first.
    for (const [at, raw] of clients.entries()) {
      raw.write(head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", ...lines));
      if (at < 8)
        await until(
          async () => (await number(gateway, "tollgate_requests_in_flight")) === at + 1,
          "it to begin",
        );
      else expect((await raw.answer()).status).toBe(503);
    }
    expect(await overloads(gateway, "body_bytes_per_key")).toBe(32);
    expect(await number(gateway, "tollgate_requests_in_flight")).toBe(8);
    await expectOthersServed(gateway);
    for (const raw of clients) raw.end();
    await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 0, "all to end");
  });

  test("are a quarter of all while the upstream does not tell of a task; the next poll is 429, and other keys are served", async () => {
    const gateway = await givenBounded({ maxRequestsInFlight: 16 });
    const { key } = await gateway.givenKey();
    upstream.release();
    const made = await gateway.request("POST", "/api/v1/gen2/text-to-video", { key, body: BOAT });
    upstream.silence();
    const poll = head(`GET /api/v1/tasks/${made.body.data.task_id} HTTP/1.1`, "Host: a", bearer(key));
    const raw = await Promise.all(Array.from({ length: 16 }, () => client(gateway)));
    for (const each of raw.slice(0, 4)) each.write(poll);
    await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 4, "four polls");
    for (const each of raw.slice(4)) {
      each.write(poll);
      const reply = await each.answer();
      expectStatus(reply, 429);
      expect(reply.body).toMatchObject({ code: 2007, retryAfter: 1 });
    }
    await expectOthersServed(gateway);
    const again = await gateway.request("POST", "/api/v1/gen2/text-to-video", { key, body: BOAT });
    expectStatus(again, 200, "generations are not concerned");
  });
});

describe("clients that do not read", () => {
  async function givenTask(gateway: TestGateway) {
    const { key } = await gateway.givenKey();
    upstream.release();
    const made = await gateway.request("POST", "/api/v1/gen2/text-to-video", { key, body: BOAT });
    return head(`GET /api/v1/tasks/${made.body.data.task_id} HTTP/1.1`, "Host: a", bearer(key));
  }

  test("lose their connection after server.write_timeout, with all that waits on it", async () => {
    const gateway = await givenBounded({ writeTimeoutMs: 200 });
    const poll = await givenTask(gateway);
    const stuck = await socketFrom(gateway);
    stuck.pause();
    stuck.write(poll.repeat(90));
    await until(async () => (await overloads(gateway, "write_timeout")) === 1, "its end");
    await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 0, "all to end");
    const slow = await client(gateway);
    slow.write(poll.repeat(12));
    for (let n = 0; n < 12; n++) expect((await slow.answer()).status).toBe(200);
  });

  test("lose it at once when their answers fill the memory for all, the one that holds the most first", async () => {
    const gateway = await givenBounded({ maxUnreadBytes: 150_000 });
    const poll = await givenTask(gateway);
    const reader = await client(gateway);
    reader.write(poll);
    expectStatus(await reader.answer(), 200);
    const stuck = await socketFrom(gateway);
    stuck.pause();
    stuck.write(poll.repeat(90));
    await until(async () => (await overloads(gateway, "unread_answers")) === 1, "its end");
    for (let n = 0; n < 3; n++) {
      reader.write(poll);
      expectStatus(await reader.answer(), 200);
    }
    expect(await overloads(gateway, "unread_answers")).toBe(1);
  });

  test("an answer that takes longer than server.write_timeout to be made is not cut off", async () => {
    const gateway = await givenBounded({ writeTimeoutMs: 100 });
    const { key } = await gateway.givenKey();
    const raw = await client(gateway);
    raw.write(rawGeneration(key));
    await until(() => upstream.held.length === 1, "the generation");
    const since = performance.now();
    await until(() => performance.now() - since > 300, "the timeout to be over");
    upstream.release();
    expectStatus(await raw.answer(), 200);
  });
});

describe("a client that closes its sending side", () => {
  // Guarantee: a customer who is charged is told so.
  test.each([1, 2, 12])("behind %d requests gets every answer, and then the end", async (count) => {
    const gateway = await givenBounded();
    const { key } = await gateway.givenKey();
    const raw = await client(gateway);
    raw.socket.end(rawGeneration(key).repeat(count));
    await until(() => upstream.held.length === Math.min(count, 8), "the generations");
    upstream.release();
    for (let n = 0; n < count; n++) expect((await raw.answer()).status).toBe(200);
    await raw.closed();
    await until(async () => (await openConnections(gateway)) === 0, "the connection to be gone");
  });

  test("without a request, or between two, is closed at once; in the midst of one it is 400", async () => {
    const gateway = await givenBounded();
    const silent = await client(gateway);
    silent.socket.end();
    await silent.closed();
    const idle = await client(gateway);
    idle.write(CREDITS());
    expectStatus(await idle.answer(), 401);
    idle.socket.end();
    await idle.closed();
    const half = await client(gateway);
    half.socket.end("GET /api/v1/credits HTTP/1.1\r\nHost");
    expectStatus(await half.answer(), 400);
    await half.closed();
  });
});

describe("connections", () => {
  test("of one address: the longest idle one makes room; where none is idle, the new one is 503", async () => {
    const gateway = await givenBounded({ maxConnectionsPerAddress: 2 });
    const { key } = await gateway.givenKey();
    const [first, second] = [await client(gateway), await client(gateway)];
    for (const raw of [second, first]) {
      raw.write(CREDITS());
      expectStatus(await raw.answer(), 401);
    }
    const third = await client(gateway);
    await second.closed();
    for (const raw of [first, third]) raw.write(rawGeneration(key));
    await until(() => upstream.held.length === 2, "both generations");
    const fourth = await client(gateway);
    fourth.write(rawGeneration(key));
    const reply = await fourth.answer();
    expectStatus(reply, 503);
    expect(reply.headers.get("retry-after")).toBe("1");
    expect(reply.headers.get("connection")).toBe("close");
    await fourth.closed();
    // Another address is not concerned.
    const other = await socketFrom(gateway, "127.0.0.9");
    other.write(CREDITS());
    await until(() => other.bytesRead > 0, "an answer");
    upstream.release();
    for (const raw of [first, third]) expect((await raw.answer()).status).toBe(200);
    expect(await overloads(gateway, "connections_per_address")).toBe(2);
  });

  test("in total: the address that holds the most makes room, and honest ones are served meanwhile", async () => {
    const gateway = await givenBounded({ maxConnections: 10, maxConnectionsPerAddress: 9 });
    const { key } = await gateway.givenKey();
    const honest = await client(gateway);
    honest.write(CREDITS(bearer(key)));
    expectStatus(await honest.answer(), 200);
    // Two addresses: one alone meets its own limit first.
    for (let n = 0; n < 40; n++) await socketFrom(gateway, n % 2 === 0 ? "127.0.0.8" : "127.0.0.9");
    expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
    await until(async () => (await overloads(gateway, "connections")) === 31, "the limit to be reached");
    const late = await client(gateway);
    for (const raw of [honest, late]) {
      raw.write(CREDITS(bearer(key)));
      expectStatus(await raw.answer(), 200);
    }
    await until(async () => (await openConnections(gateway)) <= 10, "the others to be closed");
  });

  // Guarantee: requests that are never finished lock nobody out, neither before nor after they are refused.
  test.each(["without a key", "with a key"])(
    "on which a body is promised and never sent, %s, make room where none is idle",
    async (who) => {
      const gateway = await givenBounded({ maxConnections: 10, maxConnectionsPerAddress: 9 });
      const { key } = await gateway.givenKey();
      const auth = who === "with a key" ? [bearer((await gateway.givenKey({ credits: 0 })).key)] : [];
      const lines = ["Content-Type: application/json", "Content-Length: 100", ...auth];
      const half = head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", ...lines);
      const hostile = await Promise.all(Array.from({ length: 9 }, () => socketFrom(gateway, "127.0.0.8")));
      for (const socket of hostile) socket.write(half);
      if (auth.length === 0) await until(() => hostile.every((socket) => socket.bytesRead > 0), "each 401");
      else
        await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 9, "each begun");
      for (const address of ["127.0.0.2", "127.0.0.3", "127.0.0.4"]) {
        const honest = await socketFrom(gateway, address);
        let answer = "";
        honest.on("data", (text) => {
          answer += text;
        });
        honest.write(CREDITS(bearer(key)));
        await until(() => answer !== "", "an answer");
        expect(answer.slice(0, 12)).toBe("HTTP/1.1 200");
      }
    },
  );

  // Guarantee: the public port never takes the descriptors of the admin port, of Redis and of the upstream.
  test("idle ones of one address leave descriptors for all else", async () => {
    upstream.release();
    const redisUrl = inject("redisUrl");
    const gateway = await startGatewayProcess({ redisUrl, upstreamUrl: upstream.url, openFiles: 300 });
    onTestFinished(() => gateway.stop());
    for (let n = 0; n < 280; n++) await socketFrom(gateway, "127.0.0.8");
    expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
    const redis = new Redis(redisUrl);
    onTestFinished(() => redis.disconnect());
    const { key } = await issueKey(oneNode(redis), { credits: 100 }, cliActor());
    const made = await send(gateway.url, "POST", "/api/v1/gen2/text-to-video", { key, body: BOAT });
    expectStatus(made, 200);
  });

  test("on the admin port: the longest idle one makes room, so that probes always find some", async () => {
    const gateway = await givenBounded();
    for (let n = 0; n < 100; n++) await socketFrom({ url: gateway.adminUrl });
    expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
  });

  // Guarantee: nobody who reaches the admin port makes the process render pages for nobody, or keeps probes out.
  test("on the admin port that send many requests ahead and read nothing are ended, and probes are answered", async () => {
    const gateway = await givenBounded();
    const ahead = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    const stuck = await Promise.all(Array.from({ length: 64 }, () => socketFrom({ url: gateway.adminUrl })));
    for (const socket of stuck) socket.pause().write(ahead);
    expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
    let received = "";
    for (const socket of stuck) {
      socket.on("data", (text) => {
        received += text;
      });
    }
    await until(() => stuck.every(({ closed }) => closed), "their end");
    expect(received.split("HTTP/1.1 200").length - 1).toBeLessThanOrEqual(64 * 8);
  });

  test("from a trusted proxy are exempt from the limit per address", async () => {
    const gateway = await givenBounded({ maxConnectionsPerAddress: 1, trustProxy: ["127.0.0.0/8"] });
    const clients = await Promise.all([client(gateway), client(gateway), client(gateway)]);
    for (const raw of clients) {
      raw.write(CREDITS());
      expectStatus(await raw.answer(), 401);
    }
    expect(await overloads(gateway, "connections_per_address")).toBe(0);
  });
});

describe("bodies in chunks of one byte", () => {
  const CHUNKED = "Transfer-Encoding: chunked";
  const PIECES = "1\r\na\r\n".repeat(10_000);
  /** As many of the smallest chunks as fit into one read of Node. */
  const PER_READ_MAX = Math.ceil(65_536 / 6);
  const readRests = (gateway: TestGateway) => number(gateway, "tollgate_read_rests_total");

  // Guarantee: what nobody reads takes no memory. Each chunk is an object of some 100 bytes.
  test("no more of them is taken than came with their head, until somebody reads them", async () => {
    const gateway = await givenBounded();
    const taken: number[] = [];
    const answered = (message: unknown): void => {
      const { request, server } = message as { request: IncomingMessage; server: { address(): AddressInfo } };
      if (String(server.address().port) !== new URL(gateway.url).port) return;
      taken.push(request.readableLength);
    };
    subscribe("http.server.response.finish", answered);
    onTestFinished(() => void unsubscribe("http.server.response.finish", answered));
    const socket = await socketFrom(gateway);
    socket.write(head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", CHUNKED) + PIECES.repeat(10));
    await until(() => taken.length === 1, "its answer");
    expect(taken[0]).toBeGreaterThan(0);
    expect(taken[0]).toBeLessThanOrEqual(PER_READ_MAX);
  });

  // Guarantee: a client that sends more than is read sees why it was refused.
  test("behind the last one that is read the client gets its answer and the end, not a reset", async () => {
    const gateway = await givenBounded();
    const socket = await socketFrom(gateway);
    const seen: string[] = [];
    socket.on("data", (text) => void seen.push(String(text).slice(0, 12)));
    for (const event of ["end", "error"]) socket.on(event, () => void seen.push(event));
    socket.write(head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", CHUNKED) + PIECES.repeat(10));
    await once(socket, "close");
    expect(seen).toEqual(["HTTP/1.1 401", "end"]);
    await until(async () => (await openConnections(gateway)) === 0, "the connection to be gone");
  });

  // Guarantee: small pieces cost an address the same, be they refused, of JSON or of an upload.
  test.each(["an upload", "a JSON body"])("of %s make their address rest", async (what) => {
    const gateway = await givenBounded();
    const { key } = await gateway.givenKey();
    const form =
      '--b\r\nContent-Disposition: form-data; name="file"; filename="a.gif"\r\nContent-Type: image/gif\r\n\r\nGIF89a';
    const [path, type, begin] =
      what === "an upload"
        ? ["/api/v1/upload", "multipart/form-data; boundary=b", form]
        : ["/api/v1/gen2/text-to-video", "application/json", '{"prompt":"'];
    const raw = await client(gateway);
    const lines = [bearer(key), `Content-Type: ${type}`, CHUNKED];
    raw.write(
      `${head(`POST ${path} HTTP/1.1`, "Host: a", ...lines)}${begin.length.toString(16)}\r\n${begin}\r\n`,
    );
    await until(async () => (await number(gateway, "tollgate_requests_in_flight")) === 1, "it to begin");
    expect(await readRests(gateway)).toBe(0);
    raw.write(PIECES);
    await until(async () => (await readRests(gateway)) > 0, "the rest");
  });
});

describe("JSON bodies that do not end", () => {
  const MIB = 1024 * 1024;
  const BODY = JSON.stringify({ ...BOAT, note: "" }).slice(0, -2) + "x".repeat(250_000);

  /** Sends all of a body but its end. */
  async function begin(gateway: TestGateway, key: string) {
    const raw = await client(gateway);
    const lines = [bearer(key), "Content-Type: application/json", `Content-Length: ${BODY.length + 2}`];
    raw.write(head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", ...lines) + BODY);
    return raw;
  }

  test("hold a quarter of the memory for bodies per key: the next one is 503, and other keys are served", async () => {
    const gateway = await givenBounded({ maxBodyBytesInFlight: 4 * MIB });
    const issued = await givenTightKey(gateway);
    const five = [];
    for (let n = 0; n < 5; n++) five.push(await begin(gateway, issued.key));
    // Four fit. Which one is the fifth is decided by what is read last.
    const reply = await Promise.race(five.map((raw) => raw.answer()));
    expectStatus(reply, 503);
    expect(reply.body).toMatchObject({ code: 503, retryAfter: 1 });
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1 });
    expect(await overloads(gateway, "body_bytes_per_key")).toBe(1);
    const other = await begin(gateway, (await gateway.givenKey()).key);
    other.write('"}');
    expectStatus(await other.answer(), 400);
    upstream.release();
    await expectUnconsumed(gateway, issued);
  });

  test("hold no more than server.max_body_bytes_in_flight in all; what comes whole is served meanwhile", async () => {
    const gateway = await givenBounded({ maxBodyBytesInFlight: MIB });
    upstream.release();
    const keys = await Promise.all(Array.from({ length: 8 }, () => gateway.givenKey()));
    const begun = [];
    for (const { key } of keys) begun.push(await begin(gateway, key));
    await until(async () => (await overloads(gateway, "body_bytes")) >= 4, "four refusals");
    const { key } = await gateway.givenKey();
    expect((await gateway.request("POST", "/api/v1/gen2/text-to-video", { key, body: BOAT })).status).toBe(
      200,
    );
    for (const raw of begun) raw.end();
    // Memory that was held is given back, also where the client went away.
    await until(async () => {
      const raw = await begin(gateway, key);
      raw.write('"}');
      return (await raw.answer()).status === 400;
    }, "room for a body");
  });

  test("count with what they take, be it in pieces of one byte", async () => {
    const gateway = await givenBounded({ bodyTimeoutMs: 60_000 });
    const { key } = await gateway.givenKey();
    upstream.release();
    const raw = await client(gateway);
    const text = JSON.stringify(BOAT);
    const lines = [bearer(key), "Content-Type: application/json", "Transfer-Encoding: chunked"];
    raw.write(head("POST /api/v1/gen2/text-to-video HTTP/1.1", "Host: a", ...lines));
    raw.write(`${[...text].map((letter) => `1\r\n${letter}\r\n`).join("")}0\r\n\r\n`);
    expectStatus(await raw.answer(), 200);
  });
});
