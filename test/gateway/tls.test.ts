import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { Agent, request } from "node:https";
import { connect as connectPlain } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { readConfig, requireLoaded } from "../../src/config/config.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { startGateway } from "../../src/process/start-gateway.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";

const CREDITS = "/api/v1/credits";
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
type Pair = ReturnType<typeof selfSignedCertificate>;

/** A gateway whose listeners both speak TLS, from a config file, watching it. */
async function givenSecureGateway(options: { clientCa?: string } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-tls-"));
  const put = (pair: Partial<Pair>): void => {
    if (pair.cert !== undefined) writeFileSync(join(folder, "cert.pem"), pair.cert);
    if (pair.key !== undefined) writeFileSync(join(folder, "key.pem"), pair.key);
  };
  const pair = selfSignedCertificate();
  put(pair);
  if (options.clientCa !== undefined) writeFileSync(join(folder, "clients.pem"), options.clientCa);
  const files = { cert: "cert.pem", key: "key.pem" };
  const file = join(folder, "tollgate.yaml");
  const settings = {
    server: {
      host: "127.0.0.1",
      port: 0,
      drain_delay: "0s",
      // The load of a renewal comes as fast as it is answered, and none of it may be refused.
      utility_requests_per_second: 1_000_000,
      tls: options.clientCa === undefined ? files : { ...files, client_ca: "clients.pem" },
    },
    admin: { port: 0, tls: files },
    tasks: { sweep_interval: "1m" },
    store: { command_timeout: "5s", journal: join(folder, "journal"), allow_no_persistence: true },
  };
  writeFileSync(file, JSON.stringify(settings));
  const generator = await startGenerator();
  const env = {
    REDIS_URL: inject("redisUrl"),
    UPSTREAM_URL: generator.url,
    UPSTREAM_API_KEY: "upstream-secret",
  };
  const lines: string[] = [];
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const gateway = await startGateway(requireLoaded(readConfig({ env, file })), log);
  gateway.live.watch();
  const redis = new Redis(inject("redisUrl"));
  const ready = () =>
    ask(`${gateway.adminUrl}/readyz`, { ca: pair.cert }).then(({ status }) => status === 200);
  await until(ready, "the gateway to be ready");
  return {
    ...gateway,
    pair,
    put,
    lines,
    port: Number(new URL(gateway.url).port),
    givenKey: () =>
      issueKey(
        oneNode(redis),
        { credits: 10_000, limits: { rate_limit: 10_000, max_concurrent: 1000 } },
        cliActor(),
      ),
    async stop() {
      await gateway.drain();
      redis.disconnect();
      await generator.stop();
    },
  };
}
type SecureGateway = Awaited<ReturnType<typeof givenSecureGateway>>;

interface Ask {
  ca: string | string[];
  method?: string;
  body?: string;
  headers?: Record<string, string>;
  agent?: Agent;
  client?: Pair;
}

async function ask(url: string, { ca, method = "GET", body, headers = {}, agent, client }: Ask) {
  const sent = request(url, { method, headers, ca, agent: agent ?? false, ...client });
  sent.end(body);
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  const { fingerprint256 } = (answer.socket as TLSSocket).getPeerCertificate();
  let text = "";
  for await (const chunk of answer.setEncoding("utf8")) text += chunk;
  return { status: answer.statusCode, text, fingerprint256 };
}

/** One connection, handshake done; undefined words of OpenSSL when it is refused. */
async function handshake(gateway: SecureGateway, options: ConnectionOptions): Promise<TLSSocket> {
  const socket = connect({ host: "127.0.0.1", port: gateway.port, ca: gateway.pair.cert, ...options });
  await once(socket, "secureConnect");
  return socket;
}

/** Writes what a client might, and reads until the gateway ends the connection. */
async function exchange(gateway: SecureGateway, text: string, end = false): Promise<string> {
  const options: ConnectionOptions & { allowHalfOpen: boolean } = { allowHalfOpen: true };
  const socket = await handshake(gateway, options);
  let answer = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    answer += chunk;
  });
  const ended = once(socket, "end");
  if (end) socket.end(text);
  else socket.write(text);
  await ended;
  socket.destroy();
  return answer;
}

describe("a listener with server.tls", () => {
  let gateway: SecureGateway;
  beforeAll(async () => {
    gateway = await givenSecureGateway();
  });
  afterAll(() => gateway.stop());
  const authorization = async () => `Bearer ${(await gateway.givenKey()).key}`;

  // The first one: a handshake that fails is over after its time, and those of other tests are, too.
  test("plain HTTP and handshakes that fail leave no connection behind", async () => {
    const kept = new Agent({ keepAlive: true });
    const open = async () => {
      const page = await ask(`${gateway.adminUrl}/metrics`, { ca: gateway.pair.cert, agent: kept });
      return /^tollgate_connections (\d+)$/m.exec(page.text)?.[1];
    };
    const plain = connectPlain(gateway.port, "127.0.0.1");
    plain.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    plain.on("error", () => undefined).resume();
    await once(plain, "close");
    const quiet = connectPlain(gateway.port, "127.0.0.1");
    await until(async () => (await open()) === "1", "the handshake that never begins to be counted");
    quiet.destroy();
    await until(async () => (await open()) === "0", "all connections to be gone");
    kept.destroy();
  });

  test("serves credits, generations and polls, and its admin port likewise", async () => {
    const headers = { authorization: await authorization(), "content-type": "application/json" };
    const ca = gateway.pair.cert;
    const body = JSON.stringify({ prompt: "a boat" });
    const made = await ask(gateway.url + TEXT_TO_VIDEO, { ca, method: "POST", body, headers });
    expect(made.status).toBe(200);
    const { task_id } = JSON.parse(made.text).data;
    expect((await ask(`${gateway.url}/api/v1/tasks/${task_id}`, { ca, headers })).status).toBe(200);
    expect((await ask(gateway.url + CREDITS, { ca, headers })).status).toBe(200);
    expect(gateway.adminUrl).toMatch(/^https:/);
    expect((await ask(`${gateway.adminUrl}/metrics`, { ca })).text).toContain("tollgate_");
  });

  test("TLS 1.2 and 1.3 are spoken, 1.1 is not; HTTP/1.1 is the only protocol", async () => {
    for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
      const offered = { minVersion: version, maxVersion: version, ALPNProtocols: ["h2", "http/1.1"] };
      const socket = await handshake(gateway, offered);
      expect([socket.getProtocol(), socket.alpnProtocol]).toEqual([version, "http/1.1"]);
      socket.destroy();
    }
    const old = { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
    await expect(handshake(gateway, old)).rejects.toThrow(/protocol version/i);
    await expect(handshake(gateway, { ALPNProtocols: ["h2"] })).rejects.toThrow(/no application protocol/i);
  });

  test("framing is as strict as without TLS, and refusals come in the envelope", async () => {
    const key = await authorization();
    const head = (line: string, ...more: string[]) =>
      [line, "Host: localhost", `Authorization: ${key}`, ...more, "", ""].join("\r\n");
    const chunked = head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Transfer-Encoding: chunked", "Content-Length: 3");
    expect(await exchange(gateway, `${chunked}abc`)).toMatch(/^HTTP\/1\.1 400 [\s\S]*"code":400/);
    expect(await exchange(gateway, "\u0000\u0001 nonsense\r\n\r\n")).toMatch(
      /^HTTP\/1\.1 400 [\s\S]*"code":400/,
    );
    const large = head(`GET ${CREDITS} HTTP/1.1`, `X-Large: ${"x".repeat(70_000)}`);
    expect(await exchange(gateway, large)).toMatch(/^HTTP\/1\.1 431 [\s\S]*"code":431/);
    const two = head(`GET ${CREDITS} HTTP/1.1`) + head(`GET ${CREDITS} HTTP/1.1`, "Connection: close");
    expect((await exchange(gateway, two)).match(/HTTP\/1\.1 200/g)).toHaveLength(2);
  });

  test("a client that closes its sending side behind its request gets the answer", async () => {
    const body = JSON.stringify({ prompt: "[sandbox: delay=200ms]" });
    const text = [
      `POST ${TEXT_TO_VIDEO} HTTP/1.1`,
      "Host: localhost",
      `Authorization: ${await authorization()}`,
      "Content-Type: application/json",
      `Content-Length: ${body.length}`,
      "",
      body,
    ].join("\r\n");
    expect(await exchange(gateway, text, true)).toMatch(/^HTTP\/1\.1 200 /);
  });
});

test("with client_ca only clients with a certificate of theirs are served", async () => {
  const [client, stranger] = [selfSignedCertificate(), selfSignedCertificate()];
  const gateway = await givenSecureGateway({ clientCa: client.cert });
  const headers = { authorization: `Bearer ${(await gateway.givenKey()).key}` };
  const credits = (own: { client?: Pair }) =>
    ask(gateway.url + CREDITS, { ca: gateway.pair.cert, headers, ...own });
  expect((await credits({ client })).status).toBe(200);
  await expect(credits({})).rejects.toThrow();
  await expect(credits({ client: stranger })).rejects.toThrow();
  await gateway.stop();
});

describe("files that change", () => {
  let gateway: SecureGateway;
  beforeAll(async () => {
    gateway = await givenSecureGateway();
  });
  afterAll(() => gateway.stop());
  const fingerprintOf = ({ cert }: Pair) => new X509Certificate(cert).fingerprint256;

  // Guarantee: a renewal needs no restart and costs no customer a request.
  test("a renewal under load fails no request, on old connections or new ones", async () => {
    const headers = { authorization: `Bearer ${(await gateway.givenKey()).key}` };
    const next = selfSignedCertificate(400);
    const expiry = async (ca: string) => {
      const page = await ask(`${gateway.adminUrl}/metrics`, { ca });
      const name = "tollgate_tls_certificate_expiry_timestamp_seconds";
      return new RegExp(`^${name}\\{setting="server.tls.cert"\\} (\\d+)$`, "m").exec(page.text)?.[1];
    };
    const expiryOf = ({ cert }: Pair) => String(new X509Certificate(cert).validToDate.getTime() / 1000);
    expect(await expiry(gateway.pair.cert)).toBe(expiryOf(gateway.pair));
    // Their fingerprints are compared instead: OpenSSL mixes up two self-signed ones of the same name.
    const ca = gateway.pair.cert;
    const kept = new Agent({ keepAlive: true, maxSockets: 2, rejectUnauthorized: false });
    const fresh = new Agent({ maxSockets: 2, rejectUnauthorized: false });
    const seen: { status: number | undefined; fingerprint256: string }[] = [];
    let loading = true;
    const load = async (agent: Agent): Promise<void> => {
      while (loading) seen.push(await ask(gateway.url + CREDITS, { ca, headers, agent }));
    };
    const clients = Promise.all([load(fresh), load(fresh), load(kept), load(kept)]);
    // Failures while this waits for something else are seen at the end.
    clients.catch(() => undefined);
    const renewed = () => seen.some(({ fingerprint256 }) => fingerprint256 === fingerprintOf(next));
    await until(() => seen.length > 20, "the load to flow");
    // One after the other, as a renewal writes them: for a while they do not fit together.
    gateway.put({ cert: next.cert });
    await until(
      () => gateway.lines.some((line) => line.includes("server.tls.key")),
      "the mismatch to be said",
    );
    expect(renewed()).toBe(false);
    gateway.put({ key: next.key });
    await until(renewed, "the new certificate");
    const before = seen.length;
    await until(() => seen.length > before + 20, "some more of the load");
    loading = false;
    await clients;
    kept.destroy();
    expect(new Set(seen.map(({ status }) => status))).toEqual(new Set([200]));
    expect((await ask(`${gateway.adminUrl}/livez`, { ca: next.cert })).fingerprint256).toBe(
      fingerprintOf(next),
    );
    expect(await expiry(next.cert)).toBe(expiryOf(next));
    expect(gateway.lines.join("")).not.toContain("PRIVATE KEY");
    gateway.pair.cert = next.cert;
  });

  test("a broken pair keeps the old one in force, and the log says what is wrong", async () => {
    const headers = { authorization: `Bearer ${(await gateway.givenKey()).key}` };
    gateway.put({ key: "-----BEGIN PRIVATE KEY-----\nbm9uc2Vuc2U=\n-----END PRIVATE KEY-----\n" });
    const problem = "server.tls.key: key.pem holds no private key in PEM";
    await until(() => gateway.lines.some((line) => line.includes(problem)), "the problem to be logged");
    expect((await ask(gateway.url + CREDITS, { ca: gateway.pair.cert, headers })).status).toBe(200);
    const page = (await ask(`${gateway.adminUrl}/metrics`, { ca: gateway.pair.cert })).text;
    expect(page).toMatch(/^tollgate_config_last_reload_successful 0$/m);
  });
});

test("a drain answers what is under way and ends handshakes that never finish", async () => {
  const gateway = await givenSecureGateway();
  const headers = {
    authorization: `Bearer ${(await gateway.givenKey()).key}`,
    "content-type": "application/json",
  };
  const quiet = connectPlain(gateway.port, "127.0.0.1");
  await once(quiet, "connect");
  const idle = await handshake(gateway, {});
  idle.on("error", () => undefined).resume();
  const body = JSON.stringify({ prompt: "[sandbox: delay=3s]" });
  const sent = ask(gateway.url + TEXT_TO_VIDEO, { ca: gateway.pair.cert, method: "POST", body, headers });
  const inFlight = async () =>
    (await ask(`${gateway.adminUrl}/metrics`, { ca: gateway.pair.cert })).text.includes("_in_flight 1\n");
  await until(inFlight, "the request to be under way");
  const [drained, answer] = await Promise.all([gateway.drain(), sent]);
  expect(answer.status).toBe(200);
  expect(drained).toMatchObject({ clean: true, cutRequests: 0 });
  await gateway.stop();
});
