import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { infoChecks, readInfo } from "../../src/commands/doctor.ts";
import { issueKey, type KeyOptions, readAccount } from "../../src/store/accounts.ts";
import type { Connection } from "../../src/store/connection.ts";
import { accountNames, digestOf, indexName, keyRef, partitionOf } from "../../src/store/names.ts";
import { partitionsOf } from "../../src/store/partitions.ts";
import { createStage, openConnection, randomId, taskOf, times } from "../support/store.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const CLI = join(ROOT, "src/cli.ts");
const { PATH = "" } = process.env;

let connection: Connection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

function run(args: string[], env: Record<string, string> = {}): Promise<Ran> {
  const options = {
    cwd: ROOT,
    env: { PATH, REDIS_URL: inject("redisUrl"), ...env },
    timeout: 100_000,
    maxBuffer: 64e6,
  };
  return new Promise((done) => {
    execFile(process.execPath, [CLI, ...args], options, (error, stdout, stderr) => {
      done({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}

/** Runs with --json; what is printed must be one JSON object and nothing else. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
async function json(...args: string[]): Promise<any> {
  const { stdout, stderr, code } = await run([...args, "--json"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout);
}

/** Runs something that must fail in words: nothing on stdout, no stack trace. */
async function refusal(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run([...args, "--json"]);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toMatch(/^error: ./);
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}

/** An account with 1000 credits and one key, and the store's operations on it. */
async function givenAccount(options: KeyOptions = {}) {
  const { redis } = connection;
  const made = await issueKey(redis, { accountId: randomId("acc"), credits: 1000, ...options });
  const partition = partitionOf(made.accountId, await partitionsOf(redis));
  const stage = createStage(connection, { clock: "redis", partition });
  return { ...made, partition, stage, ref: keyRef(made.keyId, made.accountId, partition) };
}

describe("keys", () => {
  test("create answers the key once, and the store keeps only its SHA-256", async () => {
    const made = await json("keys", "create");
    expect(Object.keys(made)).toEqual(["key", "key_id", "account_id"]);
    expect(made.key).toMatch(/^sk_[A-Za-z0-9_-]{40,}$/);
    const partition = partitionOf(made.account_id, await partitionsOf(connection.redis));
    const record = await connection.redis.hgetall(keyRef(made.key_id, made.account_id, partition).names.key);
    expect(record).toMatchObject({ account_id: made.account_id, sha256: digestOf(made.key) });
    expect(JSON.stringify(record)).not.toContain(made.key.slice(3));
    expect(await connection.redis.get(indexName(digestOf(made.key)))).toBe(
      `${made.key_id} ${made.account_id}`,
    );
    for (const args of [
      ["keys", "show", made.key_id],
      ["keys", "list", "--account", made.account_id],
    ]) {
      const { stdout } = await run(args);
      expect(stdout).toContain(made.key_id);
      expect(stdout).not.toContain(made.key);
      expect(stdout).not.toContain(digestOf(made.key));
    }
  });

  test("create takes account, limits, tier, credits and expiry", async () => {
    const accountId = randomId("acc");
    const { key_id: keyId } = await json(
      ...["keys", "create", "--account", accountId, "--tier", "enterprise", "--credits", "1000"],
      ...["--rate-limit", "7", "--max-concurrent", "2", "--daily-limit", "99"],
      ...["--expires", "2090-01-31T00:00:00Z"],
    );
    expect(await json("keys", "show", keyId)).toEqual({
      key_id: keyId,
      account_id: accountId,
      tier: "enterprise",
      status: "active",
      rate_limit: 7,
      max_concurrent: 2,
      daily_limit: 99,
      created_at: expect.any(String),
      expires_at: "2090-01-31T00:00:00.000Z",
    });
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 1000, held: 0 });
  });

  test.each([
    [["--credits", "0"], "whole number"],
    [["--credits", "1.5"], "whole number"],
    [["--credits=-5"], "whole number"],
    [["--rate-limit", "0"], "whole number"],
    [["--max-concurrent", "1e3"], "whole number"],
    [["--daily-limit", "x"], "whole number"],
    [["--expires", "2020-01-01"], "future"],
    [["--expires", "tomorrow"], "ISO 8601"],
    [["--tier", "standrad"], "did you mean standard?"],
    [["--rate-limt", "5"], "--rate-limit"],
    [["surplus"], "too many arguments"],
  ])("create refuses %j and makes nothing", async (options, words) => {
    const accountId = randomId("acc");
    expect(await refusal("keys", "create", "--account", accountId, ...options)).toContain(words);
    const partition = partitionOf(accountId, await partitionsOf(connection.redis));
    expect(await connection.redis.exists(accountNames(partition, accountId).account)).toBe(0);
  });

  test("what could not be a key, an account or a limit is refused, and nothing is made", async () => {
    const accountId = randomId("acc");
    const refused = (options: KeyOptions) =>
      expect(issueKey(connection.redis, { accountId, ...options })).rejects;
    for (const id of ["", "a b", "a:b", "ä", "x".repeat(65)]) {
      await refused({ accountId: id }).toThrow("account id");
    }
    for (const token of ["pk_12345678", "sk_1234", `sk_${"x".repeat(254)}`, "sk_1234 5678", "sk_1234,5678"]) {
      await refused({ token }).toThrow("begins with sk_");
    }
    await refused({ credits: -1 }).toThrow("whole number");
    await refused({ credits: 2 ** 53 }).toThrow("whole number");
    await refused({ limits: { rateLimit: 1.5 } }).toThrow("whole number");
    await expect(readAccount(connection.redis, accountId)).rejects.toThrow("no account");
    expect(await refusal("keys", "create", "--account", "a b")).toContain("account id");
    expect(await refusal("keys", "import", "pk_12345678")).toContain("begins with sk_");
  });

  test("import takes a key over once", async () => {
    const key = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    const made = await json("keys", "import", key, "--account", accountId, "--credits", "5");
    expect(made).toEqual({ key_id: expect.any(String), account_id: accountId });
    expect(await json("keys", "show", key)).toMatchObject(made);
    expect(await refusal("keys", "import", key, "--account", "another")).toContain(
      `known already: ${made.key_id} of account ${accountId}`,
    );
    expect(await refusal("keys", "import", key, "--account", accountId, "--credits", "5")).toContain("known");
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 5 });
  });

  test("two imports that find the same crashed one finish it once", async () => {
    const token = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    await connection.redis.set(indexName(digestOf(token)), `${randomId("key")} ${accountId}`);
    const options = { token, accountId, credits: 5 };
    const ends = await Promise.allSettled(times(3, () => issueKey(connection.redis, options)));
    expect(ends.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected", "rejected"]);
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 5 });
  });

  test("a key imported twice at once is taken once, with its credits once", async () => {
    const key = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    const args = ["keys", "import", key, "--account", accountId, "--credits", "5", "--json"];
    const ends = await Promise.all(times(3, () => run(args)));
    expect(ends.map(({ code }) => code).sort()).toEqual([0, 1, 1]);
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 5 });
  });

  test("an import that crashed after the index is finished by the next one", async () => {
    const key = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    await connection.redis.set(indexName(digestOf(key)), `key_begun ${accountId}`);
    expect(await refusal("keys", "import", key, "--account", "another")).toContain(accountId);
    const keyId = randomId("key");
    await connection.redis.set(indexName(digestOf(key)), `${keyId} ${accountId}`);
    expect(await json("keys", "import", key)).toEqual({ key_id: keyId, account_id: accountId });
  });

  test("list shows the keys of an account, and all", async () => {
    const { accountId, keyId } = await givenAccount();
    const second = await issueKey(connection.redis, { accountId });
    const { keys } = await json("keys", "list", "--account", accountId);
    expect(keys.map((key: { key_id: string }) => key.key_id).sort()).toEqual([keyId, second.keyId].sort());
    const all = await json("keys", "list");
    expect(all.keys).toEqual(expect.arrayContaining(keys));
  });

  test("revoke ends a key at once and for good", async () => {
    const { key, keyId, stage, ref } = await givenAccount();
    expect((await stage.admit(stage.request(ref))).outcome).toBe("admitted");
    expect(await json("keys", "revoke", key)).toMatchObject({ outcome: "revoked", key_id: keyId });
    expect((await stage.admit(stage.request(ref))).outcome).toBe("unknown_key");
    const { revoked_at } = await json("keys", "show", keyId);
    expect(await json("keys", "revoke", keyId)).toMatchObject({ outcome: "already_revoked", revoked_at });
    expect(await refusal("keys", "set", keyId, "--rate-limit", "5")).toContain("revoked");
    expect(await refusal("keys", "rotate", keyId)).toContain("revoked");
  });

  test("set changes what the next request may do, and default goes back to the tier", async () => {
    const { keyId, stage, ref } = await givenAccount({ limits: { rateLimit: 7 } });
    const limits = async () => (await stage.store.inspect(ref, stage.tiers)).state.rateLimit;
    expect(await limits()).toBe(7);
    await json("keys", "set", keyId, "--rate-limit", "9", "--expires", "2090-01-01", "--daily-limit", "3");
    expect(await limits()).toBe(9);
    await json("keys", "set", keyId, "--tier", "enterprise", "--rate-limit", "default", "--expires", "never");
    expect(await limits()).toBe(100);
    const shown = await json("keys", "show", keyId);
    expect(shown).toMatchObject({ tier: "enterprise", status: "active", daily_limit: 3 });
    expect(shown).not.toHaveProperty("rate_limit");
    expect(shown).not.toHaveProperty("expires_at");
    expect(await refusal("keys", "set", keyId)).toContain("nothing to change");
    expect(await refusal("keys", "set", keyId, "--tier", "gold")).toContain("no tier gold");
    expect(await refusal("keys", "set", randomId("key"), "--tier", "standard")).toContain("no key");
  });

  test("rotate hands tier, limits and expiry on, and ends the old key now or after the overlap", async () => {
    const expires = "2090-01-31T00:00:00.000Z";
    const { keyId, accountId, stage, ref } = await givenAccount({
      limits: { rateLimit: 7 },
      expiresAtMs: Date.parse(expires),
    });
    const next = await json("keys", "rotate", keyId, "--overlap", "2h");
    expect(next).toEqual({
      key: expect.stringMatching(/^sk_.{40,}$/),
      key_id: expect.any(String),
      account_id: accountId,
      old_key_id: keyId,
    });
    expect(await json("keys", "show", next.key)).toMatchObject({ rate_limit: 7, expires_at: expires });
    expect((await stage.admit(stage.request(ref))).outcome).toBe("admitted");
    const { expires_at } = await json("keys", "show", keyId);
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 7_200_000)).toBeLessThan(60_000);
    const last = await json("keys", "rotate", next.key_id);
    expect(await json("keys", "show", next.key_id)).toMatchObject({ status: "revoked" });
    expect(await json("keys", "show", last.key_id)).toMatchObject({ status: "active" });
    expect(await refusal("keys", "rotate", last.key_id, "--overlap", "soon")).toContain("duration");
  });
});

describe("credits", () => {
  test("one reference credits once, and another amount under it is an error", async () => {
    const { accountId } = await givenAccount();
    const grant = (...more: string[]) => ["credits", "grant", accountId, ...more];
    const first = { account_id: accountId, amount: 50, reference: "order-1", balance: 1050 };
    expect(await json(...grant("50", "--reference", "order-1"))).toEqual({ outcome: "recharged", ...first });
    expect(await json(...grant("50", "--reference", "order-1"))).toEqual({ outcome: "duplicate", ...first });
    expect((await run(grant("50", "--reference", "order-1"))).stdout).toContain("nothing is changed");
    expect(await refusal(...grant("51", "--reference", "order-1"))).toContain("another amount");
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 1050 });
  });

  test.each([
    ["basic", 100],
    ["standard", 200],
    ["premium", 500],
    ["enterprise", 1000],
  ])("the package %s is worth %i credits", async (name, amount) => {
    const { accountId } = await givenAccount();
    const answer = await json("credits", "grant", accountId, "--package", name, "--reference", "order-1");
    expect(answer).toMatchObject({ outcome: "recharged", amount, balance: 1000 + amount });
  });

  test("grant refuses what is unclear", async () => {
    const { accountId } = await givenAccount();
    const to = ["credits", "grant", accountId];
    expect(await refusal(...to, "5")).toContain("--reference");
    expect(await refusal(...to, "--reference", "r")).toContain("how many");
    expect(await refusal(...to, "5", "--package", "basic", "--reference", "r")).toContain("not both");
    expect(await refusal(...to, "--package", "huge", "--reference", "r")).toContain("premium");
    expect(await refusal(...to, "0", "--reference", "r")).toContain("whole number");
    expect(await refusal(...to, "5", "--reference", "")).toContain("reference");
    expect(await refusal("credits", "grant", randomId("acc"), "5", "--reference", "r")).toContain(
      "no account",
    );
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 1000 });
  });

  test("show tells what can be spent, what is held, and the latest transactions", async () => {
    const { accountId, keyId, stage, ref } = await givenAccount();
    await stage.admit(stage.request(ref, { price: 30 }));
    await stage.givenTask(stage.request(ref, { price: 200 }));
    const shown = await json("credits", "show", accountId);
    expect(shown).toMatchObject({
      account_id: accountId,
      balance: 770,
      held: 30,
      total_used: 200,
      total_requests: 2,
      recent_transactions: [
        { type: "consume", amount: -200, balance_after: 800 },
        { type: "recharge", amount: 1000, balance_after: 1000 },
      ],
      keys: [{ key_id: keyId }],
    });
    expect(await refusal("credits", "show", randomId("acc"))).toContain("no account");
  });
});

describe("tasks", () => {
  test("release ends a stuck task as failed, refunds it once and frees its slot", async () => {
    const { accountId, stage, ref } = await givenAccount();
    const request = stage.request(ref, { price: 30 });
    await stage.givenTask(request);
    const taskId = taskOf(request);
    expect(await json("tasks", "show", taskId)).toMatchObject({
      request_id: request.requestId,
      task_id: taskId,
      state: "bound",
      account_id: accountId,
      price: 30,
    });
    const released = await json("tasks", "release", taskId);
    expect(released).toMatchObject({ outcome: "ended", refunded: 30, state: "finished", status: "failed" });
    expect(await json("tasks", "release", request.requestId)).toMatchObject({ outcome: "already_finished" });
    expect(await json("credits", "show", accountId)).toMatchObject({ balance: 1000, total_used: 0 });
    expect(await connection.redis.smembers(ref.names.slots)).toEqual([]);
    const answer = await stage.store.inspectTask(ref, taskId, 5000, stage.tiers);
    expect(answer).toMatchObject({ task: { status: "failed" } });
    expect(await json("ledger", "verify", "--account", accountId)).toMatchObject({ ok: true });
  });

  test("release takes a hold back before it is due", async () => {
    const { accountId, stage, ref } = await givenAccount();
    const request = stage.request(ref, { price: 30 });
    await stage.admit(request);
    expect(await json("tasks", "show", request.requestId)).toMatchObject({ state: "held", price: 30 });
    const released = await json("tasks", "release", request.requestId);
    expect(released).toMatchObject({ outcome: "voided", credits: 30, state: "void" });
    expect(await json("tasks", "release", request.requestId)).toMatchObject({ outcome: "already_void" });
    expect(await readAccount(connection.redis, accountId)).toMatchObject({ balance: 1000, held: 0 });
    expect(await connection.redis.smembers(ref.names.slots)).toEqual([]);
    expect(await json("ledger", "verify", "--account", accountId)).toMatchObject({ ok: true });
  });

  test("an unknown task is an error", async () => {
    expect(await refusal("tasks", "show", randomId("task"))).toContain("no task or request");
    expect(await refusal("tasks", "release", randomId("task"))).toContain("no task or request");
  });
});

describe("ledger", () => {
  test("verify answers 0 for sound books and 1 with the violations for others", async () => {
    const { accountId, ref } = await givenAccount();
    const args = ["ledger", "verify", "--account", accountId];
    expect(await json(...args)).toEqual({ ok: true, accounts: 1, entries: 1, violations: [] });
    await connection.redis.hincrby(ref.names.account, "held", 5);
    const { code, stdout, stderr } = await run([...args, "--json"]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining("1 violations") });
    expect(JSON.parse(stdout)).toEqual({
      ok: false,
      accounts: 1,
      entries: 1,
      violations: [{ invariant: "held", account_id: accountId, message: expect.stringContaining("5") }],
    });
    const words = await run(args);
    expect(words.code).toBe(1);
    expect(words.stdout).toContain("1 violations");
    await connection.redis.hincrby(ref.names.account, "held", -5);
  });

  test("export writes every entry once, over two runs", async () => {
    const { accountId, stage, ref, keyId } = await givenAccount();
    const request = stage.request(ref, { price: 30 });
    await stage.givenTask(request);
    const first = await json("ledger", "export", "--account", accountId);
    expect(first.entries).toMatchObject([
      { account_id: accountId, type: "recharge", amount: 1000, reference: `key:${keyId}` },
      { account_id: accountId, type: "consume", amount: -30, request_id: request.requestId },
    ]);
    await json("credits", "grant", accountId, "5", "--reference", 'a "b", c');
    const later = ["ledger", "export", "--account", accountId, "--after", first.cursor];
    const lines = await run(later);
    expect(
      lines.stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toMatchObject([{ amount: 5 }]);
    const cursor = /^cursor: (\S+)\n$/.exec(lines.stderr)?.[1];
    const csv = await run([...later, "--format", "csv"]);
    expect(csv.stdout.split("\r\n")).toEqual([
      "id,account_id,type,amount,balance_after,endpoint,reason,reference,task_id,request_id,key_id,created_at",
      expect.stringContaining(',recharge,5,975,,,"a ""b"", c",,,,'),
      "",
    ]);
    expect(await json("ledger", "export", "--account", accountId, "--after", cursor ?? "")).toEqual({
      entries: [],
      cursor,
    });
    expect(await refusal("ledger", "export", "--after", "then")).toContain("cursor");
  });

  test("export ends quietly when its reader leaves", async () => {
    const { accountId, stage, ref } = await givenAccount();
    await Promise.all(times(2500, (at) => stage.recharge(ref, 1, `order-${at}`)));
    const child = spawn(process.execPath, [CLI, "ledger", "export", "--account", accountId], {
      cwd: ROOT,
      env: { PATH, REDIS_URL: inject("redisUrl") },
    });
    let stderr = "";
    child.stderr.on("data", (text) => {
      stderr += text;
    });
    const ended = once(child, "close");
    await once(child.stdout, "data");
    child.stdout.destroy();
    expect(await ended).toEqual([0, null]);
    expect(stderr).toBe("");
  });
});

describe("config and doctor", () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "tollgate-cli-"));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  test("config check lists every problem of a file", async () => {
    expect(await json("config", "check")).toEqual({
      ok: true,
      file: join(ROOT, "config/tollgate.yaml"),
      problems: [],
    });
    const file = join(dir, "bad.yaml");
    await writeFile(file, "server:\n  prot: 80\ntasks:\n  max_age: soon\n");
    const { code, stdout } = await run(["config", "check", file, "--json"]);
    const answer = JSON.parse(stdout);
    expect({ code, ok: answer.ok, count: answer.problems.length }).toEqual({ code: 1, ok: false, count: 2 });
    const words = await run(["config", "check", file]);
    expect(words.code).toBe(1);
    expect(words.stdout).toContain("max_age");
    const missing = await run(["config", "check", join(dir, "none.yaml"), "--json"]);
    expect(missing.code).toBe(1);
    expect(JSON.parse(missing.stdout)).toMatchObject({ ok: false, problems: [{}] });
  });

  test("a config that cannot be loaded is said, where it is needed", async () => {
    const file = join(dir, "broken.yaml");
    await writeFile(file, "server: [");
    const { code, stdout, stderr } = await run(["keys", "create", "--json"], { TOLLGATE_CONFIG: file });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toContain("the configuration cannot be loaded");
    expect((await run(["keys", "list"], { TOLLGATE_CONFIG: file })).code).toBe(0);
  });

  test("doctor looks at everything and says what to do", async () => {
    const upstream = createServer().listen(0, "127.0.0.1");
    await once(upstream, "listening");
    const { port } = upstream.address() as AddressInfo;
    const UPSTREAM_URL = `http://127.0.0.1:${port}`;
    const well = await run(["doctor", "--json"], { UPSTREAM_URL });
    upstream.close();
    await once(upstream, "close");
    const answer = JSON.parse(well.stdout) as { ok: boolean; checks: { name: string; ok: boolean }[] };
    const names = [
      "config",
      "redis",
      "version",
      "role",
      "persistence",
      "memory",
      "eviction",
      "clock",
      "partitions",
    ];
    expect(answer.checks.map(({ name }) => name)).toEqual([...names, "upstream"]);
    // Redis for tests keeps nothing, and doctor minds.
    const bad = answer.checks.filter(({ ok }) => !ok).map(({ name }) => name);
    expect(bad.filter((name) => name !== "persistence")).toEqual([]);
    expect({ code: well.code, ok: answer.ok }).toEqual({
      code: bad.length > 0 ? 1 : 0,
      ok: bad.length === 0,
    });
    const ill = await run(["doctor"], { UPSTREAM_URL });
    expect(ill.code).toBe(1);
    expect(ill.stdout).toMatch(/FAIL {2}upstream: .* set UPSTREAM_URL/);
  });

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
});

describe("the command line itself", () => {
  test("unknown commands and options get suggestions", async () => {
    expect(await refusal("kyes", "list")).toContain("keys");
    expect(await refusal("keys", "craete")).toContain("create");
    expect(await refusal("keys", "list", "--acount", "x")).toContain("--account");
  });

  test("without Redis it says in one sentence how to get one, at once", async () => {
    const refused = await run(["keys", "list"], { REDIS_URL: "redis://127.0.0.1:1" });
    expect(refused).toMatchObject({ code: 1, stdout: "" });
    expect(refused.stderr).toMatch(
      /^error: Redis at 127\.0\.0\.1:1 cannot be used \(.*ECONNREFUSED.*REDIS_URL.*\n$/,
    );
    const doctor = await run(["doctor", "--json"], { REDIS_URL: "redis://127.0.0.1:1" });
    expect(doctor.code).toBe(1);
    expect(JSON.parse(doctor.stdout)).toMatchObject({ ok: false });
  });

  test("a Redis that never answers is given up after two seconds, without its password in the words", async () => {
    const silent = createServer(() => {}).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const startedMs = performance.now();
    const { code, stderr } = await run(["keys", "list"], { REDIS_URL: `redis://u:hush@127.0.0.1:${port}` });
    silent.close();
    expect(code).toBe(1);
    expect(stderr).toContain("no answer within 2 seconds");
    expect(stderr).not.toContain("hush");
    expect(performance.now() - startedMs).toBeLessThan(15_000);
  });
});
