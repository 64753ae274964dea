import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { expect, test } from "vitest";
import { createUpstream } from "../../../src/upstream/upstream.ts";

const TASK = '{"code":200,"msg":"success","data":{"task_id":"t1"}}';
const ANSWER = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${TASK.length}\r\n\r\n${TASK}`;

/** An upstream on a bare socket: `serve` gets each request's socket and how many requests came before on it. */
async function givenUpstream(serve: (socket: Socket, earlier: number) => void) {
  let requests = 0;
  const server = createServer((socket) => {
    let earlier = 0;
    socket.on("error", () => undefined);
    socket.on("data", () => {
      requests++;
      serve(socket, earlier++);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstream = createUpstream({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    apiKey: "secret-of-ours",
    connectTimeoutMs: 1000,
    headersTimeoutMs: 2000,
    totalTimeoutMs: 2000,
    connections: 1,
    idempotent: false,
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
  expect(await upstream.generate("/x", "{}", "r1")).toMatchObject({ outcome: "accepted", taskId: "t1" });
  expect(await upstream.generate("/x", "{}", "r2")).toMatchObject({ outcome: "unclear" });
  expect(requests()).toBe(2);
  await stop();
});

// Guarantee: what the upstream says of our credential reaches neither customer nor log.
test("an upstream that repeats our credential in its words is not believed so far", async () => {
  const text = '{"code":400,"error":"bad key secret-of-ours"}';
  const { upstream, stop } = await givenUpstream((socket) => {
    socket.write(`HTTP/1.1 400 Bad Request\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
  });
  const outcome = await upstream.generate("/x", "{}", "r1");
  expect(outcome).toMatchObject({ outcome: "refused", text: "bad key [redacted]" });
  await stop();
});
