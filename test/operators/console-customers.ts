import type { Static } from "typebox";
import { expect } from "vitest";
import type { Overview } from "../../src/admin/api/view-schemas.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { partitionOf, totalsName, usageName } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { type TestGateway, until } from "../support/gateway.ts";
import { TOKEN } from "./console-stage.ts";

const DAY_MS = 86_400_000;
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const BOAT = { prompt: "a boat" };

/** An account with the longest id, a long label and sums of eleven digits. */
export const LARGE = "globex-international-motion-pictures-television-and-streaming-eu";
export const LARGE_REFERENCE = "purchase order 2026/11/4711-0815 of the subsidiary in Ludwigshafen am Rhein";

const CUSTOMERS = [
  { accountId: "acme", label: "Acme Film Ltd", credits: 60_000, tier: "enterprise", busy: 1 },
  { accountId: "northwind", label: "Northwind Traders", credits: 4200, tier: "standard", busy: 0.3 },
  { accountId: "pixelworks", label: "Pixelworks Studio", credits: 900, tier: "standard", busy: 0.1 },
] as const;

/** Names in the pictures beside the accounts. */
export interface Stage {
  /** A finished task of acme that can be refunded, one that was, one that failed, and one under way. */
  completed: string;
  refunded: string;
  failed: string;
  open: string;
  /** A key of acme with a cap, nearly spent. */
  cappedKeyId: string;
  /** An endpoint of acme, where nobody answers. */
  endpointId: string;
}

/** Customers with labels, keys, some weeks of usage, and tasks, refunds and refusals of today; suspended and closed ones too. */
export async function givenCustomers(gateway: TestGateway): Promise<Stage> {
  const manage = managing(gateway);
  for (const customer of CUSTOMERS) await givenCustomer(gateway, customer);
  await manage("PATCH", "/accounts/pixelworks", { status: "suspended" });
  await manage("POST", "/accounts", { account_id: "old-times", label: "Pixelworks Classics" });
  await manage("PATCH", "/accounts/old-times", { status: "closed" });
  await givenLargeCustomer(gateway);
  await givenTokens(gateway);
  await manage("POST", "/accounts/northwind/adjustments", {
    amount: -150,
    reason: "granted twice",
    reference: "ticket 2041",
  });
  const { id: endpointId } = await manage("POST", "/accounts/acme/webhooks", {
    url: "http://127.0.0.1:9/hook",
    label: "the shop",
  });
  await manage("POST", `/accounts/acme/webhooks/${endpointId}/test`, {});
  return { ...(await givenTasks(gateway)), endpointId };
}

/** Requests to the management API as the console makes them. */
export const managing =
  (gateway: TestGateway) =>
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape.
  async (method: string, path: string, body?: object): Promise<any> => {
    const answer = await fetch(`${gateway.adminUrl}/manage/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${TOKEN}`,
        "content-type": "application/json",
        "x-tollgate-client": "console",
        "idempotency-key": path,
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    expect(answer.status, `${method} ${path}: ${answer.ok ? "" : text}`).toBeLessThan(300);
    return JSON.parse(text);
  };

async function givenCustomer(
  gateway: TestGateway,
  { accountId, label, credits, tier, busy }: (typeof CUSTOMERS)[number],
): Promise<void> {
  const manage = managing(gateway);
  await manage("POST", "/accounts", { account_id: accountId, label, metadata: { crm_id: `C-${accountId}` } });
  const production = await gateway.givenKey({
    accountId,
    label: "production",
    tier,
    credits,
    limits: {
      rate_limit: 40,
      max_concurrent: 30,
      monthly_credits: accountId === "acme" ? 90_000 : undefined,
    },
  });
  if (accountId === "acme") {
    await manage("PATCH", "/accounts/acme", { limits: { rate_limit: 300, max_concurrent: 60 } });
  }
  const staging = await gateway.givenKey({
    accountId,
    label: "staging",
    credits: 0,
    limits: { rate_limit: 3 },
    expiresAtMs: Date.now() + 90 * DAY_MS,
  });
  await seedUsage(gateway, accountId, production.keyId, busy);
  const requests = Math.ceil(30 * busy);
  for (let n = 0; n < requests; n++) {
    await gateway.request("POST", TEXT_TO_VIDEO, { key: production.key, body: BOAT });
  }
  for (let n = 0; n < 6; n++) {
    await gateway.request("POST", TEXT_TO_VIDEO, { key: staging.key, body: BOAT });
  }
}

async function givenLargeCustomer(gateway: TestGateway): Promise<void> {
  const manage = managing(gateway);
  await manage("POST", "/accounts", {
    account_id: LARGE,
    label: "Globex International Motion Pictures, Television and Streaming (Europe) GmbH & Co. KG",
    metadata: { crm_id: "0060-000000001", plan: { name: "enterprise", seats: 12_000 } },
  });
  await manage("POST", `/accounts/${LARGE}/grants`, {
    credits: 98_765_432_100,
    reference: LARGE_REFERENCE,
  });
  await manage("PATCH", `/accounts/${LARGE}`, {
    limits: { rate_limit: 120_000, max_concurrent: 25_000, daily_limit: 50_000_000 },
  });
  const { keyId } = await gateway.givenKey({
    accountId: LARGE,
    label: "Rendering farm in Frankfurt, nightly trailers for all subsidiaries and their agencies",
    credits: 0,
    limits: {
      rate_limit: 100_000,
      max_concurrent: 20_000,
      daily_limit: 20_000_000,
      monthly_credits: 40_000_000_000,
    },
  });
  await seedUsage(gateway, LARGE, keyId, 4_500_000);
  const old = await gateway.givenKey({ accountId: LARGE, label: "before the merger", credits: 0 });
  await manage("POST", `/accounts/${LARGE}/keys/${old.keyId}/revoke`, {});
}

async function givenTokens(gateway: TestGateway): Promise<void> {
  const manage = managing(gateway);
  await manage("POST", "/tokens", { label: "billing backend", scopes: ["accounts:read", "credits:write"] });
  await manage("POST", "/tokens", {
    label: "Grace Hopper, support of the night shift in Singapore",
    scopes: [
      "accounts:read",
      "keys:read",
      "credits:read",
      "tasks:read",
      "tasks:write",
      "usage:read",
      "audit:read",
    ],
    accounts: ["acme", "northwind", LARGE],
    expires_at: new Date(Date.now() + 30 * DAY_MS).toISOString(),
  });
  const gone = await manage("POST", "/tokens", { label: "pilot", scopes: ["usage:read"] });
  await manage("POST", `/tokens/${gone.token_id}/revoke`, {});
}

/** Tasks of acme in each state, by a key whose cap they nearly reach. */
async function givenTasks(gateway: TestGateway): Promise<Omit<Stage, "endpointId">> {
  const { key, keyId } = await gateway.givenKey({
    accountId: "acme",
    label: "trailers",
    credits: 0,
    limits: { rate_limit: 40, max_concurrent: 30, monthly_credits: 50 },
  });
  const generate = async (): Promise<string> =>
    (await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT })).body.data.task_id;
  const open = await generate();
  gateway.generator.behave({ durationMs: 0 });
  const [completed, refunded] = [await generate(), await generate()];
  gateway.generator.behave({ durationMs: 0, failRatio: 1 });
  const failed = await generate();
  for (const id of [completed, refunded, failed])
    await gateway.request("GET", `/api/v1/tasks/${id}`, { key });
  gateway.generator.behave({ durationMs: 3_600_000, failRatio: 0 });
  await managing(gateway)("POST", `/tasks/${refunded}/refund`, {
    reason: "the video was black from the second minute on",
    reference: "ticket 2188",
  });
  // The last three of them are over the cap.
  for (let n = 0; n < 6; n++) await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  return { completed, refunded, failed, open, cappedKeyId: keyId };
}

/** Writes the counts that ROLLUP would have made of the days before: it counts by the store's clock, which a test cannot turn back. */
async function seedUsage(
  gateway: TestGateway,
  accountId: string,
  keyId: string,
  busy: number,
): Promise<void> {
  const nodes = oneNode(gateway.redis);
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  for (let ago = 1; ago < 26; ago++) {
    const date = new Date(Date.now() - ago * DAY_MS).toISOString();
    const [month, day] = [date.slice(0, 7), date.slice(8, 10)];
    const requests = Math.round(busy * (160 + 70 * Math.sin(ago / 2.1) + 30 * Math.cos(ago * 1.7)));
    const failed = Math.round(requests / 30);
    const numbers = `${requests} ${requests * 10} ${failed * 10} ${requests - failed} ${failed}`;
    const field = `${day} ${TEXT_TO_VIDEO} ${keyId}`;
    await gateway.redis.hset(usageName(partition, accountId, month), field, numbers);
    // The documented pictures show a shop of usual size.
    if (accountId !== LARGE) await gateway.redis.hset(totalsName(partition, month), day, numbers);
  }
}

/**
 * Checks the ledger as a gateway does every quarter of an hour, and waits until all gateways report themselves and open
 * tasks are counted.
 */
export async function givenReports(gateway: TestGateway, gateways: number): Promise<void> {
  const { violations, credits } = await verifyLedger(oneNode(gateway.redis));
  expect(violations).toEqual([]);
  const report = { atMs: Date.now(), violations: 0, credits };
  await gateway.redis.set("tg:ledger-report", JSON.stringify(report));
  await until(async () => {
    const overview = (await managing(gateway)("GET", "/overview")) as Static<typeof Overview>;
    return overview.open !== null && overview.gateways.length === gateways && overview.ledger.right === true;
  }, "an overview with all figures");
}
