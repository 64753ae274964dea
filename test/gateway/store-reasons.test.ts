import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterEach, expect, test } from "vitest";
import { selfSignedCertificate } from "../../src/sandbox/generator/certificate.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { givenRedis } from "../support/store-stage.ts";

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

/** What a gateway logs, and what doctor and a command print, of a Redis at this address. */
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

test("a database that Redis does not have", async () => {
  const redis = await givenRedis();
  undo.push(() => redis.stop());
  const words = await wordsAbout(`${redis.url}/99`);
  for (const text of Object.values(words)) expect(text).toContain("no database of that number");
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
    expect(check).toMatchObject({ status: "failed", advice: "point REDIS_URL to the primary" });
  }
});
