import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { managing } from "./console-customers.ts";
import {
  expectLegible,
  givenOperator,
  hasChromium,
  type Operator,
  openBrowser,
  TOKEN,
} from "./console-stage.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const TODAY = new Date().toISOString().slice(0, 10);
const MONTH = TODAY.slice(0, 7);
/** The letters in the field that has the focus, one by one. */
const TYPED_AT_ONCE = `for (const letter of "bolt st") {
  document.activeElement.value += letter;
  document.activeElement.dispatchEvent(new Event("input", { bubbles: true }));
}`;

// Questions of a business on its second day, by clicks from the first view.

describe.skipIf(!hasChromium)("answers of the console", () => {
  let redis: TestRedis;
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  let clicks: number;

  beforeAll(async () => {
    redis = await givenRedis();
    gateway = await givenGateway({
      config: { admin: { token: TOKEN }, accounts: { indexedMetadata: ["plan"] } },
      redisUrl: redis.url,
    });
    browser = await openBrowser();
    await givenBusiness();
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
    clicks = 0;
  });

  /** Three customers who spend, one of them refused, and what was sold and given to them. */
  async function givenBusiness(): Promise<void> {
    const manage = managing(gateway);
    for (const [accountId, label, plan, credits, tasks] of [
      ["acme", "Acme Films", "pro", 1000, 2],
      ["bolt", "Bolt Studios", "trial", 40, 3],
      ["corn", "Corn & Co", "pro", 500, 1],
    ] as const) {
      await manage("POST", "/accounts", { account_id: accountId, label, metadata: { plan } });
      await manage("POST", `/accounts/${accountId}/grants`, { credits, reference: "first", kind: "trial" });
      const { key } = await gateway.givenKey({
        accountId,
        label: `${label}, production`,
        credits: 0,
        limits: { rate_limit: 3 },
      });
      for (let nth = 0; nth < tasks; nth++)
        expect(
          (await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } })).status,
        ).toBe(200);
    }
    const { key } = await gateway.givenKey({
      accountId: "corn",
      label: "batch",
      credits: 0,
      limits: { rate_limit: 0 },
    });
    for (let nth = 0; nth < 4; nth++)
      expect((await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } })).status).toBe(
        429,
      );
    const sale = { package: "basic", amount_paid: "9.90", currency: "USD" };
    for (const reference of ["o1", "o2"])
      await manage("POST", "/accounts/acme/grants", { ...sale, reference });
    await manage("POST", "/accounts/corn/grants", { credits: 50, kind: "goodwill", reference: "sorry" });
    const top = async (by: string) => (await manage("GET", `/top-accounts?by=${by}`)).data.length;
    await until(async () => (await top("spend")) === 3, "the roll-up of what was spent");
    await until(async () => (await top("refusals")) === 1, "the counts of refusals");
    await until(
      async () => (await manage("GET", `/sales?month=${MONTH}`)).data.length === 3,
      "the roll-up of sales",
    );
  }

  async function click(
    name: string,
    role: "link" | "button" = "link",
    inside = page.locator("body"),
  ): Promise<void> {
    await inside.getByRole(role, { name, exact: true }).first().click();
    clicks++;
    await operator.page.locator("#view:not([aria-busy])").waitFor();
  }
  const names = (caption: string) =>
    page.getByRole("region", { name: caption }).locator("tbody th a").allTextContents();

  test("who is about to run out stands on the overview, and in full one click away", async () => {
    const out = "Accounts whose credits last least, at the pace of seven days";
    expect(await names(out)).toEqual(["bolt", "corn", "acme"]);
    await page.getByRole("region", { name: out }).getByText("Bolt Studios").waitFor();
    await click("All, by days left");
    await expect.poll(() => names("Accounts")).toEqual(["bolt", "corn", "acme"]);
    expect(clicks).toBe(1);
  });

  test("accounts are sorted over all pages by balance, spending and days left in two clicks", async () => {
    for (const [title, first] of [
      ["Balance", "bolt"],
      ["Spent today", "bolt"],
      ["In 7 days", "bolt"],
      ["Days left", "bolt"],
    ] as const) {
      clicks = 0;
      await click("Overview");
      clicks = 0;
      await click("Accounts");
      await click(title);
      await page.locator("th[aria-sort]", { hasText: title }).waitFor();
      await expect.poll(async () => (await names("Accounts"))[0]).toBe(first);
      expect(clicks).toBe(2);
    }
    await click("Balance");
    await click("Balance");
    await expect.poll(() => names("Accounts")).toEqual(["acme", "corn", "bolt"]);
    await page.getByLabel("Balance below").fill("700");
    await click("Show", "button");
    await expect.poll(() => names("Accounts")).toEqual(["corn", "bolt"]);
  });

  test("accounts are filtered by metadata in two clicks, and what cannot be asked is told", async () => {
    await click("Accounts");
    await page.getByLabel("Metadata").fill("plan=pro");
    await click("Show", "button");
    await expect.poll(() => names("Accounts")).toEqual(["acme", "corn"]);
    expect(clicks).toBe(2);
    await page.getByLabel("Balance below").fill("700");
    await click("Show", "button");
    await expect.poll(() => names("Accounts")).toEqual(["corn"]);
    await page.getByLabel("Metadata").fill("plan=none");
    await click("Show", "button");
    await page.getByText("There is none.").waitFor();
    await page.getByLabel("Metadata").fill("region=eu");
    await click("Show", "button");
    await page.getByRole("alert").getByText("metadata.region is not indexed, these are: plan").waitFor();
    await page.getByLabel("Metadata").fill("pro");
    await click("Show", "button");
    await page.getByRole("alert").getByText("as name=value, such as plan=pro").waitFor();
    expect(await page.getByLabel("Metadata").inputValue()).toBe("pro");
    for (let nth = 0; nth < 3; nth++) await page.goBack();
    await expect.poll(() => names("Accounts")).toEqual(["corn"]);
  });

  test("the top accounts are one click away, by refusals a second one, of any days", async () => {
    await click("Top accounts");
    await expect.poll(() => names("Spent most")).toEqual(["bolt", "acme", "corn"]);
    expect(clicks).toBe(1);
    // A choice applies at once; whoever goes through the choices by keyboard stays there.
    await page.getByLabel("By").focus();
    await page.keyboard.press("ArrowDown");
    await expect.poll(() => names("Refused most")).toEqual(["corn"]);
    await expect.poll(() => page.evaluate("document.activeElement.id")).toBe("filter-by");
    await page.getByLabel("From").fill(TODAY);
    await page.keyboard.press("Enter");
    await page.waitForURL(`**from=${TODAY}**`);
    await expect.poll(() => names("Refused most")).toEqual(["corn"]);
    await page.getByLabel("From").fill("2020-01-01");
    await page.getByLabel("to", { exact: true }).fill("2020-01-31");
    await click("Show", "button");
    await page.getByText("None in these days.").waitFor();
  });

  test("what was sold this month is one click away, with what was paid, and a file", async () => {
    await click("Sold");
    await page.getByRole("row", { name: /purchase basic 2 [\d,]+ 19\.80 USD/ }).waitFor();
    await page.getByRole("row", { name: /goodwill no package 1 50 –/ }).waitFor();
    expect(await operator.tile("Trials")).toBe("1,540");
    const total = await managing(gateway)("GET", `/statements/total?month=${MONTH}`);
    await page.getByRole("row", { name: `Purchased ${total.purchases.toLocaleString("en")}` }).waitFor();
    await page
      .getByRole("row", { name: `owed to customers ${total.closing.toLocaleString("en")}` })
      .waitFor();
    await page.getByRole("row", { name: `Charged −${total.charges}` }).waitFor();
    const [file] = await Promise.all([page.waitForEvent("download"), click("Download CSV", "button")]);
    expect(clicks).toBe(2);
    const text = await (await file.createReadStream()).toArray();
    const lines = Buffer.concat(text).toString().split("\r\n");
    expect(file.suggestedFilename()).toBe(`sold-${MONTH}.csv`);
    expect(lines[0]).toBe("kind,package,currency,grants,credits,amount_paid");
    expect(lines).toContainEqual(expect.stringMatching(/^"purchase","basic","USD",2,\d+,"19\.80"$/));
    await page.getByLabel("Month").fill("2020-01");
    await click("Show", "button");
    await page.getByText("Nothing was sold or given.").waitFor();
  });

  // Guarantee: each letter costs no read, and an answer to what was typed before is never shown.
  test("the search finds as one types, by keyboard alone, and asks a moment after the last letter", async () => {
    const requested: string[] = [];
    page.on(
      "request",
      (one) => one.url().includes("/search?") && requested.push(new URL(one.url()).searchParams.get("q")!),
    );
    await page.keyboard.press("/");
    // At once: on a busy machine the pause passes between keys.
    await page.evaluate(TYPED_AT_ONCE);
    const found = page
      .locator("#found")
      .getByRole("link", { name: /Bolt Studios/ })
      .first();
    await found.waitFor();
    expect(requested).toEqual(["bolt st"]);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Account bolt" }).waitFor();
    expect(await page.locator("#found a").count()).toBe(0);
    await page.keyboard.press("/");
    await page.keyboard.type("o1");
    await page
      .locator("#found")
      .getByRole("link", { name: /reference/ })
      .waitFor();
    await page.keyboard.press("Escape");
    expect(await page.locator("#found a").count()).toBe(0);
    await page.locator("#find-id").fill("tgm_secret");
    await page.locator("#find-id").fill("");
    expect(requested).toEqual(["bolt st", "o1"]);
  });

  test("labels stand beside the ids of keys and accounts", async () => {
    await operator.open("keys");
    await page.getByRole("row", { name: /Bolt Studios, production.*Bolt Studios/ }).waitFor();
    await page.getByRole("row", { name: /batch.*Corn & Co.*rate_limited/ }).waitFor();
    await operator.open("account/bolt/tasks");
    await page
      .getByRole("row", { name: /Bolt Studios, production/ })
      .first()
      .waitFor();
    await operator.open("account/corn/refusals");
    await page
      .getByRole("row", { name: /rate_limited.*batch/ })
      .first()
      .waitFor();
    await operator.open("tasks?older=0");
    await page.getByRole("columnheader", { name: "Next poll" }).waitFor();
  });

  const PLACES = [
    "overview",
    "accounts?order=days_left",
    "top",
    "top?by=refusals",
    "sales",
    "account/bolt",
    "account/bolt/tasks",
    "keys",
    "tasks?older=0",
    "configuration",
  ];

  test.each([
    [1280, 900, "light"],
    [1280, 900, "dark"],
    [390, 844, "light"],
    [390, 844, "dark"],
  ] as const)(
    "%i by %i, %s: the answers fit, can be read and are named",
    async (width, height, colorScheme) => {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme });
      const look = (name: string) => expectLegible(page, `${name}-${width}-${colorScheme}`);
      for (const place of PLACES) {
        await operator.open(place);
        await look(place);
      }
      await operator.open("accounts");
      if (width < 640) {
        expect(await page.locator("header").evaluate((header) => header.clientHeight)).toBeLessThanOrEqual(
          96,
        );
        await page.getByText("Sort", { exact: true }).click();
        await look("sorting");
        await page.locator(".sorting").getByRole("link", { name: "Days left" }).click();
        await expect.poll(() => names("Accounts")).toEqual(["bolt", "corn", "acme"]);
      }
      await page.locator("#find-id").fill("bolt");
      await page.locator("#found a").first().waitFor();
      const box = await page.locator("#found ul").boundingBox();
      expect(box?.x).toBeGreaterThanOrEqual(0);
      expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(width);
      await look("found");
      expect(operator.complaints).toEqual([]);
    },
  );
});
