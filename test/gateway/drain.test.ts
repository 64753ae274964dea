import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, type Reply, send, until } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { type Sections, startGatewayProcess, startProgram } from "../support/processes.ts";
import { heads, type RawClient, rawClient, rawPost } from "../support/raw-client.ts";
import {
  givenKey,
  givenRedis,
  polled,
  readyz,
  sent,
  TEXT_TO_VIDEO,
  type TestRedis,
} from "../support/store-stage.ts";

type GatewayProcess = Awaited<ReturnType<typeof startGatewayProcess>>;

const SLOW = "[sandbox: delay=2s]";
const RESTLESS = { tasks: { sweep_interval: "1m" } };

let redis: TestRedis;
let generator: Generator;
const cleanups: (() => unknown)[] = [];
beforeAll(async () => {
  redis = await givenRedis();
  generator = await startGenerator({ behaviour: { durationMs: 60_000 } });
});
afterAll(async () => {
  await generator.stop();
  await redis.stop();
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  generator.requests.length = 0;
});

async function givenProcess(config: Sections = {}, journal?: string): Promise<GatewayProcess> {
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    config: { ...RESTLESS, ...config },
    ...(journal === undefined ? {} : { journal }),
  });
  cleanups.push(() => gateway.stop());
  return gateway;
}

const post = (gateway: GatewayProcess, { key }: IssuedKey, prompt: string): Promise<Reply> =>
  send(gateway.url, "POST", TEXT_TO_VIDEO, { key, body: { prompt } });

/** A connection that has been served once and is kept. */
async function keptConnection(gateway: GatewayProcess, key: IssuedKey): Promise<RawClient> {
  const client = await rawClient(gateway.url);
  cleanups.push(() => client.close());
  const { head } = credits(key);
  client.send(head);
  await client.answers(1);
  expect(heads(client.received())[0]).not.toMatch(/connection: close/i);
  return client;
}

const credits = ({ key }: IssuedKey) => ({
  head: `GET /api/v1/credits HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: Bearer ${key}\r\n\r\n`,
});

async function expectBound(key: IssuedKey): Promise<void> {
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 990, held: 0, totalUsed: 10 });
  expect(consumed(ledger)).toHaveLength(1);
  expect(ledger.slots).toHaveLength(1);
}

const inFlight = (): Promise<void> =>
  until(() => sent({ generator }).length > 0, "the generation to reach the upstream");

/** The last line of a process. */
const stopped = (gateway: GatewayProcess) => gateway.logs().find(({ msg }) => msg === "stopped");

describe("SIGTERM", () => {
  test("readiness goes red while requests are still served; what is in flight ends well; exit code 0", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "3s" } });
    const key = await givenKey(redis.client);
    const kept = await keptConnection(gateway, key);
    const slow = post(gateway, key, SLOW);
    await inFlight();
    gateway.signal("SIGTERM");
    await until(async () => (await readyz(gateway)) === 503, "readiness to go red");
    const late = await send(gateway.url, "GET", "/api/v1/credits", { key: key.key });
    expectStatus(late, 200, "a new connection is still served");
    expect(late.headers.get("connection")).toBe("close");
    kept.send(credits(key).head);
    await kept.answers(2);
    expect(heads(kept.received())[1]).toMatch(/^HTTP\/1\.1 200 [\s\S]*connection: close/i);
    await kept.ended();
    gateway.signal("SIGTERM");
    gateway.signal("SIGINT");
    const reply = await slow;
    expectStatus(reply, 200);
    expect(reply.headers.get("connection")).toBe("close");
    const { how, stderr } = await gateway.ended();
    expect(how).toBe("exit code 0");
    expect(stderr).toBe("");
    expect(stopped(gateway)).toMatchObject({ level: "info", clean: true, cut_requests: 0 });
    await expectBound(key);
  });

  // Guarantee: a customer who is charged is told so.
  test("all that was pipelined before is answered, and the connection ends with the last answer", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s" } });
    const key = await givenKey(redis.client);
    const client = await rawClient(gateway.url);
    cleanups.push(() => client.close());
    for (const ms of [1500, 3000, 2500]) {
      const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, { prompt: `[sandbox: delay=${ms}ms]` });
      client.send(head + body);
    }
    await until(() => sent({ generator }).length === 3, "the generations to reach the upstream");
    gateway.signal("SIGTERM");
    await client.answers(3);
    const answers = heads(client.received());
    expect(answers.map((head) => /^HTTP\/1\.1 (\d+)/.exec(head)?.[1])).toEqual(["200", "200", "200"]);
    expect(answers.map((head) => /connection: close/i.test(head))).toEqual([false, false, true]);
    await client.ended();
    expect((await gateway.ended()).how).toBe("exit code 0");
    expect(consumed(await readLedger(redis.client, key))).toHaveLength(3);
  });

  test("a connection whose last answer was decided before still ends with it", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s", drain_timeout: "10s" } });
    const key = await givenKey(redis.client);
    const client = await rawClient(gateway.url);
    cleanups.push(() => client.close());
    const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, { prompt: "[sandbox: delay=3000ms]" });
    client.send(head + body + credits(key).head);
    await inFlight();
    gateway.signal("SIGTERM");
    await client.ended();
    expect(heads(client.received())).toHaveLength(2);
    expect((await gateway.ended()).how).toBe("exit code 0");
  });

  test("a request whose client has left is finished and bound before the end", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s" } });
    const key = await givenKey(redis.client);
    const client = await rawClient(gateway.url);
    const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, { prompt: SLOW });
    client.send(head + body);
    await inFlight();
    client.reset();
    gateway.signal("SIGTERM");
    expect((await gateway.ended()).how).toBe("exit code 0");
    await expectBound(key);
  });

  test("beyond the drain timeout it ends all the same, with exit code 1 and nothing charged", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s", drain_timeout: "300ms" } });
    const key = await givenKey(redis.client);
    const hang = () => post(gateway, key, "[sandbox: hang]").catch((error: unknown) => error);
    const hung = Promise.all([hang(), hang()]);
    await until(() => sent({ generator }).length === 2, "both generations to reach the upstream");
    const startedMs = performance.now();
    gateway.signal("SIGTERM");
    expect((await gateway.ended()).how).toBe("exit code 1");
    // The default would be 30 s.
    expect(performance.now() - startedMs).toBeLessThan(20_000);
    for (const reply of await hung) expect(reply).toBeInstanceOf(Error);
    // Nothing else tells of them: a request leaves its line when it is answered.
    expect(stopped(gateway)).toMatchObject({ level: "warn", clean: false, cut_requests: 2 });
    expect(await readLedger(redis.client, key)).toMatchObject({ held: 20, balance: 1000, totalUsed: 0 });
  });

  // The upstream is closed before the store and its journal: an answer that came after them would never be charged.
  test("what is cut at the drain timeout is settled in the store: a repeat learns that its outcome is unknown", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s", drain_timeout: "300ms" } });
    const { key } = await givenKey(redis.client);
    const request = { key, body: { prompt: "[sandbox: hang]" }, headers: { "Idempotency-Key": "cut" } };
    const ask = ({ url }: GatewayProcess) => send(url, "POST", TEXT_TO_VIDEO, request);
    const hung = ask(gateway).catch((error: unknown) => error);
    await inFlight();
    gateway.signal("SIGTERM");
    expect((await gateway.ended()).how).toBe("exit code 1");
    expect(await hung).toBeInstanceOf(Error);
    const repeat = await ask(await givenProcess());
    expect(repeat).toMatchObject({
      status: 409,
      body: { msg: expect.stringContaining("got no clear answer") },
    });
  });

  test("while the store hangs it ends within the drain timeout", async () => {
    const gateway = await givenProcess({ server: { drain_delay: "0s", drain_timeout: "1s" } });
    redis.pause();
    try {
      gateway.signal("SIGTERM");
      expect((await gateway.ended()).how).toMatch(/exit code [01]/);
    } finally {
      redis.resume();
    }
  });
});

test("a charge that the store never heard of is made by the next process", async () => {
  const journal = await mkdtemp(join(tmpdir(), "tollgate-drain-journal-"));
  cleanups.push(() => rm(journal, { recursive: true, force: true }));
  const first = await givenProcess({ server: { drain_delay: "0s" } }, journal);
  const key = await givenKey(redis.client);
  const pending = post(first, key, "[sandbox: delay=2s]");
  await inFlight();
  redis.pause();
  try {
    expectStatus(await pending, 200);
    first.signal("SIGKILL");
    await first.ended();
  } finally {
    redis.resume();
  }
  await givenProcess({}, journal);
  await expectBound(key);
  expect(polled({ generator })).toHaveLength(0);
});

// Guarantee: the first process of a container, which gets no signal that it does not listen to, is not killed at the end of its grace.
test("SIGTERM ends a process that is still starting", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-starting-"));
  cleanups.push(() => rm(folder, { recursive: true }));
  const held = join(folder, "held");
  const hold = `
    import { writeFileSync } from "node:fs";
    import { Server } from "node:net";
    Server.prototype.listen = () => {
      writeFileSync(${JSON.stringify(held)}, "");
      setInterval(() => undefined, 1000);
    };`;
  const urls = { REDIS_URL: redis.url, UPSTREAM_URL: generator.url };
  const program = await startProgram({
    ...urls,
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hold)}`,
  });
  cleanups.push(() => program.stop());
  await until(() => existsSync(held), "the gateway to be about to listen");
  program.signal("SIGTERM");
  expect((await program.ended()).how).toBe("exit code 0");
  expect(program.logs().at(-1)).toMatchObject({ msg: "asked to stop", signal: "SIGTERM" });
});

describe("a start that cannot be", () => {
  test("a bad config is named in words, without a stack, exit code 1", async () => {
    const program = await startProgram({}, { server: { prot: 1 }, upstream: { total_timeout: "soon" } });
    cleanups.push(() => program.stop());
    const { how, stdout, stderr } = await program.ended();
    expect(how).toBe("exit code 1");
    expect(stdout).toBe("");
    expect(stderr).toMatch(/server\.prot/);
    expect(stderr).toMatch(/upstream\.total_timeout/);
    expect(stderr).not.toMatch(/^\s+at |Error:/m);
  });

  test("a port in use is named, with a way out, exit code 1", async () => {
    const blocker = createServer();
    blocker.listen(0, "127.0.0.1");
    await new Promise<void>((done) => blocker.once("listening", () => done()));
    cleanups.push(() => blocker.close());
    const address = blocker.address();
    const port = typeof address === "object" && address ? String(address.port) : "";
    for (const name of ["PORT", "ADMIN_PORT"]) {
      const ports = { PORT: "0", ADMIN_PORT: "0", [name]: port };
      const program = await startProgram({ HOST: "127.0.0.1", ...ports, REDIS_URL: redis.url });
      cleanups.push(() => program.stop());
      const { how, stderr } = await program.ended();
      expect(how).toBe("exit code 1");
      expect(stderr).toMatch(new RegExp(`address already in use.*${port}.*PORT`));
      expect(stderr.trim().split("\n"), "one line").toHaveLength(1);
    }
  });
});
