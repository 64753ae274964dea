import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterEach, expect, test } from "vitest";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { COMMAND_TIMEOUT_MS, givenRedis, ready, readyz } from "../support/store-stage.ts";

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function givenServer(server: Server): Promise<number> {
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  server.on("connection", (socket) => undo.push(() => socket.destroy()));
  undo.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

const LIBRARY =
  /Stream isn't|RESP|Connection is closed|enableOfflineQueue|\[ioredis\]|\bstart one\b|npm start/;

/** The gateway's log, and the output of doctor and of a command, about a Redis at this address. */
async function wordsAbout(redisUrl: string): Promise<{ log: string; doctor: string; command: string }> {
  const gateway = await givenGateway({ redisUrl });
  undo.push(() => gateway.stop());
  const unusable = (): string[] => gateway.logs.filter((line) => line.includes("the store is unusable"));
  await until(() => unusable().length > 0, "the reason in the log");
  const doctor = await runHere(["doctor", "--json"], { REDIS_URL: redisUrl });
  const { message, advice } = JSON.parse(doctor.stdout).checks.find(
    (check: { name: string }) => check.name === "redis",
  );
  expect(doctor.stderr).not.toMatch(LIBRARY);
  const { stderr, code } = await runHere(["keys", "list"], { REDIS_URL: redisUrl });
  expect(code).toBe(1);
  const words = { log: gateway.logs.join(""), doctor: `${message}; ${advice}`, command: stderr };
  for (const text of Object.values(words)) expect(text).not.toMatch(LIBRARY);
  return { ...words, log: unusable().join("") };
}

// Guarantee: every reason that Redis cannot be used is said in words of ours, with what to do, and never "start one".
test("an HTTP server, and a Redis that wants TLS, do not speak Redis's protocol", async () => {
  const port = await givenServer(createHttpServer());
  const words = await wordsAbout(`redis://127.0.0.1:${port}`);
  for (const text of Object.values(words)) {
    expect(text).toContain("does not speak Redis's protocol");
    expect(text).toContain("rediss://");
  }
});

test("a TLS port spoken to without TLS leads to rediss://", async () => {
  const server = createTlsServer(selfSignedCertificate());
  server.on("tlsClientError", () => undefined);
  const words = await wordsAbout(`redis://127.0.0.1:${await givenServer(server)}`);
  for (const text of Object.values(words)) expect(text).toContain("rediss://");
});

test("a Redis without TLS spoken to with TLS leads to redis://", async () => {
  const redis = await givenRedis();
  undo.push(() => redis.stop());
  const words = await wordsAbout(redis.url.replace("redis://", "rediss://"));
  for (const text of Object.values(words)) expect(text).toMatch(/rediss?:\/\//);
});

test("a server that hangs up at once closed the connection", async () => {
  const port = await givenServer(createServer((socket) => socket.destroy()));
  const words = await wordsAbout(`redis://127.0.0.1:${port}`);
  for (const text of Object.values(words))
    expect(text).toMatch(/closed the connection|no connection to Redis/);
});

test("a port where nothing listens, and a wrong password", async () => {
  const redis = await givenRedis();
  await redis.client.acl("SETUSER", "gateway", "on", ">right", "~*", "+@all");
  const refused = await wordsAbout(redis.url.replace("redis://", "redis://gateway:wrong@"));
  for (const text of Object.values(refused)) expect(text).toContain("password");
  await redis.stop();
  const words = await wordsAbout(redis.url);
  for (const text of Object.values(words)) expect(text).toContain("nothing listens at this address");
});

/** A gateway that finds a Redis unusable at its start, once it has said why. */
async function givenUnusable(redisUrl: string) {
  const gateway = await givenGateway({
    redisUrl,
    config: { store: { commandTimeoutMs: COMMAND_TIMEOUT_MS } },
  });
  undo.push(() => gateway.stop());
  const reasons = (): string[] => gateway.logs.filter((line) => line.includes("the store is unusable"));
  await until(() => reasons().length > 0, "the reason in the log");
  return { gateway, reason: reasons()[0]! };
}

// A gateway said nothing for as long as its Redis was frozen: the client library waits for ever for the first answer.
test.each(["", "gateway:right@"])("a Redis that is frozen when the gateway starts (%s)", async (login) => {
  const redis = await givenRedis();
  undo.push(() => redis.stop());
  await redis.client.acl("SETUSER", "gateway", "on", ">right", "~*", "&*", "+@all");
  redis.pause();
  const { gateway, reason } = await givenUnusable(redis.url.replace("redis://", `redis://${login}`));
  expect(reason).toContain("Redis accepts connections and does not answer on them");
  expect(reason).toContain("bring back this Redis with its data");
  expect(reason).not.toMatch(/"err"| {4}at /);
  expect(await readyz(gateway)).toBe(503);
  expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
  redis.resume();
  await ready(gateway);
});

test("doctor and commands end with an answer while Redis accepts connections and is silent", async () => {
  const port = await givenServer(createServer());
  const words = await wordsAbout(`redis://127.0.0.1:${port}`);
  for (const text of Object.values(words)) {
    expect(text).toContain("Redis accepts connections and does not answer on them");
    expect(text).toContain("bring back this Redis with its data");
  }
  const checked = await runHere(["config", "check"], { REDIS_URL: `redis://127.0.0.1:${port}` });
  expect(checked.stdout).toMatch(/is valid.*Not checked: .*does not answer/s);
});

// The client library's ready check was silent meanwhile, and began to ask again only 10 seconds later.
test("a Redis that loads its data when the gateway starts", async () => {
  const redis = await givenRedis(["--enable-debug-command", "local"]);
  undo.push(() => redis.stop());
  const { client } = redis;
  await client.call("DEBUG", "POPULATE", "4000", "filler", "100");
  await client.config("SET", "loading-process-events-interval-bytes", "1024");
  await client.config("SET", "key-load-delay", "2000");
  const loaded = client.call("DEBUG", "RELOAD");
  const observer = client.duplicate({ enableReadyCheck: false });
  observer.on("error", () => undefined);
  undo.push(() => observer.disconnect());
  await until(async () => /^loading:1/m.test(await observer.info("persistence")), "Redis to load");
  const { gateway, reason } = await givenUnusable(redis.url);
  expect(reason).toContain("LOADING");
  await client.config("SET", "key-load-delay", "0");
  await loaded;
  await ready(gateway);
});

test("a database that Redis does not have", async () => {
  const redis = await givenRedis();
  undo.push(() => redis.stop());
  const words = await wordsAbout(`${redis.url}/99`);
  for (const text of Object.values(words)) expect(text).toContain("no database of that number");
});

// Guarantee: no argument of a command comes into the log.
test("the log names the command that Redis does not offer", async () => {
  const redis = await givenRedis(["--rename-command", "EVALSHA", ""]);
  undo.push(() => redis.stop());
  const { reason } = await givenUnusable(redis.url);
  expect(reason).toContain("Redis does not offer the command EVALSHA; take it out of `rename-command`");
  expect(reason).not.toContain("with args");
});

// Guarantee: doctor does not call a Redis good on which gateways cannot rely.
test.each(["EVAL", "EVALSHA", "SCRIPT"])("doctor finds that Redis does not offer %s", async (command) => {
  const redis = await givenRedis(["--rename-command", command, ""]);
  undo.push(() => redis.stop());
  const { stdout } = await runHere(["doctor", "--json"], { REDIS_URL: redis.url });
  const { checks } = JSON.parse(stdout) as { checks: { name: string; message: string; advice: string }[] };
  expect(checks.find(({ name }) => name === "scripts")).toMatchObject({
    status: "fail",
    message: `Redis refuses them (Redis does not offer the command ${command})`,
    advice: expect.stringContaining("rename-command"),
  });
});

// Guarantee: a script that would stop half way, with what it has written, is found before it runs.
test.each([
  [
    "a user lacks",
    ["ACL", "SETUSER", "gateway", "on", ">right", "~tg:*", "+@all", "-xadd", "-set"],
    [],
    "SET, XADD",
  ],
  ["Redis does not offer", ["PING"], ["--rename-command", "XADD", ""], "XADD"],
])("doctor names commands of scripts that %s", async (_, [command = "", ...words], args, refused) => {
  const redis = await givenRedis(args);
  undo.push(() => redis.stop());
  await redis.client.call(command, ...words);
  const url = command === "ACL" ? redis.url.replace("redis://", "redis://gateway:right@") : redis.url;
  const { stdout } = await runHere(["doctor", "--json"], { REDIS_URL: url });
  const { checks } = JSON.parse(stdout) as { checks: { name: string }[] };
  expect(checks.find(({ name }) => name === "scripts")).toMatchObject({
    status: "fail",
    message: `Redis refuses them (a script may not run ${refused})`,
    advice: expect.stringContaining("docs/operations/redis.md, Access"),
  });
});

// Guarantee: an operator hears of it before a power cut, and not from the log after one.
test.each([
  [
    "a user may not run",
    ["ACL", "SETUSER", "gateway", "on", ">right", "~tg:*", "+@all", "-bgrewriteaof"],
    [],
  ],
  ["Redis has renamed", ["PING"], ["--rename-command", "BGREWRITEAOF", ""]],
])("doctor warns of a BGREWRITEAOF that %s", async (_, [command = "", ...words], args) => {
  const redis = await givenRedis(args);
  undo.push(() => redis.stop());
  await redis.client.call(command, ...words);
  const url = command === "ACL" ? redis.url.replace("redis://", "redis://gateway:right@") : redis.url;
  const { stdout } = await runHere(["doctor", "--json"], { REDIS_URL: url });
  const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string }[] };
  expect(checks.filter(({ status }) => status === "warn")).toContainEqual(
    expect.objectContaining({
      name: "persistence",
      message: expect.stringContaining("BGREWRITEAOF"),
      advice: expect.stringContaining("+bgrewriteaof"),
    }),
  );
  expect(checks.find(({ name }) => name === "scripts")).toMatchObject({ status: "ok" });
});

// Guarantee: of a replica doctor says that it is one, and does not send anybody to look at the ACL.
test("a read-only replica leads to the primary", async () => {
  const primary = await givenRedis();
  undo.push(() => primary.stop());
  const replica = await givenRedis(["--replicaof", "127.0.0.1", String(primary.port)]);
  undo.push(() => replica.stop());
  const { stdout } = await runHere(["doctor", "--json"], { REDIS_URL: replica.url });
  const { checks } = JSON.parse(stdout) as { checks: { name: string; message: string; advice: string }[] };
  for (const name of ["role", "scripts"]) {
    const check = checks.find((each) => each.name === name);
    expect(check).toMatchObject({ status: "fail", advice: "point REDIS_URL to the primary" });
  }
});
