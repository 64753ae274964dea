import type { Browser, Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ADMIN_TOKEN } from "../gateway/manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "../gateway/spec-stage.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { answer, givenReceiver, givenWebhookStage, type Receiver } from "../support/webhook-stage.ts";
import {
  CUT_OFF,
  expectLegibleAnywhere,
  givenOperator,
  hasChromium,
  type Operator,
  openBrowser,
} from "./console-stage.ts";

describe.skipIf(!hasChromium)("webhooks in the console", () => {
  let gateway: TestGateway;
  let receiver: Receiver;
  let browser: Browser;
  let operator: Operator;
  let page: Page;

  beforeAll(async () => {
    ({ gateway } = await givenWebhookStage());
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    receiver = await givenReceiver();
    operator = await givenOperator(browser, gateway);
    page = operator.page;
    onTestFinished(async () => {
      await operator.close();
      await receiver.stop();
    });
  });

  const dialog = () => page.getByRole("dialog");
  const press = (name: string): Promise<void> => page.getByRole("button", { name, exact: true }).click();
  const shownSecret = async (): Promise<string> =>
    (await page.getByLabel("The secret", { exact: true }).last().textContent()) ?? "";

  /** An endpoint that was registered in the console, and its page. */
  async function givenEndpoint(accountId: string): Promise<string> {
    await operator.signIn(`account/${accountId}/webhooks`, ADMIN_TOKEN);
    await press("Register endpoint …");
    await dialog().getByLabel("Address").fill(receiver.url);
    await dialog().getByLabel("Label").fill("the shop");
    await press("Register it");
    const secret = await shownSecret();
    await press("I have it");
    await page.getByRole("link", { name: receiver.url }).click();
    await page.getByRole("heading", { name: /^Endpoint we_/ }).waitFor();
    return secret;
  }

  /** Reads the view anew until a row of deliveries looks like this. */
  async function delivery(row: RegExp): Promise<void> {
    const found = () => page.getByRole("row", { name: row }).count();
    await expect
      .poll(
        async () => {
          await press("Refresh");
          await page.locator("#view:not([aria-busy])").waitFor();
          return found();
        },
        { timeout: 30_000 },
      )
      .toBeGreaterThan(0);
  }

  const isVerified = (secret: string, { headers, body }: Receiver["received"][number]): boolean => {
    try {
      new Webhook(secret).verify(body, headers as Record<string, string>);
      return true;
    } catch {
      return false;
    }
  };

  test("an endpoint is registered, its secret shown once, tested, rotated, disabled, enabled and deleted", async () => {
    const { accountId } = await gateway.givenKey();
    const secret = await givenEndpoint(accountId);
    expect(secret).toMatch(/^whsec_/);
    expect(await page.content()).not.toContain(secret);

    await press("Send test …");
    await press("Send it");
    await page.getByText(/^Test message \S+ is on its way/).waitFor();
    await delivery(/webhook\.test delivered 1/);
    expect(isVerified(secret, receiver.received[0]!)).toBe(true);

    await press("Rotate secret …");
    await press("Rotate it");
    const next = await shownSecret();
    await press("I have it");
    await page.getByText("Old secret signs until").waitFor();
    await press("Send test …");
    await press("Send it");
    await expect.poll(() => receiver.received.length).toBe(2);
    expect([secret, next].map((one) => isVerified(one, receiver.received[1]!))).toEqual([true, true]);

    await press("Disable …");
    await press("Disable it");
    await page.getByText("It is disabled by an operator.").waitFor();
    expect(await page.getByRole("button", { name: /^(Send test|Redeliver)/ }).count()).toBe(0);
    await press("Enable …");
    await press("Enable it");
    await page.getByRole("button", { name: "Send test …" }).waitFor();

    await press("Delete …");
    await press("Delete it");
    await page.getByText(/^Endpoint \S+ is deleted\.$/).waitFor();
    await page.getByText("It has none.").waitFor();
    expect(operator.complaints).toEqual([]);
  });

  test("what failed is there with its answer, and is delivered again by hand", async () => {
    const { accountId, key } = await gateway.givenKey();
    receiver.say(answer(500, {}, "<b>the shop</b> is closed"));
    await givenEndpoint(accountId);
    const { body } = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    const { task_id: taskId } = body.data as { task_id: string };
    await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
    await delivery(/task\.completed failed 4/);
    expect(await page.getByRole("row", { name: /task\.completed/ }).textContent()).toContain(
      "500: <b>the shop</b> is closed",
    );
    await page.getByText("All tries have failed since").waitFor();
    receiver.say(answer(200));
    await page.getByRole("button", { name: /^Redeliver evt_/ }).click();
    await press("Deliver it");
    await delivery(/task\.completed delivered/);
    expect(new Set(receiver.ids()).size).toBe(1);

    await page.getByLabel("Status").selectOption("failed");
    await page.getByText("There are none.").waitFor();
    expect(operator.complaints).toEqual([]);
  });

  test("an address that no message may go to is refused in the form, in words", async () => {
    const { accountId } = await gateway.givenKey();
    await operator.signIn(`account/${accountId}/webhooks`, ADMIN_TOKEN);
    await press("Register endpoint …");
    await dialog().getByLabel("Address").fill("https://169.254.169.254/latest");
    await press("Register it");
    await dialog()
      .getByText(/must lead to a public address/)
      .waitFor();
    await dialog().getByLabel("Address").fill("no address");
    await press("Register it");
    await dialog().getByText("Address must be an address such as").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("It has none.").waitFor();
  });

  test("an edit changes what it says, and one by somebody else in between is not lost", async () => {
    const { accountId } = await gateway.givenKey();
    await givenEndpoint(accountId);
    await press("Edit …");
    await dialog().getByLabel("task.completed").uncheck();
    await dialog().getByLabel("Label").fill("failures only");
    await press("Save");
    await page.getByText("failures only").waitFor();
    await page.locator("dd", { hasText: /key\.revoked, task\.failed$/ }).waitFor();
    await press("Edit …");
    const id = /webhook\/[^/]+\/([\w-]+)/.exec(page.url())![1];
    const path = `${gateway.adminUrl}/manage/v1/accounts/${accountId}/webhooks/${id}`;
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" };
    const theirs = { method: "PATCH", headers, body: JSON.stringify({ label: "theirs" }) };
    expect((await fetch(path, theirs)).status).toBe(200);
    await dialog().getByLabel("Label").fill("mine");
    await press("Save");
    await dialog()
      .getByText(/somebody else has changed it/i)
      .waitFor();
    await page.keyboard.press("Escape");
    await press("Refresh");
    await page.getByText("theirs").waitFor();
  });

  test("a token without the right is not offered the endpoints, and each view takes at most ten requests", async () => {
    const { accountId } = await gateway.givenKey();
    await givenEndpoint(accountId);
    const place = page.url().split("#")[1]!;
    for (const view of [place, `account/${accountId}/webhooks`]) {
      const requested: string[] = [];
      const note = (request: { url(): string }): void => void requested.push(request.url());
      page.on("request", note);
      await operator.open("accounts");
      requested.length = 0;
      await operator.open(view);
      page.off("request", note);
      expect(
        requested.filter((url) => url.includes("/manage/")).length,
        requested.join("\n"),
      ).toBeLessThanOrEqual(10);
    }
    const made = await fetch(`${gateway.adminUrl}/manage/v1/tokens`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ label: "reader", scopes: ["accounts:read", "tasks:read"] }),
    });
    const { token } = (await made.json()) as { token: string };
    const reader = await givenOperator(browser, gateway);
    await reader.signIn(`account/${accountId}`, token);
    expect(await reader.page.getByRole("link", { name: "Webhooks" }).count()).toBe(0);
    await reader.close();
  });

  test("both views are legible, named and whole, wide and narrow, light and dark", async () => {
    const { accountId } = await gateway.givenKey();
    receiver.say(answer(500, {}, "x".repeat(600)));
    await givenEndpoint(accountId);
    await press("Send test …");
    await press("Send it");
    await delivery(/webhook\.test failed 4/);
    const endpoint = page.url().split("#")[1]!;
    for (const [name, view] of [
      ["webhooks", `account/${accountId}/webhooks`],
      ["webhook", endpoint],
    ] as const) {
      await operator.open(view);
      await expectLegibleAnywhere(page, name);
      expect(await page.evaluate(CUT_OFF), name).toEqual([]);
    }
  });
});

test.skipIf(!hasChromium)(
  "without a key the console says that webhooks are off, and how to turn them on",
  async () => {
    const gateway = await givenGateway({ config: { admin: { token: ADMIN_TOKEN } } });
    const browser = await openBrowser();
    try {
      const { accountId } = await gateway.givenKey();
      const operator = await givenOperator(browser, gateway);
      await operator.signIn(`account/${accountId}/webhooks`, ADMIN_TOKEN);
      await operator.page.getByText(/Webhooks are off: set WEBHOOK_SECRET_KEY/).waitFor();
    } finally {
      await browser.close();
      await gateway.stop();
    }
  },
);
