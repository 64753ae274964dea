import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { expect, test } from "vitest";
import { createUpstream } from "../../../src/upstream/upstream.ts";

const TASK = '{"code":200,"msg":"success","data":{"task_id":"t1"}}';
const ANSWER = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${TASK.length}\r\n\r\n${TASK}`;

const OPTIONS = {
  apiKey: "secret-of-ours",
  connectTimeoutMs: 1000,
  headersTimeoutMs: 2000,
  totalTimeoutMs: 2000,
  keepAliveTimeoutMs: 4000,
  connections: 1,
  pollConnections: 1,
};

/** An upstream on a bare socket: `serve` gets each request's socket and bytes, and how many came before on it and in all. */
async function givenUpstream(
  serve: (socket: Socket, earlier: number, before: number, data: Buffer) => void,
  idempotent = false,
  { scheme = "http", totalTimeoutMs = 20_000 }: { scheme?: "http" | "https"; totalTimeoutMs?: number } = {},
) {
  let requests = 0;
  const server = createServer((socket) => {
    let earlier = 0;
    socket.on("error", () => undefined);
    socket.on("data", (data: Buffer) => {
      serve(socket, earlier++, requests++, data);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstream = createUpstream({
    url: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...OPTIONS,
    // Three tries and their pauses fit, also on a busy machine.
    ...(idempotent && { totalTimeoutMs }),
    idempotent,
  });
  const stop = async (): Promise<void> => {
    await upstream.close();
    server.close();
  };
  return { upstream, requests: () => requests, stop };
}

// Guarantee: a kept connection that breaks under a request may have run it; it is sent once and called unknown.
test("a reset on a reused connection is an unknown outcome, and the request is not sent again", async () => {
  const { upstream, requests, stop } = await givenUpstream((socket, earlier) => {
    if (earlier === 0) socket.write(ANSWER);
    else socket.resetAndDestroy();
  });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "accepted",
    taskId: "t1",
  });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r2" })).toMatchObject({
    outcome: "unclear",
  });
  expect(requests()).toBe(2);
  await stop();
});

const saying = (status: number, code: number): string => {
  const body = JSON.stringify({ code, msg: "no" });
  return `HTTP/1.1 ${status} No\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
};

// Guarantee: a task that the first try may have made is never called refused, nor its hold given back at once.
test.each([
  ["503", saying(503, 503)],
  ["429", saying(429, 429)],
  ["409, as for a key in progress", saying(409, 409)],
  ["200 with code 400", saying(200, 400)],
])("an idempotent upstream's %s to a repeat leaves the outcome unknown", async (_, answer) => {
  const { upstream, requests, stop } = await givenUpstream((socket, _earlier, before) => {
    if (before === 0) socket.resetAndDestroy();
    else socket.write(answer);
  }, true);
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "unclear",
  });
  expect(requests()).toBe(3);
  await stop();
});

test("an idempotent upstream's no to a repeat is not its last word: the task is found by the next", async () => {
  const { upstream, stop } = await givenUpstream((socket, _earlier, before) => {
    if (before === 0) socket.resetAndDestroy();
    else socket.write(before === 1 ? saying(409, 409) : ANSWER);
  }, true);
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "accepted",
    taskId: "t1",
  });
  await stop();
});

test("an idempotent upstream's no to the first try is a no, and it is not asked again", async () => {
  const { upstream, requests, stop } = await givenUpstream((socket) => {
    socket.write(saying(503, 503));
  }, true);
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "unreachable",
  });
  expect(requests()).toBe(1);
  await stop();
});

// Guarantee: the hold of a generation outlives all tries for it: its due time counts one total timeout.
test("a repeat to an idempotent upstream has what its first try has left of the total timeout", async () => {
  const totalTimeoutMs = 1200;
  const hanging = await givenUpstream(
    (socket, _earlier, before) => {
      if (before === 0) socket.resetAndDestroy();
    },
    true,
    { totalTimeoutMs },
  );
  const outcome = await hanging.upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  const { detail } = outcome as { detail: string };
  expect(outcome).toMatchObject({ outcome: "timed_out", detail: expect.stringContaining("; then ") });
  expect(Number(/no complete answer within (\d+)/.exec(detail)?.[1])).toBeLessThan(totalTimeoutMs - 200);
  expect(hanging.requests()).toBe(2);
  await hanging.stop();
});

// Guarantee: what the upstream says of our credential reaches neither customer nor log.
test("an upstream that repeats our credential in its words is not believed so far", async () => {
  const text = '{"code":400,"error":"bad key secret-of-ours"}';
  const { upstream, stop } = await givenUpstream((socket) => {
    socket.write(`HTTP/1.1 400 Bad Request\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
  });
  const outcome = await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  expect(outcome).toMatchObject({ outcome: "refused", text: "bad key [redacted]" });
  await stop();
});

test("what undici itself refuses to send is known to be unsent", async () => {
  const { upstream, requests, stop } = await givenUpstream((socket) => socket.write(ANSWER));
  const outcome = await upstream.generate("/a path", "{}", { accountId: "a", requestId: "r1" });
  expect(outcome).toMatchObject({ outcome: "unreachable", detail: expect.stringContaining("path") });
  expect(requests()).toBe(0);
  await stop();
});

// Guarantee: undici repeats a POST by itself over HTTP/2 (REFUSED_STREAM, GOAWAY); only HTTP/1.1 is offered in TLS.
test("an upstream over TLS is not offered HTTP/2", async () => {
  let hello: Buffer = Buffer.alloc(0);
  const serve = (socket: Socket, _earlier: number, _before: number, data: Buffer): void => {
    hello = data;
    socket.destroy();
  };
  const { upstream, stop } = await givenUpstream(serve, false, { scheme: "https" });
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "unreachable",
  });
  // Names of protocols stand in the first message of TLS behind their lengths. RFC 7301 3.1.
  const offered = hello.toString("latin1");
  expect(offered).toContain("\x08http/1.1");
  expect(offered).not.toContain("\x02h2");
  await stop();
});

test("an upstream is asked for answers as they are, and may not pack them", async () => {
  const heads: string[] = [];
  const { upstream, stop } = await givenUpstream((socket, _earlier, _before, data) => {
    heads.push(data.toString("latin1"));
    socket.write(ANSWER);
  });
  await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  await upstream.poll("t1", { accountId: "a", requestId: "r2" });
  expect(heads).toHaveLength(2);
  for (const head of heads) expect(head).toMatch(/^accept-encoding: identity\r$/m);
  await stop();
});

// Guarantee: an id that came before the connection broke is in the log, for the upstream's bill.
test.each<[string, (socket: Socket) => unknown]>([
  ["is reset", (socket) => setTimeout(() => socket.resetAndDestroy(), 50)],
  ["ends", (socket) => socket.end()],
  ["goes silent", () => undefined],
])("of an answer whose connection %s, the log has what has come", async (_, end) => {
  const { upstream, stop } = await givenUpstream((socket) => {
    socket.write(ANSWER.replace(`Length: ${TASK.length}`, "Length: 999"));
    end(socket);
  });
  const outcome = await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" });
  expect(["unclear", "timed_out"]).toContain(outcome.outcome);
  expect(outcome).toMatchObject({ detail: expect.stringMatching(/; HTTP 200, .*task_id":"t1"/) });
  await stop();
});

test("of a request that was repeated, the log has what each answer said", async () => {
  const { upstream, stop } = await givenUpstream((socket, _earlier, before) => {
    socket.write(before === 0 ? saying(500, 500).replace("no", "t7") : saying(502, 502));
  }, true);
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({
    outcome: "unclear",
    detail: expect.stringMatching(/HTTP 500, .*t7.*HTTP 502/),
  });
  await stop();
});
