import { once } from "node:events";
import { createServer, type RequestListener, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { afterAll, describe, expect, test } from "vitest";
import { createUpstream, type UpstreamOptions, waitMaxMs } from "../../../src/upstream/upstream.ts";
import { until } from "../../support/until.ts";

const TASK = '{"code":200,"msg":"success","data":{"task_id":"t1"}}';
const OPTIONS = {
  apiKey: undefined,
  connectTimeoutMs: 1000,
  headersTimeoutMs: 1000,
  totalTimeoutMs: 2000,
  keepAliveTimeoutMs: 4000,
  connections: 1,
  pollConnections: 1,
  idempotent: false,
};

const open: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

function givenClient(url: string, options: Partial<UpstreamOptions> = {}) {
  const upstream = createUpstream({ ...OPTIONS, ...options, url });
  open.push(() => upstream.close());
  return upstream;
}

/** An upstream over HTTP, and every connection that was made to it. */
async function givenUpstream(serve: RequestListener) {
  const sockets: Socket[] = [];
  const server = createServer({ keepAliveTimeout: 60_000 }, serve).listen(0, "127.0.0.1");
  server.on("connection", (socket) => sockets.push(socket));
  await once(server, "listening");
  open.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets };
}

/** With a Connection header of its own Node adds no Keep-Alive header, which the client would follow. */
const answer = (res: ServerResponse): unknown =>
  res.setHeader("connection", "keep-alive").setHeader("content-length", TASK.length).end(TASK);

describe.concurrent("above what the connections can carry", () => {
  // Guarantee: a request that was sent has as much time as on an idle gateway, however long it waited before.
  test("the time that a generation waits is not taken from its answer", async () => {
    // The second waits less than headersTimeoutMs and is answered within totalTimeoutMs, but not both together.
    const bodiesMs = [1500, 5000];
    const { url } = await givenUpstream((_, res) => {
      res.setHeader("content-length", TASK.length).flushHeaders();
      setTimeout(() => res.end(TASK), bodiesMs.shift());
    });
    const upstream = givenClient(url, { headersTimeoutMs: 3000, totalTimeoutMs: 6000 });
    const outcomes = await Promise.all([
      upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" }),
      upstream.generate("/x", "{}", { accountId: "a", requestId: "r2" }),
    ]);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["accepted", "accepted"]);
  });

  // Guarantee: what was refused has cost no connection.
  test("connections are kept, and the excess is refused unsent", async () => {
    let served = 0;
    const { url, sockets } = await givenUpstream((_, res) => {
      served++;
      setTimeout(answer, 500, res);
    });
    const upstream = givenClient(url, { connections: 2, headersTimeoutMs: 2500, totalTimeoutMs: 5000 });
    const all = Array.from({ length: 40 }, (_, nth) =>
      upstream.generate("/x", "{}", { accountId: "a", requestId: `r${nth}` }),
    );
    const outcomes = (await Promise.all(all)).map(({ outcome }) => outcome);
    const sent = outcomes.filter((outcome) => outcome === "accepted").length;
    expect(outcomes.filter((outcome) => outcome === "overloaded")).toHaveLength(40 - sent);
    expect(served).toBe(sent);
    expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "last" })).toMatchObject({
      outcome: "accepted",
    });
    expect(sockets).toHaveLength(2);
  });
});

// Guarantee: a connection that is still being made counts, also after its request was given up.
test.concurrent("a request that was given up while it connected leaves no room for another before that has an end", async () => {
  const server = createTcpServer((socket) => void open.push(() => socket.destroy())).listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(() => server.close());
  const upstream = givenClient(`https://127.0.0.1:${(server.address() as AddressInfo).port}`, {
    connectTimeoutMs: 4000,
    headersTimeoutMs: 100,
    totalTimeoutMs: 200,
  });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "unreachable",
  });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r2" })).toMatchObject({
    outcome: "overloaded",
  });
  await until(
    async () =>
      (await upstream.generate("/x", "{}", { accountId: "a", requestId: "r3" })).outcome === "unreachable",
    "the room",
  );
});

// Guarantee: a silent upstream is given up long before the total timeout, and one that has begun to answer is not.
test.concurrent("the time for the headers ends with the headers", async () => {
  const { url } = await givenUpstream((req, res) => {
    if (req.url === "/silent") return;
    res.setHeader("content-length", TASK.length).flushHeaders();
    setTimeout(() => res.end(TASK), 500);
  });
  const upstream = givenClient(url, { connections: 2, headersTimeoutMs: 200, totalTimeoutMs: 60_000 });
  const [silent, slow] = await Promise.all([
    upstream.generate("/silent", "{}", { accountId: "a", requestId: "r1" }),
    upstream.generate("/slow", "{}", { accountId: "b", requestId: "r2" }),
  ]);
  expect(silent).toEqual({ outcome: "timed_out", detail: "no answer within 200 ms" });
  expect(slow).toMatchObject({ outcome: "accepted" });
});

const UPSTREAM_IN_THREAD = `
  const { parentPort } = require("node:worker_threads");
  const server = require("node:http").createServer((req, res) => {
    parentPort.postMessage("asked");
    setTimeout(() => res.end(${JSON.stringify(TASK)}), 50);
  });
  server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

// Guarantee: a task that the upstream has made in time is charged, however long this process stood still meanwhile.
test("an answer that came while the process stood still is read before its request is given up", async () => {
  const thread = new Worker(UPSTREAM_IN_THREAD, { eval: true });
  open.push(() => thread.terminate());
  const [port] = await once(thread, "message");
  const upstream = givenClient(`http://127.0.0.1:${port}`, { headersTimeoutMs: 400, totalTimeoutMs: 400 });
  const outcome = upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  await once(thread, "message");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);
  expect(await outcome).toMatchObject({ outcome: "accepted" });
});

// Guarantee: a hold (connect, headers and total timeout, and 8 s) outlives the wait and the exchange.
test.concurrent.each([
  [30_000, 60_000, 30_000],
  [30_000, 600_000, 30_000],
  [45_000, 60_000, 15_000],
  [60_000, 60_000, 0],
])(
  "with headers in %d ms and an answer in %d ms a request waits at most %d ms",
  (headersTimeoutMs, totalTimeoutMs, waits) => {
    expect(waitMaxMs({ headersTimeoutMs, totalTimeoutMs })).toBe(waits);
    expect(waits + totalTimeoutMs).toBeLessThanOrEqual(headersTimeoutMs + totalTimeoutMs);
  },
);

describe.concurrent("an idle connection", () => {
  // Guarantee: the gateway closes it before an upstream does that closes early, so that no generation goes out on it.
  test("is closed after upstream.keep_alive_timeout", async () => {
    const { url, sockets } = await givenUpstream((_, res) => answer(res));
    const patient = givenClient(url, { keepAliveTimeoutMs: 60_000 });
    const quick = givenClient(url, { keepAliveTimeoutMs: 50 });
    await patient.generate("/x", "{}", { accountId: "a", requestId: "r1" });
    await quick.generate("/x", "{}", { accountId: "a", requestId: "r2" });
    await until(() => sockets[1]!.destroyed, "the connection to be closed");
    expect(sockets[0]!.destroyed).toBe(false);
  });

  test("is closed earlier where the upstream's own Keep-Alive header asks for it", async () => {
    const { url, sockets } = await givenUpstream((_, res) => {
      // The client stays two seconds below what it is told.
      res.setHeader("keep-alive", "timeout=3");
      answer(res);
    });
    const upstream = givenClient(url, { keepAliveTimeoutMs: 600_000 });
    await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
    await until(() => sockets[0]!.destroyed, "the connection to be closed");
    expect(sockets).toHaveLength(1);
  });
});
