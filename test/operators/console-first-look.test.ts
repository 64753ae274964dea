import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BOAT, TEXT_TO_VIDEO } from "../gateway/spec-stage.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { managing } from "./console-customers.ts";
import { givenOperator, hasChromium, type Operator, openBrowser, TOKEN } from "./console-stage.ts";

// Views that confused somebody who had not seen the console before.

describe.skipIf(!hasChromium)("the console at first sight", () => {
  let redis: TestRedis;
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  let manage: ReturnType<typeof managing>;

  beforeAll(async () => {
    redis = await givenRedis();
    gateway = await givenGateway({ config: { admin: { token: TOKEN } }, redisUrl: redis.url });
    manage = managing(gateway);
    browser = await openBrowser();
    await manage("POST", "/accounts", { account_id: "acme", label: "Acme Films" });
    await manage("POST", "/accounts/acme/grants", { package: "premium", reference: "order-1" });
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
    await redis?.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    operator = await givenOperator(browser, gateway);
    onTestFinished(() => operator.close());
    page = operator.page;
    await operator.signIn();
  });

  test("an account's prices stand on its page, and are changed in its form", async () => {
    await operator.open("account/acme");
    expect(await page.locator("#view dt", { hasText: "Prices" }).count()).toBe(0);
    await page.getByRole("button", { name: "Edit …" }).click();
    await page.getByLabel("Price multiplier").fill("0.555");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Price multiplier must be a number such as 0.8, or empty.").waitFor();
    await page.getByLabel("Price multiplier").fill("0.8");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("0.8 × the list price, rounded up to whole credits").waitFor();
    expect((await manage("GET", "/accounts/acme")).price_multiplier).toBe(0.8);
    await page.getByRole("button", { name: "Edit …" }).click();
    expect(await page.getByLabel("Price multiplier").inputValue()).toBe("0.8");
    await page.getByLabel("Price multiplier").fill("");
    await page.getByRole("button", { name: "Save" }).click();
    await expect.poll(() => page.getByText("the list price").count()).toBe(0);
    expect((await manage("GET", "/accounts/acme")).price_multiplier).toBe(1);
  });

  test("a sale says what was sold and paid, in transactions, timeline and audit", async () => {
    await operator.open("account/acme/transactions");
    await page.getByRole("row", { name: /premium, 39\.90 USD, reference order-1 – console/ }).waitFor();
    await operator.open("account/acme/timeline");
    const sentence = "granted 500 credits as a purchase, premium, 39.90 USD (reference order-1)";
    await page.getByText(`The console ${sentence}`).waitFor();
    await operator.open("audit");
    await page.getByText(sentence.replace("g", "G")).waitFor();
  });

  test("who made a transaction is named by the label of the token alone", async () => {
    const { token } = await manage("POST", "/tokens", { label: "Ada, support", scopes: ["credits:write"] });
    const answer = await fetch(`${gateway.adminUrl}/manage/v1/accounts/acme/grants`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ credits: 5, kind: "goodwill", reference: "sorry" }),
    });
    expect(answer.status).toBe(201);
    await operator.open("account/acme/transactions?kind=goodwill");
    await page.getByRole("cell", { name: "Ada, support", exact: true }).waitFor();
  });

  test("a choice of the audit's action applies at once, with what was typed beside it", async () => {
    await operator.open("audit");
    await page.getByLabel("Account", { exact: true }).fill("acme");
    await page.getByLabel("Action", { exact: true }).selectOption("account.create");
    await page.locator("tbody tr", { hasText: "Created the account" }).waitFor();
    await expect.poll(() => page.getByRole("row").count()).toBe(2);
    expect(new URL(page.url()).hash).toBe("#audit?account_id=acme&action=account.create");
  });

  // Guarantee: whoever looks for the reason of 503s is not told that all is well.
  test("maintenance stands at the top of every view, and on the overview with what ends it", async ({
    onTestFinished,
  }) => {
    onTestFinished(() => manage("PUT", "/maintenance", { on: false }));
    await manage("PUT", "/maintenance", { on: true });
    await operator.open("accounts");
    await expect
      .poll(async () => {
        await page.getByRole("button", { name: "Refresh" }).click();
        return page.locator("#state").textContent();
      })
      .toMatch(/^In maintenance · /);
    await operator.open("overview");
    await page.locator(".finding.warn", { hasText: "generations and uploads are 503" }).waitFor();
    await manage("PUT", "/maintenance", { on: false });
    await page.locator(".finding.ok", { hasText: "This gateway takes requests." }).waitFor();
    await expect.poll(() => page.locator("#state").textContent()).toMatch(/^Ready · /);
  });

  test("a refusal says what its limit counts", async () => {
    const limits = { rate_limit: 1 };
    const { key, keyId } = await gateway.givenKey({ accountId: "acme", credits: 0, limits });
    for (const status of [200, 429])
      expect((await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT })).status).toBe(status);
    await expect
      .poll(async () => (await manage("GET", `/accounts/acme/keys/${keyId}/refusals`)).data.length, {
        timeout: 20_000,
      })
      .toBe(1);
    await operator.open(`key/acme/${keyId}`);
    await page.getByRole("cell", { name: "1 of 1 requests per 60 s" }).waitFor();
  });

  test("a key in the search field is told to be one, and is in no request", async () => {
    const requested: string[] = [];
    page.on("request", (one) => requested.push(one.url() + (one.postData() ?? "")));
    await page.keyboard.press("/");
    await page.keyboard.insertText("sk_secret-of-somebody");
    await page.getByText("A key: Enter leads to its page").waitFor();
    expect(requested.filter((one) => one.includes("secret-of"))).toEqual([]);
  });

  test("price lists say which one is in force, and what a later one changes", async () => {
    const { data } = await manage("GET", "/prices");
    const list = Object.fromEntries(
      data.map((one: { endpoint: string; price: unknown }) => [one.endpoint, one.price]),
    );
    await page.route("**/manage/v1/configuration", async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      json.config.prices = {
        "old.yaml from 1970-01-01T00:00:00.000Z": list,
        "now.yaml from 2026-01-01T00:00:00.000Z": list,
        "next.yaml from 2999-01-01T00:00:00.000Z": { ...list, "gen2/text-to-video": 15 },
      };
      await route.fulfill({ response, json });
    });
    await operator.open("configuration");
    await page.getByText("In force is now.yaml, since 2026-01-01 00:00:00.").waitFor();
    const later = page.locator(".note", { hasText: "next.yaml begins at 2999-01-01 00:00:00" });
    expect(await later.locator("div").allTextContents()).toEqual(["gen2/text-to-video: 15 credits"]);
    await page.getByText("10 s in all: ").waitFor();
  });

  test("on a phone the view and the part in sight are in sight among their links", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    for (const place of ["audit", "tokens", "account/acme/timeline"]) {
      await operator.open(place);
      for (const link of await page.locator("nav [aria-current]").all()) {
        const { x = -1, width = 0 } = (await link.boundingBox()) ?? {};
        expect(x, place).toBeGreaterThanOrEqual(0);
        expect(x + width, place).toBeLessThanOrEqual(390);
      }
    }
  });
});
