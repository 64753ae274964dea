import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer, type TlsOptions } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { runHere } from "../support/cli.ts";
import { expectStatus, send, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { tinyImage } from "../support/images.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { givenKey, givenRedis, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";

/** A server with a certificate that no public authority has signed, in front of one that speaks no TLS. */
async function startTlsFront(port: number, options: TlsOptions = {}) {
  const { key, cert } = selfSignedCertificate();
  const sockets = new Set<Socket>();
  const server = createServer({ key, cert, ...options }, (socket) => {
    const behind = connect(port, "127.0.0.1");
    for (const one of [socket, behind]) {
      sockets.add(one);
      one
        .on("error", () => undefined)
        .on("close", () => {
          socket.destroy();
          behind.destroy();
        });
    }
    socket.pipe(behind).pipe(socket);
  });
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    cert,
    port: (server.address() as AddressInfo).port,
    /** Breaks the connections that are open. */
    reset(): void {
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
    async stop(): Promise<void> {
      for (const socket of sockets) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}

let dir: string;
let redis: TestRedis;
let generator: Awaited<ReturnType<typeof startGenerator>>;
let storeFront: Awaited<ReturnType<typeof startTlsFront>>;
let upstreamFront: Awaited<ReturnType<typeof startTlsFront>>;
let redisUrl: string;
let upstreamUrl: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-authority-"));
  redis = await givenRedis();
  generator = await startGenerator();
  [storeFront, upstreamFront] = await Promise.all([startTlsFront(redis.port), startTlsFront(generator.port)]);
  redisUrl = `rediss://localhost:${storeFront.port}`;
  upstreamUrl = `https://localhost:${upstreamFront.port}`;
  await writeFile(join(dir, "store.pem"), storeFront.cert);
  await writeFile(join(dir, "upstream.pem"), `Made for a test.\n${upstreamFront.cert}`);
});
afterAll(async () => {
  await Promise.all([storeFront.stop(), upstreamFront.stop()]);
  await generator.stop();
  await redis.stop();
  await rm(dir, { recursive: true, force: true });
});

async function configFile(name: string, store: object, upstream: object): Promise<string> {
  const file = join(dir, name);
  const journal = join(dir, "journal");
  await writeFile(
    file,
    JSON.stringify({
      store: { journal, redis_url: redisUrl, ...store },
      upstream: { url: upstreamUrl, ...upstream },
    }),
  );
  return file;
}

function upload(url: string, key: string): Promise<Response> {
  const form = new FormData();
  form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
  const headers = { authorization: `Bearer ${key}` };
  return fetch(`${url}/api/v1/upload`, { method: "POST", headers, body: form });
}

// Guarantee: with a private authority, every connection is made and every server is checked with it, and with no other.
test("a gateway generates and uploads, with Redis and an upstream whose certificates are private", async () => {
  const env = {
    TOLLGATE_CONFIG: await configFile("both.json", { tls_ca: "store.pem" }, {}),
    REDIS_URL: redisUrl,
  };
  const made = await runHere(["keys", "create", "--credits", "100", "--json"], env);
  expect(made).toMatchObject({ code: 0, stderr: "" });
  const { key } = JSON.parse(made.stdout);
  const gateway = await startGatewayProcess({
    redisUrl,
    upstreamUrl,
    config: { store: { tls_ca: join(dir, "store.pem") }, upstream: { tls_ca: join(dir, "upstream.pem") } },
  });
  try {
    const generated = await send(gateway.url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: "x" } });
    expectStatus(generated, 200);
    expectStatus(await upload(gateway.url, key), 200);
  } finally {
    await gateway.stop();
  }
});

// Guarantee: a private authority does not make a Redis that answers look away, which would let requests pass unmetered.
test("with allow, the probe on its own connection trusts the authority, too", async () => {
  const gateway = await startGatewayProcess({
    redisUrl,
    upstreamUrl,
    config: {
      store: { tls_ca: join(dir, "store.pem"), fallback_strategy: "allow" },
      upstream: { tls_ca: join(dir, "upstream.pem") },
    },
  });
  try {
    const { key } = await givenKey(redis.client, { credits: 10_000 });
    const generate = () => send(gateway.url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: "x" } });
    for (let round = 0; round < 10; round++) {
      await until(async () => (await generate()).status === 200, "Redis to be there");
      storeFront.reset();
      const replies = await Promise.all([generate(), generate(), generate()]);
      for (const { headers } of replies) expect(headers.get("x-gateway-degraded")).toBeNull();
    }
  } finally {
    await gateway.stop();
  }
});

test("doctor checks Redis and the upstream with the private authorities, and names what is missing", async () => {
  const good = await configFile("good.json", { tls_ca: "store.pem" }, { tls_ca: "upstream.pem" });
  const checks = async (file: string) => {
    const { stdout } = await runHere(["doctor", "--json"], {
      TOLLGATE_CONFIG: file,
      REDIS_URL: "",
      UPSTREAM_API_KEY: "upstream-secret",
    });
    const all = JSON.parse(stdout).checks as {
      name: string;
      status: string;
      message: string;
      advice?: string;
    }[];
    return Object.fromEntries(all.map((check) => [check.name, check]));
  };
  expect(await checks(good)).toMatchObject({ redis: { status: "ok" }, upstream: { status: "ok" } });
  const bad = await checks(await configFile("bad.json", {}, {}));
  expect(bad.redis).toMatchObject({ status: "fail", advice: expect.stringContaining("store.tls_ca") });
  expect(bad.upstream).toMatchObject({
    status: "fail",
    advice: expect.stringContaining("upstream.tls_ca"),
  });
  const swapped = await checks(
    await configFile("swapped.json", { tls_ca: "upstream.pem" }, { tls_ca: "store.pem" }),
  );
  expect(swapped).toMatchObject({ redis: { status: "fail" }, upstream: { status: "fail" } });
});

// Guarantee: an upstream that asks for a client certificate gets it on each of its connections.
test("the gateway shows its client certificate when it generates, polls and uploads", async () => {
  const client = selfSignedCertificate();
  const front = await startTlsFront(generator.port, { requestCert: true, ca: client.cert });
  await writeFile(join(dir, "strict.pem"), front.cert);
  await writeFile(join(dir, "client.pem"), client.cert);
  await writeFile(join(dir, "client.key"), client.key);
  const { url: openRedis } = redis;
  const { key } = await givenKey(redis.client, { credits: 100 });
  const started = (upstream: object) =>
    startGatewayProcess({
      redisUrl: openRedis,
      upstreamUrl: `https://localhost:${front.port}`,
      config: { upstream: { tls_ca: join(dir, "strict.pem"), ...upstream } },
    });
  const files = { tls_cert: join(dir, "client.pem"), tls_key: join(dir, "client.key") };
  const gateways = await Promise.all([started(files), started({})]);
  const [certified, anonymous] = gateways;
  try {
    const body = { prompt: "x [sandbox: duration=0s]" };
    const generated = await send(certified!.url, "POST", TEXT_TO_VIDEO, { key, body });
    expectStatus(generated, 200);
    const polled = await send(certified!.url, "GET", `/api/v1/tasks/${generated.body.data.task_id}`, { key });
    expect(polled.body.data).toMatchObject({ status: "completed" });
    expectStatus(await upload(certified!.url, key), 200);
    const refused = await send(anonymous!.url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: "x" } });
    expect([502, 503]).toContain(refused.status);
    expect((await upload(anonymous!.url, key)).status).toBe(502);
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await front.stop();
  }
});
