import { randomBytes, randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../support/gateway.ts";
import { givenManageStage, type ManageRequest, type ManageStage } from "./manage-stage.ts";

// Guarantee: a token of the management API does what it may, and neither fills the store nor the log nor locks out others.

const BOUNDS = { writesPerMinute: 4, bytesPerDay: 1_000_000, tokensPerToken: 2, keysPerAccount: 2 };
const AN_HOUR_MS = 3_600_000;

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage({ config: { admin: { bounds: BOUNDS } } });
});
afterAll(() => stage.stop());

const wrongToken = () => `tgm_${randomBytes(32).toString("base64url")}`;
const patch = (accountId: string, body: object, more: ManageRequest = {}) =>
  stage.manage("PATCH", `/accounts/${accountId}`, { body, ...more });

describe("what a token may write", () => {
  test("beyond its writes of a minute it is told when to come back, and so are those that it made", async () => {
    const accountId = await stage.givenAccount();
    const { key_id: keyId } = await stage.givenKey(accountId);
    const token = await stage.givenToken(["accounts:write", "keys:write", "tokens:write", "accounts:read"]);
    const made = await stage.manage("POST", "/tokens", {
      token,
      body: { label: "child", scopes: ["accounts:write"] },
    });
    expectStatus(made, 201);
    const child = made.body.token;
    for (const label of ["one", "two"]) expectStatus(await patch(accountId, { label }, { token }), 200);
    expectStatus(await patch(accountId, { label: "three" }, { token: child }), 200);
    for (const one of [token, child]) {
      const refused = await patch(accountId, { label: "four" }, { token: one });
      expectStatus(refused, 429);
      expect(refused.headers.get("content-type")).toContain("application/problem+json");
      expect(refused.body).toMatchObject({ code: "too_many_writes", status: 429 });
      const wait = Number(refused.headers.get("retry-after"));
      expect(wait).toBeGreaterThan(0);
      expect(wait).toBeLessThanOrEqual(60);
    }
    expect((await stage.manage("GET", `/accounts/${accountId}`, { token })).body.label).toBe("three");
    expectStatus(await patch(accountId, { label: "admin" }), 200);
    // Requests that end something have a count of their own.
    expectStatus(await patch(accountId, { status: "suspended", label: "with more" }, { token }), 429);
    expectStatus(await patch(accountId, { status: "suspended" }, { token }), 200);
    expectStatus(await patch(accountId, { status: "closed" }, { token: child }), 200);
    const revoke = `/accounts/${accountId}/keys/${keyId}/revoke`;
    for (const _ of [1, 2]) expectStatus(await stage.manage("POST", revoke, { token }), 200);
    expectStatus(await stage.manage("POST", revoke, { token }), 429);
  });

  test("4 KB of metadata a hundred times do not become megabytes of audit", async () => {
    const accountId = await stage.givenAccount();
    const metadataOf = (at: number) => ({
      ...Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`field_${n}`, `${at}\\"`.repeat(10)])),
    });
    for (let at = 0; at < 100; at++) expectStatus(await patch(accountId, { metadata: metadataOf(at) }), 200);
    const { body } = await stage.manage("GET", `/audit?account_id=${accountId}&limit=100`);
    expect(body.data).toHaveLength(100);
    const sizes = body.data.map((record: object) => JSON.stringify(record).length);
    expect(Math.max(...sizes)).toBeLessThan(2048);
    expect(body.data[0].after.metadata).toMatchObject({
      field_0: `99\\"`.repeat(10),
      "…": expect.any(Number),
    });
  });

  test("an account gets as many keys as it may, revoked ones included, and no more by rotation", async () => {
    const accountId = await stage.givenAccount();
    const keys = [await stage.givenKey(accountId), await stage.givenKey(accountId)];
    await stage.manage("POST", `/accounts/${accountId}/keys/${keys[0].key_id}/revoke`);
    const headers = { "Idempotency-Key": randomUUID() };
    const refused = await stage.manage("POST", `/accounts/${accountId}/keys`, { body: {}, headers });
    expectStatus(refused, 409);
    expect(refused.body.detail).toContain("admin.keys_per_account");
    const rotate = `/accounts/${accountId}/keys/${keys[1].key_id}/rotate`;
    expectStatus(await stage.manage("POST", rotate, { body: {} }), 409);
    const { body } = await stage.manage("GET", `/accounts/${accountId}/keys`);
    expect(body.data).toHaveLength(2);
  });
});

describe("a family of tokens", () => {
  test("has as many as it may, shows who made whom, and ends with its first", async () => {
    const scopes = ["tokens:write", "accounts:read"];
    const make = (token?: string) =>
      stage.manage("POST", "/tokens", { body: { label: "x", scopes }, ...(token && { token }) });
    const root = (await make()).body;
    const child = (await make(root.token)).body;
    const grandchild = (await make(child.token)).body;
    expect([root.parent, child.parent, grandchild.parent]).toEqual([null, root.token_id, child.token_id]);
    const refused = await make(grandchild.token);
    expectStatus(refused, 409);
    expect(refused.body.detail).toContain("admin.tokens_per_token");
    expectStatus(await make(), 201);
    expectStatus(await stage.manage("POST", `/tokens/${root.token_id}/revoke`), 200);
    for (const { token } of [root, child, grandchild])
      expectStatus(await stage.manage("GET", "/whoami", { token }), 401);
    const { body } = await stage.manage("GET", `/tokens?token_id=${grandchild.token_id}`);
    expect(body.data[0]).toMatchObject({ parent: child.token_id, revoked_at: expect.any(String) });
  });

  test("a token sees and ends only what has nothing that it lacks", async () => {
    const expires_at = new Date(Date.now() + AN_HOUR_MS).toISOString();
    const make = async (scopes: string[], more = {}) =>
      (await stage.manage("POST", "/tokens", { body: { label: "x", scopes, ...more } })).body;
    const small = await make(["tokens:write", "keys:read"], { expires_at });
    const others = {
      more: await make(["tokens:write", "credits:write"], { expires_at }),
      longer: await make(["keys:read"]),
      equal: await make(["tokens:write", "keys:read"], { expires_at }),
      less: await make(["keys:read"], { expires_at, accounts: ["acme"] }),
    };
    const { token } = small;
    const answers = async (method: string, path: (id: string) => string) =>
      Object.fromEntries(
        await Promise.all(
          Object.entries(others).map(async ([name, { token_id }]) => {
            const { status, body } = await stage.manage(method, path(token_id), { token });
            return [name, method === "GET" ? body.data.length : status];
          }),
        ),
      );
    expect(await answers("GET", (id) => `/tokens?token_id=${id}`)).toEqual({
      more: 0,
      longer: 0,
      equal: 1,
      less: 1,
    });
    expect(await answers("POST", (id) => `/tokens/${id}/revoke`)).toEqual({
      more: 404,
      longer: 404,
      equal: 200,
      less: 200,
    });
    for (const one of [others.more, others.longer])
      expectStatus(await stage.manage("GET", "/whoami", { token: one.token }), 200);
  });
});

test("accounts:write suspends and closes; only accounts:reinstate makes an account active again", async () => {
  const accountId = await stage.givenAccount();
  const writer = await stage.givenToken(["accounts:write", "accounts:read"]);
  const both = await stage.givenToken(["accounts:write", "accounts:reinstate"]);
  expectStatus(await patch(accountId, { status: "suspended" }, { token: writer }), 200);
  for (const body of [{ status: "active" }, { status: "active", label: "x" }]) {
    const refused = await patch(accountId, body, { token: writer });
    expectStatus(refused, 403);
    expect(refused.body.detail).toContain("accounts:reinstate");
  }
  expectStatus(await patch(accountId, { label: "x", status: "suspended" }, { token: writer }), 200);
  expectStatus(await patch(accountId, { status: "active" }, { token: both }), 200);
  expectStatus(await patch(accountId, { status: "active" }, { token: writer }), 200);
});

// Guarantee: a proxy that compresses answers does not make every change stale.
test.each([
  ['W/"0"', 200],
  ['"0-gzip"', 200],
  ['W/"0--gzip"', 200],
  ['"0;br"', 200],
  ['"7", W/"0" , "other"', 200],
  [', "0",,', 200],
  ["*", 200],
  ['"7", "8"', 412],
  ['"00"', 200],
  ['"0x"', 412],
  ['"0", one', 400],
  ['"0" "1"', 400],
  ["0", 400],
  [Array.from({ length: 21 }, () => '"0"').join(), 400],
])("If-Match %s for the first revision of an account is %i", async (ifMatch, status) => {
  const accountId = await stage.givenAccount();
  const headers = { "If-Match": ifMatch };
  expectStatus(await patch(accountId, { label: "changed" }, { headers }), status);
});

// Guarantee: who tries tokens behind the same address, right after a start, locks out nobody with a right one.
test("ten wrong tokens slow down wrong ones, and neither a right one that was never seen nor ADMIN_TOKEN", async () => {
  const fresh = await givenManageStage();
  const token = await fresh.givenToken(["accounts:read"]);
  const status = async (one?: string) =>
    (await fresh.manage("GET", "/whoami", one === undefined ? {} : { token: one })).status;
  for (let at = 0; at < 10; at++) expect(await status(wrongToken())).toBe(401);
  expect(await status(wrongToken())).toBe(429);
  expect([await status(token), await status()]).toEqual([200, 200]);
  await fresh.stop();
});

// Guarantee: whoever reaches the port fills no disk, and what was tried is still seen.
test("what is refused leaves few lines of at most 1 KiB, and is counted", async () => {
  const noisy = await givenManageStage();
  const path = `/accounts/${"%01é".repeat(1000)}/${"x".repeat(3000)}`;
  const url = `${noisy.gateway.adminUrl}/manage/v1${path}`;
  const post = (headers: Record<string, string>) => fetch(url, { method: "POST", headers, body: "{}" });
  for (let at = 0; at < 40; at++) {
    await post({});
    await post({ origin: "https://hostile.example", authorization: `Bearer ${wrongToken()}` });
    await fetch(`${noisy.gateway.adminUrl}/config?${"y".repeat(5000)}`);
  }
  const reads = await noisy.manage("GET", "/accounts", { token: wrongToken() });
  expectStatus(reads, 401);
  const token = await noisy.givenToken(["accounts:read"]);
  expectStatus(await noisy.manage("GET", "/audit", { token }), 403);
  const metrics = await (await fetch(`${noisy.gateway.adminUrl}/metrics`)).text();
  expect(metrics).toContain('tollgate_sign_ins_refused_total{reason="other_site"} 40');
  expect(metrics).toContain('tollgate_sign_ins_refused_total{reason="no_token"} 80');
  expect(metrics).toContain('tollgate_sign_ins_refused_total{reason="wrong_token"} 1');
  await noisy.stop();
  const lines = noisy.gateway.logs.filter((line) => line.includes('"audit":true'));
  for (const line of lines) expect(Buffer.byteLength(line), line).toBeLessThanOrEqual(1024);
  const refused = lines
    .map((line) => JSON.parse(line))
    .filter(({ status, reason }) => status >= 400 || reason);
  const count = (of: (line: Record<string, unknown>) => boolean) => refused.filter(of).length;
  expect(count(({ status }) => status === 401)).toBeLessThanOrEqual(21);
  expect(count(({ status }) => status === 403)).toBe(21);
  expect(count(({ reason }) => reason === "no_token")).toBeLessThanOrEqual(20);
  expect(count(({ method, status }) => method === "GET" && status === 401)).toBe(1);
  expect(count(({ method, status }) => method === "GET" && status === 403)).toBe(1);
});
