import { execFile } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { cliEnv, cliFile, json, refusal, runHere, runProcess } from "../support/cli.ts";
import { randomId } from "../support/store.ts";

describe("the command line itself", () => {
  test("as a process: one JSON object and 0, or words on standard error and 1", async () => {
    const [made, refused, misused] = await Promise.all([
      runProcess(["keys", "create", "--account", randomId("acc"), "--json"]),
      runProcess(["keys", "show", randomId("key"), "--json"]),
      runProcess(["keys", "shwo", "--json"]),
    ]);
    expect(made).toMatchObject({ code: 0, stderr: "" });
    expect(made.stdout).toMatch(/^\{"key":"sk_[^\n]+\}\n$/);
    expect(refused).toMatchObject({ code: 1, stdout: "" });
    expect(refused.stderr).toMatch(/^error: no key [^\n]*\n$/);
    expect(misused).toMatchObject({ code: 1, stdout: "" });
  });

  test("an answer that cannot be written is said: what was asked for may be done", async () => {
    const line = `"${process.execPath}" "${cliFile()}" keys list --json > /dev/full`;
    const ended = promisify(execFile)("sh", ["-c", line], { env: cliEnv() });
    await expect(ended).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: standard output cannot be written \(ENOSPC.*\n$/),
    });
  });

  test("unknown commands and options get suggestions, and the way to the help", async () => {
    expect(await refusal("kyes", "list")).toContain("keys");
    expect(await refusal("keys", "craete")).toContain("create");
    expect(await refusal("keys", "list", "--acount", "x")).toContain("--account");
    expect(await refusal("keys", "list", "--acount", "x")).toContain("`tollgate keys list --help`");
  });

  test("an error never repeats a key", async () => {
    const key = `sk_${randomId("live")}`;
    for (const words of [
      [key],
      ["keys", key],
      ["keys", "show", key, key],
      ["keys", "show", `--${key}`],
      ["keys", "list", "--limit", key],
      ["keys", "create", "--tier", key],
      ["credits", "show", key],
      ["tasks", "show", key],
    ]) {
      expect(await refusal(...words)).not.toContain(key);
    }
  });

  test("colours do not go into a pipe, unless FORCE_COLOR says so", async () => {
    const colour = "\u001b[";
    const { account_id: accountId } = await json("keys", "create", "--account", randomId("acc"));
    const args = ["keys", "list", "--account", accountId];
    expect((await runHere(args)).stdout).not.toContain(colour);
    expect((await runHere(args, { FORCE_COLOR: "1" })).stdout).toContain(colour);
    expect((await runHere(args, { FORCE_COLOR: "0" })).stdout).not.toContain(colour);
    expect((await runHere(["keys", "--help"])).stdout).not.toContain(colour);
    expect((await runHere(["keys", "--help"], { FORCE_COLOR: "1" })).stdout).toContain(colour);
    expect(await json(...args)).toMatchObject({ keys: [{ account_id: accountId }] });
  });

  test("without Redis it says in one sentence how to get one, at once", async () => {
    const refused = await runHere(["keys", "list"], { REDIS_URL: "redis://127.0.0.1:1" });
    expect(refused).toMatchObject({ code: 1, stdout: "" });
    expect(refused.stderr).toMatch(
      /^error: Redis at 127\.0\.0\.1:1 cannot be used \(.*ECONNREFUSED.*REDIS_URL.*\n$/,
    );
    const doctor = await runHere(["doctor", "--json"], { REDIS_URL: "redis://127.0.0.1:1" });
    expect(doctor.code).toBe(1);
    expect(JSON.parse(doctor.stdout)).toMatchObject({ ok: false });
  });

  test.each([
    ["redis://127.0.0.1:21001/abc", "no path but a database number"],
    ["redis:///tmp/x.sock", "such as redis://127.0.0.1:6379"],
    ["localhost:21001", "such as redis://127.0.0.1:6379"],
    ["redis://tg:hush%ss@127.0.0.1:21001", "a % itself as %25"],
    ["redis+sentinel://tg:hush@127.0.0.1:21001", "end with what the Sentinels call the primary"],
    ["rediss+cluster://tg:hush@127.0.0.1:21001,127.0.0.1:21002/1", "Redis Cluster has one database only"],
  ])("REDIS_URL=%s is refused as the gateway refuses it", async (url, words) => {
    const { code, stdout, stderr } = await runHere(["keys", "list", "--json"], { REDIS_URL: url });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^error: REDIS_URL must .*\n$/);
    expect(stderr).toContain(words);
    expect(stderr).not.toContain("hush");
  });

  test("a Redis that never answers is given up after two seconds, without its password in the words", async () => {
    const silent = createServer(() => {}).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const { code, stderr } = await runHere(["keys", "list"], {
      REDIS_URL: `redis://u:hush@127.0.0.1:${port}`,
    });
    silent.close();
    expect(code).toBe(1);
    expect(stderr).toContain("accepts connections and does not answer on them");
    expect(stderr).toMatch(/is not stopped or stalled.*bring back this Redis with its data/);
    expect(stderr).not.toContain("hush");
  });
});
