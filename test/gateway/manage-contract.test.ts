import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { issueKey, issueKeyOnce } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: what a company's backend relies on of the management API, from both sides of each rule.

let stage: ManageStage;
// Its own store: one of its keys has a tier that no configuration has, which other tests would find.
let redis: TestRedis;
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenManageStage({ redisUrl: redis.url });
});
afterAll(async () => {
  await stage?.stop();
  await redis?.stop();
});

function expectProblem(reply: Reply, status: number): void {
  expectStatus(reply, status);
  expect(reply.headers.get("content-type")).toMatch(/^application\/problem\+json/);
  expect(reply.body).toMatchObject({ status, code: expect.any(String), request_id: expect.any(String) });
  expect(reply.body.request_id).toBe(reply.headers.get("x-request-id"));
}

const generate = (key: string, headers = {}) =>
  stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });

/** A request as no well-behaved client sends it. */
async function raw(path: string, headers: Record<string, string>): Promise<{ status: number; text: string }> {
  const { port } = new URL(stage.gateway.adminUrl);
  const all = { Authorization: `Bearer ${ADMIN_TOKEN}`, ...headers };
  const sent = request({ host: "127.0.0.1", port, path: `/manage/v1${path}`, headers: all }).end();
  const [reply] = (await once(sent, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of reply.setEncoding("utf8")) text += chunk;
  return { status: reply.statusCode ?? 0, text };
}

describe("accounts", () => {
  test("an account is there before its first key, with all its fields", async () => {
    const accountId = `t-${randomUUID()}`;
    const body = { account_id: accountId, label: "Ann's films", metadata: { plan: "gold" } };
    const made = await stage.manage("POST", "/accounts", { body });
    expectStatus(made, 201);
    expect(made.body).toEqual({
      account_id: accountId,
      price_multiplier: 1,
      label: "Ann's films",
      metadata: { plan: "gold" },
      status: "active",
      limits: { rate_limit: null, max_concurrent: null, daily_limit: null },
      effective_limits: { rate_limit: null, max_concurrent: null, daily_limit: null },
      balance: 0,
      held: 0,
      total_used: 0,
      total_requests: 0,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    });
    const read = await stage.manage("GET", `/accounts/${accountId}`);
    expect(read.body).toEqual(made.body);
    expect(read.headers.get("etag")).toBeTruthy();
    expectProblem(await stage.manage("POST", "/accounts", { body }), 409);
  });

  test("a change needs the latest revision, if it names one, and changes nothing else", async () => {
    const accountId = await stage.givenAccount();
    const path = `/accounts/${accountId}`;
    const etag = (await stage.manage("GET", path)).headers.get("etag") ?? "";
    const first = await stage.manage("PATCH", path, {
      body: { label: "one" },
      headers: { "If-Match": etag },
    });
    expectStatus(first, 200);
    expect(first.body.label).toBe("one");
    const stale = await stage.manage("PATCH", path, {
      body: { label: "two" },
      headers: { "If-Match": etag },
    });
    expectProblem(stale, 412);
    expect((await stage.manage("GET", path)).body.label).toBe("one");
    const second = await stage.manage("PATCH", path, {
      body: { limits: { rate_limit: 5 } },
      headers: { "If-Match": first.headers.get("etag") ?? "" },
    });
    expect(second.body).toMatchObject({ label: "one", limits: { rate_limit: 5, daily_limit: null } });
  });

  test("a suspended account polls and reads, and makes nothing; a closed one does nothing", async () => {
    const accountId = await stage.givenAccount(1000);
    const { key } = await stage.givenKey(accountId);
    const made = await generate(key);
    expectStatus(made, 200);
    const poll = () =>
      stage.gateway.request("GET", `/api/v1/tasks/${made.body.data.task_id}`, {
        key,
      });
    const credits = () => stage.gateway.request("GET", "/api/v1/credits", { key });
    expectStatus(
      await stage.manage("PATCH", `/accounts/${accountId}`, { body: { status: "suspended" } }),
      200,
    );
    const refused = await generate(key);
    expectStatus(refused, 403);
    expect(refused.body.code).toBe(403);
    expect((await poll()).status).not.toBe(403);
    expectStatus(await credits(), 200);
    await stage.manage("PATCH", `/accounts/${accountId}`, { body: { status: "closed" } });
    for (const reply of [await generate(key), await poll(), await credits()]) expectStatus(reply, 403);
    await stage.manage("PATCH", `/accounts/${accountId}`, { body: { status: "active" } });
    expectStatus(await generate(key), 200);
  });

  test("limits of an account hold over all its keys", async () => {
    const accountId = await stage.givenAccount(10_000);
    await stage.manage("PATCH", `/accounts/${accountId}`, { body: { limits: { rate_limit: 2 } } });
    const [one, other] = [await stage.givenKey(accountId), await stage.givenKey(accountId)];
    expectStatus(await generate(one.key), 200);
    expectStatus(await generate(other.key), 200);
    const refused = await generate(one.key);
    expectStatus(refused, 429);
    expect(refused.body.code).toBe(2001);
    expect(refused.headers.get("x-ratelimit-remaining")).toBe("0");
  });

  test("lists go through all of a prefix once, in pages", async () => {
    const prefix = `p${randomUUID().slice(0, 8)}-`;
    const ids = Array.from({ length: 7 }, (_, at) => `${prefix}${at}`);
    await Promise.all(ids.map((account_id) => stage.manage("POST", "/accounts", { body: { account_id } })));
    const seen: string[] = [];
    let cursor: string | null = "";
    for (let pages = 0; cursor !== null && pages < 20; pages++) {
      const next: string = cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const page: Reply = await stage.manage("GET", `/accounts?prefix=${prefix}&limit=3${next}`);
      expectStatus(page, 200);
      expect(page.body.data.length).toBeLessThanOrEqual(3);
      seen.push(...page.body.data.map(({ account_id }: { account_id: string }) => account_id));
      cursor = page.body.next_cursor ?? null;
    }
    expect(seen.sort()).toEqual(ids);
  });
});

describe("keys", () => {
  test("a repeated creation answers the same key without its secret", async () => {
    const accountId = await stage.givenAccount();
    const headers = { "Idempotency-Key": randomUUID() };
    const body = { label: "backend", monthly_credits: 500, limits: { rate_limit: 7 } };
    const path = `/accounts/${accountId}/keys`;
    expectProblem(await stage.manage("POST", path, { body }), 400);
    const made = await stage.manage("POST", path, { body, headers });
    expectStatus(made, 201);
    expect(made.body).toMatchObject({
      account_id: accountId,
      tier: "standard",
      spent_this_month: 0,
      ...body,
      limits: { rate_limit: 7 },
    });
    expect(made.body.key).toMatch(/^sk_/);
    const again = await stage.manage("POST", path, { body, headers });
    expect(again.status).toBeLessThan(300);
    expect(again.body.key_id).toBe(made.body.key_id);
    expect(again.body).not.toHaveProperty("key");
    expectProblem(await stage.manage("POST", path, { body: { ...body, label: "other" }, headers }), 409);
    const list = await stage.manage("GET", path);
    expect(list.body.data).toHaveLength(1);
    expect(JSON.stringify(list.body)).not.toContain(made.body.key);
  });

  test("a repeated creation answers the key, also once its tier takes no new keys or is gone", async () => {
    const accountId = await stage.givenAccount();
    const idempotencyKey = randomUUID();
    const nodes = oneNode(stage.gateway.redis);
    const { keyId } = await issueKeyOnce(
      nodes,
      { accountId, idempotencyKey, tier: "gone" },
      { by: "test", requestId: "" },
    );
    const create = (key: string) =>
      stage.manage("POST", `/accounts/${accountId}/keys`, {
        body: { tier: "gone" },
        headers: { "Idempotency-Key": key },
      });
    const repeated = await create(idempotencyKey);
    expectStatus(repeated, 200);
    expect(repeated.body.key_id).toBe(keyId);
    const other = await create("other");
    expectProblem(other, 400);
    expect(other.body.errors[0].path).toBe("/tier");
    expect((await stage.manage("GET", `/accounts/${accountId}/keys`)).body.data).toHaveLength(1);
  });

  test("a key keeps its tier when that is written back, also once it takes no new keys or is gone", async () => {
    const accountId = await stage.givenAccount();
    const nodes = oneNode(stage.gateway.redis);
    const givenKeyPath = async () => {
      const { keyId } = await issueKey(nodes, { accountId, tier: "gone" }, cliActor());
      return `/accounts/${accountId}/keys/${keyId}`;
    };
    const path = await givenKeyPath();
    const patch = (body: object, to = path) => stage.manage("PATCH", to, { body });
    const kept = await patch({ tier: "gone", label: "kept" });
    expectStatus(kept, 200);
    expect(kept.body).toMatchObject({ tier: "gone", label: "kept" });
    expectProblem(await patch({ tier: "gone too", label: "not this" }), 400);
    expectStatus(await patch({ tier: "standard" }), 200);
    const back = await patch({ tier: "gone", label: "not this" });
    expectProblem(back, 400);
    expect(back.body.errors[0].path).toBe("/tier");
    expect((await stage.manage("GET", path)).body).toMatchObject({ tier: "standard", label: "kept" });
    // Whoever writes it back does not undo that another call moves the key.
    for (let n = 0; n < 10; n++) {
      const moved = await givenKeyPath();
      await Promise.all([patch({ tier: "standard" }, moved), patch({ tier: "gone", label: "x" }, moved)]);
      expect((await stage.manage("GET", moved)).body.tier).toBe("standard");
    }
  });

  // Guarantee: nobody hands a customer a key that is dead already.
  test("an expiry that has passed is refused for a new key and as a change, and taken in a repeat or unchanged", async () => {
    const accountId = await stage.givenAccount();
    const keys = `/accounts/${accountId}/keys`;
    const expectPast = (reply: Reply) => {
      expectProblem(reply, 400);
      expect(reply.body.errors).toEqual([
        { path: "/expires_at", message: "expires_at must be in the future" },
      ]);
    };
    const headers = { "Idempotency-Key": randomUUID() };
    const past = { expires_at: new Date(Date.now() - 1000).toISOString() };
    expectPast(await stage.manage("POST", keys, { body: past, headers }));
    expect((await stage.manage("GET", keys)).body.data).toEqual([]);

    const endsMs = Date.now() + 2500;
    const body = { expires_at: new Date(endsMs).toISOString() };
    const made = await stage.manage("POST", keys, { body, headers });
    expectStatus(made, 201);
    await until(() => Date.now() > endsMs, "the key's end");
    const repeated = await stage.manage("POST", keys, { body, headers });
    expectStatus(repeated, 200);
    expect(repeated.body.key_id).toBe(made.body.key_id);
    const path = `${keys}/${made.body.key_id}`;
    expectPast(await stage.manage("PATCH", path, { body: past }));
    const { label, expires_at } = (await stage.manage("GET", path)).body;
    expect(expires_at).toBe(body.expires_at);
    expectStatus(await stage.manage("PATCH", path, { body: { label, expires_at } }), 200);
    const later = { expires_at: "2090-01-31T00:00:00.000Z" };
    const changed = await stage.manage("PATCH", path, { body: later });
    expectStatus(changed, 200);
    expect(changed.body).toMatchObject(later);
  });

  test("a cap holds for the month, and another account's key is not found", async () => {
    const accountId = await stage.givenAccount(10_000);
    const { key, key_id } = await stage.givenKey(accountId);
    const path = `/accounts/${accountId}/keys/${key_id}`;
    expectStatus(await generate(key), 200);
    const spent = (await stage.manage("GET", path)).body.spent_this_month;
    expect(spent).toBeGreaterThan(0);
    await stage.manage("PATCH", path, { body: { monthly_credits: 2 * spent } });
    expectStatus(await generate(key), 200);
    const capped = await generate(key);
    expectStatus(capped, 402);
    expect(capped.body.code).toBe(2006);
    expect(capped.headers.get("x-should-retry")).toBe("false");
    expect((await stage.manage("GET", path)).body.spent_this_month).toBe(2 * spent);
    const other = await stage.givenAccount();
    expectProblem(await stage.manage("GET", `/accounts/${other}/keys/${key_id}`), 404);
  });

  test("rotation leaves the old key for the overlap; revocation ends it", async () => {
    const accountId = await stage.givenAccount(1000);
    const old = await stage.givenKey(accountId);
    const path = `/accounts/${accountId}/keys/${old.key_id}`;
    const rotated = await stage.manage("POST", `${path}/rotate`, { body: { overlap: "1h" } });
    expectStatus(rotated, 201);
    expect(rotated.body.key).toMatch(/^sk_/);
    expectStatus(await generate(old.key), 200);
    expectStatus(await stage.manage("POST", `${path}/revoke`, { body: {} }), 200);
    expectStatus(await generate(old.key), 401);
    expectStatus(await generate(rotated.body.key), 200);
  });
});

describe("money", () => {
  test("a reference credits once", async () => {
    const accountId = await stage.givenAccount();
    const path = `/accounts/${accountId}/grants`;
    const body = { package: "premium", reference: "order-1" };
    const first = await stage.manage("POST", path, { body });
    expectStatus(first, 201);
    expect(first.body).toMatchObject({
      type: "recharge",
      amount: 500,
      balance: 500,
      reference: "order-1",
      by: expect.any(String),
    });
    const again = await stage.manage("POST", path, { body });
    expectStatus(again, 200);
    expect(again.body).toMatchObject({ id: first.body.id, balance: 500 });
    expectProblem(await stage.manage("POST", path, { body: { credits: 7, reference: "order-1" } }), 409);
    for (const wrong of [
      { credits: 7 },
      { credits: 7, package: "premium", reference: "x" },
      { package: "nonsense", reference: "x" },
      { credits: -7, reference: "x" },
      { credits: 1.5, reference: "x" },
      { credits: 2 ** 53, reference: "x" },
      { credits: 7, reference: "x", amount: 7 },
    ]) {
      expectProblem(await stage.manage("POST", path, { body: wrong }), 400);
    }
    expect((await stage.manage("GET", `/accounts/${accountId}`)).body.balance).toBe(500);
  });

  test("adjustments go up and down, never below what is held, and customers see them", async () => {
    const accountId = await stage.givenAccount(500);
    const { key } = await stage.givenKey(accountId);
    const path = `/accounts/${accountId}/adjustments`;
    const down = await stage.manage("POST", path, {
      body: { amount: -200, reason: "typo in a grant", reference: "a1" },
    });
    expectStatus(down, 201);
    expect(down.body).toMatchObject({
      type: "consume",
      amount: -200,
      balance: 300,
      reason: "typo in a grant",
    });
    expectProblem(
      await stage.manage("POST", path, { body: { amount: -301, reason: "more", reference: "a2" } }),
      409,
    );
    expectStatus(
      await stage.manage("POST", path, { body: { amount: 5, reason: "a gift", reference: "a3" } }),
      201,
    );
    expectStatus(
      await stage.manage("POST", path, { body: { amount: 5, reason: "a gift", reference: "a3" } }),
      200,
    );
    expectProblem(await stage.manage("POST", path, { body: { amount: 5, reference: "a4" } }), 400);
    expectProblem(
      await stage.manage("POST", path, { body: { amount: 0, reason: "none", reference: "a5" } }),
      400,
    );
    const credits = await stage.gateway.request("GET", "/api/v1/credits", { key });
    const seen = credits.body.data.recent_transactions;
    expect(
      seen.map(({ type, amount, reason }: Record<string, unknown>) => ({ type, amount, reason })),
    ).toMatchObject([
      { type: "recharge", amount: 5, reason: "a gift" },
      { type: "consume", amount: -200, reason: "typo in a grant" },
      { type: "recharge", amount: 500 },
    ]);
  });

  test("a completed task is refunded once", async () => {
    const accountId = await stage.givenAccount(1000);
    const { key } = await stage.givenKey(accountId);
    const made = await generate(key);
    const taskId = made.body.data.task_id;
    const body = { reason: "black frames", reference: `refund-${taskId}` };
    expectProblem(await stage.manage("POST", `/tasks/${taskId}/refund`, { body }), 409);
    await expect
      .poll(
        async () => {
          await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
          return (await stage.manage("GET", `/tasks/${taskId}`)).body.status;
        },
        { timeout: 60_000, interval: 500 },
      )
      .toBe("completed");
    const refunded = await stage.manage("POST", `/tasks/${taskId}/refund`, { body });
    expectStatus(refunded, 201);
    expect(refunded.body).toMatchObject({ type: "recharge", balance: 1000, task_id: taskId });
    expectStatus(await stage.manage("POST", `/tasks/${taskId}/refund`, { body }), 200);
    expectProblem(
      await stage.manage("POST", `/tasks/${taskId}/refund`, { body: { ...body, reference: "again" } }),
      409,
    );
    expect((await stage.manage("GET", `/tasks/${taskId}`)).body.refunded).toBeTruthy();
    expect((await stage.manage("GET", `/accounts/${accountId}`)).body.balance).toBe(1000);
  });
});

describe("tokens and rights", () => {
  test("a token may do what its scopes say, for its accounts, until it is revoked", async () => {
    const [own, other] = [await stage.givenAccount(5), await stage.givenAccount(5)];
    const token = await stage.givenToken(["accounts:read"], { accounts: [own] });
    expectStatus(await stage.manage("GET", `/accounts/${own}`, { token }), 200);
    const foreign = await stage.manage("GET", `/accounts/${other}`, { token });
    expect([403, 404]).toContain(foreign.status);
    const write = { token, body: { credits: 5, reference: "x" } };
    expectProblem(await stage.manage("POST", `/accounts/${own}/grants`, write), 403);
    const more = { token, body: { label: "more", scopes: ["credits:write"] } };
    expectProblem(await stage.manage("POST", "/tokens", more), 403);
    const all = await stage.manage("GET", "/tokens?limit=100");
    expect(JSON.stringify(all.body)).not.toContain(token);
    const { token_id } = all.body.data.find(
      ({ accounts }: { accounts: string[] | null }) => accounts?.[0] === own,
    );
    expectStatus(await stage.manage("POST", `/tokens/${token_id}/revoke`, { body: {} }), 200);
    expectProblem(await stage.manage("GET", `/accounts/${own}`, { token }), 401);
  });

  test("a token cannot make one with more than it has", async () => {
    const account = await stage.givenAccount();
    const token = await stage.givenToken(["tokens:write", "accounts:read"], { accounts: [account] });
    const make = (scopes: string[], accounts?: string[]) =>
      stage.manage("POST", "/tokens", {
        token,
        body: { label: "child", scopes, ...(accounts && { accounts }) },
      });
    expectStatus(await make(["accounts:read"], [account]), 201);
    expectProblem(await make(["credits:write"], [account]), 403);
    expectProblem(await make(["accounts:read"]), 403);
    expectProblem(await make(["accounts:read"], [await stage.givenAccount()]), 403);
    const ends = new Date(Date.now() + 3_600_000);
    const brief = await stage.givenToken(["tokens:write"], { expires_at: ends.toISOString() });
    for (const [at, status] of [
      [ends, 201],
      [new Date(ends.getTime() + 1), 403],
      [undefined, 403],
    ] as const) {
      const body = { label: "child", scopes: ["tokens:write"], ...(at && { expires_at: at.toISOString() }) };
      expectStatus(await stage.manage("POST", "/tokens", { token: brief, body }), status);
    }
  });

  test("nothing but a token opens the API, and a token opens nothing else", async () => {
    const { key } = await stage.gateway.givenKey();
    for (const token of [null, "", "nonsense", key, `tgm_${"x".repeat(43)}`]) {
      expectProblem(await stage.manage("GET", "/accounts", { token }), 401);
    }
    const token = await stage.givenToken(["accounts:read"]);
    expectStatus(await generate(token), 401);
    const other = { Origin: "https://evil.example", "Sec-Fetch-Site": "cross-site" };
    expectProblem(await stage.manage("GET", "/accounts", { headers: other }), 403);
  });
});

describe("the ways of the API", () => {
  test("unknown paths, methods, query names and fields are refused", async () => {
    const account = await stage.givenAccount();
    expectProblem(await stage.manage("GET", "/nonsense"), 404);
    const method = await stage.manage("DELETE", `/accounts/${account}`);
    expectProblem(method, 405);
    expect(method.headers.get("allow")).toContain("GET");
    for (const path of [
      "/accounts?prefux=a",
      "/accounts?limit=0",
      "/accounts?limit=101",
      "/accounts?limit=1&limit=2",
      "/accounts?cursor=nonsense",
    ]) {
      expectProblem(await stage.manage("GET", path), 400);
    }
    const field = await stage.manage("PATCH", `/accounts/${account}`, { body: { lable: "x" } });
    expectProblem(field, 400);
    expect(field.body.errors).toEqual([
      { path: expect.stringContaining("lable"), message: expect.any(String) },
    ]);
    expectProblem(await stage.manage("PATCH", `/accounts/${account}`, { body: "{" }), 400);
    expectProblem(
      await stage.manage("PATCH", `/accounts/${account}`, { body: '{"label":"a","label":"b"}' }),
      400,
    );
    const large = await stage.manage("PATCH", `/accounts/${account}`, {
      body: { label: "x".repeat(70_000) },
    });
    expectProblem(large, 413);
    const text = { body: "label=x", headers: { "content-type": "text/plain" } };
    expectProblem(await stage.manage("PATCH", `/accounts/${account}`, text), 415);
    expect((await stage.manage("GET", `/accounts/${account}`)).body.label ?? null).toBeNull();
  });

  test("what was done has a name and a time, and a repeat leaves no second record", async () => {
    const account = await stage.givenAccount();
    const token = await stage.givenToken(["credits:write"]);
    const grant = { token, body: { credits: 5, reference: "r" } };
    await stage.manage("POST", `/accounts/${account}/grants`, grant);
    await stage.manage("POST", `/accounts/${account}/grants`, grant);
    const audit = await stage.manage("GET", `/audit?account_id=${account}`);
    expectStatus(audit, 200);
    const grants = audit.body.data.filter(({ action }: { action: string }) => action === "credits.grant");
    expect(grants).toHaveLength(1);
    expect(grants[0]).toMatchObject({
      by: expect.stringContaining("test"),
      account_id: account,
      at: expect.any(String),
    });
    expect(JSON.stringify(audit.body)).not.toContain(token);
  });

  test("transactions are told apart, filtered, and go back to the first", async () => {
    const account = await stage.givenAccount(100);
    await stage.manage("POST", `/accounts/${account}/adjustments`, {
      body: { amount: -1, reason: "r", reference: "a" },
    });
    const all = await stage.manage("GET", `/accounts/${account}/transactions`);
    expect(all.body.data.map(({ amount }: { amount: number }) => amount)).toEqual([-1, 100]);
    const some = await stage.manage("GET", `/accounts/${account}/transactions?type=recharge`);
    expect(some.body.data.map(({ amount }: { amount: number }) => amount)).toEqual([100]);
    const none = await stage.manage("GET", `/accounts/${account}/transactions?to=2020-01-01T00:00:00Z`);
    expect(none.body).toEqual({ data: [], next_cursor: null });
    expectProblem(await stage.manage("GET", `/accounts/${account}/transactions?from=yesterday`), 400);
  });

  test("what does not exist is not found", async () => {
    for (const path of [
      "/accounts/none-such",
      "/accounts/none-such/keys",
      "/accounts/none-such/transactions",
      "/accounts/none-such/usage",
      "/accounts/none-such/tasks",
      "/tasks/none-such",
    ]) {
      expectProblem(await stage.manage("GET", path), 404);
    }
    const grant = { body: { credits: 1, reference: "r" } };
    expectProblem(await stage.manage("POST", "/accounts/none-such/grants", grant), 404);
  });

  test("hostile paths and hosts are refused, and nothing leaks", async () => {
    const account = await stage.givenAccount(7);
    for (const path of [
      "/../accounts",
      "/accounts/%2e%2e%2f",
      "/accounts/%00",
      "/accounts/%ff",
      `/accounts/${"a".repeat(2000)}`,
      `/accounts/${account}/`,
      `//accounts/${account}`,
      "/accounts/__proto__",
      "/accounts/constructor/keys/toString",
      "/tasks/tg:{p00}:tokens",
    ]) {
      const reply = await raw(path, {});
      expect(reply.status, path).toBeGreaterThanOrEqual(400);
      expect(reply.status, path).toBeLessThan(500);
      expect(reply.text).not.toMatch(/ at .*\.ts|node_modules|tg:\{p\d\d\}:account/);
    }
    const rebound = await raw(`/accounts/${account}`, { Host: "evil.example" });
    expect([rebound.status, rebound.text.includes("balance")]).toEqual([421, false]);
  });

  test("more calls at a time than are served are refused, and then served", async () => {
    const account = await stage.givenAccount();
    const replies = await Promise.all(
      Array.from({ length: 60 }, () => stage.manage("GET", `/accounts/${account}`)),
    );
    const refused = replies.filter(({ status }) => status !== 200);
    for (const reply of refused) {
      expectProblem(reply, 503);
      expect(reply.headers.get("retry-after")).toBe("1");
    }
    expectStatus(await stage.manage("GET", `/accounts/${account}`), 200);
  });

  test("its description is served", async () => {
    const served = await stage.manage("GET", "/openapi.json");
    expectStatus(served, 200);
    expect(served.body.openapi).toMatch(/^3\.1/);
  });
});

// Guarantee: who tries tokens behind the same proxy does not stop a company's backend.
test("a thousand wrong tokens are answered and slowed down, and lock out no token that was right before", async () => {
  const token = await stage.givenToken(["accounts:read"]);
  const read = (by?: string) => stage.manage("GET", "/accounts", by === undefined ? {} : { token: by });
  expectStatus(await read(token), 200);
  const revoked = await stage.manage("POST", "/tokens", {
    body: { label: "short", scopes: ["accounts:read"] },
  });
  expectStatus(await read(revoked.body.token), 200);
  expectStatus(await stage.manage("POST", `/tokens/${revoked.body.token_id}/revoke`), 200);
  const statuses = new Map<number, number>();
  for (let at = 0; at < 1000; at++) {
    const { status } = await stage.manage("GET", "/accounts", { token: `tgm_${randomUUID()}` });
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  }
  expect([...statuses.keys()].sort()).toEqual([401, 429]);
  expect(statuses.get(401)).toBeLessThanOrEqual(100);
  expectStatus(await read(token), 200);
  // A token that people chose could be found by trying, so it waits; so does one that was revoked since.
  expectProblem(await read(), 429);
  expectProblem(await read(revoked.body.token), 429);
});
