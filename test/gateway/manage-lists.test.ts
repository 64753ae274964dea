import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { cursorOf } from "../../src/records/cursors.ts";
import { partitionOf, requestName, taskName } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { expectStatus } from "../support/gateway.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage({ config: { accounts: { indexedMetadata: ["plan", "shop.region"] } } });
});
afterAll(() => stage.stop());

/** All rows of a list, and how many pages it took. */
async function allOf(path: string, limit: number, token?: string) {
  const rows: Record<string, unknown>[] = [];
  let pages = 0;
  for (let cursor: string | null = ""; cursor !== null; pages++) {
    const next: string = cursor ? `&cursor=${cursor}` : "";
    const reply = await stage.manage("GET", `${path}limit=${limit}${next}`, token ? { token } : {});
    expectStatus(reply, 200, path);
    expect(reply.body.data.length).toBeLessThanOrEqual(limit);
    rows.push(...reply.body.data);
    cursor = reply.body.next_cursor;
  }
  return { rows, pages };
}

test("all accounts of a prefix come once each, in the order of their ids, page by page", async () => {
  const prefix = `pages-${randomUUID().slice(0, 8)}`;
  const ids = Array.from({ length: 25 }, (_, n) => `${prefix}.${String(n).padStart(2, "0")}`);
  for (const id of [...ids].reverse()) {
    expectStatus(await stage.manage("POST", "/accounts", { body: { account_id: id } }), 201);
  }
  const { rows, pages } = await allOf(`/accounts?prefix=${prefix}&`, 10);
  expect(rows.map((row) => row.account_id)).toEqual(ids);
  expect(pages).toBeGreaterThanOrEqual(3);
  const cursor = (await stage.manage("GET", `/accounts?prefix=${prefix}&limit=10`)).body.next_cursor;
  expectStatus(await stage.manage("GET", `/accounts?prefix=pages-x&cursor=${cursor}`), 400);
});

test("accounts are found by the beginning of their label and by their status", async () => {
  const label = `Film ${randomUUID()}`;
  const [one, other] = [await stage.givenAccount(), await stage.givenAccount()];
  for (const id of [one, other]) {
    expectStatus(await stage.manage("PATCH", `/accounts/${id}`, { body: { label } }), 200);
  }
  expectStatus(await stage.manage("PATCH", `/accounts/${other}`, { body: { status: "suspended" } }), 200);
  const found = async (query: string) =>
    (await allOf(`/accounts?${query}&`, 100)).rows.map((row) => row.account_id).sort();
  const begin = encodeURIComponent(label.slice(0, 20).toLowerCase());
  expect(await found(`label=${begin}`)).toEqual([one, other].sort());
  expect(await found(`label=${begin}&status=suspended`)).toEqual([other]);
  expect(await found(`prefix=${one}`)).toEqual([one]);
});

test("accounts are found by their metadata, also by a token for some of them", async () => {
  const plan = `é & b=${randomUUID()}`;
  const make = async (metadata: object) => {
    const { body } = await stage.manage("POST", "/accounts", { body: { metadata } });
    return body.account_id as string;
  };
  const eu = await make({ plan, "shop.region": "eu" });
  const both = [eu, await make({ plan, "shop.region": true })].sort();
  const byPlan = `metadata.plan=${encodeURIComponent(plan)}`;
  const found = async (query: string, limit = 100, token?: string) =>
    (await allOf(`/accounts?${query}&`, limit, token)).rows.map((row) => row.account_id);
  for (const limit of [1, 2, 100]) expect(await found(byPlan, limit)).toEqual(both);
  expect(await found(`${byPlan}&metadata.shop.region=eu`)).toEqual([eu]);
  expect(await found(`${byPlan}&metadata.shop.region=true&status=active`)).not.toContain(eu);
  expect(await found(`${byPlan}&metadata.shop.region=`)).toEqual([]);
  const token = await stage.givenToken(["accounts:read"], { accounts: [eu] });
  expect(await found(byPlan, 1, token)).toEqual([eu]);
  expectStatus(await stage.manage("PATCH", `/accounts/${eu}`, { body: { metadata: { plan: "" } } }), 200);
  expect(await found(byPlan)).toEqual(both.filter((id) => id !== eu));
  expect(await found("metadata.plan=&prefix=acc_")).toContain(eu);
});

test.each([
  [
    "metadata.plant=x",
    "metadata.plant is not indexed, these are: plan, shop.region; add the name to accounts.indexed_metadata in the configuration, which takes at most 4",
    "?metadata.plant",
  ],
  ["metadata.constructor=x", "metadata.constructor is not indexed", "?metadata.constructor"],
  ["metadata.__proto__=x", "metadata.__proto__ is not indexed", "?metadata.__proto__"],
  [`metadata.plan=${"x".repeat(201)}`, "metadata.plan must have at most 200", "?metadata.plan"],
  ["metadata.plan=a&metadata.plan=b", "metadata.plan must be given once", "?metadata.plan"],
  ["metadata=plan", "metadata is not a known parameter", "?metadata"],
  ["metadata.=x", "metadata. is not indexed", "?metadata."],
  ["metadata.a%20b=x", "metadata.a b is not indexed", "?metadata.a b"],
  ["status.plan=x", "status.plan is not a known parameter", "?status.plan"],
])("accounts are not listed by %s", async (query, detail, path) => {
  const { status, body } = await stage.manage("GET", `/accounts?${query}`);
  expect([status, body.code]).toEqual([400, detail.includes("not indexed") ? "not_indexed" : "invalid"]);
  expect(body.detail).toContain(detail);
  expect(body.errors[0].path).toBe(path);
});

test("the keys of an account come in the order in which they were made, without the keys themselves", async () => {
  const accountId = await stage.givenAccount();
  const ids: string[] = [];
  for (let n = 0; n < 5; n++) ids.push((await stage.givenKey(accountId, { label: `key ${n}` })).key_id);
  await stage.manage("POST", `/accounts/${accountId}/keys/${ids[1]}/revoke`, { body: {} });
  const { rows, pages } = await allOf(`/accounts/${accountId}/keys?`, 2);
  expect(rows.map((row) => row.key_id)).toEqual(ids);
  expect(pages).toBe(3);
  expect(rows[1]).toMatchObject({ revoked_at: expect.any(String) });
  expect(rows.some((row) => "key" in row)).toBe(false);
  expectStatus(await stage.manage("GET", "/accounts/nobody-at-all/keys"), 404);
});

// Guarantee: the cursor of a page is one that the next call takes.
test("tasks are read to their end, also if many were refunded", async () => {
  const accountId = await stage.givenAccount(5000);
  const { key } = await stage.givenKey(accountId, { limits: { rate_limit: 1000, max_concurrent: 1000 } });
  const ids: string[] = [];
  for (let n = 0; n < 60; n++) {
    const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    ids.push(made.body.data.task_id);
  }
  for (const id of ids) expectStatus(await stage.manage("POST", `/tasks/${id}/release`), 200);
  const { rows } = await allOf(`/accounts/${accountId}/tasks?`, 10);
  expect(rows.map((row) => row.task_id).sort()).toEqual(ids.sort());
});

// Guarantee: a token for one customer learns nothing of the others.
test("own accounts are found by label as all are, in the order of labels, page by page", async () => {
  const label = `L\u00c4 ${randomUUID()}`;
  const ids = ["z", "m", "a"].map((first) => `${first}-${randomUUID()}`);
  for (const [at, account_id] of ids.entries())
    await stage.manage("POST", "/accounts", { body: { account_id, label: `${label} ${at}` } });
  const token = await stage.givenToken(["accounts:read"], { accounts: ids });
  const found = async (query: string, limit: number, as?: string) =>
    (await allOf(`/accounts?label=${encodeURIComponent(query)}&`, limit, as)).rows.map(
      (row) => row.account_id,
    );
  expect(await found(label, 100)).toEqual(ids);
  // Only A to Z are the same in upper and lower case.
  for (const query of [label, label.replace("L", "l"), label.toLowerCase()])
    for (const limit of [1, 2, 100])
      expect(await found(query, limit, token)).toEqual(await found(query, limit));
});

test("the search finds twenty accounts of a label and says that there are more; a token for some finds its own", async () => {
  const label = `Shop${randomUUID()}`;
  const ids = Array.from({ length: 22 }, (_, at) => `${label}-${String(at).padStart(2, "0")}`);
  for (const id of ids) await stage.manage("POST", "/accounts", { body: { account_id: id, label: id } });
  const found = async (token?: string): Promise<{ ids: string[]; complete: boolean }> => {
    const { body } = await stage.manage("GET", `/search?q=${label}`, token ? { token } : {});
    return { ids: body.data.map(({ id }: { id: string }) => id), complete: body.complete };
  };
  const tokenFor = (accounts: string[]) => stage.givenToken(["accounts:read"], { accounts });
  expect(await found(await tokenFor(ids.slice(-1)))).toEqual({ ids: ids.slice(-1), complete: true });
  // Guarantee: nobody takes the first twenty for all.
  const firstTwenty = { ids: ids.slice(0, 20), complete: false };
  expect(await found()).toEqual(firstTwenty);
  expect(await found(await tokenFor(ids))).toEqual(firstTwenty);
});

test("a token for some accounts cannot tell another account's task from none", async () => {
  const [own, other] = [await stage.givenAccount(), await stage.givenAccount(100)];
  const { key } = await stage.givenKey(other);
  const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const token = await stage.givenToken(["tasks:read", "tasks:write"], { accounts: [own] });
  const refund = { reason: "black", reference: "r" };
  const answers = async (id: string) => {
    const replies = [
      await stage.manage("GET", `/tasks/${id}`, { token }),
      await stage.manage("POST", `/tasks/${id}/release`, { token }),
      await stage.manage("POST", `/tasks/${id}/refund`, { token, body: refund }),
    ];
    return replies.map(({ status, body }) => [status, body.code, body.detail.replace(id, "ID")]);
  };
  const none = await answers("task_nothing");
  expect(none).toEqual(Array.from({ length: 3 }, () => [404, "not_found", expect.any(String)]));
  expect(await answers(made.body.data.task_id)).toEqual(none);
});

// Guarantee: a refund may be repeated whenever its answer was lost, by whoever made it.
test("a token for some accounts refunds its own tasks also after their records are gone, and no others", async () => {
  const [own, other] = [await stage.givenAccount(100), await stage.givenAccount(100)];
  const token = await stage.givenToken(["tasks:read", "tasks:write"], { accounts: [own] });
  const refund = (id: string) =>
    stage.manage("POST", `/tasks/${id}/refund`, { token, body: { reason: "black", reference: `of ${id}` } });
  const tasks: Record<string, string> = {};
  for (const accountId of [own, other]) {
    const { key } = await stage.givenKey(accountId);
    const body = { ...BOAT, prompt: "[sandbox: duration=0s]" };
    const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body });
    const taskId = made.body.data.task_id;
    const { data } = (await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key })).body;
    expect(data.status).toBe("completed");
    tasks[accountId] = taskId;
    // Such as COLLECT does.
    const partition = partitionOf(accountId, await partitionsOf(oneNode(stage.gateway.redis)));
    const { request_id } = (await stage.manage("GET", `/tasks/${taskId}`)).body;
    const names = [requestName(partition, request_id), taskName(taskId, partition)];
    expect(await stage.gateway.redis.del(...names)).toBe(2);
  }
  const first = await refund(tasks[own]!);
  expectStatus(first, 201);
  expect(first.body).toMatchObject({ task_id: tasks[own], balance: 100 });
  const again = await refund(tasks[own]!);
  expectStatus(again, 200);
  expect(again.body.id).toBe(first.body.id);
  const refusal = async (id: string) => {
    const { status, body } = await refund(id);
    return [status, body.code, body.detail.replace(id, "ID")];
  };
  expect(await refusal(tasks[other]!)).toEqual([404, "not_found", expect.any(String)]);
  expect(await refusal(tasks[other]!)).toEqual(await refusal("task_nothing"));
});

test("a token for some accounts lists those and their keys only", async () => {
  const [accountId, other] = [await stage.givenAccount(), await stage.givenAccount()];
  const token = await stage.givenToken(["accounts:read", "keys:read"], { accounts: [accountId] });
  const { rows } = await allOf("/accounts?", 100, token);
  expect(rows.map((row) => row.account_id)).toEqual([accountId]);
  expectStatus(await stage.manage("GET", `/accounts/${accountId}/keys`, { token }), 200);
  expectStatus(await stage.manage("GET", `/accounts/${other}/keys`, { token }), 403);
  expectStatus(await stage.manage("GET", "/accounts", { token: null }), 401);
});

// Guarantee: whoever makes up a cursor is told so; its digest is no secret.
test.each([
  ["tasks", "x"],
  ["tasks", "null"],
  ["tasks", '{"of":"holds","score":"-inf","times":1e300}'],
  ["transactions", "99999999999999999999-1"],
])("a cursor of %s that was made up is 400: %s", async (list, position) => {
  const account = await stage.givenAccount();
  const cursor = cursorOf([list, account, undefined, undefined, undefined, undefined], position);
  expectStatus(await stage.manage("GET", `/accounts/${account}/${list}?cursor=${cursor}`), 400);
});

test.each(["limit=0", "limit=101", "limit=x", "status=gone", "prefix=*", "label=", "cursor=x", "no_such=1"])(
  "GET /accounts?%s is 400",
  async (query) => {
    expectStatus(await stage.manage("GET", `/accounts?${query}`), 400);
  },
);
