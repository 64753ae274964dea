import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createCallbackAddresses } from "../../src/gateway/callbacks.ts";
import { readLedger } from "../support/audit.ts";
import { expectStatus, until } from "../support/gateway.ts";
import {
  callBack,
  callbackCounts,
  givenRelayGateway,
  givenRelayStage,
  pathOf,
  type RelayStage,
  SECRET,
  storyboard,
} from "../support/relay-stage.ts";
import { expectZeros } from "../support/store-stage.ts";

const MIB = 1024 * 1024;

let stage: RelayStage;
beforeAll(async () => {
  stage = await givenRelayStage();
});
afterEach(() => stage.upstream.behave({}));
afterAll(() => stage.stop());

async function givenTask() {
  const key = await stage.gateway.givenKey();
  expectStatus(await storyboard(stage.gateway, key), 200);
  return { key, task: stage.latest(), path: pathOf(stage.latest()) };
}

/** The requests that were read in Redis meanwhile, as each callback with a valid token reads one. */
async function readsDuring(work: () => Promise<void>): Promise<string[]> {
  const { redis } = stage.gateway;
  const { port } = redis.options;
  // ioredis takes a command that is shown before it has seen the OK of MONITOR for a broken answer.
  const monitor = connect(port!, "127.0.0.1");
  let shown = "";
  monitor.on("data", (chunk) => {
    shown += chunk;
  });
  monitor.write("MONITOR\r\n");
  await until(() => shown.startsWith("+OK"), "MONITOR to begin");
  await work();
  // The last record is read last.
  await redis.get("tg:{p00}:request:the-end");
  await until(() => shown.includes("request:the-end"), "the monitor");
  monitor.destroy();
  // Scripts read requests, too.
  const reads = shown.matchAll(/\[\d+ (\S+)\] "get" "(\S+:request:\S+)"/gi);
  return Array.from(reads, ([, source, name]) => (source === "lua" ? "" : name!)).filter(
    (name) => name !== "" && !name.endsWith("the-end"),
  );
}

// Guarantee: an address cannot be guessed, and one that no gateway made costs no call to the store.
test("a token that no gateway made is 404 as any unknown path, without a look at the store", async () => {
  const { path } = await givenTask();
  const [, partition, rest] = /^\/callbacks\/(\d+)\.(.+)$/.exec(path) ?? [];
  const foreign = createCallbackAddresses(["another secret of other gateways"]);
  const forged = [
    "/callbacks/",
    "/callbacks/x",
    `${path}x`,
    path.slice(0, -1),
    `${path}/more`,
    path.replace(/.$/, (last) => (last === "A" ? "B" : "A")),
    `/callbacks/${Number(partition) + 1}.${rest}`,
    path.toUpperCase(),
    `/callbacks/${foreign.tokenOf({ partition: Number(partition), requestId: rest?.split(".")[0] ?? "" })}`,
    `/callbacks/${"a".repeat(4000)}`,
  ];
  const reads = await readsDuring(async () => {
    for (const one of forged) {
      const reply = await stage.gateway.request("POST", one, { body: {} });
      expectStatus(reply, 404, one);
      expect(reply.body).toMatchObject({ code: 404, error: "No such endpoint" });
      expectZeros(reply);
      expect(reply.headers.get("x-request-id")).toBe(reply.body.request_id);
    }
  });
  expect(reads).toEqual([]);
  const seen = await readsDuring(async () =>
    expectStatus(await stage.gateway.request("POST", path, { body: {} }), 200),
  );
  expect(seen).toHaveLength(1);
  expect(stage.gateway.logs.join(), "who reads the log cannot call back").not.toContain(
    path.split(".").at(-1),
  );
});

test("a token of the previous secret is taken, and only POST", async () => {
  const { task, path } = await givenTask();
  const wrong = await stage.gateway.request("GET", path);
  expectStatus(wrong, 405);
  expect(wrong.headers.get("allow")).toBe("POST");
  const gateway = await givenRelayGateway(stage.upstream, {
    config: { webhooks: { secretKey: "the next secret of the gateways", previousSecretKey: SECRET } },
  });
  try {
    expectStatus(await callBack(gateway, task), 200);
  } finally {
    await gateway.stop();
  }
});

// Guarantee: a body is not read before the address is known, however large or slow it is.
test("100 MB to an unknown address are not read: the answer comes and the connection ends", async () => {
  const { socket, sent, text } = await post("/callbacks/1.req_x.AAAA", 100 * MIB);
  await until(() => text().includes("\r\n\r\n"), "the answer");
  expect(text()).toMatch(/^HTTP\/1\.1 404 [\s\S]*connection: close/i);
  await until(() => socket.destroyed, "the connection to end");
  expect(sent()).toBeLessThan(16 * MIB);
});

test("a dripping body to an unknown address ends its connection at once", async () => {
  for (const head of ["Content-Length: 1000", "Transfer-Encoding: chunked"]) {
    const socket = connect(Number(new URL(stage.gateway.url).port), "127.0.0.1");
    let text = "";
    socket.on("data", (chunk) => {
      text += String(chunk);
    });
    socket.on("error", () => undefined);
    socket.write(`POST /callbacks/1.req_x.AAAA HTTP/1.1\r\nHost: gateway\r\n${head}\r\n\r\n`);
    const startedMs = performance.now();
    await until(() => socket.destroyed || socket.readableEnded, "the connection to end");
    expect(text).toMatch(/^HTTP\/1\.1 404 /);
    expect(performance.now() - startedMs).toBeLessThan(8000);
    socket.destroy();
  }
});

test("the body of a callback about a bound task is not needed, and one that is too large is refused", async () => {
  const { task, path, key } = await givenTask();
  task.status = "completed";
  expectStatus(await stage.gateway.request("POST", path, { body: "x".repeat(300 * 1024) }), 200);
  expect((await readLedger(stage.gateway.redis, key)).slots).toEqual([]);
  stage.upstream.behave({ create: "reset" });
  const other = await stage.gateway.givenKey();
  await storyboard(stage.gateway, other);
  const large = await stage.gateway.request("POST", pathOf(stage.latest()), { body: "x".repeat(300 * 1024) });
  expectStatus(large, 413);
  expectStatus(await callBack(stage.gateway, stage.latest()), 200);
});

// Guarantee: whoever has an address cannot make the gateway poll without end.
test("a callback that is repeated without end is refused as too many, and polls stay few", async () => {
  const { task } = await givenTask();
  const replies = await Promise.all(Array.from({ length: 60 }, () => callBack(stage.gateway, task)));
  const limited = replies.filter(({ status }) => status === 429);
  expect(limited.length).toBeGreaterThan(50);
  expect(limited[0]?.body).toMatchObject({ code: 2007, retryAfter: expect.any(Number) });
  expect(stage.upstream.polls.filter((id) => id === task.taskId).length).toBeLessThan(6);
  const { task: next } = await givenTask();
  expectStatus(await callBack(stage.gateway, next), 200, "another request's is not affected");
});

// Guarantee: a gateway that has taken many callbacks takes the next one.
test("callbacks give their places back, as many as there may be at a time", async () => {
  const { tokenOf } = createCallbackAddresses([SECRET]);
  for (let nth = 0; nth < 150; nth++) {
    const token = tokenOf({ partition: 1, requestId: `req_${nth}` });
    expectStatus(await stage.gateway.request("POST", `/callbacks/${token}`, { body: {} }), 200, String(nth));
  }
});

test("a body that waits to be asked for is asked for once it is needed, and not before", async () => {
  stage.upstream.behave({ create: "reset" });
  const key = await stage.gateway.givenKey();
  await storyboard(stage.gateway, key);
  const unknown = stage.latest();
  unknown.status = "completed";
  const body = JSON.stringify(stage.upstream.callbackOf(unknown));
  const socket = connect(Number(new URL(stage.gateway.url).port), "127.0.0.1");
  const head = `POST ${pathOf(unknown)} HTTP/1.1\r\nHost: gateway\r\nContent-Length: ${body.length}\r\n`;
  socket.write(`${head}Expect: 100-continue\r\n\r\n`);
  const [first] = await once(socket, "data");
  expect(String(first)).toBe("HTTP/1.1 100 Continue\r\n\r\n");
  socket.write(body);
  const [second] = await once(socket, "data");
  expect(String(second)).toMatch(/^HTTP\/1\.1 200 /);
  socket.write(`${head}Expect: 100-continue\r\n\r\n`);
  const [third] = await once(socket, "data");
  expect(String(third), "its task is known").toMatch(/^HTTP\/1\.1 200 /);
  socket.destroy();
});

test("an address that guesses on is refused as too many, while callbacks from there pass", async () => {
  const guesses = Array.from({ length: 150 }, (_, n) =>
    stage.gateway.request("POST", `/callbacks/${n}`, { body: {} }),
  );
  const replies = await Promise.all(guesses);
  expect(replies.filter(({ status }) => status === 429).length).toBeGreaterThan(20);
  const { task } = await givenTask();
  expectStatus(await callBack(stage.gateway, task), 200);
  expect((await callbackCounts(stage.gateway)).forged).toBeGreaterThan(150);
});

// Guarantee: a guess costs no connection of its own.
test("a connection whose guesses have small bodies is kept", async () => {
  const socket: Socket = connect(Number(new URL(stage.gateway.url).port), "127.0.0.1");
  const guess = "POST /callbacks/1.a.b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
  for (let nth = 0; nth < 3; nth++) {
    socket.write(guess);
    const [answer] = await once(socket, "data");
    expect(String(answer)).not.toMatch(/^connection: close/im);
  }
  socket.destroy();
});

/** Sends a head and then as much of a body as is taken. */
async function post(path: string, bytes: number) {
  const socket: Socket = connect(Number(new URL(stage.gateway.url).port), "127.0.0.1");
  let [text, sent] = ["", 0];
  socket.on("data", (chunk) => {
    text += String(chunk);
  });
  socket.on("error", () => undefined);
  const chunk = Buffer.alloc(64 * 1024, "x");
  const more = (): void => {
    while (sent < bytes && !socket.destroyed) {
      sent += chunk.length;
      if (!socket.write(chunk)) return void socket.once("drain", more);
    }
  };
  socket.write(`POST ${path} HTTP/1.1\r\nHost: gateway\r\nContent-Length: ${bytes}\r\n\r\n`);
  more();
  return { socket, sent: () => sent, text: () => text };
}
