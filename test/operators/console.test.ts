import { randomUUID } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { totalsName } from "../../src/records/names.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { givenRedis } from "../support/store-stage.ts";
import {
  CUT_OFF,
  FAINT_TEXT,
  givenOperator,
  hasChromium,
  NAMELESS,
  type Operator,
  openBrowser,
  plotsDrawn,
  TOKEN,
} from "./console-stage.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const BOAT = { prompt: "a boat" };
const VIEWS = ["overview", "accounts", "tasks", "top", "sales", "keys", "configuration", "audit", "tokens"];

describe.skipIf(!hasChromium)("the console in a browser", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;

  beforeAll(async () => {
    gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    operator = await givenOperator(browser, gateway);
    onTestFinished(() => operator.close());
    page = operator.page;
  });

  const generate = (key: string) => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const dialog = () => page.getByRole("dialog");
  /** Everything in sight fits without a sideways scroll on the narrowest of phones. */
  async function fitsPhone(): Promise<void> {
    const size = page.viewportSize();
    await page.setViewportSize({ width: 320, height: 700 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(320);
    if (size) await page.setViewportSize(size);
  }
  /** A call of the management API, as a colleague's program makes it. */
  // biome-ignore lint/suspicious/noExplicitAny: answers have every shape.
  async function manage(method: string, path: string, body?: unknown): Promise<any> {
    const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
    const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) };
    const answer = await fetch(`${gateway.adminUrl}/manage/v1/${path}`, init);
    expect(answer.ok, `${method} ${path}`).toBe(true);
    return answer.json();
  }
  const givenToken = (scopes: string[], accounts?: string[]): Promise<{ token: string; token_id: string }> =>
    manage("POST", "tokens", { label: "a colleague's", scopes, accounts: accounts ?? null });

  test("the overview draws what goes on, from its own files alone and without a complaint", async () => {
    const { key } = await gateway.givenKey({ limits: { rate_limit: 2 } });
    await operator.signIn();
    for (let n = 0; n < 5; n++) await generate(key);
    await page.getByRole("row", { name: /rate_limited 429/ }).waitFor();
    expect(Number(await operator.tile("per second, 4xx"))).toBeGreaterThan(0);
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);
    await plotsDrawn(page, 4);
    await page
      .getByRole("region", { name: "All gateways" })
      .getByText("ready", { exact: true })
      .first()
      .waitFor();
    expect(await operator.tile("Ledger")).toMatch(/^(balanced|unknown)$/);
    for (const name of VIEWS) await operator.open(name);
    expect(operator.complaints).toEqual([]);
  });

  test("every view says whether the gateway is ready, and a trouble that is over is not said any more", async () => {
    await operator.signIn();
    for (const name of VIEWS) {
      await operator.view(name);
      await page.reload();
      await page.locator("#view-title").waitFor();
      expect(await page.locator("#state").textContent(), name).toMatch(/^Ready/);
    }
    await operator.view("overview");
    await page.locator(".plot").first().waitFor();
    await page.route("**/manage/v1/live*", (route) => route.abort());
    await page.getByText("No data: the gateway does not answer").waitFor();
    await page.unrouteAll();
    await operator.open("accounts");
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);

    // A read that fails only after its view was left.
    const begun = Promise.withResolvers<() => Promise<void>>();
    await page.route("**/manage/v1/live?after_ms=0", (route) => begun.resolve(() => route.abort()));
    await operator.view("overview");
    const abort = await begun.promise;
    await operator.open("accounts");
    const failed = page.waitForEvent("requestfailed", (one) => one.url().includes("after_ms=0"));
    await Promise.all([failed, abort()]);
    await page.evaluate("new Promise((done) => setTimeout(done))");
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);
    await page.unrouteAll();
  });

  test("a wrong token is told so and not kept, and one that is forgotten locks the page again", async () => {
    await operator.view("accounts");
    await page.getByRole("textbox", { name: "Token" }).fill("wrong-token-wrong-token");
    await page.keyboard.press("Enter");
    await expect.poll(() => page.locator("#sign-in-error").textContent()).toMatch(/token/);
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    await operator.signIn("accounts");
    expect(await page.evaluate("document.cookie + localStorage.length")).toBe("0");
    await press("Sign out");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    expect(await page.getByRole("table").count()).toBe(0);
    expect(await page.getByRole("navigation").getByRole("link").count()).toBe(0);
    expect(await page.getByRole("searchbox").count()).toBe(0);
  });

  // Guarantee: whoever wants it signs in once for all tabs, for as long as they said, and signs out of all of them.
  test("a token kept for an hour serves other tabs, is signed out of all, and is not used after its hour", async () => {
    await operator.view("accounts");
    await page
      .getByRole("combobox", { name: "Stay signed in" })
      .selectOption({ label: "in all tabs, for an hour" });
    await page.getByRole("textbox", { name: "Token" }).fill(TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#view-title").waitFor();
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.locator("#view-title").waitFor();
    await other.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    const kept = JSON.stringify({ value: TOKEN, until: Date.now() - 1 });
    await page.evaluate(`localStorage.setItem("tollgate-admin-token", ${JSON.stringify(kept)})`);
    await other.reload();
    await other.getByRole("textbox", { name: "Token" }).waitFor();
    expect(await page.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
    await other.close();
  });

  test("on a phone the header takes two lines, and the whole state is said where it is bad", async () => {
    const size = page.viewportSize()!;
    await page.setViewportSize({ width: 390, height: 800 });
    await operator.signIn();
    await page.locator("#state.good").waitFor();
    expect(await page.evaluate("document.querySelector('header').offsetHeight")).toBeLessThanOrEqual(96);
    await page.keyboard.press("/");
    expect(await page.evaluate("document.activeElement.id")).toBe("find-id");
    await page.setViewportSize(size);
  });

  test("on a phone the filters of a list are folded away until they are asked for", async () => {
    const size = page.viewportSize()!;
    await page.setViewportSize({ width: 390, height: 800 });
    await operator.signIn("audit");
    const show = page.getByRole("button", { name: "Show", exact: true });
    const folded = page.getByText("Filters", { exact: true });
    await folded.waitFor();
    expect(await show.isVisible()).toBe(false);
    expect((await page.locator("#view table").boundingBox())!.y).toBeLessThan(320);
    await folded.click();
    await page.getByLabel("By", { exact: true }).fill("nobody");
    await show.click();
    await page.getByText("Filters, 1 set").waitFor();
    await page.getByText("There is no record.").waitFor();
    expect(await show.isVisible()).toBe(false);
    await page.setViewportSize(size);
  });

  test("with the keyboard alone: skip, find an account, grant it credits, and come back to where one was", async () => {
    const { accountId } = await gateway.givenKey({ credits: 25 });
    await operator.signIn();
    await page.reload();
    await page.locator("#view-title").waitFor();
    await page.keyboard.press("Tab");
    expect(await operator.focused()).toBe("Skip to the content");
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement.id")).toBe("main");
    await page.getByRole("searchbox", { name: "Search" }).focus();
    await page.keyboard.type(accountId);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await tabTo("Grant credits …");
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Escape");
    expect(await dialog().count()).toBe(0);
    expect(await operator.focused()).toBe("Grant credits …");

    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.type("7.5");
    await page.keyboard.press("Enter");
    await page.getByText("Credits must be a whole number, at least 1.").waitFor();
    await page.keyboard.press("Control+A");
    await page.keyboard.type("75");
    await page.getByText("Balance 25 → 100 credits (+75).").waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.type("ticket 1");
    await page.keyboard.press("Enter");
    await page.getByText(`+75 credits for ${accountId}, reference ticket 1. The balance is 100.`).waitFor();
    await expect.poll(() => operator.tile("Balance")).toBe("100");
    expect(await operator.result().getAttribute("aria-live")).toBe("polite");
    await operator.open(`account/${accountId}/transactions`);
    await page.getByRole("row", { name: /purchase \+75 100 reference ticket 1/ }).waitFor();
    expect(operator.complaints).toEqual([]);
  });

  /** Goes on with Tab until this has the focus. */
  async function tabTo(name: string): Promise<void> {
    for (let n = 0; n < 40; n++) {
      if ((await operator.focused()) === name) return;
      await page.keyboard.press("Tab");
    }
    throw new Error(`${name} cannot be reached with the keyboard`);
  }

  // Guarantee: a slip of a zero is asked about once more, and money moves only after that.
  test("an adjustment by half of the balance, and a grant of 10,000, are asked about again", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1000 });
    await operator.signIn(`account/${accountId}`);
    await press("Adjust balance …");
    await dialog().getByLabel("Change in credits").fill("-500");
    await dialog().getByLabel("Reason").fill("granted twice");
    await dialog().getByLabel("Reference").fill("ticket 2");
    await page.getByText("Balance 1,000 → 500 credits (−500).").waitFor();
    await press("Adjust");
    await page.getByText("the balance goes from 1,000 to 500. Are you sure?").waitFor();
    expect(await operator.tile("Balance")).toBe("1,000");
    // Another amount is another question.
    await dialog().getByLabel("Change in credits").fill("-600");
    await press("Adjust");
    await page.getByText("the balance goes from 1,000 to 400. Are you sure?").waitFor();
    await press("Yes, adjust");
    await page.getByText(`−600 credits for ${accountId}, reference ticket 2. The balance is 400.`).waitFor();
    await expect.poll(() => operator.tile("Balance")).toBe("400");

    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("10000");
    await dialog().getByLabel("Reference").fill("invoice 3");
    await press("Grant");
    await page.getByText("the balance goes from 400 to 10,400. Are you sure?").waitFor();
    await press("Yes, grant");
    await expect.poll(() => operator.tile("Balance")).toBe("10,400");
  });

  test("a key is created and shown once, edited, rotated and revoked", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await press("Create key …");
    await dialog().getByLabel("Label").fill("render farm");
    await dialog().getByLabel("Cap: credits per UTC month").fill("500");
    await press("Create it");
    const secret = (await page.getByLabel("The new key", { exact: true }).last().textContent()) ?? "";
    expect((await gateway.request("GET", "/api/v1/credits", { key: secret })).status).toBe(200);
    // Escape must not lose it.
    await page.keyboard.press("Escape");
    expect(await dialog().count()).toBe(1);
    await press("I have it");
    await page.getByRole("row", { name: /render farm/ }).waitFor();
    expect(await page.content()).not.toContain(secret);

    await page
      .getByRole("row", { name: /render farm/ })
      .getByRole("link")
      .click();
    await press("Edit …");
    await dialog().getByLabel("Requests per 60 s").fill("7");
    await press("Save");
    await page.getByText("7 requests per 60 s").waitFor();
    await press("Rotate …");
    await press("Rotate it");
    const next = (await page.getByLabel("The new key", { exact: true }).last().textContent()) ?? "";
    await press("I have it");
    expect((await gateway.request("GET", "/api/v1/credits", { key: next })).status).toBe(200);
    await press("Revoke …");
    await press("Revoke it");
    await page.getByText("is revoked since").waitFor();
    expect((await gateway.request("GET", "/api/v1/credits", { key: secret })).status).toBe(401);
    await expect.poll(() => page.getByRole("button", { name: "Revoke …" }).count()).toBe(0);
  });

  // Guarantee: what is pressed belongs to what the address names. A row leads from an account, with an Edit of its own, to a key.
  test("while a view is read, nothing of the one before can be pressed", async () => {
    const { accountId, keyId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    const heldRequest = Promise.withResolvers<() => Promise<void>>();
    await page.route(`**/manage/v1/accounts/${accountId}/keys/${keyId}`, (route) =>
      heldRequest.resolve(() => route.continue()),
    );
    await page.getByRole("link", { name: keyId }).click();
    const answer = await heldRequest.promise;
    const place = await page.getByRole("button", { name: "Edit …", exact: true }).boundingBox();
    await page.mouse.click(place!.x + 5, place!.y + 5);
    expect(await dialog().count()).toBe(0);
    await answer();
    await press("Edit …");
    expect(await dialog().getByRole("heading").textContent()).toBe(`Edit key ${keyId}`);
  });

  test("an account is suspended, activated and edited; a change by somebody else in between is not lost", async () => {
    const { key, accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await press("Suspend …");
    await press("Suspend it");
    await page.getByText(`Account ${accountId} is suspended.`).waitFor();
    expect((await generate(key)).status).toBe(403);
    await press("Activate …");
    await press("Activate it");
    await page.getByText(`Account ${accountId} is active.`).waitFor();
    expect((await generate(key)).status).toBe(200);

    await press("Edit …");
    await dialog().getByLabel("Label").fill("Acme Film Ltd");
    const other = await givenOperator(browser, gateway);
    try {
      await other.signIn(`account/${accountId}`);
      await other.page.getByRole("button", { name: "Edit …" }).click();
      await other.page.getByLabel("Requests per UTC day").fill("9");
      await other.page.getByRole("button", { name: "Save" }).click();
      await other.page.getByText(`Account ${accountId} is changed.`).waitFor();
    } finally {
      await other.close();
    }
    await press("Save");
    await page.getByText("somebody else has changed it meanwhile").waitFor();
    await press("Cancel");
    await press("Refresh");
    await expect.poll(() => operator.tile("Today")).toContain("/ 9");

    await press("Edit …");
    const metadata = dialog().getByLabel("Metadata");
    for (const wrong of ["{", "[1]", "null", "42"]) {
      await metadata.fill(wrong);
      await press("Save");
      await dialog()
        .getByText(/Metadata (must be a JSON object|is not JSON)/)
        .waitFor();
    }
    await metadata.fill('{"crm_id": "42",\n "plan": {"seats": 3}}');
    await press("Save");
    await page.getByText('plan: { "seats": 3 }').waitFor();
    await press("Edit …");
    expect(JSON.parse(await metadata.inputValue())).toEqual({ crm_id: "42", plan: { seats: 3 } });
    await metadata.fill("");
    await press("Save");
    await expect.poll(() => page.getByText("crm_id").count()).toBe(0);
  });

  test("a finished task is refunded once, an open one is released, each after a question that can be declined", async () => {
    const { key, accountId } = await gateway.givenKey({ credits: 100 });
    const open = (await generate(key)).body.data.task_id;
    await operator.signIn(`search?q=${open}`);
    await press("Release …");
    await press("Cancel");
    await press("Release …");
    await press("Release it");
    await page
      .getByText(`Task ${open} ended as failed; its slot is free and 10 credits are refunded.`)
      .waitFor();
    await operator.open(`account/${accountId}`);
    expect(await operator.tile("Balance")).toBe("100");

    gateway.generator.behave({ durationMs: 0 });
    const finished = (await generate(key)).body.data.task_id;
    await gateway.request("GET", `/api/v1/tasks/${finished}`, { key });
    await operator.open(`account/${accountId}/tasks`);
    await page
      .getByRole("row", { name: /completed/ })
      .getByRole("link")
      .first()
      .click();
    await press("Refund …");
    await dialog().getByLabel("Reason").fill("the video was black");
    await dialog().getByLabel("Reference").fill("ticket 9");
    await press("Refund it");
    await page.getByText(`task ${finished} is refunded. The balance is 100.`).waitFor();
    await expect.poll(() => page.getByRole("button", { name: "Refund …" }).count()).toBe(0);
    await operator.open(`account/${accountId}/transactions?kind=refund`);
    await page.getByRole("row", { name: /the video was black, reference ticket 9/ }).waitFor();
  });

  test("a failed task can be refunded where that has not happened by itself, and is not offered where it has", async () => {
    const config = { admin: { token: TOKEN }, tasks: { refundFailed: false } };
    const strict = await givenGateway({ config, behaviour: { durationMs: 0, failRatio: 1 } });
    gateway.generator.behave({ durationMs: 0, failRatio: 1 });
    try {
      const failedTask = async (of: TestGateway) => {
        const { key } = await of.givenKey({ credits: 100 });
        const made = await of.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
        const id = made.body.data.task_id;
        await of.request("GET", `/api/v1/tasks/${id}`, { key });
        return id;
      };
      const refunded = await failedTask(gateway);
      await operator.signIn(`task/${refunded}`);
      await page.getByText("failed", { exact: true }).first().waitFor();
      expect(await page.getByRole("button", { name: "Refund …" }).count()).toBe(0);

      const other = await givenOperator(browser, strict);
      const charged = await failedTask(strict);
      await other.signIn(`task/${charged}`);
      await other.page.getByRole("button", { name: "Refund …" }).click();
      await other.page.getByLabel("Reason").fill("it failed");
      await other.page.getByLabel("Reference").fill("ticket 10");
      await other.page.getByRole("button", { name: "Refund it" }).click();
      await other.page.getByText(`task ${charged} is refunded. The balance is 100.`).waitFor();
      await other.close();
    } finally {
      gateway.generator.behave({ durationMs: 3_600_000, failRatio: 0 });
      await strict.stop();
    }
  });

  test("the key after a hundred others shows what it has used, on its page and in the list", async () => {
    const { accountId } = await gateway.givenKey();
    for (let n = 0; n < 103; n++) await gateway.givenKey({ accountId, credits: 0 });
    const last = await gateway.givenKey({ accountId, limits: { daily_limit: 77 } });
    await generate(last.key);
    await operator.signIn(`key/${accountId}/${last.keyId}`);
    expect(await operator.tile("Today")).toMatch(/1.*77/);
    await operator.open(`account/${accountId}`);
    await page.getByRole("link", { name: "Next page" }).click();
    await page.getByRole("row", { name: new RegExp(`${last.keyId}.*77`) }).waitFor();
  });

  test("the id of a transaction and a reference lead to the entry itself", async () => {
    const { accountId } = await gateway.givenKey({ credits: 100 });
    const reference = `invoice ${accountId}`;
    const { id } = await manage("POST", `accounts/${accountId}/grants`, { credits: 7, reference });
    await operator.signIn();
    for (const q of [id, reference]) {
      await operator.view(`search?q=${encodeURIComponent(q)}`);
      const rows = page.getByRole("table", { name: "Transactions (UTC)" }).locator("tbody tr");
      await rows.filter({ hasText: `reference ${reference}` }).waitFor();
      expect(await rows.count()).toBe(1);
      await operator.open("overview");
    }
  });

  // Guarantee: nobody takes what a search has found for all there is, or what it does not look for as missing.
  test("a search says that more accounts have a label and where they are, and what is not found by a label", async () => {
    const label = `Studio ${randomUUID()}`;
    const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
    const accounts = `${gateway.adminUrl}/manage/v1/accounts`;
    const body = JSON.stringify({ label });
    for (let n = 0; n < 21; n++) await fetch(accounts, { method: "POST", headers, body });
    await operator.signIn();
    await operator.view(`search?q=${encodeURIComponent(label)}`);
    await page.getByText("Tokens are not found by their labels").waitFor();
    await page.getByText("There may be more than these").waitFor();
    await page.getByRole("link", { name: "list of accounts" }).click();
    const rows = page.getByRole("table", { name: "Accounts" }).locator("tbody tr");
    await rows.nth(20).waitFor();
    expect(await rows.count()).toBe(21);
    await operator.view("search?q=backend");
    await page
      .getByText("No id is backend, and no label, metadata or reference has words that begin with it")
      .waitFor();
  });

  test("the configuration lists what changed files change, at SIGHUP or at a restart", async () => {
    const path = "**/manage/v1/configuration";
    await page.route(path, async (route) => {
      const answer = await route.fetch();
      const json = (await answer.json()) as { file: object };
      const differs = [
        { path: "tasks.refund_failed", in_force: true, in_file: false, needs_restart: false },
        { path: "server.port", in_force: 8080, in_file: 8081, needs_restart: true },
      ];
      Object.assign(json.file, { differs, awaiting_signal: true });
      await route.fulfill({ response: answer, json });
    });
    await operator.signIn("configuration");
    await page.getByText("The files have changed. This gateway reads them at SIGHUP").waitFor();
    await page.getByRole("row", { name: "tasks.refund_failed true false SIGHUP" }).waitFor();
    await page.getByRole("row", { name: "server.port 8080 8081 a restart" }).waitFor();
    await page.unroute(path);
  });

  test("the id of an audit record leads to it", async () => {
    const { accountId } = await gateway.givenKey({ credits: 100 });
    const [record] = (await manage("GET", `audit?account_id=${accountId}`)).data;
    await operator.signIn();
    await operator.view(`search?q=${record.audit_id}`);
    const rows = page.getByRole("table", { name: "What operators changed (UTC)" }).locator("tbody tr");
    await rows.filter({ hasText: `record ${record.audit_id}` }).waitFor();
    expect(await rows.count()).toBe(1);
  });

  // Guarantee: what is typed survives a token that ends.
  test("a token that is lost while a form is open is asked for there, and what was typed is sent with the new one", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    await operator.signIn(`account/${accountId}`);
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("5");
    await dialog().getByLabel("Reference").fill("ticket 4");
    await page.evaluate(() => sessionStorage.setItem("tollgate-admin-token", "ended-ended-ended"));
    await press("Grant");
    await page.getByText("Give another one; what you typed is kept.").waitFor();
    await dialog().getByLabel("Token").fill(TOKEN);
    await press("Grant");
    await page.getByText(`+5 credits for ${accountId}, reference ticket 4. The balance is 15.`).waitFor();
  });

  test("a token without a right is not offered what it may not do", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    await operator.signIn("tokens");
    await press("Create token …");
    await dialog().getByLabel("Label").fill("support desk");
    for (const scope of ["accounts:read", "keys:read", "credits:read"]) {
      await dialog().getByLabel(scope).check();
    }
    await press("Create it");
    const secret = (await page.getByLabel("The new token", { exact: true }).last().textContent()) ?? "";
    expect(secret).toMatch(/^tgm_/);
    await press("I have it");
    await page.getByRole("row", { name: /support desk/ }).waitFor();
    await press("Sign out");
    await operator.signIn(`account/${accountId}`, secret);
    await page.getByRole("link", { name: "Transactions" }).waitFor();
    expect(await page.getByRole("button", { name: /…$/ }).count()).toBe(0);
    const views = await page.getByRole("navigation", { name: "Views" }).getByRole("link").allTextContents();
    expect(views).toEqual(["Accounts", "Keys today", "Configuration"]);
    expect(await page.getByRole("link", { name: "Tasks" }).count()).toBe(0);
    expect(operator.complaints).toEqual([]);
  });

  test("a token for some accounts begins with these, and is offered no view of all", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    const scopes = ["accounts:read", "keys:read", "usage:read", "tasks:read"];
    const { token } = await givenToken(scopes, [accountId]);
    await operator.signIn("", token);
    await page.getByRole("heading", { name: "Accounts" }).waitFor();
    await page.getByRole("link", { name: accountId }).click();
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await page.getByRole("region", { name: "Keys" }).waitFor();
    const views = page.getByRole("navigation", { name: "Views" }).getByRole("link");
    expect(await views.allTextContents()).toEqual(["Accounts"]);
    expect(await page.locator("#state").textContent()).toBe("");
    expect(operator.complaints).toEqual([]);
  });

  test("what one did is in the audit, by name; the filter and Back keep their places", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await press("Edit …");
    await dialog().getByLabel("Label").fill("Northwind");
    await press("Save");
    await page.getByRole("link", { name: "what operators did to it" }).click();
    await page.getByRole("row", { name: /console account\.patch/ }).waitFor();
    await operator.open("audit");
    const filter = () => page.getByLabel("Account", { exact: true });
    await filter().fill(accountId);
    await press("Show");
    await page.waitForURL(`**/#audit?account_id=${accountId}`);
    const rows = page.getByRole("table").locator("tbody tr");
    await expect.poll(() => rows.filter({ hasNotText: accountId }).count()).toBe(0);
    expect(await rows.count()).toBeGreaterThan(0);
    await page.goBack();
    await expect.poll(() => filter().inputValue()).toBe("");
    await page.goForward();
    await expect.poll(() => filter().inputValue()).toBe(accountId);
  });

  test("Back closes a question, but not one whose answer is on its way, nor a secret that is shown once", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn("accounts");
    const opened = () => page.locator("#dialog[open]").count();
    const held = Promise.withResolvers<void>();
    await page.route(/\/manage\/v1\/accounts\/[^/]*\/keys$/, async (route) => {
      await held.promise;
      await route.continue();
    });
    await operator.open(`account/${accountId}`);
    await press("Create key …");
    await page.goBack();
    await expect.poll(opened).toBe(0);
    await operator.open(`account/${accountId}`);
    await press("Create key …");
    await press("Create it");
    await page.goBack();
    await page.waitForURL("**/#accounts");
    expect(await opened()).toBe(1);
    held.resolve();
    await dialog().getByText(/sk_/).first().waitFor();
    await page.goForward();
    await page.waitForURL(`**/#account/${accountId}`);
    expect(await opened()).toBe(1);
    await press("I have it");
    await expect.poll(opened).toBe(0);
    await page.unroute(/\/manage\/v1\/accounts\/[^/]*\/keys$/);
  });

  // Guarantee: a secret that was made is seen.
  test("a question whose answer is on its way stays, and a secret however often Escape is pressed", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    const opened = () => page.locator("#dialog[open]").count();
    const held = Promise.withResolvers<void>();
    await page.route(/\/manage\/v1\/accounts\/[^/]*\/keys$/, async (route) => {
      await held.promise;
      await route.continue();
    });
    const pressEscape = async () => {
      for (let times = 0; times < 3; times++) await page.keyboard.press("Escape");
      expect(await opened()).toBe(1);
    };
    await press("Create key …");
    await press("Create it");
    await pressEscape();
    expect(await dialog().getByRole("button", { name: "Cancel" }).isDisabled()).toBe(true);
    held.resolve();
    await dialog().getByText(/sk_/).first().waitFor();
    await pressEscape();
    await press("I have it");
    await expect.poll(opened).toBe(0);
    await press("Create key …");
    await expect.poll(opened).toBe(1);
    await page.keyboard.press("Escape");
    await expect.poll(opened).toBe(0);
  });

  // Guarantee: nothing is said to be done that the gateway has not said.
  test("an answer that is not the gateway's is no success", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    await operator.signIn(`account/${accountId}`);
    await page.route("**/grants", (route) =>
      route.fulfill({ status: 200, contentType: "text/html", body: "<h1>Sign in to the proxy</h1>" }),
    );
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("5");
    await dialog().getByLabel("Reference").fill("ticket 5");
    await press("Grant");
    await dialog().getByText("The answer (200) cannot be read").waitFor();
    await page.unroute("**/grants");
    await press("Grant");
    await page.getByText(`+5 credits for ${accountId}, reference ticket 5. The balance is 15.`).waitFor();
  });

  // Guarantee: a question belongs to the view that is in sight.
  test("a question is not asked where its view was left while it was read", async () => {
    const [left, { accountId }] = [await gateway.givenKey({ credits: 7 }), await gateway.givenKey()];
    await operator.signIn(`account/${left.accountId}`);
    const heldRequest = Promise.withResolvers<() => Promise<void>>();
    await page.route(`**/manage/v1/accounts/${left.accountId}`, (route) =>
      heldRequest.resolve(() => route.continue()),
    );
    await press("Grant credits …");
    const answer = await heldRequest.promise;
    await operator.open(`account/${accountId}`);
    await Promise.all([page.waitForResponse(`**/manage/v1/accounts/${left.accountId}`), answer()]);
    await page.evaluate("new Promise((done) => setTimeout(done, 100))");
    expect(await page.locator("#dialog[open]").count()).toBe(0);
    await press("Grant credits …");
    expect(await dialog().getByRole("heading").textContent()).toBe(`Grant credits to ${accountId}`);
  });

  test("transactions are filtered and sorted by the address alone, and come as CSV", async () => {
    const { key, accountId } = await gateway.givenKey({ credits: 100 });
    for (let n = 0; n < 3; n++) await generate(key);
    await operator.signIn(`account/${accountId}/transactions?kind=charge&sort=balance-after`);
    const rows = page.getByRole("table").locator("tbody tr");
    expect(await rows.count()).toBe(3);
    expect(await rows.first().textContent()).toContain("−1070");
    await press("Balance after");
    expect(await rows.first().textContent()).toContain("−1090");
    expect(page.url()).toContain("sort=-balance-after");
    const [download] = await Promise.all([page.waitForEvent("download"), press("Download CSV")]);
    const lines = (await readAll(await download.createReadStream())).trimEnd().split("\r\n");
    expect(download.suggestedFilename()).toBe(`${accountId}-transactions.csv`);
    expect(lines[0]).toContain("amount,balance_after");
    expect(lines.slice(1).map((line) => line.split(",")[4])).toEqual(["-10", "-10", "-10"]);
    await page.getByRole("row").nth(1).getByRole("link").click();
    await page.getByRole("heading", { name: "Task" }).waitFor();
  });

  test("a file of transactions has what the filter let through when it was asked for, whatever is looked at meanwhile", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    await operator.signIn(`account/${accountId}/transactions?kind=purchase`);
    const requested: string[] = [];
    const left = Promise.withResolvers<void>();
    await page.route("**/transactions?*limit=100*", async (route) => {
      requested.push(new URL(route.request().url()).searchParams.get("kind") ?? "");
      await left.promise;
      const body = JSON.stringify({ data: [], next_cursor: requested.length === 1 ? "more" : null });
      await route.fulfill({ status: 200, contentType: "application/json", body });
    });
    await press("Download CSV");
    await expect.poll(() => requested.length).toBe(1);
    await operator.open("accounts");
    left.resolve();
    await expect.poll(() => requested).toEqual(["purchase", "purchase"]);
  });

  test("markup in what operators and customers name is text", async () => {
    const hostile = "<img src=x onerror=alert(1)><b>bold</b>";
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await press("Edit …");
    await dialog().getByLabel("Label").fill(hostile);
    await press("Save");
    await page.locator(".subtitle", { hasText: hostile }).waitFor();
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("1");
    await dialog().getByLabel("Reference").fill(hostile);
    await press("Grant");
    await page.getByText(`reference ${hostile}`).waitFor();
    await operator.open(`account/${accountId}/transactions`);
    await page.getByRole("cell", { name: `reference ${hostile}` }).waitFor();
    await operator.open(`search?q=${encodeURIComponent(`${hostile}?`)}`);
    await page.getByText(`${hostile}?`).first().waitFor();
    expect(await page.locator("#view img, #view b").count()).toBe(0);
    expect(operator.complaints).toEqual([]);
  });

  test("what turns the direction of a text is shown, and does not turn the page's own words", async () => {
    const { accountId } = await gateway.givenKey();
    await manage("PATCH", `accounts/${accountId}`, { metadata: { note: "owed \u202e002" } });
    await operator.signIn(`audit?account_id=${accountId}`);
    await page.getByText("owed \\u202e002").first().waitFor();
    expect(await page.locator("#view").textContent()).not.toContain("\u202e");
  });

  // Guarantee: what is typed in part is never taken for nothing.
  test("an expiry without a time is refused, for a key that is made or changed and for a token", async () => {
    const { accountId } = await gateway.givenKey();
    const keys = async () => (await manage("GET", `accounts/${accountId}/keys`)).data;
    const expiry = () => dialog().getByLabel("Expires (UTC)");
    const isRefused = async (verb: string) => {
      await press(verb);
      await dialog()
        .getByText("Expires (UTC) must have a date and a time such as 2026-12-31 12:00, or be empty.")
        .waitFor();
      expect(await page.evaluate("document.activeElement.id")).toBe("field-expires_at");
    };
    await operator.signIn(`account/${accountId}`);
    await press("Create key …");
    await dialog().getByLabel("Requests per 60 s").fill("1e");
    await press("Create it");
    await dialog().getByText("Requests per 60 s must be a whole number, or empty for none.").waitFor();
    await dialog().getByLabel("Requests per 60 s").fill("");
    await expiry().fill("2099-12-31");
    await isRefused("Create it");
    expect(await keys()).toHaveLength(1);
    await expiry().fill("2099-12-31T12:00");
    await press("Create it");
    await press("I have it");
    const [, made] = await keys();
    expect(made.expires_at).toBe("2099-12-31T12:00:00.000Z");

    await operator.open(`key/${accountId}/${made.key_id}`);
    await press("Edit …");
    await expiry().fill("2099-02-30 12:00");
    await isRefused("Save");
    expect((await keys())[1].expires_at).toBe("2099-12-31T12:00:00.000Z");
    await press("Cancel");

    await operator.open("tokens");
    await press("Create token …");
    await dialog().getByLabel("Label").fill("half an expiry");
    await dialog().getByLabel("usage:read").check();
    await expiry().fill("2099-12-31");
    await isRefused("Create it");
    expect((await manage("GET", "tokens")).data.map((one: { label: string }) => one.label)).not.toContain(
      "half an expiry",
    );
    await press("Cancel");

    // The browser itself refuses it in a filter.
    await operator.open(`account/${accountId}/transactions`);
    await page.getByLabel("From", { exact: true }).focus();
    await page.keyboard.type("12");
    await press("Show");
    expect(page.url()).toMatch(/transactions$/);
  });

  // Guarantee: the balance that one decides by is that of now.
  test("a grant and an adjustment show and judge the balance as it is when they are asked for", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1000 });
    await operator.signIn(`account/${accountId}`);
    const adjust = { amount: -900, reason: "by a colleague", reference: "ticket 20" };
    await manage("POST", `accounts/${accountId}/adjustments`, adjust);
    expect(await operator.tile("Balance")).toBe("1,000");
    await press("Grant credits …");
    await dialog().getByText("Balance now: 100 credits.").waitFor();
    await press("Cancel");
    await press("Adjust balance …");
    await dialog().getByLabel("Change in credits").fill("-60");
    await dialog().getByLabel("Reason").fill("granted twice");
    await dialog().getByLabel("Reference").fill("ticket 21");
    await dialog().getByText("Balance 100 → 40 credits (−60).").waitFor();
    await press("Adjust");
    await dialog().getByText("the balance goes from 100 to 40. Are you sure?").waitFor();
  });

  test("an adjustment below zero is refused before it is asked about, with a minus sign that is one", async () => {
    const { accountId } = await gateway.givenKey({ credits: 1396 });
    await operator.signIn(`account/${accountId}`);
    await press("Adjust balance …");
    await dialog().getByLabel("Change in credits").fill("-100000");
    await dialog().getByLabel("Reason").fill("a slip");
    await dialog().getByLabel("Reference").fill("ticket 22");
    await press("Adjust");
    await dialog().getByText("Change in credits takes away more than the balance of 1,396.").waitFor();
    expect(await page.locator("#dialog-doubt").textContent()).toBe("");
    await dialog().getByLabel("Change in credits").fill("-10");
    await press("Adjust");
    await page.getByText("The balance is 1,386.").waitFor();
    await operator.open(`audit?account_id=${accountId}`);
    await page
      .getByRole("row", { name: /credits\.adjust/ })
      .getByText("−10")
      .first()
      .waitFor({ state: "attached" });
  });

  test("a button that is pressed while another one's question is read asks nothing", async () => {
    const { accountId } = await gateway.givenKey({ credits: 100 });
    await operator.signIn(`account/${accountId}`);
    const answers: (() => Promise<void>)[] = [];
    await page.route(`**/manage/v1/accounts/${accountId}`, (route) => {
      answers.push(() => route.continue());
    });
    await press("Grant credits …");
    await press("Adjust balance …");
    await expect.poll(() => answers.length).toBe(2);
    for (const answer of answers) {
      await Promise.all([page.waitForResponse(`**/manage/v1/accounts/${accountId}`), answer()]);
      await dialog().waitFor();
      await page.evaluate("new Promise((done) => setTimeout(done))");
      expect(await dialog().getByRole("heading").textContent()).toBe(`Grant credits to ${accountId}`);
    }
    expect(operator.complaints).toEqual([]);
  });

  test("a refusal is said once", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    await manage("POST", `accounts/${accountId}/grants`, { credits: 5, reference: "inv-1" });
    await operator.signIn(`account/${accountId}`);
    await press("Grant credits …");
    await dialog().getByLabel("Credits", { exact: true }).fill("6");
    await dialog().getByLabel("Reference").fill("inv-1");
    await press("Grant");
    await expect.poll(() => page.locator("#dialog-error").textContent()).toMatch(/^The reference inv-1 was/);
    expect((await page.locator("#dialog-error").textContent())?.match(/inv-1/g)).toHaveLength(1);
  });

  test("a filter that is refused says so below its form, and the rest of the view stays", async () => {
    const { accountId } = await gateway.givenKey({ credits: 10 });
    const backwards = "from=2026-11-27&to=2026-11-20";
    await operator.signIn(`account/${accountId}/transactions?${backwards}`);
    await page.locator("#view .error", { hasText: "from" }).waitFor();
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await page.getByRole("button", { name: "Adjust balance …" }).waitFor();
    await page.getByLabel("to", { exact: true }).fill("2026-11-30");
    await press("Show");
    await page.getByRole("table", { name: "Transactions (UTC)" }).waitFor();
    expect(await page.locator("#view .error").count()).toBe(0);

    for (const [place, field] of [
      [`account/${accountId}/refusals?${backwards}`, "Key"],
      [`account/${accountId}/tasks?from=2026-13-45`, "Status"],
      ["accounts?status=none-such", "Label begins with"],
      ["audit?cursor=made-up", "Record"],
      ["tasks?older=-1", "Age, at least"],
    ] as const) {
      await operator.open(place);
      await page.locator("#view .error").waitFor();
      await fitsPhone();
      await page.getByLabel(field, { exact: true }).waitFor();
      await page.getByRole("button", { name: "Show", exact: true }).waitFor();
    }
    // A part without a filter fails alone, too.
    await page.route("**/keys?*", (route) => route.abort());
    await operator.open(`account/${accountId}`);
    await page.locator("#view .error", { hasText: "The gateway does not answer" }).waitFor();
    await page.getByRole("link", { name: "Transactions" }).waitFor();
    await page.unrouteAll();
  });

  test("with Redis away the overview says so in place of the money, and its live figures go on", async ({
    onTestFinished,
  }) => {
    const redis = await givenRedis();
    const alone = await givenGateway({ config: { admin: { token: TOKEN } }, redisUrl: redis.url });
    const other = await givenOperator(browser, alone);
    onTestFinished(async () => {
      await other.close();
      await alone.stop();
      await redis.stop();
    });
    await other.signIn();
    expect(await other.tile("Charged")).toBe("0");
    await redis.end();
    // Figures that were read before are not taken for those of now.
    await other.page.locator("#view .error", { hasText: "Redis cannot be used" }).waitFor();
    await other.page.reload();
    await other.page.locator("#view .error", { hasText: "Redis cannot be used" }).waitFor();
    expect(await other.page.locator(".plot").count()).toBe(4);
    await expect.poll(() => other.tile("Answered")).toMatch(/^\d/);
    await redis.startAgain();
    await expect.poll(() => other.tile("Charged"), { timeout: 60_000 }).toBe("0");
    expect(await other.page.locator("#view .error").count()).toBe(0);
  });

  test("a token that is lost is told so, also where several answers say it", async () => {
    const { accountId } = await gateway.givenKey();
    const { token, token_id } = await givenToken(["accounts:read"]);
    await operator.signIn(`account/${accountId}`, token);
    await manage("POST", `tokens/${token_id}/revoke`, {});
    const answers: number[] = [];
    page.on("response", (answer) => answers.push(answer.status()));
    await press("Refresh");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    await expect.poll(() => answers).toEqual([401, 401]);
    expect(await page.locator("#sign-in-error").textContent()).toMatch(/^This token is unknown, revoked/);
  });

  test("the audit opens for a token of one account, and lets one of several choose", async () => {
    const one = await gateway.givenKey();
    const two = await gateway.givenKey({ accountId: one.accountId.padEnd(64, "W") });
    const alone = await givenToken(["audit:read"], [one.accountId]);
    await operator.signIn("", alone.token);
    await page.waitForURL(`**/#audit?account_id=${one.accountId}`);
    const rows = page.getByRole("table").locator("tbody tr");
    await rows.first().waitFor();
    expect(await rows.filter({ hasText: one.accountId }).count()).toBe(await rows.count());

    await press("Sign out");
    const both = await givenToken(["audit:read"], [one.accountId, two.accountId]);
    const requested: string[] = [];
    page.on("request", (request) => requested.push(request.url()));
    await operator.signIn("audit", both.token);
    await page.getByText("This token is for some accounts: choose one of them.").waitFor();
    expect(requested.filter((url) => url.includes("/manage/v1/audit"))).toEqual([]);
    await page.getByLabel("Account", { exact: true }).selectOption(two.accountId);
    await rows.filter({ hasText: two.accountId }).first().waitFor();
    await fitsPhone();

    await page.setViewportSize({ width: 390, height: 844 });
    await operator.open("audit");
    await page.getByText("This token is for some accounts: choose one of them.").waitFor();
    await page.getByLabel("Account", { exact: true }).selectOption(one.accountId);
    await rows.filter({ hasText: one.accountId }).first().waitFor();
    expect(await page.getByRole("button", { name: "Show", exact: true }).isVisible()).toBe(false);
  });

  test("a key that was rotated leads to its successor, and is not offered to be rotated again", async () => {
    const { accountId, keyId } = await gateway.givenKey();
    await operator.signIn(`key/${accountId}/${keyId}`);
    await press("Rotate …");
    await press("Rotate it");
    await press("I have it");
    await page.getByRole("button", { name: "Edit …" }).waitFor();
    await expect.poll(() => page.getByRole("button", { name: "Rotate …" }).count()).toBe(0);
    const { rotated_to } = await manage("GET", `accounts/${accountId}/keys/${keyId}`);
    await fitsPhone();
    await page.locator("#view").getByRole("link", { name: rotated_to }).click();
    await page.getByRole("heading", { name: `Key ${rotated_to}` }).waitFor();
    await page.getByRole("button", { name: "Rotate …" }).waitFor();
  });

  test("a token that may read keys alone sees them, and no link that it may not follow", async () => {
    const { accountId, keyId, key } = await gateway.givenKey();
    await generate(key);
    const { token } = await givenToken(["keys:read"]);
    await operator.signIn("", token);
    // Others used more, perhaps: any row does.
    const row = page.getByRole("table", { name: "Most used" }).locator("tbody tr").first();
    await row.getByRole("link", { name: /^key_/ }).waitFor();
    expect(await row.getByRole("link").count()).toBe(1);
    await operator.open(`key/${accountId}/${keyId}`);
    await page.getByRole("heading", { name: `Key ${keyId}` }).waitFor();
    expect(await operator.tile("This month")).toMatch(/^\d/);
    expect(await page.locator("#view .tile").count()).toBe(1);
    await page.locator("#view dd", { hasText: accountId }).waitFor();
    expect(await page.locator("#view").getByRole("link").count()).toBe(0);
    expect(operator.complaints).toEqual([]);
  });

  test("a token that can read nothing is told that there is nothing to see for it", async () => {
    const { token } = await givenToken(["credits:write", "keys:write"]);
    await operator.signIn("", token);
    await page.getByRole("heading", { name: "Nothing to show" }).waitFor();
    await page.getByText("credits:write, keys:write").waitFor();
    await fitsPhone();
    await operator.open("overview");
    await page.getByRole("heading", { name: "Nothing to show" }).waitFor();
    expect(await page.locator("#view .error").count()).toBe(0);
  });

  // Guarantee: a key that is pasted by mistake is not kept by the browser.
  test("a secret that is searched for stands in no address", async () => {
    const { key, keyId, accountId } = await gateway.givenKey();
    await operator.signIn();
    const [visited, requested]: [string[], string[]] = [[], []];
    page.on("request", (request) => requested.push(request.url()));
    page.on("framenavigated", (frame) => visited.push(frame.url()));
    const field = page.getByRole("searchbox", { name: "Search" });
    const { token } = await givenToken(["usage:read"]);
    await field.fill(token);
    await field.press("Enter");
    await page.getByText("This is a secret and has no place here.").waitFor();
    expect(await field.inputValue()).toBe("");
    // A key leads to its page.
    await field.fill(key);
    await field.press("Enter");
    await page.getByRole("heading", { name: `Key ${keyId}` }).waitFor();
    expect(await field.inputValue()).toBe("");
    // As customers send it, and where rows are chosen.
    await field.fill(`"Bearer ${key}"`);
    await field.press("Enter");
    await page.getByText("This is a secret and has no place here.").waitFor();
    expect(await field.inputValue()).toBe("");
    await operator.open(`account/${accountId}/refusals`);
    await page.getByLabel("Key", { exact: true }).fill(key);
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.getByText("This is a secret and has no place here.").waitFor();
    expect(visited.join()).not.toMatch(/sk_|tgm_/);
    expect(requested.join()).not.toMatch(/sk_|tgm_/);
    // A link may have one.
    await operator.view(`search?q=${key}`);
    await page.locator("#view").getByText("This is a secret and has no place here.").waitFor();
    expect(page.url()).toMatch(/#search$/);
    await operator.open("accounts");
    await page.goBack();
    await page.getByRole("heading", { name: "Search" }).waitFor();
    expect(page.url()).toMatch(/#search$/);
    expect(await page.locator("#view .error").count()).toBe(0);
  });

  test("the key that was just made is one click away, behind however many others", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}`);
    await press("Create key …");
    await press("Create it");
    await press("I have it");
    const made = operator.result().getByRole("link");
    const id = await made.textContent();
    expect(await operator.result().textContent()).toBe(`Key ${id} of account ${accountId} is created.`);
    await made.click();
    await page.getByRole("heading", { name: `Key ${id}` }).waitFor();
  });

  test.each(["light", "dark"] as const)(
    "in %s all text stands out and all controls have names; a phone shows amount, usage and reason without scrolling sideways",
    async (scheme) => {
      const { key, keyId, accountId } = await gateway.givenKey({ limits: { rate_limit: 1 } });
      for (let n = 0; n < 2; n++) await generate(key);
      // A good day of a large company.
      const today = new Date().toISOString();
      await gateway.redis.hset(
        totalsName(0, today.slice(0, 7)),
        today.slice(8, 10),
        "81234567 12345678901 345678901 81000000 234567 45678901234 -123456789 12 120",
      );
      await page.emulateMedia({ colorScheme: scheme });
      await operator.signIn();
      const account = ["", "/transactions", "/tasks", "/refusals"].map(
        (part) => `account/${accountId}${part}`,
      );
      for (const name of [...VIEWS, ...account, `key/${accountId}/${keyId}`]) {
        await page.setViewportSize({ width: 1300, height: 900 });
        await operator.open(name);
        expect(await page.evaluate<string[]>(FAINT_TEXT), name).toEqual([]);
        expect(await page.evaluate<string[]>(NAMELESS), name).toEqual([]);
        for (const width of [400, 320]) {
          await page.setViewportSize({ width, height: 700 });
          expect(await page.evaluate("document.documentElement.scrollWidth"), name).toBeLessThanOrEqual(
            width,
          );
          expect(await page.evaluate(CUT_OFF), `${name} at ${width}`).toEqual([]);
        }
      }
      await press("Revoke …");
      expect(await page.evaluate<string[]>(FAINT_TEXT), "dialog").toEqual([]);
    },
  );

  test("another site's requests are refused, though the browser sends them", async ({ onTestFinished }) => {
    const site = await listening(
      createServer((_, res) => res.end("<!doctype html><title>another site</title>")),
    );
    onTestFinished(() => {
      site.close();
      site.closeAllConnections();
    });
    const requested = new Set<string>();
    const answers: { requestId: string; statusCode: number }[] = [];
    await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    const network = await page.context().newCDPSession(page);
    await network.send("Network.enable");
    network.on("Network.requestWillBeSent", ({ requestId, request }) => {
      if (request.url.startsWith(gateway.adminUrl)) requested.add(requestId);
    });
    network.on("Network.responseReceivedExtraInfo", (answer) => answers.push(answer));
    await page.evaluate(async (admin) => {
      // Not even that it was refused may be seen.
      await fetch(`${admin}/manage/v1/accounts`, { mode: "no-cors" }).catch(() => undefined);
      const post = { mode: "no-cors", method: "POST", body: "{}" } as const;
      await fetch(`${admin}/manage/v1/accounts`, post).catch(() => undefined);
    }, gateway.adminUrl);
    const statuses = () =>
      answers.filter(({ requestId }) => requested.has(requestId)).map((one) => one.statusCode);
    await expect.poll(statuses, { timeout: 30_000 }).toEqual([403, 403]);
  });
});

async function readAll(stream: AsyncIterable<Buffer | string>): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += chunk;
  return text;
}

async function listening(server: Server): Promise<Server> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", () => done()));
  return server;
}
