import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { managing } from "./console-customers.ts";
import { givenOperator, hasChromium, type Operator, openBrowser, TOKEN } from "./console-stage.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";

// A hand that is too fast, an answer that does not come, a right that is missing.

describe.skipIf(!hasChromium)("mishaps at the console", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  beforeAll(async () => {
    gateway = await givenGateway({
      config: { admin: { token: TOKEN }, webhooks: { secretKey: "a-secret-key-of-the-tests-0123456789" } },
    });
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
  const manage = (method: string, path: string, body?: object) => managing(gateway)(method, path, body);

  async function fillGrant(credits: string): Promise<void> {
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill(credits);
    await dialog().getByLabel("Reference").fill("invoice 9");
  }

  // Guarantee: many credits move only after a question that somebody could read.
  test.each([
    ["a double click", () => page.getByRole("button", { name: "Grant", exact: true }).dblclick()],
    ["Enter pressed twice", () => page.keyboard.press("Enter").then(() => page.keyboard.press("Enter"))],
  ])("%s is no answer to a question that has just come up", async (_, twice) => {
    const { accountId } = await gateway.givenKey({ credits: 1 });
    let grants = 0;
    page.on("request", (request) => (grants += request.url().endsWith("/grants") ? 1 : 0));
    // The buttons of a form that is longer than the window stay where they are.
    await page.setViewportSize({ width: 390, height: 500 });
    await operator.signIn(`account/${accountId}`);
    await fillGrant("10000");
    await twice();
    await page.getByText("the balance goes from 1 to 10,001. Are you sure?").waitFor();
    await press("Cancel");
    await page.locator("#dialog:not([open])").waitFor({ state: "attached" });
    expect(grants).toBe(0);
    await fillGrant("10000");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Yes, grant" }).press("Enter");
    await page.getByText("The balance is 10,001.").waitFor();
    expect(grants).toBe(1);
  });

  // Guarantee: nobody takes another reference for a grant that was made.
  test.each(["an answer that is lost", "a proxy that waits no longer"])(
    "a write may have been done behind %s, and the form says so",
    async (which) => {
      const { accountId } = await gateway.givenKey({ credits: 1 });
      await operator.signIn(`account/${accountId}`);
      await page.route("**/grants", async (route) => {
        await route.fetch();
        if (which === "an answer that is lost") await route.abort();
        else await route.fulfill({ status: 504, contentType: "text/html", body: "<h1>Time-out</h1>" });
      });
      await fillGrant("5");
      await press("Grant");
      await dialog().getByText("what was asked for may be done all the same").waitFor();
      await page.unroute("**/grants");
      await press("Grant");
      await page.getByText("Nothing is changed: reference invoice 9").waitFor();
    },
  );

  test("where what is typed cannot be searched for, that is said in place of what was found before", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn();
    await page.locator("#find-id").fill(accountId.slice(0, 12));
    await page.locator("#found a").first().waitFor();
    await page.route("**/search?*", (route) => route.abort());
    await page.locator("#find-id").fill("acme");
    await page.locator("#found").getByText("The gateway does not answer").waitFor();
    expect(await page.locator("#found a").count()).toBe(0);
  });

  // Guarantee: nobody takes figures, or a state, of before for those of now.
  test("money that a token may no longer read is not shown as that of now", async () => {
    await operator.signIn();
    expect(await operator.tile("Charged")).toMatch(/^\d/);
    await page.route("**/overview", (route) =>
      route.fulfill({ status: 403, json: { detail: "the token lacks usage:read" } }),
    );
    await page.locator("#view .error", { hasText: "The token lacks usage:read" }).waitFor();
    expect(await page.locator(".tile", { hasText: "Charged" }).count()).toBe(0);
  });

  test("plots that are paused stay, and what this gateway needs goes on", async () => {
    await operator.signIn();
    await page.locator("#state", { hasText: "Ready" }).waitFor();
    await expect.poll(() => operator.tile("Answered")).toMatch(/^\d/);
    await press("Pause");
    await page.route("**/live?*", async (route) => {
      const answer = await route.fetch();
      const live = await answer.json();
      expect(live.at_ms).toEqual([]);
      await route.fulfill({ json: { ...live, gateway: { ...live.gateway, not_ready: "it stops" } } });
    });
    await page.locator("#state", { hasText: "Not ready: it stops" }).waitFor();
    await page.unroute("**/live?*");
    await press("Go on");
    await page.locator("#state", { hasText: "Ready" }).waitFor();
  });

  test("what came of a new account is said on its page, also that too few replicas have it", async () => {
    await page.route("**/accounts", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ json: { ...(await answer.json()), confirmed: false } });
    });
    await operator.signIn("accounts");
    await press("Create account …");
    await dialog().getByLabel("Label").fill("Acme");
    await press("Create it");
    await page.getByRole("heading", { name: /^Account acc/ }).waitFor();
    expect(await operator.result().textContent()).toMatch(/^Account .* is created\. Not confirmed: too few/);
  });

  test("a form that cannot be opened says why, and nothing else is said to be wrong", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await page.route(`**/accounts/${accountId}`, (route) =>
      route.fulfill({ status: 503, json: { detail: "Redis cannot be used" } }),
    );
    await press("Grant credits …");
    await expect.poll(() => operator.result().textContent()).toBe("Redis cannot be used");
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);
  });

  // Guarantee: a key that has leaked is ended by whoever finds it, however much is away.
  test("a key whose use cannot be read is shown, and can be revoked", async () => {
    const { accountId, keyId } = await gateway.givenKey();
    await operator.signIn();
    for (const path of ["**/usage?*", "**/use?*"])
      await page.route(path, (route) =>
        route.fulfill({ status: 503, json: { detail: "too much is asked" } }),
      );
    await operator.open(`key/${accountId}/${keyId}`);
    await expect.poll(() => page.locator("#view .error", { hasText: "Too much is asked" }).count()).toBe(2);
    await press("Revoke …");
    await press("Revoke it");
    await page.getByText("is revoked since").waitFor();
  });

  test("audit and timeline lead to nothing that the token may not read", async () => {
    const { accountId } = await gateway.givenKey({ credits: 100 });
    const account = `/accounts/${accountId}`;
    await manage("POST", `${account}/grants`, { credits: 5, reference: "o1" });
    const endpoint = { url: "https://example.com/hook", events: ["task.completed"] };
    const { id } = await manage("POST", `${account}/webhooks`, endpoint);
    const scopes = ["accounts:read", "audit:read"];
    const { token } = await manage("POST", "/tokens", { label: "auditor", scopes });
    await operator.signIn(`account/${accountId}/timeline`, token);
    const rows = page.getByRole("table").locator("tbody tr");
    await rows.filter({ hasText: "granted 5 credits" }).waitFor();
    const links = () => rows.getByRole("link").allTextContents();
    expect(new Set(await links())).toEqual(new Set(["record"]));
    await operator.open(`audit?account_id=${accountId}`);
    await rows.filter({ hasText: id }).waitFor();
    expect(await links()).not.toContain(id);
  });

  // Guarantee: what support tells a customer is true.
  test("of a task that an operator ended nobody is told what the upstream said", async () => {
    const { accountId, key } = await gateway.givenKey({ credits: 100 });
    await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } });
    const { data } = await manage("GET", `/accounts/${accountId}/tasks`);
    await operator.signIn(`task/${data[0].task_id}`);
    await press("Release …");
    await press("Release it");
    await page.getByText("None is known: the upstream gave none, or the task was released").waitFor();
    expect(await page.locator("#answer-text").textContent()).toMatch(/failed\. No reason is known\./);
  });

  test("a token that no header takes is a wrong one, in words", async () => {
    await operator.view("overview");
    await page.getByRole("textbox", { name: "Token" }).fill("tgm_…");
    await page.keyboard.press("Enter");
    await page.getByText("This needs a token, which has only letters").waitFor();
    expect(await page.getByRole("textbox", { name: "Token" }).inputValue()).toBe("");
  });

  test("a form that was given another token leaves its view as that one sees it", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1 });
    const scopes = ["accounts:read", "credits:write"];
    const ada = await manage("POST", "/tokens", { label: "Ada", scopes });
    const bob = await manage("POST", "/tokens", { label: "Bob", scopes: ["accounts:read"] });
    await operator.signIn(`account/${accountId}`, ada.token);
    await fillGrant("5");
    await manage("POST", `/tokens/${ada.token_id}/revoke`, {});
    await press("Grant");
    await dialog().getByLabel("Token").fill(bob.token);
    await press("Grant");
    await page.locator("#dialog-error", { hasText: "credits:write" }).waitFor();
    await press("Cancel");
    await page.locator("#who", { hasText: "Bob" }).waitFor();
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await expect.poll(() => page.getByRole("button", { name: "Grant credits …" }).count()).toBe(0);
    // It may read the account, and none of its parts: no empty one is selected.
    expect(await page.locator(".parts").count()).toBe(0);
  });

  test("a page that stands open over an upgrade says to load it anew, and what it has goes on", async () => {
    await operator.signIn("keys");
    // The page of the gateway before names content that this one does not have.
    await page.route("**/more.js?v=*", async (route) => {
      const url = route.request().url().replace(/v=.*/, "v=0123456789abcdef");
      await route.fulfill({ response: await route.fetch({ url }) });
    });
    await operator.open("configuration");
    await page.locator("#view .error", { hasText: "load the page anew" }).waitFor();
    await operator.open("accounts");
    await page.getByRole("table", { name: "Accounts" }).waitFor();
  });

  test("a page that is locked shows nothing of what was done and searched for", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1 });
    const { token, token_id } = await manage("POST", "/tokens", {
      label: "Ada",
      scopes: ["accounts:read", "credits:write"],
    });
    await operator.signIn(`account/${accountId}`, token);
    await fillGrant("5");
    await press("Grant");
    await page.getByText("The balance is 6.").waitFor();
    await expect.poll(() => operator.tile("Balance")).toBe("6");
    await page.locator("#find-id").fill(accountId);
    await page.locator("#found a").first().waitFor();
    await manage("POST", `/tokens/${token_id}/revoke`, {});
    await press("Refresh");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    expect(await page.locator("body").innerText()).not.toContain(accountId);
    expect(await page.locator("#find-id").inputValue()).toBe("");
  });

  test("a view that comes while somebody types a search leaves them in the field", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn("accounts");
    const heldRequest = Promise.withResolvers<() => Promise<void>>();
    await page.route("**/top-keys", (route) => heldRequest.resolve(() => route.continue()));
    await operator.view("keys");
    const answer = await heldRequest.promise;
    await page.keyboard.press("/");
    await page.keyboard.type(accountId.slice(0, 6));
    await answer();
    await page.getByRole("heading", { name: "Keys today" }).waitFor();
    await page.keyboard.type(accountId.slice(6));
    await page.locator("#found").getByRole("link", { name: accountId }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await expect.poll(() => operator.focused()).toBe(`Account ${accountId}`);
  });

  test("a task whose price was corrected is not offered to be refunded, which nobody may any more", async () => {
    const { key } = await gateway.givenKey({ credits: 100 });
    const from = new Date().toISOString();
    gateway.generator.behave({ durationMs: 0 });
    const made = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } });
    const id = made.body.data.task_id;
    await gateway.request("GET", `/api/v1/tasks/${id}`, { key });
    await operator.signIn(`task/${id}`);
    await page.getByRole("button", { name: "Refund …" }).waitFor();
    const prices = [{ endpoint: "gen2/text-to-video", charged: 10, correct: 4 }];
    const to = new Date(Date.now() + 1).toISOString();
    await manage("POST", "/corrections", { from, to, prices, reference: "fix", reason: "wrong price" });
    await press("Refresh");
    await page.getByText("6 of its credits went back").waitFor();
    expect(await page.getByRole("button", { name: "Refund …" }).count()).toBe(0);
  });
});
