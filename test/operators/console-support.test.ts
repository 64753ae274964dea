import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BOAT, TEXT_TO_VIDEO } from "../gateway/spec-stage.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { managing } from "./console-customers.ts";
import {
  expectLegibleAnywhere,
  givenOperator,
  hasChromium,
  type Operator,
  openBrowser,
  TOKEN,
} from "./console-stage.ts";

// Guarantee: what support and finance ask is answered in two clicks from the page of what they were given.

/** A busy machine takes its time. */
const polled = <Value>(read: () => Promise<Value>) => expect.poll(read, { timeout: 20_000 });

describe.skipIf(!hasChromium)("questions that the console answers", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let operator: Operator;
  let page: Page;
  let clicks: number;
  beforeAll(async () => {
    gateway = await givenGateway({ config: { admin: { token: TOKEN }, tasks: { cacheMs: 0 } } });
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    operator = await givenOperator(browser, gateway);
    onTestFinished(async () => {
      expect(operator.complaints).toEqual([]);
      await operator.close();
    });
    page = operator.page;
    clicks = 0;
  });

  // biome-ignore lint/suspicious/noExplicitAny: answers have every shape.
  const manage = (method: string, path: string, body?: object): Promise<any> =>
    managing(gateway)(method, `/${path}`, body);
  const generate = (key: string, headers = {}) =>
    gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });
  const press = async (name: string) => {
    await page.getByRole("button", { name, exact: true }).click();
    clicks++;
  };
  const follow = async (name: string | RegExp) => {
    await page
      .getByRole("link", { name, ...(typeof name === "string" && { exact: true }) })
      .first()
      .click();
    clicks++;
  };
  const dialog = () => page.getByRole("dialog");
  /** Pastes into the search field, and waits for what it leads to. */
  async function search(q: string): Promise<void> {
    await page.getByRole("searchbox", { name: "Search" }).fill(q);
    await page.keyboard.press("Enter");
  }
  async function givenEnd(key: string, failRatio: number): Promise<string> {
    gateway.generator.behave({ durationMs: 0, failRatio });
    const { task_id: id } = (await generate(key)).body.data;
    await until(async () => {
      const { status } = (await gateway.request("GET", `/api/v1/tasks/${id}`, { key })).body.data;
      return status === "completed" || status === "failed";
    }, "the end of the task");
    return id;
  }

  test("why did key X get 429 at 14:03: the id that the customer quotes leads to the refusal, and the key's page has all", async () => {
    const { key, keyId, accountId } = await gateway.givenKey({
      label: "render farm",
      limits: { rate_limit: 1 },
    });
    await generate(key);
    for (let n = 0; n < 52; n++) await generate(key);
    const quoted = `shop-${accountId}`;
    expect((await generate(key, { "x-request-id": quoted })).status).toBe(429);
    await until(async () => {
      const { data } = await manage("GET", `search?q=${quoted}`);
      return data.length === 1;
    }, "the refusal");
    await operator.signIn();
    await search(quoted);
    await page.getByRole("heading", { name: `Key ${keyId}` }).waitFor();
    const rows = page.getByRole("table", { name: "Refused requests (UTC)" }).locator("tbody tr");
    await rows
      .filter({ hasText: /rate_limited1 of 1.*s.*req_/ })
      .filter({ hasText: quoted })
      .waitFor();
    expect(await rows.count()).toBe(1);
    expect(clicks).toBe(0);
    const { width, height } = page.viewportSize()!;
    await page.setViewportSize({ width: 390, height: 844 });
    const box = (await rows.first().boundingBox())!;
    expect(box.y + box.height, "without scrolling, on a phone, too").toBeLessThan(844);
    await page.setViewportSize({ width, height });

    await search(keyId);
    await rows.nth(49).waitFor();
    expect(await rows.count()).toBe(50);
    await expectLegibleAnywhere(page, "answer-key-refusals");
    await follow("Next page");
    await polled(() => rows.count()).toBe(3);
    expect(clicks).toBe(1);
    const minute = new Date().toISOString().slice(0, 16);
    const [from, to] = [-600_000, 60_000].map((ms) =>
      new Date(Date.parse(`${minute}Z`) + ms).toISOString().slice(0, 16).replace("T", " "),
    );
    await page.getByLabel("From (UTC)").fill(from!);
    await page.getByLabel("to", { exact: true }).fill(from!);
    await press("Show");
    await page.getByText("There are none.").waitFor();
    await page.getByLabel("to", { exact: true }).fill(to!);
    await page.getByLabel("Limit", { exact: true }).selectOption("rate_limited");
    await rows.nth(49).waitFor();
    // As the customer says it: a time of today.
    await page.getByLabel("From (UTC)").fill("00:00");
    await page.getByLabel("to", { exact: true }).fill("23:59");
    await press("Show");
    await page.waitForURL("**to=23%3A59**");
    await rows.nth(49).waitFor();
    await page.getByLabel("Limit", { exact: true }).selectOption("daily_limited");
    await page.getByText("There are none.").waitFor();
  });

  test("my video failed and I was charged: the task's page has the reason, its money, the key's label and an answer to copy", async () => {
    const { key, accountId } = await gateway.givenKey({ credits: 100, label: "render farm" });
    const failed = await givenEnd(key, 1);
    const completed = await givenEnd(key, 0);
    await manage("POST", `tasks/${completed}/refund`, {
      reason: "the video was black",
      reference: "ticket 7",
    });
    await operator.signIn();
    await search(failed);
    await page.getByRole("heading", { name: "Task" }).waitFor();
    const { failure_reason: reason } = await manage("GET", `tasks/${failed}`);
    expect(reason).toBeTruthy();
    const money = page.getByRole("table", { name: "Its transactions (UTC)" }).locator("tbody tr");
    await money.filter({ hasText: "10 credits charged for gen2/text-to-video" }).waitFor();
    await money.filter({ hasText: "10 credits refunded: the task failed" }).waitFor();
    await page.locator("dd", { hasText: "render farm" }).waitFor();
    await page.locator("dd", { hasText: reason }).waitFor();
    const answer = page.getByLabel("For the customer", { exact: true });
    expect(await answer.textContent()).toMatch(
      /^Your video of 2\d{3}-.* UTC \(.+\) failed: .+\.\nIts 10 credits went back to your balance at .* UTC: it cost you nothing\.$/,
    );
    await expectLegibleAnywhere(page, "answer-task-failed");
    expect(clicks).toBe(0);
    await press("Copy");
    await page.getByText(/^(Copied\.|It is selected: copy it with Ctrl\+C\.)$/).waitFor();

    await search(completed);
    await money.filter({ hasText: "refunded 10 credits" }).waitFor();
    expect(await money.nth(1).textContent()).toMatch(
      /The console refunded 10 credits: the video was black \(reference ticket 7\)/,
    );
    expect(await answer.textContent()).toMatch(/was completed at .*\nIts 10 credits went back/);
    await expectLegibleAnywhere(page, "answer-task-refunded");
    await operator.open(`account/${accountId}`);
    clicks = 0;
    await follow("Tasks");
    await page
      .getByRole("row", { name: /failed/ })
      .getByRole("link")
      .first()
      .click();
    await page.getByText("Why it failed").waitFor();
    expect(clicks + 1).toBeLessThanOrEqual(2);
  });

  test("who granted that and why: a sentence for each record, found by person, action and day", async () => {
    const { accountId } = await gateway.givenKey({ credits: 0 });
    const label = `Ada of ${accountId.slice(0, 12)}`;
    const { token } = await manage("POST", "tokens", { label, scopes: ["credits:write", "accounts:write"] });
    const asAda = (path: string, body: object, method = "POST") =>
      fetch(`${gateway.adminUrl}/manage/v1/accounts/${accountId}${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    await asAda("/grants", { credits: 500, kind: "goodwill", reference: "ticket 12" });
    await asAda("/adjustments", { amount: -50, reason: "granted twice", reference: "ticket 13" });
    await asAda("", { status: "suspended" }, "PATCH");
    await operator.signIn();
    await follow("Audit");
    const rows = page.getByRole("table").locator("tbody tr");
    await page
      .getByRole("row", { name: new RegExp(label) })
      .first()
      .getByRole("link", { name: label })
      .click();
    clicks++;
    await polled(() => rows.count()).toBe(3);
    expect(clicks).toBe(2);
    const sentences = await rows.locator("summary").allTextContents();
    expect(sentences).toEqual([
      "Suspended the account",
      "Took away 50 credits: granted twice (reference ticket 13)",
      "Granted 500 credits as goodwill (reference ticket 12)",
    ]);
    await expectLegibleAnywhere(page, "answer-audit-person");
    await page.getByLabel("Action", { exact: true }).selectOption("credits.grant");
    await polled(() => rows.count()).toBe(1);
    await page.getByLabel("to", { exact: true }).fill("2026-01-01");
    await press("Show");
    await page.getByText("There is no record.").waitFor();
  });

  // Guarantee: a grant is undone once, whatever is pressed how often, and never for more than is left.
  test("undo of a grant: what is left is shown, the reversal is linked and netted out, and nothing is left in words", async () => {
    const { accountId } = await gateway.givenKey({ credits: 0 });
    await manage("POST", `accounts/${accountId}/grants`, { credits: 100, reference: "invoice 1" });
    await operator.signIn(`account/${accountId}`);
    await follow("Transactions");
    await press("Undo …");
    expect(clicks).toBe(2);
    await dialog().getByText("at most 100 can be taken back").waitFor();
    await dialog().getByLabel("Credits", { exact: true }).fill("30");
    await page.getByText("Balance 100 → 70 credits (−30).").waitFor();
    await dialog().getByLabel("Reason").fill("charged back");
    await expectLegibleAnywhere(page, "answer-undo");
    // The answer is lost, and it is pressed again.
    await page.route("**/reversals", async (route) => {
      await route.fetch();
      await route.abort();
    });
    await press("Take back");
    await dialog().getByText("The gateway does not answer").waitFor();
    await page.unroute("**/reversals");
    operator.complaints.length = 0;
    await press("Take back");
    await page.getByText("took back 30 credits before").waitFor();
    const rows = page.getByRole("table", { name: "Transactions (UTC)" }).locator("tbody tr");
    await rows.filter({ hasText: "net 70: 30 taken back" }).waitFor();
    await rows.filter({ hasText: "charged back" }).getByRole("link", { name: "invoice 1" }).waitFor();
    await expectLegibleAnywhere(page, "answer-transactions-undone");
    expect(await operator.tile("Balance")).toBe("70");

    // Somebody spends the rest meanwhile.
    await press("Undo …");
    await dialog().getByText("30 of it were taken back before").waitFor();
    await dialog().getByLabel("Reason").fill("charged back");
    const spent = { amount: -70, reason: "spent", reference: "spent" };
    await manage("POST", `accounts/${accountId}/adjustments`, spent);
    await press("Take back");
    await dialog()
      .getByText("70 credits of the grant invoice 1 were not reversed, and the account can spend 0")
      .waitFor();
    await press("Cancel");
    await press("Undo …");
    await dialog().getByText("Nothing is left to take back: the account can spend 0.").waitFor();
    await expectLegibleAnywhere(page, "answer-undo-nothing-left");
    await press("Cancel");
    await manage("POST", `accounts/${accountId}/adjustments`, {
      amount: 70,
      reason: "back",
      reference: "back",
    });
    await press("Undo …");
    await dialog().getByLabel("Reason").fill("charged back");
    await press("Take back");
    await page.getByText("70 credits of the grant invoice 1 are taken back. The balance is 0.").waitFor();
    await polled(() => page.getByRole("button", { name: "Undo …" }).count()).toBe(0);
    const { data } = await manage("GET", `accounts/${accountId}/transactions?kind=reversal`);
    expect(data.map(({ amount }: { amount: number }) => amount)).toEqual([-70, -30]);
  });

  // Guarantee: who looks for a key that has leaked leaks it to nobody else.
  test("this key has leaked: pasted, it leads to whose it is, and is replaced at once; it is in no address, log or storage", async () => {
    const { key, keyId, accountId } = await gateway.givenKey({
      label: "on GitHub",
      limits: { rate_limit: 9 },
    });
    await generate(key);
    await operator.signIn();
    const seen: string[] = [];
    page.on("framenavigated", (frame) => seen.push(frame.url()));
    page.on("request", (request) => seen.push(request.url(), JSON.stringify(request.headers())));
    await search(key);
    await page.getByRole("heading", { name: `Key ${keyId}` }).waitFor();
    expect(await page.getByRole("searchbox", { name: "Search" }).inputValue()).toBe("");
    const use = page.getByRole("table", { name: "Use in the last 7 days (UTC)" });
    await expect
      .poll(
        async () => {
          if (await use.getByRole("row", { name: /^2\d{3}-\d\d-\d\d 1 10 0/ }).count()) return true;
          await page.getByRole("button", { name: "Refresh" }).click();
          return false;
        },
        { timeout: 20_000, interval: 500 },
      )
      .toBe(true);
    await expectLegibleAnywhere(page, "answer-key-leaked");
    await press("It leaked: replace it now …");
    await expectLegibleAnywhere(page, "answer-replace-key");
    await press("Replace it");
    expect(clicks).toBe(2);
    const next = (await page.getByLabel("The new key", { exact: true }).last().textContent()) ?? "";
    await expectLegibleAnywhere(page, "answer-key-replaced");
    await press("I have it");
    expect((await gateway.request("GET", "/api/v1/credits", { key })).status).toBe(401);
    expect((await gateway.request("GET", "/api/v1/credits", { key: next })).status).toBe(200);

    await operator.open("accounts");
    await press("A key has leaked …");
    await dialog().getByLabel("The key").fill("key_not-a-secret");
    await press("Find it");
    await dialog().getByText("The key must begin with sk_.").waitFor();
    await expectLegibleAnywhere(page, "answer-leaked-key");
    await dialog().getByLabel("The key").fill(`${key}x`);
    await press("Find it");
    await dialog().getByText("This key is not known").waitFor();
    await dialog().getByLabel("The key").fill(key);
    await press("Find it");
    await page.getByRole("heading", { name: `Key ${keyId}` }).waitFor();
    await page.locator("dd", { hasText: accountId }).waitFor();
    await page.locator("dd .badge", { hasText: /expired|revoked/ }).waitFor();
    expect(seen.join()).not.toContain(key);
    const stored = await page.evaluate<string>(
      "JSON.stringify([localStorage, sessionStorage, location.href, history.state, document.cookie, document.documentElement.outerHTML])",
    );
    expect(stored).not.toContain(key);
    expect(gateway.logs.join("\n")).not.toContain(key);
  });

  test("the timeline of an account has its money, keys, limits and status in one order, by pages", async () => {
    const { accountId, key, keyId } = await gateway.givenKey({ credits: 100, label: "render farm" });
    await manage("PATCH", `accounts/${accountId}`, { limits: { rate_limit: 50 } });
    const failed = await givenEnd(key, 1);
    await manage("PATCH", `accounts/${accountId}`, { status: "suspended" });
    await manage("POST", `accounts/${accountId}/keys/${keyId}/revoke`);
    await operator.signIn(`account/${accountId}`);
    await follow("Timeline");
    expect(clicks).toBe(1);
    const rows = page.getByRole("table", { name: "What happened (UTC)" }).locator("tbody tr");
    await rows.first().waitFor();
    const sentences = await rows.locator("td.wide").allTextContents();
    expect(sentences.slice(0, 5)).toEqual([
      "The console ended a key for good",
      "The console suspended the account",
      "10 credits refunded: the task failed",
      "10 credits charged for gen2/text-to-video",
      "The console changed the account: rate_limit: 50",
    ]);
    expect(sentences.at(-1)).toMatch(/created a key|granted 100 credits/);
    await expectLegibleAnywhere(page, "answer-timeline");
    await page.getByLabel("Charges").selectOption("without");
    await polled(() => rows.filter({ hasText: "charged for" }).count()).toBe(0);
    await rows.filter({ hasText: "refunded" }).getByRole("link", { name: failed }).click();
    await page.getByText("Why it failed").waitFor();
  });

  test("a token is made for a role by one button, whose scopes are shown and can be changed", async () => {
    await operator.signIn();
    await follow("Tokens");
    const ticked = () =>
      dialog()
        .locator("input:checked")
        .evaluateAll((boxes) => boxes.map((box) => box.getAttribute("value")));
    await press("Billing token …");
    const billing = await ticked();
    expect(billing).toContain("credits:write");
    expect(billing).not.toContain("keys:write");
    await press("Cancel");
    await press("Read-only token …");
    expect((await ticked()).every((scope) => scope?.endsWith(":read"))).toBe(true);
    await press("Cancel");
    // A shop's backend can do all that the example does.
    await press("Shop token …");
    const [, scopes = ""] = /--scopes (\S+)/.exec(await readFile("examples/shop/README.md", "utf8")) ?? [];
    expect(await ticked()).toEqual(expect.arrayContaining(scopes.split(",")));
    await press("Cancel");
    await press("Support token …");
    expect(await ticked()).not.toContain("credits:write");
    await dialog().getByLabel("usage:read").uncheck();
    await dialog().getByLabel("Label", { exact: true }).fill("night shift");
    await expectLegibleAnywhere(page, "answer-token-presets");
    await press("Create it");
    await press("I have it");
    const made = (await manage("GET", "tokens")).data[0].scopes;
    expect(made).toContain("tasks:write");
    expect(made).not.toContain("usage:read");
    // A token gives no more than it has.
    const { token } = await manage("POST", "tokens", {
      label: "desk",
      scopes: ["tokens:write", "keys:read"],
    });
    await press("Sign out");
    await operator.signIn("tokens", token);
    await page.getByRole("button", { name: "Shop token …" }).waitFor();
    expect(await page.getByRole("button", { name: "Billing token …" }).count()).toBe(0);
    await press("Shop token …");
    expect(await ticked()).toEqual(["keys:read"]);
  });

  test("health leads to the section of the runbook that says what to do", async () => {
    await page.route("**/manage/v1/health", async (route) => {
      const answer = await route.fetch();
      const json = (await answer.json()) as { checks: { name: string; status: string }[] };
      json.checks.find(({ name }) => name === "persistence")!.status = "fail";
      await route.fulfill({ response: answer, json });
    });
    await operator.signIn();
    await page.getByText(/\d+ of \d+ checks of this gateway found all good at/).waitFor();
    const row = page
      .getByRole("table", { name: "Checks that found something" })
      .getByRole("row", { name: /^persistence mend/ });
    await row.waitFor();
    await expectLegibleAnywhere(page, "answer-overview-checks");
    await row.getByRole("link", { name: "what to do" }).click();
    await page.getByRole("heading", { name: "TollgateRedisNotPersistent" }).waitFor();
    await page.locator(".runbook", { hasText: "Means" }).waitFor();
    await expectLegibleAnywhere(page, "answer-runbook");
    await page.unroute("**/manage/v1/health");
    const { checks } = await manage("GET", "health");
    for (const { runbook } of checks) {
      await operator.view(`runbook/${runbook.replace("docs/operations/", "").replace("#", "/")}`);
      await page.locator(".runbook > *").first().waitFor();
      expect(await page.locator("#view .note, #view .error").count(), runbook).toBe(0);
    }
    for (const none of ["..", ".", "none.md"]) {
      await operator.view(`runbook/${none}`);
      await page.getByText(`There is no page ${none}`).waitFor();
    }
  });
});
