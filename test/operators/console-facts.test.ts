import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BOAT, TEXT_TO_VIDEO } from "../gateway/spec-stage.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { managing } from "./console-customers.ts";
import { givenOperator, hasChromium, type Operator, openBrowser, TOKEN } from "./console-stage.ts";

// Guarantee: a page or a form has all that somebody needs for a decision, and what is typed arrives whole.

describe.skipIf(!hasChromium)("facts at the console", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  let manage: ReturnType<typeof managing>;
  beforeAll(async () => {
    gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
    manage = managing(gateway);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    operator = await givenOperator(browser, gateway);
    onTestFinished(() => operator.close());
    page = operator.page;
  });

  const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const dialog = () => page.getByRole("dialog");
  const givenToken = (label: string, scopes: string[]): Promise<{ token: string; token_id: string }> =>
    manage("POST", "/tokens", { label, scopes });
  /** A fact of the view, by its name. */
  const fact = (name: string) => page.locator(`#view dt:text-is("${name}") + dd`);

  /** A key of one request a minute that was refused the second one. */
  async function givenRefusal(accountId: string) {
    const { key, keyId } = await gateway.givenKey({ accountId, credits: 100, limits: { rate_limit: 1 } });
    const send = () => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    expect((await send()).status).toBe(200);
    expect((await send()).status).toBe(429);
    const listed = async () => (await manage("GET", `/accounts/${accountId}/keys/${keyId}/refusals`)).data;
    await expect.poll(async () => (await listed()).length).toBe(1);
    return { keyId, refusal: (await listed())[0] };
  }

  // Guarantee: a token opens the accounts that were named, and no other whose id a name begins with.
  test("accounts of a token that are pasted as a long list are all of the token", async () => {
    const ids = [...Array.from({ length: 6 }, (_, at) => `${"production-house-".repeat(3)}${at}`), "last"];
    await operator.signIn("tokens");
    await press("Create token …");
    await dialog().getByLabel("Label", { exact: true }).fill("of many");
    await dialog().getByLabel("usage:read").check();
    await dialog().getByRole("textbox", { name: "Accounts" }).focus();
    await page.keyboard.insertText(ids.join(", "));
    await press("Create it");
    await press("I have it");
    expect((await manage("GET", "/tokens")).data[0]).toMatchObject({ label: "of many", accounts: ids });
  });

  test("whoever makes or revokes a token is told that tokens end with the one that made them", async () => {
    const { token } = await givenToken("Ada", ["tokens:write", "usage:read"]);
    await operator.signIn("tokens", token);
    await press("Create token …");
    await dialog().getByText("It ends when your own token is revoked.").waitFor();
    await dialog().getByLabel("Label", { exact: true }).fill("the shop of Ada");
    await dialog().getByLabel("usage:read").check();
    await press("Create it");
    await press("I have it");
    await press("Sign out");
    await operator.signIn("tokens");
    await press("Revoke token Ada");
    await dialog().getByText("All tokens that were made with it, directly or not, end with it.").waitFor();
    await press("Revoke it");
    const shop = page.getByRole("row", { name: /the shop of Ada/ });
    await shop.getByText("revoked", { exact: true }).waitFor();
  });

  test("a key's page names the endpoints and addresses that it is for, and an account that is suspended", async () => {
    const { accountId } = await gateway.givenKey();
    const { key_id: id } = await manage("POST", `/accounts/${accountId}/keys`, {
      allowed_endpoints: ["gen2/text-to-video"],
      allowed_addresses: ["2001:db8::/32", "203.0.113.0/24"],
    });
    await operator.signIn(`key/${accountId}/${id}`);
    expect(await fact("Endpoints").textContent()).toBe("gen2/text-to-video");
    expect(await fact("Addresses").textContent()).toBe("2001:db8::/32, 203.0.113.0/24");
    expect(await fact("Account").textContent()).not.toContain("suspended");
    await manage("PATCH", `/accounts/${accountId}`, { status: "suspended" });
    await press("Refresh");
    await expect.poll(() => fact("Account").textContent()).toContain("suspended");
  });

  test("refusals from a minute to the same minute, or of the second that a row shows, are those of it", async () => {
    const { accountId } = await gateway.givenKey();
    const { keyId, refusal } = await givenRefusal(accountId);
    const shown = refusal.at.slice(0, 19).replace("T", " ");
    await operator.signIn(`key/${accountId}/${keyId}`);
    for (const at of [shown.slice(0, 16), shown]) {
      await page.getByLabel("From (UTC)").fill(at);
      await page.getByLabel("to", { exact: true }).fill(at);
      await press("Show");
      await page.locator(`#view[data-place="key/${accountId}/${keyId}"]:not([aria-busy])`).waitFor();
      await page.getByRole("cell", { name: refusal.request_id }).waitFor();
    }
    await page.getByLabel("to", { exact: true }).fill("2026-02-30 14:03");
    await press("Show");
    await page.locator("#view .error", { hasText: "To must be" }).waitFor();
  });

  test("a refusal that is found leads to a page that the token may read", async () => {
    const { accountId } = await gateway.givenKey();
    const { refusal } = await givenRefusal(accountId);
    const { token } = await givenToken("finance", ["accounts:read", "usage:read"]);
    await operator.signIn("accounts", token);
    await page.getByRole("searchbox", { name: "Search" }).fill(refusal.request_id);
    await page.keyboard.press("Enter");
    await page.getByRole("cell", { name: "rate_limited" }).waitFor();
    expect(await page.locator("#view .error").count()).toBe(0);
  });

  test("the file of an account's transactions says what was sold and paid", async () => {
    const { accountId } = await gateway.givenKey({ credits: 0 });
    await manage("POST", `/accounts/${accountId}/grants`, { package: "basic", reference: "order-9" });
    await operator.signIn(`account/${accountId}/transactions`);
    const [file] = await Promise.all([page.waitForEvent("download"), press("Download CSV")]);
    const [titles = "", ...rows] = (await readFile(await file.path(), "utf8")).split("\r\n");
    const sale = rows.find((row) => row.includes("order-9"))?.split(",") ?? [];
    const cellOf = (title: string) => sale[titles.split(",").indexOf(title)];
    expect(["package", "amount_paid", "currency"].map(cellOf)).toEqual(['"basic"', '"9.90"', '"USD"']);
  });

  test("maintenance begins and ends in two clicks each, with what it does said before", async ({
    onTestFinished,
  }) => {
    onTestFinished(() => manage("PUT", "/maintenance", { on: false }));
    await operator.signIn();
    await page.getByRole("button", { name: "Maintenance …" }).focus();
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Enter");
    await dialog().getByText("Customers wait (seconds) must be a whole number.").waitFor();
    await dialog().getByText("generations and uploads of all customers are answered 503").waitFor();
    await dialog().getByLabel("Customers wait (seconds)").fill("soon");
    await press("Begin it");
    await dialog().getByText("Customers wait (seconds) must be a whole number.").waitFor();
    await dialog().getByLabel("Customers wait (seconds)").fill("90000");
    await press("Begin it");
    await dialog().getByText("a whole number of seconds from 1 to 86400").waitFor();
    await dialog().getByLabel("Customers wait (seconds)").fill("120");
    await dialog().getByLabel("Message for customers").fill("Back at 14:00 UTC");
    await press("Begin it");
    await operator.result().getByText("Maintenance has begun").waitFor();
    const words = { retry_after: 120, message: "Back at 14:00 UTC" };
    expect(await manage("GET", "/maintenance")).toMatchObject({ on: true, ...words });
    await press("Maintenance …");
    await dialog().getByText("Customers are told to wait 120 seconds: Back at 14:00 UTC").waitFor();
    await press("End it");
    await operator.result().getByText("The maintenance has ended.").waitFor();
    expect(await manage("GET", "/maintenance")).toMatchObject({ on: false });
    const { token } = await givenToken("reader", ["usage:read"]);
    await press("Sign out");
    await operator.signIn("overview", token);
    expect(await page.getByRole("button", { name: "Maintenance …" }).count()).toBe(0);
  });

  // Guarantee: what was sold in a month is all that customers paid.
  test("a sale by number has what was paid, which stands under Sold", async () => {
    const { accountId } = await gateway.givenKey({ credits: 0 });
    const paid = async () =>
      Number(
        (await manage("GET", `/sales?month=${new Date().toISOString().slice(0, 7)}`)).amounts_paid.CHF ?? 0,
      );
    const before = await paid();
    await operator.signIn(`account/${accountId}`);
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("700");
    await dialog().getByLabel("Reference").fill("invoice 70");
    await dialog().getByLabel("Paid").fill("12,50");
    await press("Grant");
    await dialog().getByText("Paid must be an amount and a currency such as 9.90 USD.").waitFor();
    await dialog().getByLabel("Paid").fill("12.50 CHF");
    await dialog().getByLabel("Kind").selectOption("trial");
    await press("Grant");
    await dialog().getByText("nothing is paid for a grant of kind trial", { exact: false }).waitFor();
    await dialog().getByLabel("Kind").selectOption("purchase");
    await press("Grant");
    await operator.result().getByText("+700 credits").waitFor();
    await expect.poll(paid).toBe(before + 12.5);
    await operator.open(`account/${accountId}/transactions`);
    await page.getByRole("cell", { name: "12.50 CHF, reference invoice 70" }).waitFor();
  });
});
