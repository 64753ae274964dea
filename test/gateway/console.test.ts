import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { issueKey } from "../../src/store/accounts.ts";
import { oneNode } from "../../src/store/nodes.ts";
import { addRefusals, topRefusals } from "../../src/store/refusals.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

const TOKEN = "correct-horse-battery";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
});
afterAll(() => gateway.stop());

interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  body: any;
}

async function ask(
  name: string,
  options: { token?: string; body?: unknown; from?: TestGateway } = {},
): Promise<Answer> {
  const { token = TOKEN, body, from = gateway } = options;
  const answer = await fetch(`${from.adminUrl}/console/api/${name}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
  });
  return { status: answer.status, body: await answer.json() };
}

/** Audit lines of actions on this target; `undefined`: of those refused before their target was read. */
const audit = (target: string | undefined, from = gateway) =>
  from.logs
    .filter((line) => line.includes('"audit":true'))
    .map((line) => JSON.parse(line))
    .filter((line) => line.target === target);

const generate = (key: string) => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });

/** The day's refusals of one account by reason, among those of all tests. */
async function refusalsOf(accountId: string): Promise<Record<string, number>> {
  const all = await topRefusals(oneNode(gateway.redis), Date.now(), 10_000);
  return Object.fromEntries(
    all.filter((one) => one.accountId === accountId).map((one) => [one.outcome, one.count]),
  );
}

describe("who may", () => {
  test("everything below /console/api needs the token, probes and metrics do not", async () => {
    for (const name of ["live", "top-keys", "refusals", "accounts", "find?q=x", "open-requests", "no-such"]) {
      const answer = await fetch(`${gateway.adminUrl}/console/api/${name}`);
      expectStatus(answer, 401, name);
    }
    expectStatus(await ask("accounts", { token: "not-the-right-one" }), 401);
    expectStatus(await ask("grant", { token: "not-the-right-one", body: {} }), 401);
    for (const path of ["livez", "readyz", "metrics"]) {
      expect((await fetch(`${gateway.adminUrl}/${path}`)).status).toBe(200);
    }
  });

  // Guarantee: who tried to move money is on record, too.
  test("an action that is refused before it begins is on record, without the token; a read is not", async () => {
    const guarded = await givenGateway({ config: { admin: { token: TOKEN } } });
    const json = { "content-type": "application/json" };
    const right = { authorization: `Bearer ${TOKEN}` };
    const post = (headers: Record<string, string>, body = "{}") =>
      fetch(`${guarded.adminUrl}/console/api/grant`, { method: "POST", headers, body });
    expectStatus(await post(json), 401);
    expectStatus(await post({ ...json, authorization: "Bearer not-the-right-one" }), 401);
    expectStatus(await post({ ...json, ...right, origin: "https://elsewhere.example" }), 403);
    expectStatus(await post({ ...right, "content-type": "text/plain" }), 415);
    expectStatus(await post({ ...json, ...right }, "{"), 400);
    expectStatus(await ask("accounts", { token: "not-the-right-one", from: guarded }), 401);
    await guarded.stop();
    const common = { action: "grant", remote_address: "127.0.0.1", request_id: expect.any(String) };
    expect(audit(undefined, guarded)).toMatchObject([
      { ...common, outcome: "denied", why: "this needs the gateway's ADMIN_TOKEN" },
      { ...common, outcome: "denied", why: "this is not the gateway's ADMIN_TOKEN" },
      { ...common, outcome: "denied", why: "requests of other sites are refused" },
      { ...common, outcome: "refused", why: "the body must be application/json" },
      { ...common, outcome: "refused", why: "the body must be a JSON object" },
    ]);
    expect(guarded.logs.join()).not.toContain(TOKEN);
    expect(guarded.logs.join()).not.toContain("not-the-right-one");
  });

  test("a gateway without ADMIN_TOKEN shows and does nothing", async () => {
    const open = await givenGateway();
    try {
      const { accountId, keyId } = await open.givenKey();
      expect((await ask("live", { from: open })).body.writable).toBe(false);
      expect((await ask(`account?id=${accountId}`, { from: open })).body.balance).toBe(1000);
      for (const [name, body] of Object.entries({
        grant: { account_id: accountId, amount: 5, reference: "r" },
        revoke: { key_id: keyId },
        release: { id: "x" },
      })) {
        const refused = await ask(name, { from: open, body });
        expectStatus(refused, 403);
        expect(refused.body.error).toContain("set ADMIN_TOKEN");
      }
      expect((await ask(`account?id=${accountId}`, { from: open })).body).toMatchObject({
        balance: 1000,
        keys: [{ usable: true }],
      });
      const denied = audit(undefined, open).map(({ action, outcome }) => [action, outcome]);
      expect(denied).toEqual(["grant", "revoke", "release"].map((action) => [action, "denied"]));
    } finally {
      await open.stop();
    }
  });
});

describe("actions", () => {
  test("a grant credits once per reference, and both are on record", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    const body = { account_id: accountId, amount: 500, reference: "invoice-17" };
    expect((await ask("grant", { body })).body).toEqual({ outcome: "recharged", balance: 510 });
    expect((await ask("grant", { body })).body).toEqual({ outcome: "duplicate", balance: 510 });
    expectStatus(await ask("grant", { body: { ...body, amount: 600 } }), 400);
    expect((await ask(`account?id=${accountId}`)).body.balance).toBe(510);
    const common = { action: "grant", remote_address: "127.0.0.1", request_id: expect.any(String) };
    expect(audit(accountId)).toMatchObject([
      { ...common, outcome: "recharged", amount: 500, reference: "invoice-17", balance: 510 },
      { ...common, outcome: "duplicate" },
      { ...common, outcome: "refused", why: expect.stringContaining("another amount") },
    ]);
    expect(gateway.logs.join()).not.toContain(TOKEN);
  });

  // Guarantee: who moved money is on record whatever the log level, also where it was set after the start.
  test.each(["warn", "silent"])("what is done after the level was set to %s is on record", async (level) => {
    // Other tests' gateways begin at debug, where the two levels differ from the start.
    const quiet = await givenGateway({ config: { admin: { token: TOKEN } }, logLevel: "info" });
    const headers = { authorization: `Bearer ${TOKEN}` };
    await fetch(`${quiet.adminUrl}/log-level`, { method: "PUT", body: level, headers });
    const { accountId, keyId } = await quiet.givenKey();
    const body = { account_id: accountId, amount: 5, reference: "r" };
    expectStatus(await ask("grant", { body, from: quiet }), 200);
    expectStatus(await ask("revoke", { body: { key_id: keyId }, from: quiet }), 200);
    await quiet.stop();
    expect(audit(accountId, quiet)).toMatchObject([{ action: "grant", outcome: "recharged" }]);
    expect(audit(keyId, quiet)).toMatchObject([{ action: "revoke", outcome: "revoked" }]);
  });

  test.each([
    ["no reference", { amount: 5 }],
    ["a reference of blanks beyond ASCII", { amount: 5, reference: "é" }],
    ["half a credit", { amount: 0.5, reference: "r" }],
    ["a negative amount", { amount: -5, reference: "r" }],
    ["an amount in quotes", { amount: "5", reference: "r" }],
  ])("a grant with %s changes nothing", async (_, wrong) => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    expectStatus(await ask("grant", { body: { account_id: accountId, ...wrong } }), 400);
    expect((await ask(`account?id=${accountId}`)).body.balance).toBe(10);
  });

  test("a revoked key's next request is 401", async () => {
    const { key, keyId, accountId } = await gateway.givenKey();
    expectStatus(await generate(key), 200);
    expect((await ask("revoke", { body: { key_id: keyId } })).body).toEqual({ outcome: "revoked" });
    expectStatus(await generate(key), 401);
    expect((await ask("revoke", { body: { key_id: keyId } })).body).toEqual({ outcome: "already_revoked" });
    expect(audit(keyId)).toMatchObject([
      { outcome: "revoked", account_id: accountId },
      { outcome: "already_revoked" },
    ]);
  });

  test("a key that somebody gives for an id is refused, and not even the log knows it", async () => {
    const { key } = await gateway.givenKey();
    for (const [name, body] of [
      ["revoke", { key_id: key }],
      ["release", { id: key }],
      ["grant", { account_id: key, amount: 1, reference: "r" }],
    ] as const) {
      const answer = await ask(name, { body });
      expect([answer.status, JSON.stringify(answer.body).includes(key)], name).toEqual([400, false]);
    }
    expectStatus(await generate(key), 200);
    expect(gateway.logs.join()).not.toContain(key);
  });

  test("a released task is refunded and its slot is free", async () => {
    const { key, accountId } = await gateway.givenKey({ credits: 100, limits: { maxConcurrent: 1 } });
    const taskId = (await generate(key)).body.data.task_id;
    expect((await generate(key)).body.code).toBe(2002);
    const open = (await ask("open-requests?older_than_seconds=0")).body;
    // Others' tests fill the list, which is cut at its hundred oldest.
    expect(open.open).toBeGreaterThanOrEqual(1);
    expect((await ask(`find?q=${taskId}`)).body).toMatchObject({
      kind: "request",
      state: "bound",
      account_id: accountId,
    });
    expect((await ask("release", { body: { id: taskId } })).body).toEqual({ outcome: "ended", refunded: 10 });
    expect((await ask(`account?id=${accountId}`)).body.balance).toBe(100);
    expectStatus(await generate(key), 200);
    expect((await ask("release", { body: { id: taskId } })).body).toEqual({ outcome: "already_finished" });
    expect(audit(taskId)).toMatchObject([{ outcome: "ended", refunded: 10, account_id: accountId }, {}]);
  });
});

describe("reads", () => {
  test("what an id names is found: an account, a key, a task, a request; a key itself is not taken", async () => {
    const { key, keyId, accountId } = await gateway.givenKey();
    const answer = await generate(key);
    const taskId = answer.body.data.task_id;
    expect((await ask(`find?q=${accountId}`)).body).toEqual({ kind: "account", account_id: accountId });
    expect((await ask(`find?q=${keyId}`)).body).toEqual({
      kind: "key",
      account_id: accountId,
      key_id: keyId,
    });
    const requestId = answer.headers.get("x-request-id");
    expect((await ask(`find?q=${requestId}`)).body).toMatchObject({ request_id: requestId, task_id: taskId });
    const secret = await ask(`find?q=${key}`);
    expect([secret.status, JSON.stringify(secret.body).includes(key)]).toEqual([400, false]);
    expectStatus(await ask("find?q=nobody"), 400);
  });

  test("all accounts of a prefix come once each, page by page", async () => {
    const prefix = `pages-${randomBytes(6).toString("hex")}`;
    const ids = Array.from({ length: 60 }, (_, n) => `${prefix}.${n}`);
    for (const accountId of ids) await issueKey(oneNode(gateway.redis), { accountId, credits: 7 });
    const seen: string[] = [];
    let pages = 0;
    for (let cursor: string | undefined = ""; cursor !== undefined; pages++) {
      const { accounts, next }: Answer["body"] = (await ask(`accounts?prefix=${prefix}&cursor=${cursor}`))
        .body;
      seen.push(...accounts.map((row: { account_id: string; balance: number }) => row.account_id));
      cursor = next;
    }
    expect(seen.sort()).toEqual(ids.sort());
    expect(pages).toBeGreaterThan(1);
    expectStatus(await ask("accounts?cursor=x"), 400);
    expectStatus(await ask("accounts?prefix=*"), 400);
  });

  test("an account's transactions go back to the first, past the ten that it keeps at hand", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1 });
    for (let n = 0; n < 40; n++)
      await ask("grant", { body: { account_id: accountId, amount: 1, reference: `r${n}` } });
    const references: string[] = [];
    for (let before: string | undefined = ""; before !== undefined; ) {
      const page: Answer = await ask(`transactions?account=${accountId}&before=${before}`);
      references.push(...page.body.transactions.map((entry: { reference: string }) => entry.reference));
      before = page.body.next;
    }
    expect(references.slice(0, 40)).toEqual(Array.from({ length: 40 }, (_, n) => `r${39 - n}`));
    expect(references).toHaveLength(41);
  });

  test("a key's use is what its limits count: of the day, the minute and the slots", async () => {
    const { key, keyId, accountId } = await gateway.givenKey({
      limits: { rateLimit: 50, maxConcurrent: 9, dailyLimit: 77 },
    });
    for (let n = 0; n < 4; n++) expect((await generate(key)).status).toBe(200);
    const [shown] = (await ask(`account?id=${accountId}`)).body.keys;
    expect(shown).toMatchObject({
      key_id: keyId,
      window_used: 4,
      rate_limit: 50,
      active: 4,
      max_concurrent: 9,
    });
    const { keys, complete } = (await ask("top-keys")).body;
    expect(complete).toBe(true);
    expect(keys.length).toBeLessThanOrEqual(20);
    const counts = keys.map((one: { day_count: number }) => one.day_count);
    expect(counts).toEqual([...counts].sort((a, b) => b - a));
  });

  test("refusals of two gateways are read together, by key and reason", async () => {
    const [one, two] = [await givenGateway(), await givenGateway()];
    const { key, accountId } = await gateway.givenKey({ limits: { rateLimit: 1 } });
    const from = (asked: TestGateway, body: unknown) => asked.request("POST", TEXT_TO_VIDEO, { key, body });
    expectStatus(await from(one, BOAT), 200);
    for (let n = 0; n < 3; n++) expect((await from(one, BOAT)).body.code).toBe(2001);
    expectStatus(await from(one, {}), 400);
    expect((await from(two, BOAT)).body.code).toBe(2001);
    // They would after five seconds; a drain writes what is left.
    await Promise.all([one.stop(), two.stop()]);
    expect(await refusalsOf(accountId)).toEqual({ rate_limited: 4, invalid_request: 1 });
    const ttl = await gateway.redis.ttl(`tg:refusals:${new Date().toISOString().slice(0, 10)}`);
    expect(ttl).toBeGreaterThan(86_400);
  });

  test("the day's refusals stay bounded, those with the most are kept", async () => {
    const connection = await openConnection();
    const nowMs = Date.UTC(2099, 0, 1, 12);
    const name = "tg:refusals:2099-01-01";
    const later = { ...connection, nowMs: () => nowMs };
    try {
      const full = Array.from({ length: 10_000 }, (_, n) => [String(n + 10), `key_${n} acme rate_limited`]);
      await connection.redis.zadd(name, ...full.flat());
      const refusal = { accountId: "acme", outcome: "rate_limited" };
      const atMs = nowMs;
      await addRefusals(later, [
        { keyId: "key_9998", count: 5, atMs, ...refusal },
        { keyId: "key_new", count: 1, atMs, ...refusal },
      ]);
      expect(await connection.redis.zcard(name)).toBe(10_000);
      expect(await connection.redis.zscore(name, "key_new acme rate_limited")).toBeNull();
      expect(await topRefusals(oneNode(connection.redis), nowMs, 2)).toEqual([
        { keyId: "key_9998", count: 10_013, ...refusal },
        { keyId: "key_9999", count: 10_009, ...refusal },
      ]);
    } finally {
      await connection.redis.del(name);
      await connection.close();
    }
  });
});

test("while Redis is away the console says so, and nothing else breaks", async () => {
  const alone = await givenGateway({ config: { admin: { token: TOKEN } }, redisUrl: "redis://127.0.0.1:1" });
  try {
    const away = await ask("accounts", { from: alone });
    expectStatus(away, 503);
    expect(away.body.error).toContain("Redis cannot be used");
    const live = await ask("live", { from: alone });
    expect(live.body.gateway.not_ready).toBe("the store is unusable");
    expect((await fetch(`${alone.adminUrl}/console/`)).status).toBe(200);
  } finally {
    await alone.stop();
  }
});
