import { afterAll, beforeAll, expect, test } from "vitest";
import type { PriceList, PriceTable } from "../../src/domain/generation.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Prices of an account: its multiplier, price lists that begin at a time, and quotes.

const SOON_MS = Date.now() + 3_600_000;
const table = (credits: number): PriceTable =>
  ({
    ...{ "gen2/text-to-video": credits, "gen2/image-to-video": credits, "gen2/watermark-remove": credits },
    "gen2-pro/text-to-video": {
      by_duration_and_quality: { "10": { standard: 7, high: 9 }, "15": { standard: 8, high: 11 } },
    },
    ...{ "gen2-pro/image-to-video": credits, "gen2-pro/storyboard": credits },
  }) as PriceTable;
const listOf = (fromMs: number, name: string, credits: number): PriceList => ({
  ...{ fromMs, name, file: `/${name}`, table: table(credits) },
});

let stage: ManageStage;
beforeAll(async () => {
  const priceLists = [listOf(0, "old.yaml", 5), listOf(1, "now.yaml", 10), listOf(SOON_MS, "soon.yaml", 12)];
  stage = await givenManageStage({ config: { priceLists } });
});
afterAll(() => stage.stop());

const generate = (key: string) => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
const quote = (body: object) => stage.manage("POST", "/prices/quote", { body });

test("an account pays its multiplier from its next request on, rounded up, and its charge says why", async () => {
  const accountId = await stage.givenAccount(20);
  const { key } = await stage.givenKey(accountId);
  const patch = (price_multiplier: number | null) =>
    stage.manage("PATCH", `/accounts/${accountId}`, { body: { price_multiplier } });
  expect((await stage.manage("GET", `/accounts/${accountId}`)).body).toMatchObject({ price_multiplier: 1 });
  expect(await patch(0.33)).toMatchObject({ status: 200, body: { price_multiplier: 0.33 } });
  expect((await generate(key)).status).toBe(200);
  const { body: list } = await stage.manage("GET", `/accounts/${accountId}/transactions?kind=charge`);
  expect(list.data).toMatchObject([
    { amount: -4, balance_after: 16, list_price: 10, multiplier: "0.33", price_list: "now.yaml" },
  ]);
  await patch(1.7);
  expect(await generate(key)).toMatchObject({
    status: 402,
    body: { error: "Insufficient credits: this request costs 17, the balance is 16" },
  });
  await patch(null);
  expect((await generate(key)).status).toBe(200);
  const { body: now } = await stage.manage("GET", `/accounts/${accountId}`);
  expect(now).toMatchObject({ price_multiplier: 1, balance: 6, total_used: 14 });
});

test.each([0, -1, 0.001, 0.005, 10.01, 11, 0.123, "1", true])(
  "a multiplier of %j is refused",
  async (value) => {
    const accountId = await stage.givenAccount();
    const refused = await stage.manage("PATCH", `/accounts/${accountId}`, {
      body: { price_multiplier: value },
    });
    expect(refused).toMatchObject({ status: 400, body: { code: "invalid_multiplier" } });
    expect(refused.body.errors).toMatchObject([{ path: "/price_multiplier" }]);
    expect((await stage.manage("GET", `/accounts/${accountId}`)).body.price_multiplier).toBe(1);
  },
);

test("a quote is what the public port would charge, now and later, in both spellings of an endpoint", async () => {
  const accountId = await stage.givenAccount(100);
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { price_multiplier: 0.8 } });
  const wanted = { endpoint: "gen2/text-to-video", body: BOAT };
  expect(await quote(wanted)).toMatchObject({
    status: 200,
    body: { price: 10, list_price: 10, file: "now.yaml", multiplier: 1 },
  });
  const ofAccount = { ...wanted, endpoint: TEXT_TO_VIDEO, account_id: accountId };
  expect((await quote(ofAccount)).body).toEqual({
    price: 8,
    list_price: 10,
    file: "now.yaml",
    multiplier: 0.8,
  });
  const at = (ms: number) => ({ ...ofAccount, at: new Date(ms).toISOString() });
  expect((await quote(at(SOON_MS - 1))).body).toMatchObject({ price: 8, file: "now.yaml" });
  expect((await quote(at(SOON_MS))).body).toMatchObject({ price: 10, list_price: 12, file: "soon.yaml" });
  const pro = { endpoint: "gen2-pro/text-to-video", body: { prompt: "a", duration: 15, quality: "high" } };
  expect((await quote(pro)).body).toMatchObject({ price: 11 });
  const token = await stage.givenToken(["usage:read"]);
  expect((await stage.manage("POST", "/prices/quote", { body: wanted, token })).status).toBe(200);
  expect((await stage.manage("POST", "/prices/quote", { body: ofAccount, token })).status).toBe(403);
});

test.each([
  [{ endpoint: "gen3/text-to-video", body: BOAT }, "unknown_endpoint", "/endpoint"],
  [{ endpoint: "gen2/text-to-video", body: {} }, "invalid_generation", "/body/prompt"],
  [
    { endpoint: "gen2/text-to-video", body: { ...BOAT, quality: "high" } },
    "invalid_generation",
    "/body/quality",
  ],
  [{ endpoint: "gen2/text-to-video", body: BOAT, at: "2026-12-01T00:00:00" }, "invalid_time", "/at"],
  [{ endpoint: "gen2/text-to-video", body: BOAT, at: "2026-02-30T00:00:00Z" }, "invalid_time", "/at"],
  [{ endpoint: "gen2/text-to-video" }, "invalid", "/body"],
])("a quote of %j is refused as %s", async (body, code, path) => {
  const reply = await quote(body);
  expect(reply).toMatchObject({ status: 400, body: { code, errors: [{ path }] } });
});
