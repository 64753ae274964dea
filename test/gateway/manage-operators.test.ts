import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { addRefusals, topRefusals } from "../../src/operations/accounts/refusals.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Operators' work, most of all in the console: who may, its effect, and its record.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

/** Audit lines of the log about this path. */
const auditLines = (path: string, { logs }: Pick<TestGateway, "logs"> = stage.gateway) =>
  logs
    .filter((line) => line.includes('"audit":true'))
    .map((line) => JSON.parse(line))
    .filter((line) => line.path === `/manage/v1${path}`);

const generate = (key: string) => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
const balanceOf = async (accountId: string): Promise<number> =>
  (await stage.manage("GET", `/accounts/${accountId}`)).body.balance;

describe("who may", () => {
  test("everything below /manage/v1 needs a token, probes and metrics do not", async () => {
    for (const path of ["/whoami", "/live", "/accounts/acme", "/openapi.json", "/no-such"]) {
      expectStatus(await stage.manage("GET", path, { token: null }), 401, path);
      expectStatus(await stage.manage("GET", path, { token: "not-the-right-one" }), 401, path);
    }
    await stage.manage("GET", "/whoami");
    for (const path of ["livez", "readyz", "metrics"]) {
      expect((await fetch(`${stage.gateway.adminUrl}/${path}`)).status).toBe(200);
    }
  });

  // Guarantee: who tried to move money is on record, too.
  test("a call that is refused before it begins is on record, without the token, a read too", async () => {
    const guarded = await givenManageStage();
    const path = "/accounts/acme/grants";
    const post = (headers: Record<string, string>, body = "{}") =>
      fetch(`${guarded.gateway.adminUrl}/manage/v1${path}`, { method: "POST", headers, body });
    const json = { "content-type": "application/json" };
    const right = { authorization: `Bearer ${ADMIN_TOKEN}` };
    const statuses = [
      await post(json),
      await post({ ...json, authorization: "Bearer not-the-right-one" }),
      await post({ ...json, ...right, origin: "https://elsewhere.example" }),
      await post({ ...right, "content-type": "text/plain" }),
      await post({ ...json, ...right }, "{"),
    ].map(({ status }) => status);
    expect(statuses).toEqual([401, 401, 403, 415, 400]);
    await guarded.manage("GET", "/accounts/acme", { token: "not-the-right-one" });
    await guarded.stop();
    const common = { remote_address: "127.0.0.1", request_id: expect.any(String), why: expect.any(String) };
    expect(auditLines(path, guarded.gateway)).toEqual(
      statuses.map((status) => expect.objectContaining({ ...common, status })),
    );
    expect(auditLines("/accounts/acme", guarded.gateway)).toMatchObject([{ method: "GET", status: 401 }]);
    expect(guarded.gateway.logs.join()).not.toContain(ADMIN_TOKEN);
    expect(guarded.gateway.logs.join()).not.toContain("not-the-right-one");
  });

  test("a gateway without ADMIN_TOKEN changes and shows nothing to whoever has no token", async () => {
    const open = await givenGateway();
    try {
      const { accountId, keyId } = await open.givenKey();
      const call = async (method: string, path: string) =>
        (await fetch(`${open.adminUrl}/manage/v1${path}`, { method })).status;
      expect(await call("GET", `/accounts/${accountId}`)).toBe(401);
      expect(await call("POST", `/accounts/${accountId}/grants`)).toBe(401);
      expect(await call("POST", `/accounts/${accountId}/keys/${keyId}/revoke`)).toBe(401);
      expect(await balanceOf(accountId)).toBe(1000);
    } finally {
      await open.stop();
    }
  });
});

describe("actions", () => {
  test("a grant credits once per reference, and both calls are on record", async () => {
    const { accountId } = await stage.gateway.givenKey({ credits: 10 });
    const path = `/accounts/${accountId}/grants`;
    const grant = (credits: number) =>
      stage.manage("POST", path, { body: { credits, reference: "invoice-17" }, headers: CONSOLE });
    const first = await grant(500);
    expectStatus(first, 201);
    expect(first.body).toMatchObject({ amount: 500, balance: 510, by: "console" });
    const repeat = await grant(500);
    expectStatus(repeat, 200);
    expect(repeat.body).toEqual(first.body);
    expectStatus(await grant(600), 409);
    expect(await balanceOf(accountId)).toBe(510);
    const common = { action: "grantCredits", by: "console", remote_address: "127.0.0.1" };
    expect(auditLines(path)).toMatchObject([
      { ...common, status: 201 },
      { ...common, status: 200 },
      { ...common, status: 409, why: expect.stringContaining("another grant") },
    ]);
  });

  // Guarantee: who moved money is on record whatever the log level, also where it was set after the start.
  test.each(["warn", "silent"])("what is done after the level was set to %s is on record", async (level) => {
    // Other tests' gateways begin at debug, where the two levels differ from the start.
    const quiet = await givenManageStage({ logLevel: "info" });
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
    await fetch(`${quiet.gateway.adminUrl}/log-level`, { method: "PUT", body: level, headers });
    const { accountId, keyId } = await quiet.gateway.givenKey();
    const [grants, revoke] = [`/accounts/${accountId}/grants`, `/accounts/${accountId}/keys/${keyId}/revoke`];
    expectStatus(await quiet.manage("POST", grants, { body: { credits: 5, reference: "r" } }), 201);
    expectStatus(await quiet.manage("POST", revoke, { body: {} }), 200);
    await quiet.stop();
    expect(auditLines(grants, quiet.gateway)).toMatchObject([{ action: "grantCredits", status: 201 }]);
    expect(auditLines(revoke, quiet.gateway)).toMatchObject([{ action: "revokeKey", status: 200 }]);
  });

  test.each([
    ["no reference", { credits: 5 }],
    ["a reference of blanks beyond ASCII", { credits: 5, reference: "é" }],
    ["half a credit", { credits: 0.5, reference: "r" }],
    ["a negative amount", { credits: -5, reference: "r" }],
    ["an amount in quotes", { credits: "5", reference: "r" }],
  ])("a grant with %s changes nothing", async (_, body) => {
    const { accountId } = await stage.gateway.givenKey({ credits: 10 });
    expectStatus(await stage.manage("POST", `/accounts/${accountId}/grants`, { body }), 400);
    expect(await balanceOf(accountId)).toBe(10);
  });

  test("a revoked key's next request is 401", async () => {
    const { key, keyId, accountId } = await stage.gateway.givenKey();
    expectStatus(await generate(key), 200);
    const revoke = () => stage.manage("POST", `/accounts/${accountId}/keys/${keyId}/revoke`, { body: {} });
    const { revoked_at } = (await revoke()).body;
    expectStatus(await generate(key), 401);
    expect((await revoke()).body).toMatchObject({ revoked_at });
  });

  test("a key that somebody gives for an id is refused, and not even the log knows it", async () => {
    const { key, accountId } = await stage.gateway.givenKey();
    for (const [method, path] of [
      ["POST", `/accounts/${accountId}/keys/${key}/revoke`],
      ["GET", `/accounts/${accountId}/keys/${key}`],
      ["POST", `/tasks/${key}/release`],
      ["POST", `/accounts/${key}/grants`],
    ] as const) {
      const body =
        method === "GET" ? undefined : path.endsWith("grants") ? { credits: 1, reference: "r" } : {};
      const answer = await stage.manage(method, path, { body });
      expect([400, 404], path).toContain(answer.status);
      expect(JSON.stringify(answer.body).includes(key), path).toBe(false);
    }
    expectStatus(await generate(key), 200);
    expect(stage.gateway.logs.join()).not.toContain(key);
  });

  test.each(["/", "?", "&", ";", "'", '"', "`"])(
    "no part of a key with %s is in log or answer",
    async (sign) => {
      const { accountId } = await stage.gateway.givenKey();
      const key = `sk_${randomUUID()}${sign}${randomUUID()}`;
      expectStatus(await stage.manage("POST", `/accounts/${accountId}/keys/import`, { body: { key } }), 201);
      const path = `/accounts/${accountId}/keys/${encodeURIComponent(key)}/revoke`;
      const answer = await stage.manage("POST", path, { body: {} });
      expectStatus(answer, 404);
      for (const part of key.split(sign)) {
        expect(JSON.stringify(answer.body)).not.toContain(part);
        expect(stage.gateway.logs.join()).not.toContain(part);
      }
    },
  );

  test("a released task is refunded and its slot is free", async () => {
    const { key, accountId } = await stage.gateway.givenKey({ credits: 100, limits: { max_concurrent: 1 } });
    const taskId = (await generate(key)).body.data.task_id;
    expect((await generate(key)).body.code).toBe(2002);
    const release = () => stage.manage("POST", `/tasks/${taskId}/release`, { body: {} });
    expect((await release()).body).toMatchObject({ outcome: "ended", refunded: 10 });
    expect(await balanceOf(accountId)).toBe(100);
    expectStatus(await generate(key), 200);
    expect((await release()).body).toMatchObject({ outcome: "already_finished" });
    expect(auditLines(`/tasks/${taskId}/release`)).toMatchObject([{ status: 200 }, { status: 200 }]);
  });
});

test("an account's transactions go back to the first, past the ten that it keeps at hand", async () => {
  const { accountId } = await stage.gateway.givenKey({ credits: 1 });
  for (let n = 0; n < 40; n++) {
    const body = { credits: 1, reference: `r${n}` };
    await stage.manage("POST", `/accounts/${accountId}/grants`, { body });
  }
  const references: string[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const query: string = cursor ? `&cursor=${cursor}` : "";
    const { body } = await stage.manage("GET", `/accounts/${accountId}/transactions?limit=25${query}`);
    references.push(...body.data.map((entry: { reference: string }) => entry.reference));
    cursor = body.next_cursor;
  }
  expect(references.slice(0, 40)).toEqual(Array.from({ length: 40 }, (_, n) => `r${39 - n}`));
  expect(references).toHaveLength(41);
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

const CONSOLE = { "x-tollgate-client": "console" };
