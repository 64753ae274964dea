import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Grants of several kinds, reversals and statements, as a company's backend uses them.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

const post = (accountId: string, what: string, body: object) =>
  stage.manage("POST", `/accounts/${accountId}/${what}`, { body });
const month = new Date().toISOString().slice(0, 7);

test("a sale, a trial and goodwill are told apart, taken back once, and in the month's statement", async () => {
  const accountId = await stage.givenAccount();
  const order = { package: "basic", reference: "order-1", metadata: { invoice: "17" } };
  const sold = await post(accountId, "grants", order);
  expect(sold).toMatchObject({
    status: 201,
    body: {
      ...{ kind: "purchase", amount: 100, balance: 100, package: "basic", package_price: "9.90" },
      ...{ package_currency: "USD", amount_paid: "9.90", currency: "USD", metadata: { invoice: "17" } },
    },
  });
  expect(await post(accountId, "grants", order)).toMatchObject({ status: 200, body: { id: sold.body.id } });
  const paid = { credits: 30, reference: "order-2", amount_paid: "90", currency: "USD" };
  expect(await post(accountId, "grants", paid)).toMatchObject({
    status: 201,
    body: { amount_paid: "90.00" },
  });
  for (const [kind, credits] of [
    ["trial", 20],
    ["goodwill", 7],
  ] as const)
    expect(await post(accountId, "grants", { credits, kind, reference: kind })).toMatchObject({
      status: 201,
      body: { kind, amount: credits },
    });
  const back = { of: "order-1", reference: "back-1", reason: "money back", amount: 120 };
  const reversed = await post(accountId, "reversals", back);
  expect(reversed).toMatchObject({
    status: 201,
    body: {
      ...{ type: "consume", kind: "reversal", amount: -100, of: "order-1", requested: 120, reversed: 100 },
      ...{ reason: "money back", reference: "back-1", balance: 57 },
    },
  });
  expect(await post(accountId, "reversals", back)).toMatchObject({ status: 200, body: reversed.body });
  expect(await post(accountId, "reversals", { ...back, amount: 1 })).toMatchObject({
    status: 409,
    body: { code: "reference_mismatch" },
  });
  expect(await post(accountId, "reversals", { ...back, reference: "back-2" })).toMatchObject({
    status: 409,
    body: { code: "nothing_left" },
  });
  const expected = {
    ...{ account_id: accountId, month, opening: 0, purchases: 130, trials: 20, goodwill: 7, charges: 0 },
    ...{ refunds: 0, adjustments: 0, reversals: 100, closing: 57, amounts_paid: { USD: "99.90" } },
    ...{ source: "redis", since: null, until: null },
  };
  const path = `/accounts/${accountId}/statements/${month}`;
  expect(await stage.manage("GET", path)).toMatchObject({ status: 200, body: expected });
  const csv = await fetch(`${stage.gateway.adminUrl}/manage/v1${path}`, {
    headers: { authorization: `Bearer ${await stage.givenToken(["usage:read"])}`, accept: "text/csv" },
  });
  expect(csv.headers.get("content-type")).toBe("text/csv; charset=utf-8; header=present");
  expect((await csv.text()).split("\r\n")).toEqual([
    "account_id,month,opening,purchases,trials,goodwill,charges,refunds,adjustments,reversals,closing,amounts_paid,source,since,until",
    `"${accountId}","${month}",0,130,20,7,0,0,0,100,57,"USD 99.90","redis",,`,
    "",
  ]);
  const { body: list } = await stage.manage("GET", `/accounts/${accountId}/transactions?kind=reversal`);
  expect(list.data).toMatchObject([{ id: reversed.body.id, of: "order-1", reversed: 100 }]);
});

test("statements of all accounts come in pages, as JSON and CSV, and a token sees its own accounts", async () => {
  const accounts = [
    await stage.givenAccount(5),
    await stage.givenAccount(6),
    await stage.givenAccount(7),
  ].sort();
  const token = await stage.givenToken(["usage:read"], { accounts });
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const next: string = cursor === undefined ? "" : `&cursor=${cursor}`;
    const { status, body } = await stage.manage("GET", `/statements?month=${month}&limit=2${next}`, {
      token,
    });
    expect(status).toBe(200);
    seen.push(...body.data.map((one: { account_id: string }) => one.account_id));
    cursor = body.next_cursor ?? undefined;
  } while (cursor !== undefined);
  expect(seen).toEqual(accounts);
  const headers = { authorization: `Bearer ${token}`, accept: "text/csv;q=0.9, application/json;q=0.1" };
  const url = `${stage.gateway.adminUrl}/manage/v1/statements?month=${month}&limit=2`;
  const csv = await fetch(url, { headers });
  expect((await csv.text()).split("\r\n")).toHaveLength(4);
  const after = csv.headers.get("x-next-cursor");
  expect((await (await fetch(`${url}&cursor=${after}`, { headers })).text()).split("\r\n")).toHaveLength(3);
  const all = await stage.manage("GET", `/statements?month=${month}&limit=100`);
  expect(all.body.data.length).toBeGreaterThanOrEqual(3);
  const refused = await fetch(url, { headers: { ...headers, accept: "text/csv;q=0" } });
  expect(refused.headers.get("content-type")).toContain("application/json");
});

test.each([
  ["GET", "/statements?month=2026-13", undefined, 400, "invalid_month"],
  ["GET", "/statements?month=2026-02-30", undefined, 400, "invalid_month"],
  ["GET", "/statements", undefined, 400, "invalid_month"],
  ["GET", "/accounts/{account}/statements/soon", undefined, 400, "invalid_month"],
  ["GET", "/accounts/none-such/statements/2026-01", undefined, 404, "not_found"],
  ["POST", "/accounts/{account}/grants", { package: "gold", reference: "r" }, 400, "unknown_package"],
  ["POST", "/accounts/{account}/grants", { credits: 5, kind: "gift", reference: "r" }, 400, "invalid"],
  [
    ...(["POST", "/accounts/{account}/grants"] as const),
    { credits: 5, amount_paid: "9.999", reference: "r" },
    400,
    "invalid_money",
  ],
  [
    "POST",
    "/accounts/{account}/grants",
    { credits: 5, amount_paid: 9.9, reference: "r" },
    400,
    "invalid_money",
  ],
  [
    "POST",
    "/accounts/{account}/reversals",
    { of: "none", reference: "r", reason: "r" },
    404,
    "grant_not_found",
  ],
  ["POST", "/accounts/{account}/reversals", { of: "first", reference: "r" }, 400, "invalid"],
  [
    "POST",
    "/accounts/{account}/reversals",
    { of: "first", reference: "r", reason: "r", amount: -1 },
    400,
    "invalid",
  ],
  [
    "POST",
    "/accounts/{account}/reversals",
    { of: "first", reference: "first", reason: "r" },
    409,
    "reference_used",
  ],
  ["POST", "/accounts/{account}/grants", { credits: 6, reference: "first" }, 409, "reference_mismatch"],
  [
    "POST",
    "/accounts/{account}/adjustments",
    { amount: -6, reason: "r", reference: "r" },
    409,
    "insufficient_balance",
  ],
  ["POST", "/accounts", { account_id: "{account}" }, 409, "account_exists"],
] as const)("%s %s with %j is %i %s, and nothing is changed", async (method, path, body, status, code) => {
  const accountId = await stage.givenAccount(5);
  const filled = JSON.parse(JSON.stringify(body ?? {}).replace("{account}", accountId));
  const request = method === "GET" ? {} : { body: filled };
  const reply = await stage.manage(method, path.replace("{account}", accountId), request);
  expect(reply).toMatchObject({ status, body: { code } });
  expect((await stage.manage("GET", `/accounts/${accountId}`)).body).toMatchObject({ balance: 5 });
});

test("a closed account is refused credits and keys with its own code, and an Idempotency-Key another body", async () => {
  const accountId = await stage.givenAccount(5);
  const headers = { "Idempotency-Key": randomUUID() };
  const keys = `/accounts/${accountId}/keys`;
  await stage.manage("POST", keys, { headers, body: {} });
  expect(await stage.manage("POST", keys, { headers, body: { label: "other" } })).toMatchObject({
    status: 409,
    body: { code: "idempotency_mismatch" },
  });
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { status: "closed" } });
  expect(await post(accountId, "grants", { credits: 5, reference: "second" })).toMatchObject({
    status: 409,
    body: { code: "account_closed" },
  });
  const fresh = { "Idempotency-Key": randomUUID() };
  expect(await stage.manage("POST", keys, { headers: fresh, body: {} })).toMatchObject({
    status: 409,
    body: { code: "account_closed" },
  });
  expect(await post(accountId, "reversals", { of: "first", reference: "b", reason: "r" })).toMatchObject({
    status: 201,
  });
});

test("packages show what they cost", async () => {
  const { body } = await stage.manage("GET", "/packages");
  expect(body.data).toContainEqual({ package: "premium", credits: 500, price: "39.90", currency: "USD" });
});
