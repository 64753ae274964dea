import { afterAll, beforeAll, expect, test } from "vitest";
import {
  addToRefusalLogs,
  REFUSALS_OF_KEY,
  type Refusal,
} from "../../src/operations/accounts/refusal-log.ts";
import { partitionOf, refusalLogNames } from "../../src/records/names.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// What support asks: why was this refused, what became of that video, who did it.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage({ config: { tasks: { cacheMs: 0 } } });
});
afterAll(() => stage.stop());

const get = async (path: string) => {
  const reply = await stage.manage("GET", path);
  expectStatus(reply, 200, path);
  return reply.body;
};

// Guarantee: why a key got 429 at 14:03 is answered from the id that its customer quotes.
test("each refusal of a key is listed with its limit, its wait and both ids, and found by either id", async () => {
  const account = await stage.givenAccount(100);
  const { key, key_id: keyId } = await stage.givenKey(account, { limits: { rate_limit: 1 } });
  const ask = (headers = {}) => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });
  expectStatus(await ask(), 200);
  const own = await ask();
  const quoted = `shop-${account.slice(2, 12)}`;
  const theirs = await ask({ "x-request-id": quoted });
  for (const refused of [own, theirs]) expectStatus(refused, 429);
  const list = `/accounts/${account}/keys/${keyId}/refusals`;
  await until(async () => (await get(list)).data.length === 2, "the refusals");
  const [latest, first] = (await get(list)).data;
  expect(latest).toMatchObject({
    ...{ outcome: "rate_limited", limit: 1, used: 1, retry_after: theirs.body.retryAfter },
    request_id: theirs.headers.get("x-gateway-request-id"),
    client_request_id: quoted,
  });
  expect(first).toMatchObject({ request_id: own.body.request_id, client_request_id: null });
  const page = await get(`${list}?limit=1`);
  expect((await get(`${list}?limit=1&cursor=${page.next_cursor}`)).data).toEqual([first]);
  expect((await get(`${list}?outcome=daily_limited`)).data).toEqual([]);
  for (const id of [quoted, own.body.request_id, theirs.headers.get("x-gateway-request-id")]) {
    expect((await get(`/search?q=${id}`)).data).toContainEqual({
      ...{ kind: "refusal", id, account_id: account, label: "rate_limited", key_id: keyId },
    });
  }
  const others = await stage.givenAccount();
  const token = await stage.givenToken(["accounts:read", "usage:read"], { accounts: [others] });
  expectStatus(await stage.manage("GET", list, { token }), 403);
  expect((await stage.manage("GET", `/search?q=${quoted}`, { token })).body.data).toEqual([]);
  expectStatus(await stage.manage("GET", `/accounts/${others}/keys/${keyId}/refusals`), 404);
});

// Guarantee: a flood of refusals fills no store.
test("a key has its last thousand refusals for a day, and a partition has room for thirty keys", async () => {
  const connection = await openConnection();
  try {
    const redis = stage.gateway.redis;
    const accountId = await stage.givenAccount();
    const { partitions } = connection.known.facts!;
    const partition = partitionOf(accountId, partitions);
    const refusal = (keyId: string, at: number): Refusal => ({
      ...{ accountId, keyId, atMs: Date.now() + at, outcome: "rate_limited" },
      ...{
        limit: 1,
        used: 1,
        retryAfterSeconds: 5,
        requestId: `req_${keyId}_${at}`,
        shownId: `req_${keyId}_${at}`,
      },
    });
    const many = Array.from({ length: REFUSALS_OF_KEY + 50 }, (_, at) => refusal("key_0", at));
    await addToRefusalLogs(connection, many);
    const { log, logs } = refusalLogNames(partition, "key_0");
    expect(await redis.llen(log)).toBe(REFUSALS_OF_KEY);
    expect(await redis.lindex(log, 0)).toContain(`req_key_0_${REFUSALS_OF_KEY + 49}`);
    expect(await redis.pttl(log)).toBeLessThanOrEqual(86_400_000);
    expect(await redis.pttl(log)).toBeGreaterThan(86_000_000);
    await addToRefusalLogs(
      connection,
      Array.from({ length: 40 }, (_, at) => refusal(`key_${at + 1}`, 5000 + at)),
    );
    expect(await redis.zcard(logs)).toBe(30);
    expect(await redis.exists(log)).toBe(0);
    expect(await redis.exists(refusalLogNames(partition, "key_40").log)).toBe(1);
  } finally {
    await connection.close();
  }
});

test("a task has the video that the customer saw, and a failed one its reason", async () => {
  const account = await stage.givenAccount(100);
  const { key } = await stage.givenKey(account);
  const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const { task_id: id } = made.body.data;
  expect(await get(`/tasks/${id}`)).toMatchObject({
    status: "processing",
    video_url: null,
    failure_reason: null,
  });
  let seen: string | undefined;
  await until(async () => {
    seen = (await stage.gateway.request("GET", `/api/v1/tasks/${id}`, { key })).body.data.video_url;
    return seen !== undefined;
  }, "the video");
  expect(await get(`/tasks/${id}`)).toMatchObject({
    status: "completed",
    video_url: seen,
    failure_reason: null,
  });
});

test("the audit is found by person, action and time", async () => {
  const account = await stage.givenAccount(100);
  const token = await stage.givenToken(["accounts:write"]);
  const body = { label: "by the token" };
  expectStatus(await stage.manage("PATCH", `/accounts/${account}`, { token, body }), 200);
  const of = async (query: string) => (await get(`/audit?account_id=${account}&${query}`)).data;
  const actions = (rows: { action: string }[]) => rows.map(({ action }) => action);
  expect(actions(await of(""))).toEqual(["account.patch", "credits.grant", "account.create"]);
  expect(actions(await of("action=credits.grant"))).toEqual(["credits.grant"]);
  const [{ by }] = await of("action=account.patch");
  expect(actions(await of(`by=${by.split(" ")[0]}`))).toEqual(["account.patch"]);
  expect(actions(await of(`by=${encodeURIComponent(by)}`))).toEqual(["account.patch"]);
  expect(await of("by=admin")).toEqual([]);
  expect(await of("to=2020-01-01")).toEqual([]);
  expect(await of(`from=${new Date().toISOString().slice(0, 10)}`)).toHaveLength(3);
  expectStatus(await stage.manage("GET", "/audit?from=2026-02-30"), 400);
});
