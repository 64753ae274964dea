import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { givenAuthority, OPENSSL } from "../support/edge/openssl.ts";
import { type EdgeProxy, isInstalled, type Place, PROXIES } from "../support/edge/proxies.ts";
import { type Reply, send } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { type Sections, startGatewayProcess } from "../support/processes.ts";
import { rawClient } from "../support/raw-client.ts";
import { until } from "../support/until.ts";

const CREDITS = "/api/v1/credits";
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const LOAD_MS = 10_000;
const LOAD_REQUESTS_MAX = 20_000;
const UNLIMITED = { rate_limit: 100_000, max_concurrent: 100_000, daily_limit: 1_000_000 };
const UNKNOWN_KEYS = 5;

/** Beginnings of requests that a proxy may refuse by itself. */
const MALFORMED = [
  ["a method in lower case", `get ${CREDITS} HTTP/1.1`],
  ["TRACE", `TRACE ${CREDITS} HTTP/1.1`],
  ["CONNECT", "CONNECT a:443 HTTP/1.1"],
  ["HTTP/2.0 as version", `GET ${CREDITS} HTTP/2.0`],
  ["a NUL in the path", "GET /api/v1/%00 HTTP/1.1"],
  ["steps out of the path", "GET /../../x HTTP/1.1"],
  ["the path of its own errors", "GET /nginx/refused HTTP/1.1"],
] as const;
/** HAProxy's page for these cannot be changed. */
const UNPARSED = [
  ["a path of 20,000 characters", `GET /${"a".repeat(20_000)} HTTP/1.1`],
  ["another transfer coding", `POST ${TEXT_TO_VIDEO} HTTP/1.1\r\nTransfer-Encoding: gzip`],
  ["TLS on the plain port", "\x16\x03\x01\x02\0"],
] as const;

type Stage = Awaited<ReturnType<typeof givenProxy>>;

/** A proxy in front of one gateway, or of two, each a process of its own. */
async function givenProxy(proxy: EdgeProxy, options: { gateways?: 1 | 2; tls?: Sections; ca?: string } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-proxy-"));
  const generator = await startGenerator();
  const redis = new Redis(inject("redisUrl"));
  const server = { trust_proxy: ["127.0.0.0/8"], unknown_keys_per_minute: UNKNOWN_KEYS };
  const startGateway = async (env: Record<string, string> = {}) =>
    startGatewayProcess({
      redisUrl: inject("redisUrl"),
      upstreamUrl: generator.url,
      config: {
        server: { ...server, utility_requests_per_second: 1_000_000, ...options.tls?.server },
        tasks: { sweep_interval: "1m" },
      },
      env,
    });
  const gateways = [await startGateway()];
  if (options.gateways === 2) gateways.push(await startGateway());
  const places = gateways.map(({ url, adminUrl }) => ({
    host: new URL(url).host,
    adminPort: new URL(adminUrl).port,
  }));
  const behind: [Place, Place] = [places[0]!, places.at(-1)!];
  const port = await freePort();
  const running = await proxy.start({ port, gateways: behind, ca: options.ca, folder });
  const url = `http://127.0.0.1:${port}`;
  const { key } = await issueKey(oneNode(redis), { credits: 10_000_000, limits: UNLIMITED }, cliActor());
  const credits = () => send(url, "GET", CREDITS, { key });
  const isServing = () =>
    credits().then(
      ({ status }) => status === 200,
      () => false,
    );
  await until(isServing, "the proxy to serve");
  return {
    url,
    port,
    key,
    folder,
    generator,
    gateways,
    credits,
    generate: (prompt: string) => send(url, "POST", TEXT_TO_VIDEO, { key, body: { prompt } }),
    /** Generations that reached the upstream. */
    made: () => generator.requests.filter(({ path }) => path === TEXT_TO_VIDEO).length,
    uploads: () => generator.requests.filter(({ path }) => path === "/api/v1/upload").length,
    /** Ends a gateway as an update does, starts another one at its place, and waits until the proxy uses it. */
    async restart(at: number): Promise<void> {
      const old = gateways[at]!;
      old.signal("SIGTERM");
      expect(await old.ended()).toMatchObject({ how: "exit code 0" });
      const place = places[at]!;
      gateways[at] = await startGateway({ PORT: place.host.split(":")[1]!, ADMIN_PORT: place.adminPort });
      await old.stop();
      const isUsed = async () =>
        /^tollgate_requests_total\{[^}]*\} [1-9]/m.test(
          await (await fetch(`${gateways[at]!.adminUrl}/metrics`)).text(),
        );
      await until(isUsed, "requests at the restarted gateway");
    },
    async stop() {
      await running.stop(5000);
      await Promise.all(gateways.map((gateway) => gateway.stop()));
      redis.disconnect();
      await generator.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A load of so many clients until it is ended. What fails is seen at the end. */
function load(clients: number, one: () => Promise<unknown>) {
  let ended = false;
  let done = 0;
  const client = async (): Promise<void> => {
    while (!ended && done < LOAD_REQUESTS_MAX) {
      await one();
      done++;
    }
  };
  const all = Promise.all(Array.from({ length: clients }, client));
  all.catch(() => undefined);
  return {
    done: () => done,
    async end(): Promise<void> {
      ended = true;
      await all;
    },
  };
}

/** One answer, to a request that is sent in full. */
async function answerTo(sent: ClientRequest): Promise<number | undefined> {
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  answer.resume();
  return answer.statusCode;
}

const isEnvelope = ({ status, body }: Reply): void => {
  expect(body).toMatchObject({ code: status, msg: body.error });
};

for (const proxy of PROXIES) {
  const found = isInstalled(proxy.program, proxy.name);
  const hasTools = isInstalled(OPENSSL, "openssl") && isInstalled("/usr/bin/curl", "curl");

  describe.skipIf(!found)(`the example of ${proxy.name}`, () => {
    describe("in front of a gateway", () => {
      let stage: Stage;
      beforeAll(async () => {
        stage = await givenProxy(proxy);
      });
      afterAll(() => stage.stop());

      // Guarantee: an upload waits neither on the proxy's disk nor in its memory, and its minimum rate is the customer's.
      test("passes an upload on while the client still sends it", async () => {
        const file = Buffer.alloc(512 * 1024, 1);
        file.set([0x89, ...Buffer.from("PNG\r\n\x1a\n")]);
        const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n';
        const start = Buffer.from(`${head}Content-Type: image/png\r\n\r\n`);
        const end = Buffer.from("\r\n--b--\r\n");
        const upload = request(`${stage.url}/api/v1/upload`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${stage.key}`,
            "content-type": "multipart/form-data; boundary=b",
            "content-length": start.length + file.length + end.length,
          },
        });
        const answer = answerTo(upload);
        const half = file.length / 2;
        upload.write(Buffer.concat([start, file.subarray(0, half)]));
        await until(() => stage.uploads() > 0, "the upload's first bytes to be upstream");
        upload.end(Buffer.concat([file.subarray(half), end]));
        expect(await answer).toBe(200);
      });

      test.each(proxy.name === "haproxy" ? MALFORMED : [...MALFORMED, ...UNPARSED])(
        "%s gets our envelope",
        async (_, begin) => {
          const client = await rawClient(stage.url);
          client.send(`${begin}\r\nHost: a\r\nConnection: close\r\n\r\n`);
          await client.ended();
          const [head = "", text = ""] = client.received().split("\r\n\r\n");
          const [, status] = /^HTTP\/1\.1 (4\d\d|50[1-5]) /.exec(head) ?? [];
          expect(JSON.parse(text)).toMatchObject({ code: Number(status), error: expect.any(String) });
        },
      );

      // Guarantee: headers are as long as the gateway takes them.
      test("passes 14,000 bytes of one header on", async () => {
        const headers = { "x-padding": "a".repeat(14_000) };
        expect((await send(stage.url, "GET", CREDITS, { key: stage.key, headers })).status).toBe(200);
      });

      // Guarantee: nobody dodges a limit per address by a header, not even from an address that is trusted.
      test("tells the gateway the client's address, whatever the client says of it", async () => {
        let tries = 0;
        const unknown = (localAddress: string) => {
          const headers = {
            authorization: `Bearer sk_unknown_${tries}`,
            "x-forwarded-for": `203.0.113.${++tries}`,
          };
          const sent = request(stage.url + CREDITS, { localAddress, headers, agent: false });
          sent.end();
          return answerTo(sent);
        };
        for (let at = 0; at < UNKNOWN_KEYS; at++) expect(await unknown("127.0.0.2")).toBe(401);
        expect(await unknown("127.0.0.2")).toBe(429);
        expect(await unknown("127.0.0.3")).toBe(401);
      });
    });

    // Guarantee: a gateway that dies under a generation makes no SDK behind the proxy buy a second video.
    test("after a killed gateway the client gets our envelope, and nothing is sent twice", async () => {
      const stage = await givenProxy(proxy);
      try {
        expect((await stage.generate("hello")).status).toBe(200);
        const before = stage.made();
        const underWay = stage.generate("[sandbox: delay=30s]");
        await until(() => stage.made() > before, "the generation to be under way");
        stage.gateways[0]!.signal("SIGKILL");
        const cut = await underWay;
        expect(cut.status).toBe(502);
        isEnvelope(cut);
        expect(cut.headers.get("x-should-retry")).toBe("false");
        expect(cut.headers.get("content-type")).toMatch(/^application\/json/);
        const nobody = await stage.generate("to nobody");
        expect([502, 503]).toContain(nobody.status);
        isEnvelope(nobody);
        expect(stage.made()).toBe(before + 1);
      } finally {
        await stage.stop();
      }
    });

    // Guarantee: the same with another gateway to turn to, on connections that are used again and again.
    test("gateways killed under load leave an envelope for each request, and none is sent twice", async () => {
      const stage = await givenProxy(proxy, { gateways: 2 });
      const replies: Reply[] = [];
      let generated = 0;
      const generations = load(8, async () => {
        generated++;
        replies.push(await stage.generate("[sandbox: delay=100ms]"));
      });
      const failures = () => replies.filter(({ status }) => status !== 200);
      const isServed = () => replies.length > 100 && replies.slice(-50).every(({ status }) => status === 200);
      try {
        await until(isServed, "the load to flow");
        stage.gateways[0]!.signal("SIGKILL");
        await until(() => failures().length > 0, "requests that are cut");
        await until(isServed, "the other gateway to serve alone");
        stage.gateways[1]!.signal("SIGKILL");
        await until(() => failures().length > 50, "refusals");
        await generations.end();
        for (const failure of failures()) {
          isEnvelope(failure);
          // A request that no gateway was sent (503) may be sent again; after all others a video may be under way.
          if (failure.status === 503) expect(failure.headers.get("retry-after")).toBe("1");
          else expect(failure.headers.get("x-should-retry")).toBe("false");
        }
        const of = (status: number) => replies.filter((reply) => reply.status === status).length;
        expect(of(200) + of(502) + of(503)).toBe(generated);
        expect(stage.made()).toBeLessThanOrEqual(of(200) + of(502));
        // All clients had one under way at one gateway or the other; a resent one would be a second video.
        expect(stage.made()).toBeLessThanOrEqual(of(200) + 16);
      } finally {
        await stage.stop();
      }
    });

    // Guarantee: an update of the gateways costs no customer a request. Where the proxy does not look at /readyz, one that
    // meets the end of an idle connection is answered, and neither bought twice nor offered for another try.
    test("two gateways are restarted one after the other under load", async () => {
      const stage = await givenProxy(proxy, { gateways: 2 });
      const replies: Reply[] = [];
      let generated = 0;
      const startMs = performance.now();
      const requests = load(8, async () => {
        const made = await stage.generate("a boat");
        replies.push(made, await stage.credits());
        if (made.status !== 200) return;
        generated++;
        const task = `/api/v1/tasks/${made.body.data.task_id}`;
        replies.push(await send(stage.url, "GET", task, { key: stage.key }));
      });
      try {
        for (const at of [0, 1]) {
          const before = requests.done();
          await until(() => requests.done() > before + 100, "the load to flow");
          await stage.restart(at);
        }
        await until(() => performance.now() - startMs > LOAD_MS, "the load to last");
        await requests.end();
        const cut = replies.filter(({ status }) => status !== 200);
        for (const reply of cut) {
          expect(reply.status).toBe(502);
          isEnvelope(reply);
          expect(reply.headers.get("x-should-retry")).toBe("false");
        }
        // Each client has one request under way at each of the two ends.
        expect(cut.length).toBeLessThanOrEqual(proxy.looksAtReadiness ? 0 : 16);
        expect(stage.made()).toBeGreaterThanOrEqual(generated);
        expect(stage.made()).toBeLessThanOrEqual(generated + cut.length);
      } finally {
        await stage.stop();
      }
    });

    // Guarantee: with TLS up to the gateways, a renewal costs no customer a request, and needs no hand at the proxy.
    test.skipIf(!hasTools)("the gateway's certificate is renewed under load", async () => {
      const folder = await mkdtemp(join(tmpdir(), "tollgate-edge-tls-"));
      const authority = await givenAuthority(folder, "gateways.internal");
      const old = await authority.renew();
      const { ca, cert, key } = authority;
      const stage = await givenProxy(proxy, { tls: { server: { tls: { cert, key } } }, ca });
      const gateway = new URL(stage.gateways[0]!.url).host;
      const curl = async () => {
        const header = `authorization: Bearer ${stage.key}`;
        const args = ["-sS", "--fail", "--cacert", ca, "-H", header, `https://${gateway}${CREDITS}`];
        expect(JSON.parse((await promisify(execFile)("curl", args)).stdout).code).toBe(200);
      };
      const proxied = load(4, async () => expect((await stage.credits()).status).toBe(200));
      const direct = load(1, curl);
      try {
        await until(() => proxied.done() > 50 && direct.done() > 5, "the load to flow");
        expect(await authority.shownAt(gateway)).toBe(old);
        const next = await authority.renew();
        await until(async () => (await authority.shownAt(gateway)) === next, "the new certificate");
        const [before, curlsBefore] = [proxied.done(), direct.done()];
        await until(
          () => proxied.done() > before + 50 && direct.done() > curlsBefore + 5,
          "more of the load",
        );
        await Promise.all([proxied.end(), direct.end()]);
      } finally {
        await stage.stop();
        await rm(folder, { recursive: true });
      }
    });
  });
}
