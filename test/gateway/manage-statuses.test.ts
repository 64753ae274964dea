import { afterAll, beforeAll, expect, test } from "vitest";
import { BODY_EXAMPLES } from "../../src/admin/api/examples.ts";
import { ROUTES } from "../../src/admin/api/routes.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenWebhookStage } from "../support/webhook-stage.ts";
import type { ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: what each route of the management API does for an account that may not spend is decided, and stated here once.

const STATUSES = ["capped", "suspended", "closed"] as const;
type Status = (typeof STATUSES)[number];

/** The answer of a route: a status of success, or the code of a problem; for a closed account the second, if it is another. */
const OUTCOMES: Record<string, string | [string, string]> = {
  "GET /accounts": "200",
  "POST /accounts": "account_exists",
  "GET /accounts/{account}": "200",
  "POST /accounts/{account}/keys": ["201", "account_closed"],
  "POST /accounts/{account}/keys/import": ["201", "account_closed"],
  "GET /accounts/{account}/keys": "200",
  "GET /accounts/{account}/keys/{key}": "200",
  "POST /keys/lookup": "200",
  "PATCH /accounts/{account}/keys/{key}": "200",
  "GET /accounts/{account}/keys/{key}/refusals": "200",
  "GET /accounts/{account}/transactions": "200",
  "GET /transactions": "200",
  "POST /accounts/{account}/grants": ["201", "account_closed"],
  "POST /accounts/{account}/adjustments": "201",
  "POST /accounts/{account}/reversals": "201",
  "POST /corrections": "200",
  "GET /accounts/{account}/tasks": "200",
  "GET /tasks/{task}": "200",
  "GET /tasks/{task}/transactions": "200",
  "POST /tasks/{task}/release": "200",
  "POST /tasks/{task}/refund": "201",
  "GET /accounts/{account}/usage": "200",
  "GET /usage": "200",
  "GET /top-accounts": "200",
  "POST /accounts/{account}/webhooks": ["201", "account_closed"],
  "GET /accounts/{account}/webhooks": "200",
  "GET /accounts/{account}/webhooks/{webhook}": "200",
  "PATCH /accounts/{account}/webhooks/{webhook}": ["200", "account_closed"],
  "POST /accounts/{account}/webhooks/{webhook}/test": ["201", "account_closed"],
  "GET /accounts/{account}/webhooks/{webhook}/deliveries": "200",
  "POST /accounts/{account}/webhooks/{webhook}/deliveries/{delivery}/redeliver": ["200", "account_closed"],
  "POST /webhooks/reseal": "200",
  "GET /sales": "200",
  "GET /statements": "200",
  "GET /statements/total": "200",
  "GET /accounts/{account}/statements/{month}": "200",
  "GET /packages": "200",
  "GET /prices": "200",
  "GET /tiers": "200",
  "POST /prices/quote": "200",
  "GET /whoami": "200",
  "POST /tokens": "201",
  "GET /tokens": "200",
  "GET /audit": "200",
  "GET /accounts/{account}/timeline": "200",
  "GET /maintenance": "200",
  "PUT /maintenance": "200",
  "GET /live": "200",
  "GET /health": "200",
  "GET /overview": "200",
  "GET /configuration": "200",
  "GET /search": "200",
  "GET /top-keys": "200",
  "GET /refusals": "200",
  "GET /open-requests": "200",
  "GET /accounts/{account}/use": "200",
  "GET /accounts/{account}/refusals": "200",
  "GET /openapi.json": "200",
  "POST /accounts/{account}/webhooks/{webhook}/rotate-secret": ["200", "account_closed"],
  "DELETE /accounts/{account}/webhooks/{webhook}": "200",
  "POST /accounts/{account}/keys/{key}/rotate": ["201", "account_closed"],
  "POST /accounts/{account}/keys/{key}/revoke": "200",
  "POST /tokens/{token}/revoke": "200",
  "PATCH /accounts/{account}": "200",
};

/** These end what others need, so they are called last. */
const LAST = [
  "rotateWebhookSecret",
  "deleteWebhook",
  "rotateKey",
  "revokeKey",
  "revokeToken",
  "changeAccount",
];

let redis: TestRedis;
let stage: ManageStage;
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenWebhookStage({ redisUrl: redis.url });
});
afterAll(async () => {
  await stage.stop();
  await redis.stop();
});

/** An account of this status with all that routes name, and the ids of it by their names in paths. */
async function givenAccountOf(status: Status) {
  const account = `acme-${status}`;
  const post = async (path: string, body: object) => (await stage.manage("POST", path, { body })).body;
  await post("/accounts", { account_id: account });
  await post(`/accounts/${account}/grants`, { credits: 1000, reference: "first" });
  const issued = await stage.givenKey(account);
  const generate = () => stage.gateway.request("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
  const task = (await generate()).body.data.task_id;
  await expect
    .poll(async () => {
      await stage.gateway.request("GET", `/api/v1/tasks/${task}`, { key: issued.key });
      return (await stage.manage("GET", `/tasks/${task}`)).body.status;
    })
    .toBe("completed");
  const webhook = (await post(`/accounts/${account}/webhooks`, BODY_EXAMPLES.createWebhook!)).id;
  const delivery = (await post(`/accounts/${account}/webhooks/${webhook}/test`, {})).id;
  const token = (await post("/tokens", { label: account, scopes: ["usage:read"], accounts: [account] }))
    .token_id;
  const change =
    status === "capped"
      ? stage.manage("PATCH", `/accounts/${account}/keys/${issued.key_id}`, { body: { monthly_credits: 1 } })
      : stage.manage("PATCH", `/accounts/${account}`, { body: { status } });
  expect((await change).status).toBe(200);
  expect((await generate()).status).toBe(status === "capped" ? 402 : 403);
  return {
    account,
    key: issued.key_id as string,
    secret: issued.key as string,
    task,
    webhook,
    delivery,
    token,
    month: "2026-10",
  };
}

type Ids = Awaited<ReturnType<typeof givenAccountOf>>;

/** Bodies that name the account, or differ from the example in the description. */
const bodyOf = (name: string, { account, secret }: Ids): object | undefined => {
  const own: Record<string, object> = {
    createAccount: { account_id: account },
    importKey: { key: `sk_live_of_${account}` },
    lookUpKey: { key: secret },
    grantCredits: { credits: 5, reference: "order-1" },
    adjustCredits: { amount: -2, reason: "r", reference: "adjusted" },
    reverseGrant: { of: "first", reference: "back", reason: "r", amount: 1 },
    correctCharges: { ...BODY_EXAMPLES.correctCharges, reference: `wrong-${account}` },
    quotePrice: { ...BODY_EXAMPLES.quotePrice, account_id: account },
    changeWebhook: { label: "shop" },
    refundTask: { reason: "r", reference: "refunded" },
    changeAccount: { label: "Acme" },
  };
  return own[name] ?? BODY_EXAMPLES[name];
};

/** Query parameters that a call must have. */
const QUERIES: Record<string, (ids: Ids) => string> = {
  q: ({ account }) => account,
  month: ({ month }) => month,
};

const nameOf = ({ method, path }: { method: string; path: string }): string => `${method} ${path}`;

test.each(STATUSES)("each route for an account that is %s", async (status) => {
  const ids = await givenAccountOf(status);
  const found: Record<string, string> = {};
  const sorted = [...ROUTES].sort((one, other) => LAST.indexOf(one.name) - LAST.indexOf(other.name));
  for (const route of sorted) {
    const target = route.path.replaceAll(/\{(\w+)\}/g, (_, part: string) => ids[part as keyof Ids]);
    const query = (route.query.required ?? []).map((part) => `${part}=${QUERIES[part]!(ids)}`).join("&");
    const body = bodyOf(route.name, ids);
    const reply = await stage.manage(route.method, query === "" ? target : `${target}?${query}`, {
      ...(body && { body }),
      headers: route.needsIdempotencyKey ? { "Idempotency-Key": `another-${ids.account}` } : {},
    });
    found[nameOf(route)] = reply.status < 300 ? String(reply.status) : reply.body.code;
  }
  const stated = Object.entries(OUTCOMES).map(([name, outcome]) => {
    const [usual, closed] = Array.isArray(outcome) ? outcome : [outcome, outcome];
    return [name, status === "closed" ? closed : usual];
  });
  expect(found).toEqual(Object.fromEntries(stated));
});
