import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as schemas from "../../src/admin/api/view-schemas.ts";
import { partitionOf } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { refused } from "../../src/scripts/surveys.ts";
import { expectStatus, givenGateway, type Reply, until } from "../support/gateway.ts";
import { times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

let redis: TestRedis;
let stage: ManageStage;
beforeAll(async () => {
  // These views are about the whole store: other tests' requests and seeded faults have no place in it.
  redis = await givenRedis();
  stage = await givenManageStage({ redisUrl: redis.url });
});
afterAll(async () => {
  await stage.stop();
  await redis.stop();
});

/** Operators' views, by path. */
const VIEWS: [path: string, scope: string, schema: TSchema][] = [
  ["/health", "usage:read", schemas.Health],
  ["/live", "usage:read", schemas.Live],
  ["/overview", "usage:read", schemas.Overview],
  ["/configuration", "accounts:read", schemas.Configuration],
  ["/top-keys", "keys:read", schemas.TopKeys],
  ["/refusals", "usage:read", schemas.RefusalsOfDay],
  ["/open-requests", "tasks:read", schemas.OpenRequests],
];
const VIEWS_OF_ACCOUNT: typeof VIEWS = [
  ["/use", "accounts:read", schemas.AccountUse],
  ["/refusals", "usage:read", schemas.AccountRefusals],
];

function expectShape(reply: Reply, schema: TSchema, what: string): void {
  expectStatus(reply, 200, what);
  expect([...Value.Errors(schema, reply.body)], what).toEqual([]);
}

const generate = (key: string) => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });

// Guarantee: the API, the gauges and doctor say the same, and asking often costs Redis nothing.
test("GET /health has doctor's checks, its gauges have them too, and a hundred questions look once", async () => {
  const first = (await stage.manage("GET", "/health")).body;
  const statusOf = (name: string) => first.checks.find((check: { name: string }) => check.name === name);
  for (const name of ["redis", "version", "eviction", "clock", "partitions", "history", "scripts"])
    expect(statusOf(name), name).toMatchObject({ status: "ok", advice: null });
  expect(statusOf("ready")).toMatchObject({ status: "ok", runbook: "docs/operations/incidents.md" });
  const answers = await Promise.all(times(100, async () => (await stage.manage("GET", "/health")).body));
  expect(new Set(answers.map(({ checked_at: at }) => at))).toEqual(new Set([first.checked_at]));

  const page = await (await fetch(`${stage.gateway.adminUrl}/metrics`)).text();
  const gauges = new Map(
    [...page.matchAll(/^tollgate_check\{check="([^"]+)"\} (\d)$/gm)].map(([, name, value]) => [name, value]),
  );
  const ranks: Record<string, string> = { ok: "0", warn: "1", fail: "2" };
  for (const { name, status } of first.checks)
    expect(Number(gauges.get(name)), name).toBeGreaterThanOrEqual(Number(ranks[status]));
  expect(gauges.size).toBe(new Set(first.checks.map(({ name }: { name: string }) => name)).size);
});

test.each(VIEWS)(
  "GET %s answers what its description says, to a token with %s alone",
  async (path, scope, schema) => {
    const { key } = await stage.gateway.givenKey({ limits: { rate_limit: 1 } });
    for (let n = 0; n < 2; n++) await generate(key);
    expectShape(await stage.manage("GET", path, { token: await stage.givenToken([scope]) }), schema, path);
    expectStatus(await stage.manage("GET", path, { token: null }), 401, path);
    expectStatus(
      await stage.manage("GET", path, { token: await stage.givenToken(["webhooks:write"]) }),
      403,
      path,
    );
    expectStatus(await stage.manage("GET", `${path}?no_such=1`), 400, path);
    expectStatus(await stage.manage("POST", path, { body: {} }), 405, path);
  },
);

// Guarantee: a token for one customer learns nothing of the others.
test.each(VIEWS)("GET %s is 403 for a token that may use some accounts only", async (path, scope) => {
  const accountId = await stage.givenAccount();
  const token = await stage.givenToken([scope], { accounts: [accountId] });
  expectStatus(await stage.manage("GET", path, { token }), 403, path);
});

test.each(VIEWS_OF_ACCOUNT)(
  "GET /accounts/{account}%s answers of its own account only",
  async (path, scope, schema) => {
    const { key, accountId } = await stage.gateway.givenKey();
    await generate(key);
    const token = await stage.givenToken([scope], { accounts: [accountId] });
    expectShape(await stage.manage("GET", `/accounts/${accountId}${path}`, { token }), schema, path);
    const other = await stage.givenAccount();
    expectStatus(await stage.manage("GET", `/accounts/${other}${path}`, { token }), 403, path);
    expectStatus(await stage.manage("GET", `/accounts/nobody-at-all${path}`), 404, path);
  },
);

test("what is used of a key's limits is what they count: of the day, the minute and the slots", async () => {
  const limits = { rate_limit: 50, max_concurrent: 9, daily_limit: 77 };
  const { key, keyId, accountId } = await stage.gateway.givenKey({ limits });
  const [{ keyId: idle }] = [await stage.gateway.givenKey({ accountId, limits })];
  for (let n = 0; n < 4; n++) expectStatus(await generate(key), 200);
  const { keys } = (await stage.manage("GET", `/accounts/${accountId}/use`)).body;
  const of = (id: string) => keys.find((one: { key_id: string }) => one.key_id === id);
  const common = { rate_limit: 50, max_concurrent: 9, daily_limit: 77 };
  expect(of(keyId)).toEqual({ key_id: keyId, window_used: 4, active: 4, day_count: 4, ...common });
  expect(of(idle)).toEqual({ key_id: idle, window_used: 0, active: 0, day_count: 0, ...common });
  const top = (await stage.manage("GET", "/top-keys")).body;
  const counts = top.data.map((one: { day_count: number }) => one.day_count);
  expect(counts.length).toBeLessThanOrEqual(20);
  expect(Math.min(...counts)).toBeGreaterThan(0);
  expect(counts).toEqual([...counts].sort((a, b) => b - a));
});

// Guarantee: no key is without its figures, however many an account has.
test("what each key has used is found among 105 keys, by its page and by its id", async () => {
  const accountId = await stage.givenAccount(100);
  const made: { key: string; key_id: string }[] = [];
  for (let n = 0; n < 105; n++) made.push(await stage.givenKey(accountId));
  const last = made.at(-1)!;
  expectStatus(await generate(last.key), 200);
  const path = `/accounts/${accountId}/use`;
  const first = (await stage.manage("GET", path)).body;
  const second = (await stage.manage("GET", `${path}?limit=10&cursor=${first.next_cursor}`)).body;
  const ids = [...first.keys, ...second.keys].map(({ key_id }) => key_id);
  expect(ids).toEqual(made.map(({ key_id }) => key_id));
  expect(second.next_cursor).toBeNull();
  expect(second.keys.at(-1)).toMatchObject({ key_id: last.key_id, day_count: 1 });
  const listed = (await stage.manage("GET", `/accounts/${accountId}/keys?limit=10`)).body;
  const behind = (await stage.manage("GET", `${path}?limit=10&cursor=${listed.next_cursor}`)).body;
  expect(behind.keys.map(({ key_id }: { key_id: string }) => key_id)).toEqual(ids.slice(10, 20));
  const one = (await stage.manage("GET", `${path}?key_id=${last.key_id}`)).body;
  expect(one).toMatchObject({ keys: [{ key_id: last.key_id, day_count: 1 }], next_cursor: null });
  const { keyId: foreign } = await stage.gateway.givenKey();
  expectStatus(await stage.manage("GET", `${path}?key_id=${foreign}`), 404);
  expectStatus(await stage.manage("GET", `${path}?key_id=${last.key_id}&limit=1`), 400);
});

test("what is used of an account's limits is that of all its keys together; without limits it is null", async () => {
  const one = await stage.gateway.givenKey();
  const other = await stage.gateway.givenKey({ accountId: one.accountId });
  const use = async () => (await stage.manage("GET", `/accounts/${one.accountId}/use`)).body.account;
  expect(await use()).toBeNull();
  const body = { limits: { rate_limit: 50, daily_limit: 77 } };
  expectStatus(await stage.manage("PATCH", `/accounts/${one.accountId}`, { body }), 200);
  for (const { key } of [one, other, other]) expectStatus(await generate(key), 200);
  const common = { rate_limit: 50, max_concurrent: null, daily_limit: 77 };
  expect(await use()).toEqual({ window_used: 3, active: 3, day_count: 3, ...common });
});

test("refusals of two gateways are counted together, for the day and for the account by hour", async () => {
  const gateways = [await givenGateway({ redisUrl: redis.url }), await givenGateway({ redisUrl: redis.url })];
  await until(async () => {
    const answers = await Promise.all(gateways.map(({ adminUrl }) => fetch(`${adminUrl}/readyz`)));
    return answers.every(({ ok }) => ok);
  }, "both gateways to be ready");
  const { key, keyId, accountId } = await stage.gateway.givenKey({ limits: { rate_limit: 1 } });
  const statuses: number[] = [];
  for (const gateway of [gateways[0]!, ...gateways, gateways[1]!]) {
    statuses.push((await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT })).status);
  }
  expect(statuses).toEqual([200, 429, 429, 429]);
  // They would after five seconds; a drain writes what is left.
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  const { data, more } = (await stage.manage("GET", `/accounts/${accountId}/refusals`)).body;
  expect(more).toBe(false);
  const counts = data.map((one: { count: number }) => one.count);
  expect(counts.reduce((sum: number, count: number) => sum + count, 0)).toBe(3);
  for (const one of data) {
    expect(one).toMatchObject({ key_id: keyId, outcome: "rate_limited" });
    expect(Date.parse(one.hour) % 3_600_000).toBe(0);
  }
});

// Guarantee: no refusal is out of reach, however many there are.
test("all refusals of an account come once each, latest first, page by page; of one key alone, too", async () => {
  const accountId = await stage.givenAccount();
  const dayMs = Math.floor(Date.now() / 86_400_000 - 1) * 86_400_000;
  const day = new Date(dayMs).toISOString().slice(0, 10);
  const refusals = times(150, (n) => ({
    accountId,
    keyId: `key_${n % 25}`,
    outcome: "rate_limited",
    hour: String(Math.floor(n / 25)).padStart(2, "0"),
    count: 1 + (n % 3),
  }));
  const partition = partitionOf(accountId, await partitionsOf(oneNode(redis.client)));
  await scriptsOf(redis.client).run(refused, { partition, day, refusals });
  const path = `/accounts/${accountId}/refusals`;
  const rows: { hour: string; key_id: string; count: number }[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const next: string = cursor ? `&cursor=${cursor}` : "";
    const { body } = await stage.manage("GET", `${path}?limit=40${next}`);
    expect(body).toMatchObject({ more: body.next_cursor !== null, uncounted: 0 });
    rows.push(...body.data);
    cursor = body.next_cursor;
  }
  const shown = rows.map(({ hour, key_id, count }) => `${hour.slice(0, 13)} ${key_id} ${count}`).sort();
  expect(shown).toEqual(refusals.map(({ hour, keyId, count }) => `${day}T${hour} ${keyId} ${count}`).sort());
  const hours = rows.map(({ hour }) => hour);
  expect(hours).toEqual([...hours].sort().reverse());
  const ofTime = async (from: string, to: string): Promise<string[]> => {
    const { data } = (await stage.manage("GET", `${path}?limit=100&from=${from}&to=${to}`)).body;
    return [...new Set<string>(data.map(({ hour }: { hour: string }) => hour.slice(11, 13)))];
  };
  expect(await ofTime(`${day}T02:03:00Z`, `${day}T02:04:00Z`)).toEqual(["02"]);
  expect(await ofTime(`${day}T01:59:59Z`, `${day}T03:00:00Z`)).toEqual(["02", "01"]);
  expect(await ofTime(`${day}T02:00:00Z`, `${day}T03:00:01Z`)).toEqual(["03", "02"]);
  expect(await ofTime(`${day}T04:00:00Z`, day)).toEqual(["05", "04"]);
  expect(await ofTime("2020-01-01", new Date(dayMs - 1).toISOString())).toEqual([]);
  expect((await stage.manage("GET", `${path}?from=2026-10-03&to=2026-10-01`)).status).toBe(400);
  const ofOne = (await stage.manage("GET", `${path}?key_id=key_7`)).body;
  expect(ofOne.data.map(({ key_id }: { key_id: string }) => key_id)).toEqual(times(6, () => "key_7"));
  const { next_cursor } = (await stage.manage("GET", `${path}?limit=1`)).body;
  expectStatus(await stage.manage("GET", `${path}?key_id=key_7&cursor=${next_cursor}`), 400);
  const token = await stage.givenToken(["usage:read"], { accounts: [accountId] });
  expect((await stage.manage("GET", path, { token })).body.uncounted).toBeNull();
});

// Guarantee: keys that fell to the limits of another tier are seen without the log.
test("tiers that keys use and that the configuration does not name are listed with how many keys use them", async () => {
  await stage.gateway.givenKey({ tier: "silver" });
  await stage.gateway.givenKey({ tier: "gold" });
  await stage.gateway.givenKey({ tier: "gold" });
  const missing = async (token?: string) =>
    (await stage.manage("GET", "/tiers", token ? { token } : {})).body.missing;
  await until(async () => (await missing())?.length > 1, "the keys to be counted");
  expect(await missing()).toEqual([
    { tier: "gold", keys: 2 },
    { tier: "silver", keys: 1 },
  ]);
  const accounts = [await stage.givenAccount()];
  expect(await missing(await stage.givenToken(["accounts:read"], { accounts }))).toBeNull();
});

test("the overview counts what is charged, refunded and granted today, a moment later", async () => {
  const moneyNow = async () => (await stage.manage("GET", "/overview")).body.money;
  const before = await moneyNow();
  const { key } = await stage.gateway.givenKey({ credits: 500 });
  expectStatus(await generate(key), 200);
  // Requests of the tests before may be counted meanwhile, too; a count never goes down.
  await until(async () => {
    const { today, month } = await moneyNow();
    return [today, month].every(
      (now, at) =>
        now.charged >= before[at === 0 ? "today" : "month"].charged + 10 &&
        now.trials >= before[at === 0 ? "today" : "month"].trials + 500,
    );
  }, "the charge and the grant in today's and the month's money");
});

test("open requests are those older than asked for, with what their release needs", async () => {
  const { key, accountId } = await stage.gateway.givenKey({ credits: 100 });
  const taskId = (await generate(key)).body.data.task_id;
  const read = async () => (await stage.manage("GET", "/open-requests")).body;
  const ownIn = ({ data }: { data: { task_id: string }[] }) => data.find((one) => one.task_id === taskId);
  // One read is shared for three seconds.
  await until(async () => ownIn(await read()) !== undefined, "the open request");
  const view = await read();
  expect([view.complete, view.old]).toEqual([true, view.open]);
  const ages = view.data.map((one: { age_seconds: number }) => one.age_seconds);
  expect(ages).toEqual([...ages].sort((a, b) => b - a));
  expect(ownIn(view)).toMatchObject({ account_id: accountId, state: "bound", price: 10 });
  const none = (await stage.manage("GET", "/open-requests?older_than_seconds=31536000")).body;
  expect(none).toMatchObject({ data: [], old: 0 });
  for (const seconds of ["-1", "31536001", "1.5", "x"]) {
    expectStatus(await stage.manage("GET", `/open-requests?older_than_seconds=${seconds}`), 400, seconds);
  }
});

test("the overview has all gateways, and the configuration the hash of each", async () => {
  const overview = async () => (await stage.manage("GET", "/overview")).body;
  await until(async () => (await overview()).gateways.length > 0, "a gateway that has reported");
  const { gateways, ledger } = await overview();
  expect(gateways[0]).toMatchObject({ ready: true, settlements_waiting: 0 });
  expect([null, true]).toContain(ledger.right);
  const { config_hash, config, file, gateways: hashes } = (await stage.manage("GET", "/configuration")).body;
  expect(config_hash).toMatch(/^[0-9a-f]{16}$/);
  expect(hashes.length).toBeGreaterThan(0);
  expect(file).toMatchObject({ differs: [], problem: null });
  expect(config).toHaveProperty("prices");
  expect(JSON.stringify(config)).not.toContain("correct-horse-battery-staple");
});

test("search finds accounts, keys, tasks and requests by their ids, and takes no secret", async () => {
  const { key, keyId, accountId } = await stage.gateway.givenKey();
  const answer = await generate(key);
  const search = async (q: string, token?: string) =>
    stage.manage("GET", `/search?q=${encodeURIComponent(q)}`, token ? { token } : {});
  const taskId = answer.body.data.task_id;
  const requestId = answer.headers.get("x-request-id")!;
  for (const [kind, id] of [
    ["account", accountId],
    ["key", keyId],
    ["task", taskId],
    ["request", requestId],
  ] as const) {
    const found = await search(id);
    expectShape(found, schemas.SearchResults, kind);
    expect(found.body.data).toEqual([
      { kind, id, account_id: accountId, key_id: null, metadata: null, label: null },
    ]);
  }
  expect((await search("nobody-at-all")).body).toMatchObject({ data: [], complete: true });
  const [label, reference] = [`Film ${accountId}`, `invoice ${accountId}`];
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { label } });
  await stage.manage("POST", `/accounts/${accountId}/grants`, { body: { credits: 1, reference } });
  const account = {
    kind: "account",
    id: accountId,
    account_id: accountId,
    key_id: null,
    metadata: null,
    label,
  };
  expect((await search(label.slice(0, -3).toUpperCase())).body.data).toEqual([account]);
  const referred = {
    kind: "reference",
    id: reference,
    account_id: accountId,
    key_id: null,
    metadata: null,
    label: null,
  };
  expect((await search(reference)).body.data).toEqual([referred]);
  // Guarantee: what stands inside a label, a reference or metadata is found, and each as what it is.
  const secondWord = accountId.slice(0, -1);
  const crm = `crm ${accountId}`;
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { metadata: { crm: `lead ${crm}` } } });
  await stage.manage("PATCH", `/accounts/${accountId}/keys/${keyId}`, {
    body: { label: `The ${accountId}` },
  });
  expect((await search(crm)).body.data).toEqual([{ ...account, metadata: `crm: lead ${crm}` }]);
  expect((await search(secondWord)).body.data).toEqual(
    expect.arrayContaining([
      account,
      referred,
      { ...account, kind: "key", id: keyId, label: `The ${accountId}` },
    ]),
  );
  // Guarantee: a token finds nothing of what it may not read.
  for (const [scope, kinds] of [
    ["keys:read", ["account", "key"]],
    ["tasks:read", ["account", "request", "task"]],
    ["credits:read", ["account", "reference"]],
  ] as const) {
    const token = await stage.givenToken(["accounts:read", scope]);
    const all = await Promise.all([secondWord, keyId, taskId, requestId].map((id) => search(id, token)));
    const seen = new Set(all.flatMap(({ body }) => body.data.map((one: { kind: string }) => one.kind)));
    expect([...seen].sort()).toEqual(kinds);
  }
  const secret = await search(key);
  expect([secret.status, JSON.stringify(secret.body).includes(key)]).toEqual([400, false]);
  // Guarantee: a token for one customer learns nothing of the others.
  const other = await stage.givenToken(["accounts:read"], { accounts: [await stage.givenAccount()] });
  for (const id of [accountId, keyId, taskId, label, reference])
    expect((await search(id, other)).body.data).toEqual([]);
  expectStatus(await stage.manage("GET", "/search"), 400);
});

// Guarantee: the id that a customer names, and the reference that a bank does, lead to the entry.
test("a transaction is found by the id that customers see, and is listed alone by it and by its reference", async () => {
  const accountId = await stage.givenAccount(100);
  const path = `/accounts/${accountId}/transactions`;
  const reference = `invoice ${accountId}`;
  const grant = { credits: 7, reference };
  const { id } = (await stage.manage("POST", `/accounts/${accountId}/grants`, { body: grant })).body;
  await stage.manage("POST", `/accounts/${accountId}/grants`, { body: { credits: 8, reference: "last" } });
  const found = await stage.manage("GET", `/search?q=${id}`);
  expectShape(found, schemas.SearchResults, "search");
  expect(found.body.data).toEqual([
    { kind: "transaction", id, account_id: accountId, key_id: null, metadata: null, label: null },
  ]);
  const listed = async (query: string): Promise<string[]> => {
    const { body } = await stage.manage("GET", `${path}?${query}`);
    expect(body.next_cursor).toBeNull();
    return body.data.map((one: { id: string }) => one.id);
  };
  const byReference = `reference=${encodeURIComponent(reference)}`;
  for (const query of [`id=${id}`, byReference, `id=${id}&${byReference}&kind=purchase`])
    expect(await listed(query), query).toEqual([id]);
  for (const query of ["reference=invoice", "id=txn_1_1-1", "id=txn_99999", `id=${id}&kind=charge`])
    expect(await listed(query), query).toEqual([]);
  const other = await stage.givenAccount();
  const ofOther = await stage.manage("GET", `/accounts/${other}/transactions?id=${id}`);
  expect(ofOther.body.data).toEqual([]);
  expectStatus(await stage.manage("GET", `/accounts/nobody-at-all/transactions?id=${id}`), 404);
  const { next_cursor } = (await stage.manage("GET", `${path}?limit=1`)).body;
  expectStatus(await stage.manage("GET", `${path}?id=${id}&cursor=${next_cursor}`), 400);
  // Guarantee: a token for one customer learns nothing of the others.
  const token = await stage.givenToken(["accounts:read"], { accounts: [other] });
  expect((await stage.manage("GET", `/search?q=${id}`, { token })).body.data).toEqual([]);
});

test("a token is found by its id by those who may list it, and is listed alone by it", async () => {
  const [accountId, other] = [await stage.givenAccount(), await stage.givenAccount()];
  const scopes = ["accounts:read", "keys:read", "tokens:write"];
  const body = { label: "shop", scopes: ["keys:read"], accounts: [accountId] };
  const { token_id: id } = (await stage.manage("POST", "/tokens", { body })).body;
  const found = async (token: string) => (await stage.manage("GET", `/search?q=${id}`, { token })).body.data;
  const shown = [{ kind: "token", id, account_id: null, key_id: null, metadata: null, label: "shop" }];
  const listed = async (token: string) =>
    (await stage.manage("GET", `/tokens?token_id=${id}`, { token })).body.data;
  for (const accounts of [null, [accountId]]) {
    const token = await stage.givenToken(scopes, { accounts });
    expect(await found(token)).toEqual(shown);
    expect(await listed(token)).toMatchObject([{ token_id: id }]);
  }
  expect(await found(await stage.givenToken(["accounts:read"]))).toEqual([]);
  const foreign = await stage.givenToken(scopes, { accounts: [other] });
  const lesser = await stage.givenToken(["accounts:read", "tokens:write"]);
  for (const token of [foreign, lesser]) expect([await found(token), await listed(token)]).toEqual([[], []]);
});

test("an audit record is found by its id by those who may list it, and is listed alone by it", async () => {
  const [accountId, other] = [await stage.givenAccount(), await stage.givenAccount()];
  const label = { body: { label: "shop" } };
  await stage.manage("PATCH", `/accounts/${accountId}`, label);
  const of = `account_id=${accountId}`;
  const [record, earlier] = (await stage.manage("GET", `/audit?${of}`)).body.data;
  const id = record.audit_id;
  const found = async (token: string, q = id) =>
    (await stage.manage("GET", `/search?q=${q}`, { token })).body.data;
  const scopes = ["accounts:read", "audit:read"];
  const all = await stage.givenToken(scopes);
  const listed = async (query: string, token = all) => stage.manage("GET", `/audit?${query}`, { token });
  for (const accounts of [null, [accountId]]) {
    const token = await stage.givenToken(scopes, { accounts });
    expect(await found(token)).toEqual([
      { kind: "audit", id, account_id: accountId, key_id: null, metadata: null, label: null },
    ]);
    expect((await listed(`${of}&audit_id=${id}`, token)).body).toEqual({ data: [record], next_cursor: null });
  }
  expect((await listed(`audit_id=${id}`)).body.data).toEqual([record]);
  expect((await listed(`audit_id=${earlier.audit_id}`)).body.data).toEqual([earlier]);
  expect((await listed(`audit_id=${id}&account_id=${other}`)).body.data).toEqual([]);

  expect(await found(await stage.givenToken(["accounts:read"]))).toEqual([]);
  const foreign = await stage.givenToken(scopes, { accounts: [other] });
  expect(await found(foreign)).toEqual([]);
  expect((await listed(`audit_id=${id}`, foreign)).status).toBe(403);
  expect((await listed(`account_id=${other}&audit_id=${id}`, foreign)).body.data).toEqual([]);

  const [partition, streamId] = id.slice(4).split("_");
  for (const none of [
    `aud_9999_${streamId}`,
    `aud_${partition}_0-1`,
    `aud_${partition}_+`,
    `aud_${partition}_`,
  ]) {
    expect([none, await found(all, encodeURIComponent(none))]).toEqual([none, []]);
    expect((await listed(`audit_id=${encodeURIComponent(none)}`)).body.data).toEqual([]);
  }
  expect((await listed(`audit_id=${id}&cursor=x`)).status).toBe(400);
});

test("while Redis is away the views say so, and the live figures go on", async () => {
  const alone = await givenGateway({
    config: { admin: { token: "correct-horse-battery-staple" } },
    redisUrl: "redis://127.0.0.1:1",
  });
  try {
    const headers = { authorization: "Bearer correct-horse-battery-staple" };
    const read = async (path: string) => fetch(`${alone.adminUrl}/manage/v1${path}`, { headers });
    const away = await read("/top-keys");
    expect(away.status).toBe(503);
    expect(await away.json()).toMatchObject({ code: "unavailable" });
    const live = await read("/live");
    expect(await live.json()).toMatchObject({ gateway: { not_ready: "the store is unusable" } });
  } finally {
    await alone.stop();
  }
});
