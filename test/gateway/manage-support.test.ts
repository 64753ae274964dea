import { afterAll, beforeAll, expect, test, vi } from "vitest";
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

// Questions of support: why was this refused, what became of that video, who did it.

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
  for (const id of [quoted, latest.request_id])
    expect((await get(`${list}?request_id=${id}`)).data).toEqual([latest]);
  for (const id of [quoted, own.body.request_id, theirs.headers.get("x-gateway-request-id")]) {
    expect((await get(`/search?q=${id}`)).data).toContainEqual({
      ...{ kind: "refusal", id, account_id: account, label: "rate_limited", metadata: null, key_id: keyId },
    });
  }
  // Guarantee: it is found by the store's clock, however wrong that of the gateway is.
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - 2 * 3_600_000 });
  const foundLate = await get(`/search?q=${quoted}`).finally(() => vi.useRealTimers());
  expect(foundLate.data).toHaveLength(1);
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
  const [, id = "", label = ""] = /^(\S+) (.+)$/.exec(by) ?? [];
  for (const person of [by, id, label])
    expect(actions(await of(`by=${encodeURIComponent(person)}`)), person).toEqual(["account.patch"]);
  for (const part of ["admin", label.slice(1)]) expect(await of(`by=${part}`), part).toEqual([]);
  expect(await of("to=2020-01-01")).toEqual([]);
  expect(await of(`from=${new Date().toISOString().slice(0, 10)}`)).toHaveLength(3);
  expectStatus(await stage.manage("GET", "/audit?from=2026-02-30"), 400);
});

/** A task that has ended, as its key's customer sees it. */
async function givenEnd(key: string, failRatio: number): Promise<string> {
  stage.gateway.generator.behave({ durationMs: 0, failRatio });
  const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const { task_id: id } = made.body.data;
  await until(async () => {
    const { status } = (await stage.gateway.request("GET", `/api/v1/tasks/${id}`, { key })).body.data;
    return status === "completed" || status === "failed";
  }, "the end of the task");
  return id;
}

// Guarantee: "my video failed and I was charged" is answered from the task alone, however long the ledger is.
test("a task has its own transactions alone: charge, refund, and who made it and why", async () => {
  const account = await stage.givenAccount(1000);
  const { key } = await stage.givenKey(account, { limits: { rate_limit: 100, max_concurrent: 100 } });
  const failed = await givenEnd(key, 1);
  const completed = await givenEnd(key, 0);
  const other = await givenEnd(key, 0);
  const body = { reason: "the video was black", reference: "ticket 7" };
  expectStatus(await stage.manage("POST", `/tasks/${completed}/refund`, { body }), 201);
  const of = async (id: string) => (await get(`/tasks/${id}/transactions`)).data;
  expect(await of(failed)).toMatchObject([
    { kind: "charge", amount: -10, task_id: failed },
    { kind: "refund", amount: 10, task_id: failed, by: null, reason: "refund" },
  ]);
  expect(await of(completed)).toMatchObject([
    { kind: "charge", amount: -10, task_id: completed },
    { kind: "refund", amount: 10, task_id: completed, by: "admin_token", ...body },
  ]);
  expect(await of(other)).toMatchObject([{ kind: "charge", task_id: other }]);
  const { request_id: requestId } = await get(`/tasks/${completed}`);
  expect(await of(requestId)).toEqual(await of(completed));
  // Requests of one tick are charged in the same millisecond.
  const together = await Promise.all(
    Array.from({ length: 8 }, () => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT })),
  );
  for (const { body: made } of together)
    expect(
      (await of(made.data.task_id)).filter(({ kind }: { kind: string }) => kind === "charge"),
    ).toMatchObject([{ task_id: made.data.task_id }]);
  const others = await stage.givenAccount();
  const token = await stage.givenToken(["credits:read"], { accounts: [others] });
  expectStatus(await stage.manage("GET", `/tasks/${failed}/transactions`, { token }), 404);
  const blind = await stage.givenToken(["tasks:read"]);
  expectStatus(await stage.manage("GET", `/tasks/${failed}/transactions`, { token: blind }), 403);
});

// Guarantee: a grant that was taken back is not shown as one that stands.
test("a grant in the account's list says how much of it reversals took back", async () => {
  const account = await stage.givenAccount(100);
  const list = `/accounts/${account}/transactions`;
  const grant = async (query = "") =>
    (await get(list + query)).data.find(({ kind }: { kind: string }) => kind === "purchase");
  expect(await grant()).not.toHaveProperty("reversed");
  for (const [reference, amount] of [
    ["undo 1", 30],
    ["undo 2", 20],
  ]) {
    const body = { of: "first", reference, amount, reason: "a slip" };
    expectStatus(await stage.manage("POST", `/accounts/${account}/reversals`, { body }), 201);
  }
  for (const query of ["", "?kind=purchase", "?reference=first"])
    expect(await grant(query)).toMatchObject({ amount: 100, reversed: 50 });
  expect((await get(`${list}?kind=reversal`)).data).toMatchObject([
    { of: "first", reversed: 20 },
    { of: "first", reversed: 30 },
  ]);
});

// Guarantee: a key that has leaked is found by itself, and looking for it leaks it to nobody.
test("whose key it is is found by the key in a body, and the key is in no log and no answer", async () => {
  const account = await stage.givenAccount();
  const { key, key_id: keyId } = await stage.givenKey(account);
  const find = (body: unknown, token?: string) =>
    stage.manage("POST", "/keys/lookup", { body, ...(token && { token }) });
  const answers = [await find({ key })];
  expectStatus(answers[0]!, 200);
  expect(answers[0]!.body).toMatchObject({ key_id: keyId, account_id: account, status: "active" });
  const usage = `/accounts/${account}/usage?key_id=${keyId}`;
  expect((await get(`${usage}&group_by=day,key`)).data).toEqual([]);
  expectStatus(await stage.manage("GET", usage), 400);
  expectStatus(await stage.manage("POST", `/accounts/${account}/keys/${keyId}/revoke`), 200);
  expect((await find({ key })).body).toMatchObject({ key_id: keyId, status: "revoked" });
  const own = await stage.givenToken(["keys:read"], { accounts: [account] });
  expectStatus(await find({ key }, own), 200);
  const others = await stage.givenToken(["keys:read"], { accounts: [await stage.givenAccount()] });
  for (const refused of [
    await find({ key }, others),
    await find({ key: `${key}x` }),
    await find({ key: keyId }),
  ]) {
    expectStatus(refused, 404);
    answers.push(refused);
  }
  for (const wrong of [{ key, [key]: 1 }, { keys: key }, { key: [key] }, { key: key.repeat(9) }]) {
    const refused = await find(wrong);
    expectStatus(refused, 400);
    answers.push(refused);
  }
  expectStatus(await find({ key }, await stage.givenToken(["accounts:read"])), 403);
  expect(JSON.stringify(answers.map(({ body }) => body))).not.toContain(key);
  expect(JSON.stringify(stage.gateway.logs)).not.toContain(key);
  expect(JSON.stringify(await get(`/audit?account_id=${account}`))).not.toContain(key);
});

// Guarantee: what happened to an account is one list in the order of time, each thing once, however it is paged.
test("the timeline has each transaction and each change once, newest first, in pages of any size", async () => {
  const account = await stage.givenAccount(1000);
  const path = `/accounts/${account}`;
  const { key, key_id: keyId } = await stage.givenKey(account, { limits: { rate_limit: 100 } });
  await stage.manage("PATCH", path, { body: { limits: { rate_limit: 50 } } });
  const failed = await givenEnd(key, 1);
  for (const status of ["suspended", "active"]) await stage.manage("PATCH", path, { body: { status } });
  const paid = await givenEnd(key, 0);
  const undo = { of: "first", reference: "undo", amount: 10, reason: "a slip" };
  await stage.manage("POST", `${path}/reversals`, { body: undo });
  await stage.manage("POST", `/tasks/${paid}/refund`, { body: { reason: "black", reference: "ticket" } });
  await stage.manage("POST", `${path}/keys/${keyId}/revoke`);
  type Event = {
    at: string;
    transaction?: { kind: string; task_id: string | null };
    audit?: { action: string };
  };
  const read = async (query: string): Promise<Event[]> => {
    const events: Event[] = [];
    for (let next: string | null = ""; next !== null; ) {
      const page = await get(`${path}/timeline?${query}${next && `&cursor=${next}`}`);
      events.push(...page.data);
      next = page.next_cursor;
    }
    return events;
  };
  const name = ({ transaction, audit }: Event) => transaction?.kind ?? audit?.action;
  const all = await read("limit=100");
  const ends = ["key.revoke", "refund", "reversal", "charge", "account.patch", "account.patch"];
  const begins = ["refund", "charge", "account.patch", "key.create", "purchase", "account.create"];
  expect(all.map(name)).toEqual([...ends, ...begins]);
  expect(all.find((one) => name(one) === "refund")?.transaction?.task_id).toBe(paid);
  expect(all.findLast((one) => name(one) === "refund")?.transaction?.task_id).toBe(failed);
  expect(all.map(({ at }) => at)).toEqual(
    all
      .map(({ at }) => at)
      .sort()
      .reverse(),
  );
  for (const limit of [1, 2, 3, 5]) expect(await read(`limit=${limit}`), `pages of ${limit}`).toEqual(all);
  const uncharged = all.filter((one) => name(one) !== "charge");
  for (const limit of [2, 100]) expect(await read(`charges=without&limit=${limit}`)).toEqual(uncharged);
  const from = all[5]!.at;
  const later = all.filter(({ at }) => at >= from);
  expect(await read(`limit=2&from=${from}`)).toEqual(later);
  expect(await read(`limit=2&to=${from}`)).toEqual(all.slice(later.length));
  // Without the right to read credits, grants and refunds are as the audit has them.
  const token = await stage.givenToken(["audit:read"]);
  const audit = (await stage.manage("GET", `${path}/timeline?limit=100`, { token })).body.data;
  expect(audit.map(({ audit: { action } }: Required<Event>) => action)).toContain("task.refund");
  expect(audit.every((one: Event) => one.transaction === undefined)).toBe(true);
  expectStatus(
    await stage.manage("GET", `${path}/timeline`, { token: await stage.givenToken(["credits:read"]) }),
    403,
  );
  const [cursor] = [(await get(`${path}/timeline?limit=1`)).next_cursor];
  expectStatus(await stage.manage("GET", `${path}/timeline?charges=without&cursor=${cursor}`), 400);
  expectStatus(await stage.manage("GET", `/accounts/nobody-${account}/timeline`), 404);
});
