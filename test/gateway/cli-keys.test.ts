import { readdirSync, readlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { addRefusals } from "../../src/operations/accounts/refusals.ts";
import { rotateKey } from "../../src/operations/keys/change-key.ts";
import { issueKey, type KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, digestOf, indexName, keyRef, partitionOf } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { givenCliAccount, json, refusal, runHere, runProcess } from "../support/cli.ts";
import { openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { until } from "../support/until.ts";

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

describe("keys", () => {
  test("create answers the key once, and the store keeps only its SHA-256", async () => {
    const made = await json("keys", "create");
    expect(Object.keys(made)).toEqual(["key", "key_id", "account_id"]);
    expect(made.key).toMatch(/^sk_[A-Za-z0-9_-]{40,}$/);
    const partition = partitionOf(made.account_id, await partitionsOf(oneNode(connection.redis)));
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
      const { stdout } = await runHere(args);
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
      effective_rate_limit: 7,
      effective_max_concurrent: 2,
      effective_daily_limit: 99,
      spent_this_month: 0,
      created_at: expect.any(String),
      expires_at: "2090-01-31T00:00:00.000Z",
      refusals: [],
    });
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 1000, held: 0 });
  });

  // Guarantee: who reads a key's cap reads beside it how much of it is left.
  test("show has what a key has spent in this month beside its cap", async () => {
    const { keyId, stage, ref } = await givenCliAccount(connection);
    await json("keys", "set", keyId, "--monthly-credits", "500");
    await stage.givenTask(stage.request(ref, { price: 30 }));
    await stage.admit(stage.request(ref, { price: 20 }));
    const cap = { monthly_credits: 500, spent_this_month: 50 };
    expect(await json("keys", "show", keyId)).toMatchObject(cap);
    const { stdout } = await runHere(["keys", "show", keyId]);
    expect(stdout).toMatch(/^monthly_credits +500\n(?:effective_.*\n)+spent_this_month +50$/m);
  });

  test("show says when and why a key was refused, credits show the same of all keys of the account", async () => {
    const one = await json("keys", "create");
    const other = await json("keys", "create");
    const key = { keyId: one.key_id, accountId: one.account_id, outcome: "rate_limited" };
    const hour = new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000).toISOString();
    const atMs = Date.parse(hour);
    await addRefusals(connection, [
      { ...key, atMs, count: 7 },
      { ...key, keyId: "key_2", atMs, count: 2 },
      { ...key, accountId: other.account_id, atMs, count: 1 },
    ]);
    const row = { hour, key_id: key.keyId, outcome: "rate_limited", count: 7 };
    expect((await json("keys", "show", key.keyId)).refusals).toEqual([row]);
    const { refusals } = await json("credits", "show", key.accountId);
    expect(refusals).toEqual([row, { ...row, key_id: "key_2", count: 2 }]);
    const { stdout } = await runHere(["keys", "show", key.keyId]);
    expect(stdout).toMatch(/REFUSED IN THE HOUR OF[\s\S]*rate_limited +7/);
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
    const partition = partitionOf(accountId, await partitionsOf(oneNode(connection.redis)));
    expect(await connection.redis.exists(accountNames(partition, accountId).account)).toBe(0);
  });

  test("what could not be a key, an account or a limit is refused, and nothing is made", async () => {
    const accountId = randomId("acc");
    const refused = (options: KeyOptions) =>
      expect(issueKey(oneNode(connection.redis), { accountId, ...options }, cliActor())).rejects;
    for (const id of ["", "a b", "a:b", "ä", "x".repeat(65)]) {
      await refused({ accountId: id }).toThrow("account id");
    }
    for (const token of ["pk_12345678", "sk_1234", `sk_${"x".repeat(254)}`, "sk_1234 5678", "sk_1234,5678"]) {
      await refused({ token }).toThrow("begins with sk_");
    }
    await refused({ credits: -1 }).toThrow("whole number");
    await refused({ credits: 2 ** 53 }).toThrow("whole number");
    await refused({ limits: { rate_limit: 1.5 } }).toThrow("whole number");
    await expect(readAccount(oneNode(connection.redis), accountId)).rejects.toThrow("no account");
    expect(await refusal("keys", "create", "--account", "a b")).toContain("account id");
    expect(await refusal("keys", "import", "pk_12345678")).toContain("begins with sk_");
  });

  test("import takes a key over once; said again it changes nothing", async () => {
    const key = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    const made = await json("keys", "import", key, "--account", accountId, "--credits", "5");
    expect(made).toEqual({ key_id: expect.any(String), account_id: accountId });
    expect(await json("keys", "show", key)).toMatchObject(made);
    expect(await refusal("keys", "import", key, "--account", "another")).toContain(
      `known already: ${made.key_id} of account ${accountId}, not another`,
    );
    expect(await json("keys", "import", key, "--account", accountId, "--credits", "5")).toEqual(made);
    expect(await json("keys", "import", key)).toEqual(made);
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 5 });
  });

  test("two imports that find the same crashed one finish it once", async () => {
    const token = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    await connection.redis.set(indexName(digestOf(token)), `${randomId("key")} ${accountId}`);
    const options = { token, accountId, credits: 5 };
    const ends = await Promise.allSettled(
      times(3, () => issueKey(oneNode(connection.redis), options, cliActor())),
    );
    expect(ends.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected", "rejected"]);
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 5 });
  });

  test("a key imported twice at once is taken once, with its credits once", async () => {
    const key = `sk_${randomId("old")}`;
    const accountId = randomId("acc");
    const args = ["keys", "import", key, "--account", accountId, "--credits", "5", "--json"];
    const ends = await Promise.all(times(3, () => runProcess(args)));
    expect(ends.map(({ code, stderr }) => ({ code, stderr }))).toEqual(
      times(3, () => ({ code: 0, stderr: "" })),
    );
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 5 });
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
    const { accountId, keyId } = await givenCliAccount(connection);
    const second = await issueKey(oneNode(connection.redis), { accountId }, cliActor());
    const { keys } = await json("keys", "list", "--account", accountId);
    expect(keys.map((key: { key_id: string }) => key.key_id).sort()).toEqual([keyId, second.keyId].sort());
    const all = await json("keys", "list");
    expect(all.keys).toEqual(expect.arrayContaining(keys));
  });

  test("revoke ends a key at once and for good", async () => {
    const { key, keyId, stage, ref } = await givenCliAccount(connection);
    expect((await stage.admit(stage.request(ref))).outcome).toBe("admitted");
    expect(await json("keys", "revoke", key)).toMatchObject({ outcome: "revoked", key_id: keyId });
    expect((await stage.admit(stage.request(ref))).outcome).toBe("unknown_key");
    const { revoked_at } = await json("keys", "show", keyId);
    expect(await json("keys", "revoke", keyId)).toMatchObject({ outcome: "already_revoked", revoked_at });
    expect(await refusal("keys", "set", keyId, "--rate-limit", "5")).toContain("revoked");
    expect(await refusal("keys", "rotate", keyId)).toContain("revoked");
  });

  test("set changes what the next request may do, and default goes back to the tier", async () => {
    const { keyId, stage, ref } = await givenCliAccount(connection, { limits: { rate_limit: 7 } });
    const limits = async () => (await stage.store.inspect(ref, stage.tiers)).state.limit;
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
    const { keyId, accountId, stage, ref } = await givenCliAccount(connection, {
      tier: "enterprise",
      limits: { rate_limit: 7 },
      expiresAtMs: Date.parse(expires),
    });
    const next = await json("keys", "rotate", keyId, "--overlap", "2h");
    expect(next).toEqual({
      key: expect.stringMatching(/^sk_.{40,}$/),
      key_id: expect.any(String),
      account_id: accountId,
      old_key_id: keyId,
      old_expires_at: expect.any(String),
    });
    expect(await json("keys", "show", next.key)).toMatchObject({
      tier: "enterprise",
      rate_limit: 7,
      expires_at: expires,
    });
    expect((await stage.admit(stage.request(ref))).outcome).toBe("admitted");
    const { expires_at } = await json("keys", "show", keyId);
    expect(expires_at).toBe(next.old_expires_at);
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 7_200_000)).toBeLessThan(60_000);
    const last = await json("keys", "rotate", next.key_id);
    expect(await json("keys", "show", next.key_id)).toMatchObject({ status: "revoked" });
    expect(await json("keys", "show", last.key_id)).toMatchObject({ status: "active" });
    expect(await refusal("keys", "rotate", last.key_id, "--overlap", "soon")).toContain("duration");
  });

  test("rotate never makes an old key live longer, nor a new key of one that has expired", async () => {
    const expires = new Date(Date.now() + 3_600_000).toISOString();
    const { keyId, accountId, ref } = await givenCliAccount(connection, { expiresAtMs: Date.parse(expires) });
    const next = await json("keys", "rotate", keyId, "--overlap", "2h");
    expect(next.old_expires_at).toBe(expires);
    expect(await json("keys", "show", keyId)).toMatchObject({ expires_at: expires });
    await connection.redis.hdel(ref.names.key, "rotated_to");
    await setKeyFields(connection.redis, ref.names.key, { expires_at: Date.now() - 1000 });
    expect(await refusal("keys", "rotate", keyId)).toContain("has expired");
    const { keys } = await json("keys", "list", "--account", accountId);
    expect(keys).toHaveLength(2);
  });

  test("a key is rotated once, also by two who do it at the same time", async () => {
    const { keyId, accountId } = await givenCliAccount(connection);
    const old = await findKey(oneNode(connection.redis), keyId);
    const ends = await Promise.allSettled(
      times(3, () => rotateKey(oneNode(connection.redis), old, 3_600_000, cliActor())),
    );
    expect(ends.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected", "rejected"]);
    const { rotated_to } = await json("keys", "show", keyId);
    expect(
      (await json("keys", "list", "--account", accountId)).keys,
      "none that nobody has seen",
    ).toHaveLength(2);
    const made = async (): Promise<number> =>
      (await json("keys", "list", "--account", accountId)).keys.length;
    const before = await made();
    expect(await refusal("keys", "rotate", keyId, "--overlap", "2h")).toContain(`into ${rotated_to}`);
    expect(await made(), "a refusal makes no key").toBe(before);
    const { keys } = await json("keys", "list", "--account", accountId, "--status", "active");
    expect(keys.map(({ key_id }: { key_id: string }) => key_id).sort()).toEqual([keyId, rotated_to].sort());
  });

  test("rotate says that two keys may use the limits twice, and they may", async () => {
    const { keyId, accountId, stage, ref, partition } = await givenCliAccount(connection, {
      limits: { rate_limit: 1 },
    });
    const { stdout } = await runHere(["keys", "rotate", keyId, "--overlap", "2h"]);
    expect(stdout.replaceAll("\n", " ")).toContain("its own window, slots and day");
    const newId = /^key_id +(\S+)$/m.exec(stdout)?.[1] ?? "";
    expect((await stage.admit(stage.request(ref))).outcome).toBe("admitted");
    expect((await stage.admit(stage.request(ref))).outcome).toBe("rate_limited");
    expect((await stage.admit(stage.request(keyRef(newId, accountId, partition)))).outcome).toBe("admitted");
  });

  test("list says that an account does not exist", async () => {
    const accountId = randomId("acc");
    expect(await refusal("keys", "list", "--account", accountId)).toContain(
      `there is no account ${accountId}`,
    );
  });

  test("list goes through a thousand keys in pages that have each once", async () => {
    const accountId = randomId("acc");
    const lines = times(
      230,
      (at) => `sk_${randomId("old")},${accountId},${at % 2 === 0 ? "standard" : "enterprise"}`,
    );
    await runHere(["keys", "import", "-"], {}, { stdin: lines.join("\n") });
    const seen: string[] = [];
    let after: string[] = [];
    for (;;) {
      const page = await json(
        "keys",
        "list",
        "--account",
        accountId,
        "--tier",
        "enterprise",
        "--limit",
        "50",
        ...after,
      );
      seen.push(...page.keys.map((key: { key_id: string }) => key.key_id));
      expect(page.keys.every((key: { tier: string }) => key.tier === "enterprise")).toBe(true);
      if (page.next === undefined) break;
      after = ["--after", page.next];
    }
    expect(seen).toHaveLength(115);
    expect(new Set(seen).size).toBe(115);
    const words = await runHere(["keys", "list", "--account", accountId, "--limit", "2"]);
    expect(words.stdout.trimEnd().split("\n")).toHaveLength(3);
    expect(words.stderr).toMatch(/^There are more: --after key_/);
  });
});

describe("keys import of many", () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "tollgate-cli-"));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  test("from standard input: imports each once, and said again it changes nothing", async () => {
    const accountId = randomId("acc");
    const keys = times(250, () => `sk_${randomId("old")}`);
    const stdin = `\ufeffkey\r\n# from the old gateway\r\n\r\n${[...keys, keys[0]].join("\r\n")}`;
    const args = ["keys", "import", "-", "--account", accountId, "--credits", "2", "--json"];
    const first = await runHere(args, {}, { stdin });
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(first.stdout)).toEqual({ ok: true, imported: 250, known: 1, failed: 0, problems: [] });
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 500 });
    const again = await runHere(args, {}, { stdin });
    expect(JSON.parse(again.stdout)).toMatchObject({ ok: true, imported: 0, known: 251, failed: 0 });
    expect(await readAccount(oneNode(connection.redis), accountId)).toMatchObject({ balance: 500 });
    expect(await json("keys", "show", keys[249] ?? "")).toMatchObject({ account_id: accountId });
  });

  test("from a table: each line's own account and tier, problems by line, and no key in what is said", async () => {
    const [one, two] = [randomId("acc"), randomId("acc")];
    const keys = times(6, () => `sk_${randomId("old")}`);
    const file = join(dir, "keys.csv");
    const lines = [
      "key,account,tier",
      `"${keys[0]}","${one}","enterprise"`,
      `${keys[1]},${two}`,
      `${keys[0]},${two},enterprise`,
      `${keys[0]},${one},standard`,
      keys[2],
      `${keys[3]},${one},gold`,
      `${keys[4]},a b`,
      `${keys[5]} 5678,${one}`,
      `${keys[5]},${one},standard,9`,
    ];
    await writeFile(file, lines.join("\n"));
    const { code, stdout, stderr } = await runHere(["keys", "import", "--from", file, "--json"]);
    expect(code).toBe(1);
    const { problems, ...counts } = JSON.parse(stdout);
    expect(counts).toEqual({ ok: false, imported: 2, known: 0, failed: 7 });
    expect(problems).toEqual([
      { line: 4, message: expect.stringContaining(`of account ${one}, not ${two}`) },
      { line: 5, message: expect.stringContaining("--tier standard") },
      { line: 6, message: expect.stringContaining("no account") },
      { line: 7, message: expect.stringContaining("no tier gold") },
      { line: 8, message: expect.stringContaining("account id") },
      { line: 9, message: expect.stringContaining("begins with sk_") },
      { line: 10, message: expect.stringContaining("at most three fields") },
    ]);
    const words = await runHere(["keys", "import", "--from", file]);
    for (const output of [stdout, stderr, words.stdout, words.stderr]) {
      expect(keys.filter((key) => output.includes(key))).toEqual([]);
    }
    expect(words.stdout).toContain("0 imported, 2 known before, 7 failed.");
    expect(await json("keys", "list", "--account", one)).toMatchObject({ keys: [{ tier: "enterprise" }] });
  });

  test("a key that was revoked or has expired is a problem, for it opens nothing", async () => {
    const accountId = randomId("acc");
    const [good, revoked, expired] = times(3, () => `sk_${randomId("old")}`) as [string, string, string];
    const args = ["keys", "import", "-", "--account", accountId, "--json"];
    const stdin = [good, revoked, expired].join("\n");
    expect((await runHere(args, {}, { stdin })).code).toBe(0);
    const { key_id: revokedId } = await json("keys", "revoke", revoked);
    const { key_id: expiredId } = await json("keys", "show", expired);
    const partition = partitionOf(accountId, await partitionsOf(oneNode(connection.redis)));
    await connection.redis.hset(keyRef(expiredId, accountId, partition).names.key, "expires_at", 1);
    const { code, stdout } = await runHere(args, {}, { stdin });
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      ...{ imported: 0, known: 1, failed: 2 },
      problems: [
        { line: 2, message: expect.stringContaining(`${revokedId}, which is revoked`) },
        { line: 3, message: expect.stringContaining(`\`tollgate keys set ${expiredId} --expires\``) },
      ],
    });
    expect(await refusal("keys", "import", revoked, "--account", accountId)).toContain("is revoked");
  });

  test.each([";", "\t"])("a line with %j between its fields is no key", async (separator) => {
    const token = ["sk_semi00001", randomId("acc"), "enterprise"].join(separator);
    const args = ["keys", "import", "-", "--account", randomId("acc"), "--json"];
    const { code, stdout } = await runHere(args, {}, { stdin: token });
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      ...{ imported: 0, failed: 1 },
      problems: [{ line: 1, message: expect.stringContaining("separated by commas: key,account,tier") }],
    });
  });

  test("a file that was not read for want of a Redis is closed, and the error is all that is said", async () => {
    const file = join(dir, "unread.csv");
    await writeFile(file, `sk_${"a".repeat(40)},${randomId("acc")}\n`);
    const unreachable = { REDIS_URL: "redis://127.0.0.1:1" };
    const { code, stderr } = await runHere(["keys", "import", "--from", file, "--json"], unreachable);
    expect({ code, lines: stderr.trimEnd().split("\n") }).toMatchObject({
      code: 1,
      lines: [expect.stringMatching(/^error: /)],
    });
    // A file handle that the garbage collector closes ends the process with a stack.
    await until(() => !openFiles().includes(file), "the file to be closed");
  });

  test("what is to be read must be clear, and there", async () => {
    expect(await refusal("keys", "import")).toContain("--from");
    expect(await refusal("keys", "import", "-", "--from", "keys.csv")).toContain("--from");
    expect(await refusal("keys", "import", "--from", dir)).toMatch(/keys cannot be read \(EISDIR/);
    expect(await refusal("keys", "import", "--from", join(dir, "none.csv"))).toMatch(
      /none\.csv cannot be read/,
    );
  });
});

/** The files that this process has open. */
const openFiles = (): string[] =>
  readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return [];
    }
  });
