import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, mkdtemp, readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { storeNowMs } from "../../src/redis/server-info.ts";
import { addMoney } from "../support/account-money.ts";
import { cliEnv, cliFile, givenCliAccount, json, ROOT, refusal, runHere } from "../support/cli.ts";
import { until } from "../support/gateway.ts";
import { openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { givenKey, givenRedis } from "../support/store-stage.ts";

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

describe("ledger", () => {
  test("verify answers 0 for a sound ledger and 1 with the violations for others", async () => {
    const { accountId, ref } = await givenCliAccount(connection);
    const args = ["ledger", "verify", "--account", accountId];
    expect(await json(...args)).toMatchObject({ ok: true, accounts: 1, entries: 1, violations: [] });
    await addMoney(connection.redis, ref.names.account, "held", 5);
    const { code, stdout, stderr } = await runHere([...args, "--json"]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining("1 violation") });
    expect(JSON.parse(stdout)).toEqual({
      ok: false,
      accounts: 1,
      entries: 1,
      credits: expect.any(Object),
      violations: [{ invariant: "held", account_id: accountId, message: expect.stringContaining("5") }],
    });
    const words = await runHere(args);
    expect(words.code).toBe(1);
    expect(words.stdout).toContain("1 violation");
    await addMoney(connection.redis, ref.names.account, "held", -5);
  });

  test("export writes every entry once, over two runs", async () => {
    const { accountId, stage, ref, keyId } = await givenCliAccount(connection);
    const request = stage.request(ref, { price: 30 });
    await stage.givenTask(request);
    const first = await json("ledger", "export", "--account", accountId);
    expect(first.entries).toMatchObject([
      { account_id: accountId, type: "recharge", amount: 1000, reference: `key:${keyId}` },
      { account_id: accountId, type: "consume", amount: -30, request_id: request.requestId },
    ]);
    await json("credits", "grant", accountId, "5", "--reference", 'a "b", c');
    const later = ["ledger", "export", "--account", accountId, "--after", first.cursor];
    const lines = await runHere(later);
    expect(
      lines.stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toMatchObject([{ amount: 5 }]);
    const cursor = /^cursor: (\S+)\n$/.exec(lines.stderr)?.[1];
    const csv = await runHere([...later, "--format", "csv"]);
    expect(csv.stdout.split("\r\n")).toEqual([
      "id,account_id,type,amount,balance_after,endpoint,reason,reference,task_id,request_id,key_id,created_at,by,note,kind,package,amount_paid,currency,of",
      expect.stringContaining(',"recharge",5,975,,,"a ""b"", c",,,,'),
      "",
    ]);
    expect(await json("ledger", "export", "--account", accountId, "--after", cursor ?? "")).toEqual({
      entries: [],
      cursor,
    });
    expect(await refusal("ledger", "export", "--after", "then")).toContain("cursor");
  });

  // Guarantee: an export never goes on from entries that the ledger has not, whatever was posted since a restore.
  test("export refuses a ledger that was restored from an older copy, also once it has newer entries", async () => {
    const { accountId, stage, ref } = await givenCliAccount(connection);
    const { cursor } = await json("ledger", "export", "--account", accountId);
    // An entry posted after the copy was made, and exported; the restored ledger never had it.
    const lost = `${cursor}999`;
    const startMs = await storeNowMs(connection.redis);
    await until(async () => (await storeNowMs(connection.redis)) > startMs);
    await stage.recharge(ref, 1, "order-1");
    const exportAfter = (from: string) => ["ledger", "export", "--account", accountId, "--after", from];
    expect(await runHere(exportAfter(lost))).toEqual({
      code: 1,
      stdout: "",
      stderr: expect.stringContaining("the cursor is ahead of this ledger"),
    });
    expect((await json(...exportAfter(cursor))).entries).toMatchObject([{ amount: 1 }]);
    const start = `${ref.partition}:0-0`;
    expect((await json(...exportAfter(start))).entries).toMatchObject([{ amount: 1000 }, { amount: 1 }]);
  });

  test("export ends quietly when its reader leaves", async () => {
    const { accountId, stage, ref } = await givenCliAccount(connection);
    await Promise.all(times(2500, (at) => stage.recharge(ref, 1, `order-${at}`)));
    const child = spawn(process.execPath, [cliFile(), "ledger", "export", "--account", accountId], {
      cwd: ROOT,
      env: cliEnv(),
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

describe("ledger export to a file with a cursor file", () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "tollgate-cli-"));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  interface Exported {
    id: string;
    amount: number;
  }

  /** An account with that many entries beyond the first, and an export of it to files of its own. */
  async function givenExport(entries: number) {
    const { accountId, stage, ref } = await givenCliAccount(connection);
    const post = (first: number, count: number) =>
      Promise.all(times(count, (at) => stage.recharge(ref, first + at, `order-${first + at}`)));
    await post(1, entries);
    const output = join(dir, `${accountId}.ndjson`);
    const cursorFile = join(dir, `${accountId}.cursor`);
    const files = ["--output", output, "--cursor-file", cursorFile];
    const args = ["ledger", "export", "--account", accountId, ...files];
    const read = async (file = output): Promise<Exported[]> =>
      (await readFile(file, "utf8"))
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line));
    return { accountId, post, output, cursorFile, args, read };
  }

  /** 1000 of the account's first key, then 1, 2, 3 and so on. */
  const amounts = (count: number): number[] => [1000, ...times(count, (at) => at + 1)];

  test("goes on where it ended, however often", async () => {
    const { args, post, read, cursorFile } = await givenExport(5);
    for (const count of [5, 5, 2500]) {
      await post((await read().catch(() => [])).length || 6, count === 2500 ? 2495 : 0);
      expect(await runHere(args)).toMatchObject({
        code: 0,
        stdout: "",
        stderr: expect.stringContaining(cursorFile),
      });
      expect((await read()).map(({ amount }) => amount)).toEqual(amounts(count));
    }
  });

  test("killed at any moment, each entry is there once after the next run", async () => {
    const { args, read, output, cursorFile } = await givenExport(3000);
    for (let kills = 0; kills < 2; kills++) {
      const child = spawn(process.execPath, [cliFile(), ...args], {
        cwd: ROOT,
        env: cliEnv(),
        stdio: "ignore",
      });
      // Somewhere between its first page and its end: the file is longer than before.
      const before = (await stat(output).catch(() => undefined))?.size ?? 0;
      const exited = once(child, "exit");
      await until(
        async () =>
          child.exitCode !== null || ((await stat(output).catch(() => undefined))?.size ?? 0) > before,
      );
      child.kill("SIGKILL");
      await exited;
      // A kill between page and cursor leaves entries that are written and do not count.
      await appendFile(output, '{"half":');
    }
    expect((await runHere(args)).code).toBe(0);
    expect((await read()).map(({ amount }) => amount)).toEqual(amounts(3000));
    expect((await readFile(cursorFile, "utf8")).split("\n")).toHaveLength(2);
  });

  test("Ctrl-C ends it with 130 after a whole page, and the same command goes on", async () => {
    const { args, read } = await givenExport(1500);
    const others = process.listenerCount("SIGINT");
    // Its own handler alone, and as soon as it listens: a fast machine has soon written all.
    const listening = new Promise<() => void>((resolve) => {
      const added = (event: string | symbol, listener: (name: string) => void): void => {
        if (event !== "SIGINT") return;
        process.off("newListener", added);
        resolve(() => listener("SIGINT"));
      };
      process.on("newListener", added);
    });
    const interrupted = runHere(args);
    (await listening)();
    const { code, stderr } = await interrupted;
    expect(code).toBe(130);
    expect(stderr).toMatch(/^interrupted after \d+ entries; to go on, run the same command again\n/);
    expect(process.listenerCount("SIGINT")).toBe(others);
    const part = await read();
    expect(part.length).toBeLessThan(1501);
    expect((await runHere(args)).code).toBe(0);
    expect((await read()).map(({ amount }) => amount)).toEqual(amounts(1500));
  });

  test("to standard output the cursor moves only once all was handed over", async () => {
    const { accountId, cursorFile, post } = await givenExport(2);
    const args = ["ledger", "export", "--account", accountId, "--format", "csv", "--cursor-file", cursorFile];
    const first = await runHere(args);
    expect(first.stdout.split("\r\n")).toHaveLength(5);
    await post(3, 1);
    const second = await runHere([...args, "--no-header"]);
    expect(second.stdout).toMatch(/^[^\r\n]*,"recharge",3,1006,[^\r\n]*\r\n$/);
    const third = await runHere([...args, "--json"]);
    expect(JSON.parse(third.stdout)).toMatchObject({ entries: [] });
  });

  test("entries of another output go on there, once the earlier one is whole", async () => {
    const { args, read, post, output } = await givenExport(2);
    await runHere(args);
    await post(3, 2);
    const next = args.map((word) => (word === output ? `${output}.2` : word));
    await appendFile(output, "half a li");
    expect((await runHere(next)).stderr).toContain("cut off half-way");
    await runHere([...args, "--until", "1970-01-02"]);
    const answer = await runHere([...next, "--json"]);
    expect(JSON.parse(answer.stdout)).toEqual({
      entries: 2,
      output: `${output}.2`,
      cursor: expect.stringMatching(/^\d+:\d+-\d+$/),
    });
    expect((await read()).map(({ amount }) => amount)).toEqual([1000, 1, 2]);
    expect((await read(`${output}.2`)).map(({ amount }) => amount)).toEqual([3, 4]);
  });

  test("two exports with one cursor file do not run at a time, and a killed one's lock counts for nothing", async () => {
    const { args, read, cursorFile } = await givenExport(2);
    await writeFile(`${cursorFile}.lock`, `${process.ppid} ${hostname()}`);
    expect((await runHere(args)).stderr).toContain(`process ${process.ppid} exports with`);
    const ended = spawn(process.execPath, ["--version"], { stdio: "ignore" });
    await once(ended, "exit");
    // In a container the killed one had the process id that we have now.
    const own = String(process.pid);
    for (const left of [`${ended.pid} ${hostname()}`, `${own} ${hostname()}`, own, ""]) {
      await writeFile(`${cursorFile}.lock`, left);
      expect((await runHere(args)).code).toBe(0);
      await expect(stat(`${cursorFile}.lock`)).rejects.toThrow("ENOENT");
    }
    expect((await read()).map(({ amount }) => amount)).toEqual(amounts(2));
  });

  test("a lock from another container counts while its owner touches it, and not for long after that", async () => {
    const { args, cursorFile } = await givenExport(1);
    await writeFile(`${cursorFile}.lock`, "1 another-host");
    expect((await runHere(args)).stderr).toContain("process 1 on another-host exports with");
    const silent = new Date(Date.now() - 46_000);
    await utimes(`${cursorFile}.lock`, silent, silent);
    expect((await runHere(args)).code).toBe(0);
  });

  test.each(["--cursor-file", "--output"])("an empty %s is refused", async (option) => {
    expect(await refusal("ledger", "export", option, "")).toContain("It must be the name of a file.");
  });

  test("an account that does not exist is no account without entries, and leaves no file", async () => {
    const { output } = await givenExport(0);
    const accountId = randomId("acc");
    const words = ["ledger", "export", "--account", accountId, "--output", output];
    expect(await refusal(...words)).toContain(`there is no account ${accountId}`);
    await expect(stat(output)).rejects.toThrow("ENOENT");
  });

  test("refuses what would lose, double or overwrite entries", async () => {
    const { args, output, cursorFile, accountId } = await givenExport(2);
    expect((await runHere(args)).code).toBe(0);
    const says = async (words: string[]) => (await runHere(words)).stderr;
    expect(await says(["ledger", "export", "--output", output])).toContain("is not empty");
    expect(await says([...args, "--format", "csv"])).toContain("format ndjson, not csv");
    expect(await says(["ledger", "export", "--cursor-file", cursorFile])).toContain(
      `account ${accountId}, not all`,
    );
    expect(await says([...args, "--after", "1:1-1"])).toContain("cannot be used with");
    await truncate(output, 10);
    expect(await says(args)).toContain("is shorter than");
    await rm(output);
    expect(await says(args)).toContain("is gone");
    await writeFile(cursorFile, "{}");
    expect(await says(args)).toContain("is no cursor file");
    const ahead = ["ledger", "export", "--after", "3:99999999999999-0"];
    expect(await says(ahead)).toContain("the cursor is ahead of this ledger");
    expect(await says(["ledger", "export", "--after", "9999:1-0"])).toContain("another Redis");
    expect(await says(["ledger", "export", "--output", join(dir, "no/such/folder")])).toMatch(
      /cannot be written.*ENOENT/,
    );
  });
});

test("long work says on a terminal how far it is, and in a pipe nothing", async () => {
  // Of its own: a check of all that the other tests have left takes long.
  const redis = await givenRedis();
  const env = { REDIS_URL: redis.url };
  const { accountId } = await givenKey(redis.client);
  const key = () => `sk_${randomId("old")}`;
  const dir = await mkdtemp(join(tmpdir(), "tollgate-cli-"));
  const work = async (run: string) => [
    await runHere(["ledger", "verify"], env),
    await runHere(["ledger", "export", "--account", accountId, "--output", join(dir, run)], env),
    await runHere(["keys", "import", "-", "--account", accountId], env, { stdin: key() }),
  ];
  const lines = (ran: { stderr: string }[]) => ran.map(({ stderr }) => stderr.split("\r\u001b[2K")[1]);
  const before = Object.getOwnPropertyDescriptor(process.stderr, "isTTY");
  Object.defineProperty(process.stderr, "isTTY", { value: true, configurable: true });
  try {
    expect(lines(await work("terminal"))).toEqual([
      expect.stringMatching(/^partition \d+ of \d+: \d+ accounts, \d+ entries$/),
      expect.stringMatching(/^partition \d+ of \d+: \d+ entries$/),
      "1 imported, 0 known before, 0 failed",
    ]);
  } finally {
    delete (process.stderr as { isTTY?: boolean }).isTTY;
    if (before) Object.defineProperty(process.stderr, "isTTY", before);
  }
  expect(lines(await work("pipe"))).toEqual([undefined, undefined, undefined]);
  await rm(dir, { recursive: true });
  await redis.stop();
});

test("a time in the ledger lies in one of two spans side by side, never in both", async () => {
  const { accountId, stage, ref } = await givenCliAccount(connection);
  await stage.recharge(ref, 1, "order-1");
  const posted = async (...span: string[]): Promise<{ id: string }[]> =>
    (await json("ledger", "export", "--account", accountId, ...span)).entries;
  const count = async (...span: string[]) => (await posted(...span)).length;
  const atMs = async () => Number(/_(\d+)-/.exec((await posted()).at(-1)?.id ?? "")?.[1]);
  const before = await atMs();
  await until(async () => (await storeNowMs(connection.redis)) > before);
  await stage.recharge(ref, 2, "order-2");
  // The very moment of the last one.
  const moment = new Date(await atMs()).toISOString();
  expect([await count("--until", moment), await count("--since", moment)]).toEqual([2, 1]);
  expect(await count("--since", "1h")).toBe(3);
  expect(await count("--until", "1h")).toBe(0);
  expect(await refusal("ledger", "export", "--since", "yesterday")).toContain("ISO 8601");
});
