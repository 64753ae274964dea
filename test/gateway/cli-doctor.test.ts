import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dueFrom, META, partitionNames, requestName } from "../../src/records/names.ts";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { upstreamTag } from "../../src/upstream/task-route.ts";
import { cliEnv, cliFile, json, ROOT, runHere } from "../support/cli.ts";
import { givenGateway } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { randomId } from "../support/store.ts";
import { givenRedis } from "../support/store-stage.ts";
import { changeRequest } from "../support/stored-requests.ts";

describe("config and doctor", () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "tollgate-cli-"));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  test("config check lists every problem of a file", async () => {
    expect(await json("config", "check")).toMatchObject({
      ok: true,
      file: join(ROOT, "config/tollgate.yaml"),
      problems: [],
    });
    const file = join(dir, "bad.yaml");
    await writeFile(file, "server:\n  prot: 80\ntasks:\n  max_age: soon\n");
    const { code, stdout } = await runHere(["config", "check", file, "--json"]);
    const answer = JSON.parse(stdout);
    expect({ code, ok: answer.ok, count: answer.problems.length }).toEqual({ code: 1, ok: false, count: 2 });
    const words = await runHere(["config", "check", file]);
    expect(words.code).toBe(1);
    expect(words.stdout).toContain("max_age");
    const missing = await runHere(["config", "check", join(dir, "none.yaml"), "--json"]);
    expect(missing.code).toBe(1);
    expect(JSON.parse(missing.stdout)).toMatchObject({ ok: false, problems: [{}] });
  });

  test("a config that cannot be loaded is said, where it is needed", async () => {
    const file = join(dir, "broken.yaml");
    await writeFile(file, "server: [");
    const { code, stdout, stderr } = await runHere(["keys", "create", "--json"], { TOLLGATE_CONFIG: file });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toContain("the configuration cannot be loaded");
    // A store that was never used would ask it for its partitions.
    await json("keys", "create");
    expect((await runHere(["keys", "list"], { TOLLGATE_CONFIG: file })).code).toBe(0);
  });

  describe("doctor", () => {
    const NAMES = [
      ...[
        "config",
        "certificates",
        "redis",
        "version",
        "role",
        "persistence",
        "memory",
        "eviction",
        "clock",
        "latency",
        "partitions",
      ],
      ...["history", "open tasks", "tiers", "scripts", "journal", "upstream", "descriptors", "proxies"],
    ];
    let generator: Generator;
    let env: Record<string, string>;
    beforeAll(async () => {
      generator = await startGenerator({ apiKey: "upstream-secret" });
      env = { UPSTREAM_URL: generator.url, UPSTREAM_API_KEY: "upstream-secret" };
    });
    afterAll(() => generator.stop());

    // biome-ignore lint/suspicious/noExplicitAny: one check of many shapes.
    async function doctor(more: Record<string, string>): Promise<{ code: number; ok: boolean; byName: any }> {
      const { code, stdout } = await runHere(["doctor", "--json"], { ...env, ...more });
      const { ok, checks } = JSON.parse(stdout) as { ok: boolean; checks: { name: string }[] };
      return { code, ok, byName: Object.fromEntries(checks.map((check) => [check.name, check])) };
    }

    async function configFile(sections: object): Promise<string> {
      const file = join(dir, `${randomId("config")}.yaml`);
      await writeFile(file, JSON.stringify(sections));
      return file;
    }

    test("says which tasks a gateway that starts could not ask for, without the path of their upstream", async () => {
      const redis = await givenRedis();
      try {
        const redisEnv = { REDIS_URL: redis.url };
        const { due } = partitionNames(3);
        for (const [id, url] of [
          ["req_here", generator.url],
          ["req_elsewhere", "https://elsewhere.example/secret-path"],
        ] as const) {
          await changeRequest(redis.client, requestName(3, id), {
            state: "bound",
            upstream: upstreamTag(url, undefined),
          });
          await redis.client.zadd(due, dueFrom("polls") + 1, id);
        }
        expect((await doctor(redisEnv)).byName["open tasks"].status).toBe("ok");
        await redis.client.hset(META, "partitions", 64);
        const { message, status, advice } = (await doctor(redisEnv)).byName["open tasks"];
        expect(status).toBe("warn");
        expect(message).toContain("the address of https://elsewhere.example (1)");
        expect(message).not.toContain("secret-path");
        expect(advice).toContain("UPSTREAM_PREVIOUS_URL");
        const named = { ...redisEnv, UPSTREAM_PREVIOUS_URL: "https://elsewhere.example/secret-path" };
        expect((await doctor(named)).byName["open tasks"].status).toBe("ok");
      } finally {
        await redis.stop();
      }
    });

    // Guarantee: a config that lacks a tier in use is found before it is used.
    test("doctor and config check name the tiers in use that a config lacks, and no key gets a deprecated one", async () => {
      const redis = await givenRedis();
      try {
        const limits = { rate_limit: 1, max_concurrent: 1, daily_limit: 1 };
        const tiers = (more: object) => configFile({ tiers: { standard: limits, ...more } });
        const redisEnv = { REDIS_URL: redis.url };
        const withGold = { ...redisEnv, TOLLGATE_CONFIG: await tiers({ gold: limits }) };
        const create = (given: Record<string, string>) =>
          runHere(["keys", "create", "--tier", "gold", "--json"], given);
        expect((await create(withGold)).code).toBe(0);
        const ofGold = await doctor(withGold);
        expect(ofGold.byName.tiers).toMatchObject({
          status: "ok",
          message: expect.stringContaining("the config names every tier that keys use"),
        });

        const file = await tiers({ golt: limits });
        const check = await runHere(["config", "check", file, "--json"], redisEnv);
        const { problems, not_checked } = JSON.parse(check.stdout);
        expect({ code: check.code, problems }).toMatchObject({
          code: 1,
          problems: [{ path: "tiers.gold", message: expect.stringMatching(/^1 key uses tier gold.*golt/) }],
        });
        expect(not_checked).toBeUndefined();
        const { byName, code } = await doctor({ ...redisEnv, TOLLGATE_CONFIG: file });
        expect(code).toBe(1);
        expect(byName.tiers).toMatchObject({
          status: "fail",
          message: expect.stringContaining("1 key uses tier gold"),
        });

        const deprecated = await tiers({ gold: { ...limits, deprecated: true } });
        expect((await runHere(["config", "check", deprecated], redisEnv)).code).toBe(0);
        const refused = await create({ ...redisEnv, TOLLGATE_CONFIG: deprecated });
        expect({ code: refused.code, stderr: refused.stderr }).toMatchObject({
          code: 1,
          stderr: expect.stringContaining("the tier gold is deprecated"),
        });
      } finally {
        await redis.stop();
      }
      const away = await runHere(["config", "check", "--json"], { REDIS_URL: "redis://127.0.0.1:1" });
      expect(away.code).toBe(0);
      expect(JSON.parse(away.stdout).not_checked).toContain("Redis at 127.0.0.1:1 cannot be asked");
    });

    test("says that another layout of the store is not used, and how to go on", async () => {
      const redis = await givenRedis();
      const redisEnv = { REDIS_URL: redis.url };
      const layoutCheck = async (layout: string) => {
        await redis.client.hset(META, { partitions: 64, layout });
        return (await doctor(redisEnv)).byName.layout;
      };
      try {
        expect(await layoutCheck("2")).toMatchObject({
          status: "fail",
          message: expect.stringContaining("the store has layout 2"),
          advice: expect.stringContaining("use the version that wrote it"),
        });
        expect(await layoutCheck("restoring")).toMatchObject({
          status: "fail",
          advice: expect.stringContaining("`tollgate archive restore` has ended"),
        });
        expect(await layoutCheck("1")).toBeUndefined();
        await redis.client.hset(META, "layout", "2");
        const refused = await runHere(["keys", "list"], redisEnv);
        expect(refused.code).toBe(1);
        expect(refused.stderr).toContain("the store has layout 2");
      } finally {
        await redis.stop();
      }
    });

    test("looks at everything, and says the same in words", async () => {
      const { code, ok, byName } = await doctor({});
      expect(Object.keys(byName)).toEqual(NAMES);
      for (const check of Object.values<Record<string, unknown>>(byName)) {
        expect(check).toMatchObject({ ok: check.status !== "fail", message: expect.any(String) });
        expect(check.advice === undefined).toBe(check.status === "ok");
      }
      // Redis for tests keeps nothing, and doctor minds. How fast it answers is not for a test to say.
      const bad = Object.entries<{ ok: boolean }>(byName).filter(([, check]) => !check.ok);
      expect(bad.filter(([name]) => name !== "persistence" && name !== "latency")).toEqual([]);
      expect({ code, ok }).toEqual({ code: bad.length > 0 ? 1 : 0, ok: bad.length === 0 });
      const words = await runHere(["doctor"], env);
      for (const name of NAMES) expect(words.stdout).toMatch(new RegExp(`^(ok  |warn|FAIL)  ${name} `, "m"));
    });

    test("says that a running gateway meets a proxy which it does not trust", async () => {
      const gateway = await givenGateway();
      try {
        const port = new URL(gateway.adminUrl).port;
        const clean = await doctor({ ...env, ADMIN_PORT: port });
        expect(clean.byName.proxies).toMatchObject({ status: "ok" });
        const { key } = await gateway.givenKey();
        await gateway.request("GET", "/api/v1/credits", {
          key,
          headers: { "x-forwarded-for": "203.0.113.9" },
        });
        const noticed = await doctor({ ...env, ADMIN_PORT: port });
        expect(noticed.byName.proxies).toMatchObject({
          status: "warn",
          message: expect.stringContaining("1 good keys"),
          advice: expect.stringContaining("server.trust_proxy"),
        });
        expect(gateway.logs.filter((line) => line.includes("not in server.trust_proxy"))).toHaveLength(1);
      } finally {
        await gateway.stop();
      }
    });

    test("tells an upstream that is away from one that is something else, and from one that refuses us", async () => {
      const away = await doctor({ UPSTREAM_URL: "http://127.0.0.1:1" });
      expect(away.code).toBe(1);
      expect(away.byName.upstream).toMatchObject({
        status: "fail",
        message: expect.stringContaining("cannot be reached"),
        advice: expect.stringContaining("UPSTREAM_URL"),
      });
      const other = createHttpServer((_, response) => response.end("<h1>It works!</h1>")).listen(
        0,
        "127.0.0.1",
      );
      await once(other, "listening");
      const { port } = other.address() as AddressInfo;
      const web = await doctor({ UPSTREAM_URL: `http://127.0.0.1:${port}` });
      other.close();
      expect(web.byName.upstream).toMatchObject({
        status: "fail",
        message: expect.stringContaining("envelope"),
      });
      const stranger = await doctor({ UPSTREAM_API_KEY: "wrong" });
      expect(stranger.byName.upstream).toMatchObject({
        status: "fail",
        advice: expect.stringContaining("UPSTREAM_API_KEY"),
      });
    });

    test("finds settlements that wait, and a journal that cannot be kept", async () => {
      const journal = join(dir, "journal");
      await mkdir(journal);
      await writeFile(join(journal, "host.1.00000000.ndjson"), "{}\n{}\n");
      const waiting = await doctor({ TOLLGATE_CONFIG: await configFile({ store: { journal } }) });
      expect(waiting.byName.journal).toMatchObject({ ok: true, status: "warn" });
      expect(waiting.byName.journal.message).toContain("2 settlements (charges or voids) wait in 1 files");
      const file = join(journal, "host.1.00000000.ndjson");
      const lost = await doctor({
        TOLLGATE_CONFIG: await configFile({ store: { journal: join(file, "deeper") } }),
      });
      expect(lost.byName.journal).toMatchObject({
        status: "fail",
        advice: expect.stringContaining("store.journal"),
      });
      expect(lost.code).toBe(1);
    });

    // Guarantee: nobody takes a journal for safe that the end of its machine loses. /dev/shm is in memory on each Linux.
    test("says that a journal is in memory, also before its first start", async () => {
      const journal = await mkdtemp("/dev/shm/tollgate-journal-");
      for (const folder of [journal, join(journal, "new")]) {
        const { byName } = await doctor({
          TOLLGATE_CONFIG: await configFile({ store: { journal: folder } }),
        });
        expect(byName.journal).toMatchObject({
          status: "warn",
          message: expect.stringContaining("it is in memory (tmpfs)"),
          advice: expect.stringContaining("persistent disk"),
        });
      }
      await rm(journal, { recursive: true });
    });

    test("says how many settlements wait for which other Redis", async () => {
      const journal = join(dir, "journal-of-two");
      await mkdir(journal);
      const gateway = await givenGateway();
      const ours = await gateway.redis.hget("tg:meta", "id");
      await gateway.stop();
      const lines = [ours, "store-b", "store-b", "store-c", undefined].map((store) =>
        JSON.stringify({ store }),
      );
      await writeFile(join(journal, "host.1.00000000.ndjson"), `\n\n${lines.join("\n")}\n{"store":"sto`);
      const { byName } = await doctor({ TOLLGATE_CONFIG: await configFile({ store: { journal } }) });
      expect(byName.journal).toMatchObject({ ok: true, status: "warn" });
      expect(byName.journal.message).toMatch(
        /^6 settlements .* wait in 1 files of .*; 3 of them for another Redis than the one that answers now \(2 for store-b, 1 for store-c\)$/,
      );
      expect(byName.journal.advice).toContain("HGET tg:meta id");
    });

    // Guarantee: nothing in the folder makes doctor wait, and what no gateway opens is named.
    test("passes over what is no journal, and names it", async () => {
      const journal = join(dir, "journal-with-others");
      await mkdir(journal);
      await writeFile(join(journal, "host.1.00000000.ndjson"), "{}\n");
      expect(spawnSync("mkfifo", [join(journal, "pipe.ndjson")]).status).toBe(0);
      await writeFile(join(journal, "huge.ndjson"), "");
      await truncate(join(journal, "huge.ndjson"), 2 ** 32);
      const { byName } = await doctor({ TOLLGATE_CONFIG: await configFile({ store: { journal } }) });
      expect(byName.journal).toMatchObject({ ok: true, status: "warn" });
      expect(byName.journal.message).toContain("1 settlements");
      expect(byName.journal.message).toContain("not read: huge.ndjson, pipe.ndjson");
    });

    // Guarantee: a disk that takes names but no bytes is found before Redis is away.
    test("fails if the journal's disk takes no bytes, and leaves nothing there", async () => {
      const journal = join(dir, "journal-on-full-disk");
      await mkdir(journal);
      const file = await configFile({ store: { journal } });
      const { stdout } = spawnSync(
        "sh",
        ["-c", 'ulimit -S -f 0; exec "$0" "$@"', process.execPath, cliFile(), "doctor", "--json"],
        { cwd: ROOT, encoding: "utf8", env: cliEnv({ ...env, TOLLGATE_CONFIG: file }) },
      );
      const { checks } = JSON.parse(stdout) as { checks: { name: string }[] };
      expect(checks.find(({ name }) => name === "journal")).toMatchObject({
        status: "fail",
        message: expect.stringContaining("the limit on the size of files (ulimit -f) is reached"),
        advice: expect.stringContaining("make room"),
      });
      expect(await readdir(journal)).toEqual([]);
      const { byName } = await doctor({ TOLLGATE_CONFIG: file });
      expect(byName.journal.message).toContain("can be written, nothing waits");
      expect(await readdir(journal)).toEqual([]);
    });

    // Guarantee: an expired certificate is found before customers find it, and so is one that soon will be.
    test("says which certificate has expired, or expires soon", async () => {
      const of = async (name: string, days: number) => {
        const { cert, key } = selfSignedCertificate(days);
        const files = { cert: join(dir, `${name}.pem`), key: join(dir, `${name}.key`) };
        await Promise.all([writeFile(files.cert, cert), writeFile(files.key, key)]);
        return files;
      };
      const [expired, soon, late] = [await of("expired", 0), await of("soon", 5), await of("late", 90)];
      const look = async (server: object, admin: object) => {
        const file = await configFile({ server: { tls: server }, admin: { tls: admin } });
        return (await doctor({ TOLLGATE_CONFIG: file })).byName.certificates;
      };
      const failed = await look(expired, soon);
      expect(failed).toMatchObject({ status: "fail", advice: expect.stringContaining("renew it") });
      expect(failed.message).toMatch(
        /^server\.tls\.cert has expired on \d{4}-\d\d-\d\d\nadmin\.tls\.cert expires on [\d-]+, in \d days$/,
      );
      expect(await look(late, soon)).toMatchObject({ status: "warn" });
      expect(await look(late, late)).toMatchObject({ status: "ok" });
    });

    // Guarantee: what doctor learns of a running gateway, it learns with admin.tls, too.
    test("asks a running gateway over TLS", async () => {
      const { cert, key } = selfSignedCertificate();
      const gateway = await givenGateway();
      const { key: apiKey } = await gateway.givenKey();
      await gateway.request("GET", "/api/v1/credits", {
        key: apiKey,
        headers: { "x-forwarded-for": "203.0.113.9" },
      });
      const page = (await gateway.metric("")).join("\n");
      const admin = createHttpsServer({ cert, key }, (_, response) => response.end(page)).listen(
        0,
        "127.0.0.1",
      );
      await once(admin, "listening");
      try {
        const files = { cert: join(dir, "admin.pem"), key: join(dir, "admin.key") };
        await Promise.all([writeFile(files.cert, cert), writeFile(files.key, key)]);
        const { port } = admin.address() as AddressInfo;
        const { byName } = await doctor({
          TOLLGATE_CONFIG: await configFile({ admin: { host: "127.0.0.1", port, tls: files } }),
        });
        expect(byName.proxies).toMatchObject({ status: "warn" });
        expect(byName.descriptors.message).toContain("the running gateway may open");
      } finally {
        admin.close();
        await gateway.stop();
      }
    });

    test("warns of few descriptors", () => {
      const { stdout } = spawnSync(
        "sh",
        ["-c", 'ulimit -n 512; exec "$0" "$@"', process.execPath, cliFile(), "doctor", "--json"],
        { cwd: ROOT, encoding: "utf8", env: cliEnv({ ...env, ADMIN_PORT: "1" }) },
      );
      // Nothing answers there: a gateway of this machine would be asked for its own.
      const { checks } = JSON.parse(stdout) as { checks: { name: string }[] };
      expect(checks.find(({ name }) => name === "descriptors")).toMatchObject({
        status: "warn",
        message: expect.stringContaining("may open 512 files"),
        advice: expect.stringContaining("LimitNOFILE"),
      });
    });

    test("warnings alone leave the exit code to the rest, and a bad config does not", async () => {
      const file = await configFile({ store: { fallback_strategy: "allow" }, admin: { host: "0.0.0.0" } });
      const { byName } = await doctor({ TOLLGATE_CONFIG: file });
      expect(byName.config).toMatchObject({ ok: true, status: "warn" });
      expect(byName.config.advice).toMatch(/not charged[\s\S]*port 9090/);
      const bad = await doctor({ TOLLGATE_CONFIG: await configFile({ server: { prot: 80 } }) });
      expect(bad).toMatchObject({ code: 1, ok: false });
      expect(bad.byName.config.message).toContain("prot");
      expect(bad.byName.redis.ok).toBe(true);
    });
  });
});
