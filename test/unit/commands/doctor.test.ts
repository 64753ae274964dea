import { expect, test } from "vitest";
import { clockCheck, infoChecks, latencyCheck, readInfo } from "../../../src/commands/doctor-redis.ts";
import { judge } from "../../../src/commands/doctor-upstream.ts";

test("doctor names an old, evicting, forgetful or read-only Redis", () => {
  const info = (text: string) => infoChecks(readInfo(text)).filter(({ ok }) => !ok);
  const good =
    "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";
  expect(info(good)).toEqual([]);
  const failing = (from: string, to: string) => info(good.replace(from, to)).map(({ name }) => name);
  expect(failing("7.0.15", "6.2.14")).toEqual(["version"]);
  expect(failing("role:master", "role:slave")).toEqual(["role"]);
  expect(failing("aof_enabled:1", "aof_enabled:0")).toEqual(["persistence"]);
  expect(failing("aof_enabled:1", "aof_enabled:1\r\naof_last_write_status:err")).toEqual(["persistence"]);
  expect(failing("noeviction", "allkeys-lru")).toEqual(["eviction"]);
  expect(failing("role:master", "used_memory:89\r\nmaxmemory:100\r\nrole:master")).toEqual([]);
  expect(failing("role:master", "used_memory:90\r\nmaxmemory:100\r\nrole:master")).toEqual(["memory"]);
});

test("doctor warns of a Redis that is not wrong yet", () => {
  const warned = (lines: string, fsync?: string) =>
    infoChecks(readInfo(`redis_version:7.2.0\naof_enabled:1\n${lines}\n`), fsync)
      .filter(({ status }) => status === "warning")
      .map(({ name }) => name);
  expect(warned("")).toEqual([]);
  expect(warned("", "always")).toEqual([]);
  expect(warned("", "no")).toEqual(["persistence"]);
  expect(warned("aof_last_bgrewrite_status:err")).toEqual(["persistence"]);
  expect(warned("used_memory:76\nmaxmemory:100")).toEqual(["memory"]);
  expect(warned("used_memory:76\nmaxmemory:0\ntotal_system_memory:100")).toEqual(["memory"]);
  expect(warned("used_memory:74\nmaxmemory:100\ntotal_system_memory:74")).toEqual([]);
});

test("doctor judges clock and latency by how far they are off", () => {
  expect([0, 999, -999].map((ms) => clockCheck(ms).status)).toEqual(["ok", "ok", "ok"]);
  expect([1001, -4999].map((ms) => clockCheck(ms).status)).toEqual(["warning", "warning"]);
  expect([5001, -60_000].map((ms) => clockCheck(ms).ok)).toEqual([false, false]);
  expect(clockCheck(-60_000).message).toContain("60000 ms behind");
  expect(latencyCheck([0.2, 0.3, 0.2], 500).status).toBe("ok");
  expect(latencyCheck([0.2, 600, 0.2], 500).status).toBe("warning");
  expect(latencyCheck([12, 15, 11], 500).status).toBe("warning");
  expect(latencyCheck([600, 700, 800], 500)).toMatchObject({
    ok: false,
    advice: expect.stringContaining("500 ms"),
  });
});

test.each([
  [200, '{"code":200,"data":{}}', "ok"],
  [404, '{"code":404,"msg":"Task not found"}', "ok"],
  [200, '{"code":404,"msg":"Task not found"}', "ok"],
  [404, "<html>nginx</html>", "failed"],
  [200, '{"status":"fine"}', "failed"],
  [401, '{"code":401}', "failed"],
  [200, '{"code":402}', "failed"],
  [429, '{"code":2001}', "warning"],
  [503, '{"code":503}', "warning"],
])("doctor judges an upstream that answers HTTP %i %s: %s", (status, body, judged) => {
  const answered = { outcome: "answered", status, retryAfter: undefined, body } as const;
  expect(judge(answered, "host", 3).status).toBe(judged);
});
