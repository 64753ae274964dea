import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BOAT, TEXT_TO_VIDEO } from "../gateway/spec-stage.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { away, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";
import {
  expectLegibleAnywhere,
  givenOperator,
  hasChromium,
  type Operator,
  openBrowser,
  TOKEN,
} from "./console-stage.ts";

describe.skipIf(!hasChromium)("what an operator sees when something is away", () => {
  let redis: TestRedis;
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  beforeAll(async () => {
    redis = await givenRedis();
    gateway = await givenGateway({ config: { admin: { token: TOKEN } }, redisUrl: redis.url });
    await ready(gateway);
    browser = await openBrowser();
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
  });

  const finding = (name: string) => page.locator(".finding", { has: page.locator("dt", { hasText: name }) });
  const levelOf = async (name: string): Promise<string> =>
    ((await finding(name).getAttribute("class")) ?? "").replace("finding ", "");
  const typeToken = async (token: string): Promise<void> => {
    await page.getByRole("textbox", { name: "Token" }).fill(token);
    await page.keyboard.press("Enter");
  };

  // Guarantee: whoever cannot sign in reads why, and what they typed is not lost.
  test("signing in while Redis is away says so, and works with the same token once it is back", async () => {
    const made = await fetch(`${gateway.adminUrl}/manage/v1/tokens`, {
      method: "POST",
      headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ label: "ada", scopes: ["usage:read", "accounts:read"] }),
    });
    const { token } = (await made.json()) as { token: string };
    await operator.view("overview");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    await redis.end();
    await away(gateway);
    await typeToken(token);
    const error = page.locator("#sign-in-error");
    await expect.poll(() => error.textContent(), { timeout: 40_000 }).toMatch(/Redis.*Nobody was signed in/);
    expect(await page.getByRole("textbox", { name: "Token" }).inputValue()).toBe(token);
    await expectLegibleAnywhere(page, "sign-in-redis-away");
    await redis.startAgain();
    await ready(gateway);
    await page.getByRole("button", { name: "Open the console" }).click();
    await page.locator("#view-title").waitFor();
    expect(await error.isVisible()).toBe(false);
  });

  test("signing in where the gateway does not answer says so", async () => {
    await operator.view("overview");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    await page.route("**/manage/v1/**", (route) => route.abort());
    await typeToken(TOKEN);
    const error = page.locator("#sign-in-error");
    await expect.poll(() => error.textContent()).toMatch(/^The gateway does not answer\. Nobody was/);
    await page.unroute("**/manage/v1/**");
    // A wrong token is still a wrong token.
    await typeToken("tgm_wrong");
    await expect.poll(() => error.textContent()).toMatch(/^This token is unknown/);
    expect(await page.getByRole("textbox", { name: "Token" }).inputValue()).toBe("");
  });

  test("a healthy gateway says so of all that it needs", async () => {
    const { key } = await gateway.givenKey();
    await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    await operator.signIn();
    await expect.poll(() => levelOf("Upstream"), { timeout: 30_000 }).toBe("ok");
    expect(await finding("Upstream").textContent()).toMatch(/100 % of \d+ answered.*last good answer/);
    for (const name of ["Gateway", "Redis", "Journal"]) expect(await levelOf(name)).toBe("ok");
    expect(await finding("Archive").textContent()).toMatch(/None is configured/);
    expect(await page.locator("#state").getAttribute("class")).toBe("state good");
    await expectLegibleAnywhere(page, "healthy");
  });

  // Guarantee: an upstream that is down is not shown as green and ready.
  test("with the upstream down the strip and the line at the top say so, and what to do", async () => {
    const { key } = await gateway.givenKey({ limits: { max_concurrent: 100, rate_limit: 1000 } });
    await operator.signIn();
    gateway.generator.behave({ fault: "reset" });
    for (let n = 0; n < 30; n++)
      await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { ...BOAT, prompt: `boat ${n}` } });
    await expect.poll(() => levelOf("Upstream"), { timeout: 30_000 }).toBe("fail");
    expect(await finding("Upstream").textContent()).toMatch(/connections break before the answer: look at/);
    await expect.poll(() => page.locator("#state").textContent()).toMatch(/^Ready, but mend: Upstream/);
    expect(await page.locator("#state").getAttribute("class")).toBe("state bad");
    // The line at the top is there in other views, too.
    await operator.open("accounts");
    await expect.poll(() => page.locator("#state").textContent()).toMatch(/mend: Upstream/);
    await operator.open("overview");
    await expect.poll(() => levelOf("Upstream")).toBe("fail");
    await expectLegibleAnywhere(page, "upstream-down");
    gateway.generator.reset();
  });

  test("with Redis away the strip says so and goes on; where the gateway ends it says that, too", async () => {
    await operator.signIn();
    await expect.poll(() => levelOf("Redis"), { timeout: 30_000 }).toBe("ok");
    await redis.end();
    await expect.poll(() => levelOf("Redis"), { timeout: 30_000 }).toBe("fail");
    expect(await finding("Redis").textContent()).toMatch(/start it.*tollgate doctor/);
    expect(await finding("Gateway").textContent()).toMatch(/Not ready/);
    await expectLegibleAnywhere(page, "redis-away");
    await redis.startAgain();
    await expect.poll(() => levelOf("Redis"), { timeout: 60_000 }).toBe("ok");
    await page.route("**/manage/v1/**", (route) => route.abort());
    await expect.poll(() => finding("Gateway").textContent(), { timeout: 30_000 }).toMatch(/No answer/);
    expect(await page.locator(".finding").count()).toBe(1);
  });
});
