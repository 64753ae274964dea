import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { clockCheck, infoChecks, latencyCheck, replicasChecks } from "../../../src/checks/server-checks.ts";
import { judgeUpstream, upstreamCheck } from "../../../src/checks/upstream-check.ts";
import { readConfig, requireLoaded } from "../../../src/config/config.ts";
import { readInfo } from "../../../src/redis/server-info.ts";
import { createUpstream } from "../../../src/upstream/upstream.ts";

test("doctor names an old, evicting, forgetful or read-only Redis", () => {
  const info = (text: string) => infoChecks(readInfo(text)).filter(({ ok }) => !ok);
  const good =
    "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";
  expect(info(good)).toEqual([]);
  const failing = (from: string, to: string) => info(good.replace(from, to)).map(({ name }) => name);
  expect(failing("7.0.15", "6.2.14")).toEqual(["version"]);
  expect(failing("role:master", "role:slave")).toEqual(["role"]);
  expect(failing("aof_enabled:1", "aof_enabled:0")).toEqual(["persistence"]);
  // Started with the setting alone, Redis ignores its dump and is empty.
  expect(info(good.replace("aof_enabled:1", "aof_enabled:0"))[0]).toMatchObject({
    advice: expect.stringMatching(/CONFIG SET appendonly yes.*only then/),
  });
  expect(failing("aof_enabled:1", "aof_enabled:1\r\naof_last_write_status:err")).toEqual(["persistence"]);
  expect(failing("noeviction", "allkeys-lru")).toEqual(["eviction"]);
  expect(failing("role:master", "used_memory:89\r\nmaxmemory:100\r\nrole:master")).toEqual([]);
  expect(failing("role:master", "used_memory:90\r\nmaxmemory:100\r\nrole:master")).toEqual(["memory"]);
});

test("doctor warns of a Redis that is not wrong yet", () => {
  const warned = (lines: string, fsync?: string) =>
    infoChecks(readInfo(`redis_version:7.2.0\naof_enabled:1\n${lines}\n`), fsync)
      .filter(({ status }) => status === "warn")
      .map(({ name }) => name);
  expect(warned("")).toEqual([]);
  expect(warned("", "always")).toEqual([]);
  expect(warned("", "no")).toEqual(["persistence"]);
  expect(warned("aof_last_bgrewrite_status:err")).toEqual(["persistence"]);
  expect(warned("used_memory:76\nmaxmemory:100")).toEqual(["memory"]);
  expect(warned("used_memory:76\nmaxmemory:0\ntotal_system_memory:100")).toEqual(["memory"]);
  expect(warned("used_memory:74\nmaxmemory:100\ntotal_system_memory:74")).toEqual([]);
});

test("doctor warns if fewer replicas are connected than charges wait for", () => {
  const statuses = (lines: string, wanted?: number) =>
    replicasChecks(readInfo(`role:master\n${lines}\n`), wanted).map(({ status }) => status);
  const one = "connected_slaves:2\nslave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=0";
  const syncing = `${one}\nslave1:ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0`;
  expect(statuses(one, undefined)).toEqual([]);
  expect(statuses(one, 0)).toEqual([]);
  expect(statuses(one, 1)).toEqual(["ok"]);
  expect(statuses("connected_slaves:0", 1)).toEqual(["warn"]);
  expect(statuses(syncing, 2)).toEqual(["warn"]);
});

test("doctor judges clock and latency by how far they are off", () => {
  expect([0, 999, -999].map((ms) => clockCheck(ms).status)).toEqual(["ok", "ok", "ok"]);
  expect([1001, -4999].map((ms) => clockCheck(ms).status)).toEqual(["warn", "warn"]);
  expect([5001, -60_000].map((ms) => clockCheck(ms).ok)).toEqual([false, false]);
  expect(clockCheck(-60_000).message).toContain("60000 ms behind");
  expect(latencyCheck([0.2, 0.3, 0.2], 500).status).toBe("ok");
  expect(latencyCheck([0.2, 600, 0.2], 500).status).toBe("warn");
  expect(latencyCheck([12, 15, 11], 500).status).toBe("warn");
  expect(latencyCheck([600, 700, 800], 500)).toMatchObject({
    ok: false,
    advice: expect.stringContaining("500 ms"),
  });
});

test.each([
  [200, '{"code":200,"data":{}}', "ok"],
  [404, '{"code":404,"msg":"Task not found"}', "ok"],
  [404, '{"code":"404","msg":"Task not found"}', "ok"],
  [200, '{"code":404,"msg":"Task not found"}', "ok"],
  [404, "<html>nginx</html>", "fail"],
  [200, '{"status":"fine"}', "fail"],
  [401, '{"code":401}', "fail"],
  [200, '{"code":402}', "fail"],
  [429, '{"code":2001}', "warn"],
  [503, '{"code":503}', "warn"],
  [502, "<html>nginx</html>", "fail"],
])("doctor judges an upstream that answers HTTP %i %s: %s", (status, body, judged) => {
  const answered = { outcome: "answered", status, retryAfter: undefined, body } as const;
  expect(judgeUpstream(answered, "host", 3).status).toBe(judged);
});

// Guarantee: what doctor advises mends what is wrong: a credential is not looked for in the address.
test.each([
  [404, "<html>nginx</html>", "the part before /api/v1"],
  [401, '{"message":"no"}', "UPSTREAM_API_KEY"],
  [403, "<html>Forbidden</html>", "UPSTREAM_API_KEY"],
  [302, "", "where it redirects"],
  [502, "<html>Bad gateway</html>", "the service behind it"],
])("doctor's advice for an upstream that answers HTTP %i %s: %s", (status, body, advice) => {
  const answered = { outcome: "answered", status, retryAfter: undefined, body } as const;
  expect(judgeUpstream(answered, "host", 3)).toMatchObject({ status: "fail" });
  expect(judgeUpstream(answered, "host", 3).advice).toContain(advice);
});

test.each([
  ["ENOTFOUND: getaddrinfo ENOTFOUND host", "DNS does not know the name (ENOTFOUND)", "DNS answers"],
  [
    "ERR_SSL_WRONG_VERSION_NUMBER: 404331:error:0A00010B:SSL routines:x.c:78:\n",
    "host does not speak TLS at this port (ERR_SSL_WRONG_VERSION_NUMBER)",
    "use http://",
  ],
  ["ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: 1:error", "refuses the TLS handshake", "client certificate"],
  ["CERT_HAS_EXPIRED: certificate has expired", "has expired", "renew it"],
  ["SELF_SIGNED_CERT_IN_CHAIN: self-signed", "no authority that is trusted", "upstream.tls_ca"],
  ["ERR_TLS_CERT_ALTNAME_INVALID: names", "does not fit", "UPSTREAM_URL"],
  ["ECONNREFUSED: connect ECONNREFUSED 127.0.0.1:2", "cannot be reached (ECONNREFUSED", "UPSTREAM_URL"],
])("doctor says %s in words", (detail, found, advice) => {
  const check = judgeUpstream({ outcome: "not_sent", detail }, "host", 3);
  expect(check.message).toContain(found);
  expect(check.message).not.toMatch(/SSL routines|\n/);
  expect(check.advice).toContain(advice);
});

// Guarantee: an upstream that breaks other clients is named, at no cost, and the gateway gets on with it.
test.each([
  [true, "warn", "refused_gateway"],
  [false, "ok", "refused_gateway"],
])(
  "doctor judges an upstream that sends 100 Continue unasked (%s): %s",
  async (continues, status, outcome) => {
    const urls: string[] = [];
    const server = createServer((req, res) => {
      urls.push(`${req.method} ${req.url}`);
      if (continues && req.method === "POST") res.writeContinue();
      req.resume().on("end", () => res.writeHead(404).end('{"code":404,"msg":"Not found"}'));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { upstream } = requireLoaded(readConfig({ env: { UPSTREAM_URL: url } })).config;
    const check = await upstreamCheck(upstream, true);
    expect(check.status).toBe(status);
    expect(check.message.includes("100 Continue")).toBe(continues);
    const path = "/api/v1/tasks/tollgate-doctor";
    expect(urls.splice(0).sort()).toEqual([`GET ${path}`, `POST ${path}`]);
    await upstreamCheck(upstream, false);
    expect(urls).toEqual([`GET ${path}`]);

    const client = createUpstream({ ...upstream, idempotent: false });
    expect(await client.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toMatchObject({ outcome });
    await client.close();
    server.closeAllConnections();
    server.close();
  },
);
