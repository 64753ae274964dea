import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openArchiveReads } from "../../src/archive/reads.ts";
import { dayText } from "../../src/domain/moments.ts";
import { accountUsage } from "../../src/ledger/account-usage.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import { salesOf } from "../../src/ledger/sales.ts";
import { emptyStatement } from "../../src/ledger/statement-sums.ts";
import { accountStatements } from "../../src/ledger/statements.ts";
import { totalStatement } from "../../src/ledger/total-statement.ts";
import { dayStartMs, monthBounds } from "../../src/ledger/usage.ts";
import { topAccounts } from "../../src/operations/accounts/top-accounts.ts";
import { pageAllTransactions } from "../../src/operations/credits/transactions.ts";
import { accountNames, type KeyRef, partitionNames, partitionOf } from "../../src/records/names.ts";
import { requestText } from "../../src/records/records.ts";
import { accountIn, changeMoney } from "../support/account-money.ts";
import { refusal, runHere } from "../support/cli.ts";
import { closingOf } from "../support/statements.ts";
import { times } from "../support/store.ts";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

let stage: ArchiveStage;
let keys: Map<string, KeyRef>;
beforeAll(async () => {
  stage = await givenArchiveStage();
  keys = await givenExample(stage);
  await adjust("acme", -25, "goodwill-3");
  await (await stage.copier()).copy();
});
afterAll(() => stage.stop());

/** An entry as a correction by hand would be; no operation makes one yet. */
async function adjust(accountId: string, amount: number, reference: string): Promise<void> {
  const partition = partitionOf(accountId, PARTITIONS);
  const { account } = accountNames(partition, accountId);
  const { balance = "", last_entry = "" } = await accountIn(stage.redis, account);
  const after = Number(balance) + amount;
  const fields = {
    account_id: accountId,
    type: "recharge",
    amount,
    balance_after: after,
    endpoint: "",
    reason: "goodwill",
  };
  const more = { task_id: "", at: Date.parse("2025-11-06T12:00:00Z"), previous: last_entry, reference };
  const words = Object.entries({ ...fields, ...more }).flatMap(([name, value]) => [name, String(value)]);
  const id = await stage.redis.xadd(partitionNames(partition).ledger, "*", ...words);
  await changeMoney(stage.redis, account, { balance: after, last_entry: id! });
}

const redisUrl = (): string => `redis://127.0.0.1:${stage.redis.options.port}`;
const SOURCES = ["archive", "redis"] as const;
type SourceName = (typeof SOURCES)[number];
const envOf = (source: SourceName): Record<string, string> => ({
  REDIS_URL: redisUrl(),
  ...(source === "archive" ? { ARCHIVE_URL: stage.url } : {}),
});

/** Output of a command with --json, from one of the sources. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
async function from(source: SourceName, ...words: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere([...words, "--json"], envOf(source));
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

const counts = (requests: number, credits: number, refunds: number, completed: number, failed: number) => ({
  requests,
  credits,
  refunds,
  completed,
  failed,
  // Each ran for 600 ms.
  seconds: completed,
});

describe.each(SOURCES)("from %s", (source) => {
  test("usage tells charges, refunds and ends of tasks by day", async () => {
    const {
      usage,
      total,
      source: where,
    } = await from(source, "usage", "--account", "acme", "--from", "2025-09-30", "--to", "2025-10-17");
    expect(usage).toEqual([
      { day: "2025-09-30", ...counts(1, 40, 40, 0, 1) },
      { day: "2025-10-01", ...counts(2, 20, 0, 2, 0) },
      { day: "2025-10-02", ...counts(2, 50, 0, 2, 0) },
      { day: "2025-10-17", ...counts(2, 80, 80, 0, 2) },
    ]);
    expect(total).toEqual(counts(7, 190, 120, 4, 3));
    expect(where.from).toBe(source);
  });

  test("usage by account, endpoint and key", async () => {
    const { usage } = await from(source, "usage", "--by", "account,endpoint,key");
    const keyId = (name: string): string => keys.get(name)!.keyId;
    expect(usage).toEqual([
      {
        account_id: "acme",
        endpoint: "/api/v1/gen2-pro/text-to-video",
        key_id: keyId("acme/batch"),
        ...counts(4, 160, 120, 1, 3),
      },
      {
        account_id: "acme",
        endpoint: "/api/v1/gen2/text-to-video",
        key_id: keyId("acme/web"),
        ...counts(6, 60, 0, 6, 0),
      },
      {
        account_id: "globex",
        endpoint: "/api/v1/gen2/text-to-video",
        key_id: keyId("globex/app"),
        ...counts(4, 40, 10, 3, 1),
      },
    ]);
  });

  test.each([
    ["acme", "2025-08", {}],
    ["acme", "2025-09", { purchases: 500, charges: 60, refunds: 40, closing: 480 }],
    ["acme", "2025-10", { opening: 480, purchases: 200, charges: 150, refunds: 80, closing: 610 }],
    ["acme", "2025-11", { opening: 610, charges: 10, adjustments: -25, reversals: 30, closing: 545 }],
    ["acme", "2025-12", { opening: 545, closing: 545 }],
    ["globex", "2025-10", { opening: 100, closing: 100 }],
  ])("a statement of %s for %s adds up", async (account, month, expected) => {
    const statement = { ...emptyStatement(0), ...expected };
    expect(statement.closing).toBe(closingOf(statement));
    expect(await from(source, "statement", account, month)).toMatchObject({
      ...{ account_id: account, month },
      ...statement,
    });
  });

  test("an account that is not there is an error", async () => {
    const { code, stderr } = await runHere(["usage", "--account", "nobody"], envOf(source));
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining("no account nobody") });
  });
});

test("both sources say the same of everything, by every column", async () => {
  for (const by of ["day", "account", "key", "day,account,endpoint,key"]) {
    const words = ["usage", "--by", by];
    expect((await from("archive", ...words)).usage).toEqual((await from("redis", ...words)).usage);
  }
});

test("statements over HTTP are the same from the archive and from Redis, and say where they end", async () => {
  const reads = openArchiveReads(stage.url);
  try {
    for (const month of ["2025-08", "2025-09", "2025-10", "2025-11", "2025-12"]) {
      const accounts = ["acme", "globex"];
      const archived = await accountStatements(stage.nodes, accounts, month, reads.of(stage.nodes));
      const inRedis = await accountStatements(stage.nodes, accounts, month);
      expect(archived.map(({ statement }) => statement)).toEqual(inRedis.map(({ statement }) => statement));
      expect(archived).toMatchObject(accounts.map(() => ({ source: "archive", sinceMs: undefined })));
      expect(archived.every(({ untilMs }) => untilMs !== undefined)).toBe(true);
      for (const { statement } of archived) expect(statement.closing).toBe(closingOf(statement));
    }
  } finally {
    reads.close();
  }
});

test("both views agree with each entry: charges, refunds, purchases and adjustments by their kind", async () => {
  const rows = await stage.database.query(
    `SELECT kind, count(*)::int AS entries, sum(amount)::int AS credits FROM tollgate.ledger_entries GROUP BY kind ORDER BY kind`,
  );
  expect(rows).toEqual([
    { kind: "adjustment", entries: 1, credits: -25 },
    { kind: "charge", entries: 14, credits: -260 },
    { kind: "purchase", entries: 3, credits: 800 },
    { kind: "refund", entries: 4, credits: 130 },
    { kind: "reversal", entries: 1, credits: -30 },
  ]);
});

test("a request that ended twice counts by its last end: bound late after it was void, or ended anew after a failover", async () => {
  const small = await givenArchiveStage();
  try {
    await (await small.copier()).copy();
    const at = (second: number): string => `2025-10-01T00:00:0${second}Z`;
    const rows = [
      ["req_late", "void", at(1)],
      ["req_late", "completed", at(2)],
      ["req_again", "failed", at(1)],
      ["req_again", "completed", at(2)],
      ["req_void", "void", at(1)],
    ];
    for (const row of rows)
      await small.database.query(
        `INSERT INTO tollgate.request_rows (request_id, status, finished_at, account_id, key_id, endpoint) VALUES ($1, $2, $3, 'a', 'k', '/e')`,
        row,
      );
    const shown = await small.database.query(
      "SELECT request_id, status FROM tollgate.requests ORDER BY request_id",
    );
    expect(shown).toEqual([
      { request_id: "req_again", status: "completed" },
      { request_id: "req_late", status: "completed" },
      { request_id: "req_void", status: "void" },
    ]);
    const [usage] = await small.database.query(
      "SELECT completed::int, failed::int FROM tollgate.usage_daily",
    );
    expect(usage).toEqual({ completed: 2, failed: 0 });
  } finally {
    await small.stop();
  }
});

// Guarantee: nobody takes a month for complete that the archive has not, or lacks.
test("a month says how far the archive is where that has nothing, and what a gap of it hides", async () => {
  const small = await givenArchiveStage();
  const reads = openArchiveReads(small.url);
  try {
    const copier = await small.copier();
    await copier.copy();
    const partition = partitionOf("acme", PARTITIONS);
    await small.givenKey("acme");
    const month = new Date().toISOString().slice(0, 7);
    const archive = reads.of(small.nodes);
    const statementOf = async (of: string) => {
      const [found] = await accountStatements(small.nodes, ["acme"], of, archive);
      return found;
    };
    expect(await statementOf(month)).toMatchObject({ source: "archive", untilMs: 0, sinceMs: undefined });
    await copier.copy();
    const { first } = monthBounds(month);
    const [afterMs, untilMs] = [dayStartMs(first) - 1000, dayStartMs(first) + 1000];
    await small.database.query(
      "INSERT INTO tollgate.ledger_gaps (partition, after, until) VALUES ($1, $2, $3)",
      [partition, `${afterMs}-0`, `${untilMs}-0`],
    );
    const before = dayText(afterMs).slice(0, 7);
    for (const of of [before, month]) expect(await statementOf(of)).toMatchObject({ sinceMs: untilMs + 1 });
    expect(await statementOf("2025-01")).toMatchObject({ sinceMs: undefined });
    // Nothing was rolled up in Redis.
    for (const [of, sinceMs] of [
      [before, untilMs + 1],
      [month, untilMs + 1],
      [monthBounds(month).next.slice(0, 7), undefined],
    ] as const) {
      const lost = { opening: null, closing: null };
      expect(await totalStatement(small.nodes, of, archive)).toMatchObject({ statement: lost, sinceMs });
      expect(await salesOf(small.nodes, of, archive)).toMatchObject({ sinceMs });
    }
    const lost = { source: "archive", sinceMs: untilMs + 1, endedSinceMs: untilMs + 1 };
    const top = { by: "spend", limit: 10, from: "2025-01-01" } as const;
    expect(await topAccounts(small.nodes, top, archive)).toMatchObject({ sinceMs: untilMs + 1 });
    const question = { by: ["day"], from: dayText(afterMs), limit: 10 } as const;
    expect(await allUsage(small.nodes, question, archive)).toMatchObject(lost);
    // As of an account that is older than the gap.
    await small.redis.hset(accountNames(partition, "acme").account, "created_at", 0);
    expect(await accountUsage(small.nodes, { accountId: "acme", by: ["day"] }, archive)).toMatchObject(lost);
    const later = await accountUsage(
      small.nodes,
      { accountId: "acme", by: ["day"], from: dayText(untilMs + 86_400_000) },
      archive,
    );
    expect(later).toMatchObject({ sinceMs: undefined, endedSinceMs: undefined });
    const env = { ARCHIVE_URL: small.url, REDIS_URL: `redis://127.0.0.1:${small.redis.options.port}` };
    for (const words of [["statement", "acme", month], ["usage", "--account", "acme"], ["usage"]]) {
      const { stderr } = await runHere(words, env);
      expect(stderr).toContain(`entries before ${new Date(untilMs + 1).toISOString()} are lost`);
    }
    const after = await runHere(["usage", "--from", dayText(untilMs + 86_400_000)], env);
    expect(after.stderr).toMatch(/its newest entry is of \S+Z\.$/m);
    const { statement } = await totalStatement(small.nodes, "2025-01", archive);
    expect(statement.opening).toBe(0);
  } finally {
    reads.close();
    await small.stop();
  }
});

// Guarantee: nobody takes what is owed to all customers, or what was sold, for complete while the archive lags.
test("what is summed over all accounts says from when on the archive lags", async () => {
  const small = await givenArchiveStage();
  const reads = openArchiveReads(small.url);
  try {
    const key = await small.givenKey("acme");
    await (await small.copier()).copy();
    const archive = reads.of(small.nodes);
    const [month, today] = [new Date().toISOString().slice(0, 7), dayText(Date.now())];
    const answers = async (of: string) => [
      await totalStatement(small.nodes, of, archive),
      await salesOf(small.nodes, of, archive),
      await allUsage(small.nodes, { by: ["day"], to: `${of}-01`, limit: 10 }, archive),
    ];
    for (const answer of await answers(month))
      expect(answer).toMatchObject({ source: "archive", untilMs: undefined });
    await small.grant(key, "not copied yet");
    const untilMs = (await small.entries()).at(-1)!.atMs - 1;
    for (const answer of (await answers(month)).slice(0, 2)) expect(answer).toMatchObject({ untilMs });
    expect(await pageAllTransactions(small.nodes, { limit: 10 }, archive)).toMatchObject({ untilMs });
    const top = { by: "spend", limit: 10, from: "2025-01-01" } as const;
    expect(await topAccounts(small.nodes, top, archive)).toMatchObject({ complete: false });
    expect(await topAccounts(small.nodes, { ...top, to: "2025-01-31" }, archive)).toMatchObject({
      ...{ source: "archive", complete: true, sinceMs: undefined },
    });
    for (const by of [["day"], ["day", "account"]] as const)
      expect(await allUsage(small.nodes, { by, to: today, limit: 10 }, archive)).toMatchObject({ untilMs });
    for (const answer of await answers("2025-01")) expect(answer).toMatchObject({ untilMs: undefined });
  } finally {
    reads.close();
    await small.stop();
  }
});

// Guarantee: nobody takes a month for complete because another partition was copied.
test("the archive says of one account how far its own partition is copied", async () => {
  const small = await givenArchiveStage();
  try {
    const partition = partitionOf("acme", PARTITIONS);
    const other = times(100, (at) => `other-${at}`).find((id) => partitionOf(id, PARTITIONS) !== partition)!;
    await small.givenKey("acme");
    await small.givenKey(other);
    await small.grant({ accountId: other, keyId: "", key: "" }, "later");
    await (await small.copier()).copy();
    const [own, ...others] = await small.database.query<{ at: Date }>(
      "SELECT at FROM tollgate.ledger_entries ORDER BY account_id = 'acme' DESC, at DESC",
    );
    const env = { ARCHIVE_URL: small.url, REDIS_URL: `redis://127.0.0.1:${small.redis.options.port}` };
    const until = async (...words: string[]) =>
      JSON.parse((await runHere([...words, "--json"], env)).stdout).source.archived_until;
    expect(await until("usage", "--account", "acme")).toBe(own?.at.toISOString());
    expect(await until("statement", "acme", "2025-10")).toBe(own?.at.toISOString());
    expect(await until("usage")).toBe(others[0]?.at.toISOString());
  } finally {
    await small.stop();
  }
});

describe("from Redis alone", () => {
  test("all ledger entries are there as long as none has left, and it says so", async () => {
    const { source } = await from("redis", "usage");
    expect(source).toEqual({ from: "redis", ended_since: expect.stringMatching(/Z$/) });
    const { stderr } = await runHere(["statement", "acme", "2025-10"], envOf("redis"));
    expect(stderr).toBe("From Redis; it has all of these ledger entries.\n");
  });

  test("entries that have left it are named, and the opening is the balance after them", async () => {
    const small = await givenArchiveStage();
    try {
      await givenExample(small);
      const { ledger } = partitionNames(partitionOf("acme", PARTITIONS));
      const [, , left] = await small.redis.xrange(ledger, "-", "+", "COUNT", 3);
      await small.redis.xtrim(ledger, "MINID", left![0]);
      const [first] = await small.redis.xrange(ledger, "-", "+", "COUNT", 1);
      const env = { REDIS_URL: `redis://127.0.0.1:${small.redis.options.port}` };
      const run = async (...words: string[]) => JSON.parse((await runHere([...words, "--json"], env)).stdout);
      const since = new Date(Number(first![0].split("-")[0])).toISOString();
      const statement = await run("statement", "acme", "2025-09");
      expect(statement).toMatchObject({ purchases: 0, charges: 50, refunds: 40, opening: 490, closing: 480 });
      // When the first charge that is left was made.
      expect(statement.source).toEqual({ from: "redis", entries_since: "2025-09-13T12:00:02.000Z" });
      const { stderr } = await runHere(["usage"], env);
      expect(stderr).toContain(`entries before ${since} have left it for the archive: set ARCHIVE_URL`);
      await small.redis.xtrim(ledger, "MAXLEN", 0);
      // The month of the ids, since the time of the last entry has left, too.
      const last = await run("statement", "acme", new Date().toISOString().slice(0, 7));
      expect(last).toMatchObject({ opening: 570, closing: 570 });
      expect(last.source.entries_since > since).toBe(true);
    } finally {
      await small.stop();
    }
  });

  test("more ended tasks of one moment than a page has are all counted", async () => {
    const small = await givenArchiveStage();
    try {
      const { done } = partitionNames(0);
      const pipe = small.redis.pipeline();
      for (let at = 0; at < 1300; at++) {
        const record = requestText({
          state: "finished",
          status: "completed",
          finished_at: "1760000000000",
          account_id: "a",
          endpoint: "/e",
          key_id: "k",
        });
        pipe.set(`tg:{p00}:request:req_${at}`, record).zadd(done, at < 1200 ? 5 : at, `req_${at}`);
      }
      await pipe.exec();
      const { stdout } = await runHere(["usage", "--json"], {
        REDIS_URL: `redis://127.0.0.1:${small.redis.options.port}`,
      });
      expect(JSON.parse(stdout).total.completed).toBe(1300);
    } finally {
      await small.stop();
    }
  });
});

describe("what people see", () => {
  test("a table with a total, the source on standard error", async () => {
    const { stdout, stderr, code } = await runHere(["usage", "--by", "account"], envOf("archive"));
    expect(code).toBe(0);
    expect(stdout).toBe(
      [
        "ACCOUNT ID  REQUESTS  CREDITS  REFUNDS  COMPLETED  FAILED  SECONDS",
        "acme        10        220      120      7          3       7",
        "globex      4         40       10       3          1       3",
        "total       14        260      130      10         4       10",
        "",
      ].join("\n"),
    );
    expect(stderr).toMatch(/^From the archive; its newest entry is of 2025-11-06T12:00:13.000Z\.\n$/);
  });

  test("CSV as RFC 4180 has it, without a total", async () => {
    const { stdout } = await runHere(["statement", "acme", "2025-10", "--format", "csv"], envOf("archive"));
    expect(stdout).toBe(
      'account_id,month,opening,purchases,trials,goodwill,charges,refunds,adjustments,reversals,closing,amounts_paid\r\n"acme","2025-10",480,200,0,0,150,80,0,0,610,\r\n',
    );
    const usage = await runHere(["usage", "--by", "account", "--format", "csv"], envOf("archive"));
    expect(usage.stdout.split("\r\n").slice(0, 2)).toEqual([
      "account_id,requests,credits,refunds,completed,failed,seconds",
      '"acme",10,220,120,7,3,7',
    ]);
  });

  test("days, months and columns that make no sense are refused in words", async () => {
    expect(await refusal("usage", "--from", "2025-02-30")).toContain("must be a day");
    expect(await refusal("usage", "--from", "2025-03-02", "--to", "2025-03-01")).toContain("comes after");
    expect(await refusal("usage", "--by", "day,day")).toContain("each once");
    expect(await refusal("usage", "--by", "colour")).toContain(
      "must be some of day, month, account, endpoint, key",
    );
    expect(await refusal("statement", "acme", "2025-13")).toContain("must be a month");
  });

  test("an archive that is away, or that has no schema yet, is an error that says what to do", async () => {
    const words = ["statement", "acme", "2025-10"];
    const away = await runHere(words, {
      ...envOf("redis"),
      ARCHIVE_URL: "postgres://tollgate:secret@127.0.0.1:1/tollgate",
    });
    expect(away).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringContaining("the archive: nobody listens there"),
    });
    expect(away.stderr).not.toContain("secret");
    const empty = new URL(stage.url);
    empty.pathname = "/postgres";
    const missing = await runHere(words, { ...envOf("redis"), ARCHIVE_URL: empty.href });
    expect(missing.stderr).toContain("tollgate archive migrate");
  });
});

test("an empty store has no usage and says so", async () => {
  const empty = await givenArchiveStage();
  try {
    const env = { REDIS_URL: `redis://127.0.0.1:${empty.redis.options.port}` };
    expect((await runHere(["usage"], env)).stdout).toBe("No usage.\n");
    await (await empty.copier()).copy();
    const { stdout, stderr } = await runHere(["usage"], { ...env, ARCHIVE_URL: empty.url });
    expect({ stdout, stderr }).toEqual({
      stdout: "No usage.\n",
      stderr: "From the archive, which is empty.\n",
    });
  } finally {
    await empty.stop();
  }
});
