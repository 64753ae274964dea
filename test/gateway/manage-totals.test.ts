import { afterAll, beforeAll, expect, test } from "vitest";
import { topAccounts } from "../../src/operations/accounts/top-accounts.ts";
import { partitionOf, spentName } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, PRO_TEXT_TO_VIDEO, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Lists over all accounts are those of a whole store: one that no other test writes to.

let redis: TestRedis;
let stage: ManageStage;
/** Charges of each account, in the order of their ids. */
const SPENT: Record<string, number> = { anna: 10, bert: 160, cleo: 20 };
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenManageStage({ redisUrl: redis.url });
  const ask = stage.gateway.request;
  for (const [account, paths] of [
    ["anna", [TEXT_TO_VIDEO]],
    ["bert", [TEXT_TO_VIDEO, PRO_TEXT_TO_VIDEO]],
    ["cleo", [TEXT_TO_VIDEO, TEXT_TO_VIDEO]],
  ] as const) {
    await stage.manage("POST", "/accounts", { body: { account_id: account, label: account.toUpperCase() } });
    const body = { credits: 300, reference: "first" };
    await stage.manage("POST", `/accounts/${account}/grants`, { body });
    const { key } = await stage.givenKey(account, { limits: { rate_limit: 9 } });
    for (const path of paths) expectStatus(await ask("POST", path, { key, body: BOAT }), 200);
  }
  const ofAnna = await stage.givenKey("anna", { limits: { rate_limit: 0 } });
  for (let nth = 0; nth < 3; nth++)
    expectStatus(await ask("POST", TEXT_TO_VIDEO, { key: ofAnna.key, body: BOAT }), 429);
  await until(async () => (await top("by=spend")).length === 3, "the roll-up");
  await until(async () => (await top("by=refusals")).length === 1, "the counts of refusals");
});
afterAll(async () => {
  await stage.stop();
  await redis.stop();
});

const get = async (path: string, token?: string) => {
  const reply = await stage.manage("GET", path, token === undefined ? {} : { token });
  expectStatus(reply, 200, path);
  return reply.body;
};
const top = async (query: string) => (await get(`/top-accounts?${query}`)).data;
const today = new Date().toISOString().slice(0, 10);

/** All rows of a list, in pages of two. */
async function allOf(path: string): Promise<Record<string, unknown>[]> {
  const rows = [];
  for (let cursor = ""; ; ) {
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=2${cursor}`);
    rows.push(...page.data);
    if (page.next_cursor === null) return rows;
    cursor = `&cursor=${page.next_cursor}`;
  }
}

test("rows of accounts say what is left and what was spent", async () => {
  const rows = await allOf("/accounts?sort=balance");
  expect(rows.map((row) => [row.account_id, row.balance, row.spent_today, row.spent_7d])).toEqual([
    ["bert", 140, 160, 160],
    ["cleo", 280, 20, 20],
    ["anna", 290, 10, 10],
  ]);
  expect((await allOf("/accounts?balance_below=285")).map((row) => row.account_id)).toEqual(["bert", "cleo"]);
  expect((await allOf("/accounts?sort=-spent_today")).map((row) => row.account_id)).toEqual([
    ...["bert", "cleo", "anna"],
  ]);
});

test("usage of all accounts by day, month, endpoint, account and key adds up to the same", async () => {
  const total = 190;
  const month = today.slice(0, 7);
  const { data, source, since } = await get(`/usage?from=${today}`);
  expect([source, since]).toEqual(["redis", null]);
  expect(data).toMatchObject([{ day: today, requests: 5, credits: total }]);
  expect((await get("/usage?group_by=month")).data).toMatchObject([{ month, credits: total }]);
  expect((await get("/usage?group_by=endpoint")).data).toMatchObject([
    { endpoint: PRO_TEXT_TO_VIDEO, credits: 150 },
    { endpoint: TEXT_TO_VIDEO, credits: 40 },
  ]);
  const byAccount = await allOf("/usage?group_by=month,account");
  expect(byAccount).toMatchObject(
    Object.entries(SPENT).map(([account_id, credits]) => ({ account_id, month, credits })),
  );
  const byAll = await allOf("/usage?group_by=account,day,endpoint,key");
  expect(byAll).toHaveLength(4);
  expect(byAll.reduce((sum, { credits }) => sum + Number(credits), 0)).toBe(total);
  expect((await get("/usage?from=2020-01-01&to=2020-01-31")).data).toEqual([]);
});

test("transactions of all accounts come newest first, by type and time", async () => {
  const rows = await allOf("/transactions");
  expect(rows).toHaveLength(8);
  expect(rows.map(({ created_at: at }) => at)).toEqual(
    rows
      .map(({ created_at: at }) => at)
      .sort()
      .reverse(),
  );
  expect(rows.at(-1)).toMatchObject({ account_id: "anna", type: "recharge", amount: 300 });
  expect(await allOf("/transactions?type=recharge")).toHaveLength(3);
  expect(await allOf(`/transactions?from=${today}&type=consume`)).toHaveLength(5);
  expect(await allOf("/transactions?to=2020-01-01")).toEqual([]);
});

test("top accounts by spend and by refusals", async () => {
  expect(await top("by=spend&limit=2")).toEqual([
    { account_id: "bert", label: "BERT", credits: 160 },
    { account_id: "cleo", label: "CLEO", credits: 20 },
  ]);
  expect(await top("by=refusals")).toEqual([{ account_id: "anna", label: "ANNA", refusals: 3 }]);
  expect(await get("/top-accounts?from=2020-01-01")).toMatchObject({
    since: expect.any(String),
    complete: true,
  });
});

// Guarantee: a list that may lack an account says so.
test("the top of several days is exact, or says that it may not be", async () => {
  const nodes = oneNode(stage.gateway.redis);
  const partition = partitionOf("anna", await partitionsOf(nodes));
  const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
  const ids = Array.from({ length: 150 }, (_, at) => `id-${at}`);
  for (const ago of [3, 4])
    await redis.client.zadd(spentName(partition, day(ago)), ...ids.flatMap((id, at) => [1000 + at, id]));
  const of = (limit: number) => topAccounts(nodes, { by: "spend", from: day(4), to: day(3), limit });
  expect((await of(10)).accounts[0]).toMatchObject({ accountId: "id-149", amount: 2298 });
  expect((await of(10)).complete).toBe(true);
  expect((await of(100)).complete).toBe(true);
  await redis.client.del(spentName(partition, day(4)));
  const others = ids.flatMap((id) => [1200, `other-${id}`]);
  await redis.client.zadd(spentName(partition, day(4)), ...others);
  expect((await of(100)).complete).toBe(false);
});

test.each([
  ["/usage?group_by=hour", 400],
  ["/usage?from=2026-02-30", 400],
  ["/usage?from=2026-03-01&to=2026-02-01", 400],
  ["/usage?cursor=abc", 400],
  ["/top-accounts?by=luck", 400],
  ["/top-accounts?from=2026-03-01&to=2026-02-01", 400],
  ["/sales?month=2026-13", 400],
  ["/transactions?from=yesterday", 400],
  ["/transactions?cursor=abc", 400],
  ["/accounts?sort=label", 400],
  ["/accounts?sort=balance&cursor=abc", 400],
  ["/accounts?balance_below=-1", 400],
])("%s is refused", async (path, status) => expectStatus(await stage.manage("GET", path), status));

// Guarantee: what is about all accounts is for nobody who may see some of them.
// Guarantee: finance's question of the month in one call, as objects and as a table.
test("what was sold this month is listed by kind, package and currency", async () => {
  const body = { package: "basic", reference: "=order", amount_paid: "9.90", currency: "USD" };
  for (const reference of ["one", "two"])
    await stage.manage("POST", "/accounts/anna/grants", { body: { ...body, reference } });
  await stage.manage("POST", "/accounts/bert/grants", {
    body: { credits: 7, kind: "goodwill", reference: "sorry" },
  });
  const month = today.slice(0, 7);
  await until(async () => (await get(`/sales?month=${month}`)).data.length === 3, "the roll-up");
  const { data, ...rest } = await get(`/sales?month=${month}`);
  const row = { package: null, currency: null, amount_paid: null };
  expect(data).toEqual([
    { ...row, kind: "goodwill", grants: 1, credits: 7 },
    { ...row, kind: "purchase", grants: 3, credits: 900 },
    {
      ...{ kind: "purchase", package: "basic", currency: "USD", grants: 2 },
      ...{ credits: expect.any(Number), amount_paid: "19.80" },
    },
  ]);
  expect(rest).toEqual({
    next_cursor: null,
    until: null,
    amounts_paid: { USD: "19.80" },
    source: "redis",
    since: null,
  });
  const csv = await fetch(`${stage.gateway.adminUrl}/manage/v1/sales?month=${month}`, {
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, accept: "text/csv" },
  });
  expect((await csv.text()).split("\r\n").slice(0, 2)).toEqual([
    "month,kind,package,currency,grants,credits,amount_paid,source,since,until",
    `"${month}","goodwill",,,1,7,,"redis",,`,
  ]);
});

test.each(["/usage", "/transactions", "/top-accounts", `/sales?month=2026-10`])(
  "%s is 403 for a token of some accounts",
  async (path) => {
    const token = await stage.givenToken(["usage:read", "credits:read", "accounts:read"], {
      accounts: ["anna"],
    });
    expectStatus(await stage.manage("GET", path, { token }), 403);
    const { data } = await get("/accounts?sort=balance", token);
    expect(data.map((row: { account_id: string }) => row.account_id)).toEqual(["anna"]);
  },
);
