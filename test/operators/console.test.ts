import { existsSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";

const CHROMIUM = process.env.CHROMIUM || "/usr/bin/chromium";
const TOKEN = "correct-horse-battery";
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const VIEWS = ["overview", "keys", "accounts", "tasks"];

const found = existsSync(CHROMIUM);
if (!found) {
  console.log(
    `Skipped: no Chromium at ${CHROMIUM}. Install one (apt-get install chromium), or set CHROMIUM to where it is.`,
  );
}

describe.skipIf(!found)("the console in a browser", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let page: Page;
  /** What the page complained of, and where else it went. */
  let complaints: string[];

  beforeAll(async () => {
    gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
    const asRoot = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    browser = await chromium.launch({ executablePath: CHROMIUM, args: asRoot });
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });
  beforeEach(async ({ onTestFinished }) => {
    const context = await browser.newContext({ viewport: { width: 1300, height: 900 } });
    onTestFinished(() => context.close());
    page = await context.newPage();
    page.setDefaultTimeout(30_000);
    complaints = [];
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (line) => {
      if (line.type() === "error" && !line.text().includes("401")) complaints.push(line.text());
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(gateway.adminUrl)) complaints.push(request.url());
    });
  });

  const view = (name: string): Promise<unknown> => page.goto(`${gateway.adminUrl}/console/#${name}`);

  async function signIn(name = "overview"): Promise<void> {
    await view(name);
    await page.getByRole("textbox", { name: "Token" }).fill(TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#view-title").waitFor();
  }

  const result = () => page.locator("#result");
  const tile = (label: string) =>
    page.locator(".tile", { hasText: label }).locator("dd").first().textContent();

  test("the overview draws what goes on, from its own files alone and without a complaint", async () => {
    const { key } = await gateway.givenKey({ limits: { rateLimit: 2 } });
    await signIn();
    for (let n = 0; n < 5; n++) {
      await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } });
    }
    await page.getByRole("row", { name: /rate_limited 429/ }).waitFor();
    expect(Number(await tile("Refused"))).toBeGreaterThan(0);
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);
    await expect.poll(() => page.evaluate(PLOTS_DRAWN), { timeout: 30_000, interval: 200 }).toBe(true);
    for (const name of VIEWS) {
      await view(name);
      await page.locator("#view-title").waitFor();
    }
    expect(complaints).toEqual([]);
  });

  test("every view says whether the gateway is ready, and a trouble that is over is not said any more", async () => {
    for (const name of VIEWS) {
      if (name === VIEWS[0]) await signIn(name);
      else await view(name);
      await page.reload();
      await page.locator("#view-title").waitFor();
      expect(await page.locator("#state").textContent(), name).toMatch(/^Ready/);
    }
    await view("overview");
    await page.locator(".plot").first().waitFor();
    await page.route("**/api/live*", (route) => route.abort());
    await page.getByText("No data: the gateway does not answer").waitFor();
    await page.unrouteAll();
    await view("accounts");
    await page.getByRole("table").first().waitFor();
    expect(await page.locator("#state").textContent()).toMatch(/^Ready/);
  });

  test("a wrong token is told so and not kept, and one that is forgotten locks the page again", async () => {
    await view("accounts");
    await page.getByRole("textbox", { name: "Token" }).fill("wrong-token-wrong-token");
    await page.keyboard.press("Enter");
    await page.getByText("this is not the gateway's ADMIN_TOKEN").waitFor();
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    await signIn("accounts");
    expect(await page.evaluate("document.cookie + localStorage.length")).toBe("0");
    await page.getByRole("button", { name: "Forget token" }).click();
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    expect(await page.getByRole("table").count()).toBe(0);
  });

  test("with the keyboard alone: skip, find an account, grant it credits, and come back to where one was", async () => {
    const { accountId } = await gateway.givenKey({ credits: 25 });
    await signIn();
    await page.reload();
    await page.locator("#view-title").waitFor();
    await page.keyboard.press("Tab");
    expect(await focused()).toBe("Skip to the content");
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement.id")).toBe("main");
    await page.keyboard.press("Shift+Tab");
    await page.getByRole("searchbox", { name: "Find" }).focus();
    await page.keyboard.type(accountId);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Account ${accountId}` }).waitFor();
    await until("Grant credits …");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    expect(await page.getByRole("dialog").count()).toBe(0);
    expect(await focused()).toBe("Grant credits …");

    await page.keyboard.press("Enter");
    await page.keyboard.type("7.5");
    await page.keyboard.press("Enter");
    await page.getByText("Credits must be a whole number, at least 1.").waitFor();
    await page.keyboard.press("Control+A");
    await page.keyboard.type("75");
    await page.keyboard.press("Tab");
    await page.keyboard.type("ticket 1");
    await page.keyboard.press("Enter");
    await page
      .getByText(`75 credits are granted to ${accountId}, reference ticket 1. It can spend 100.`)
      .waitFor();
    await page.getByRole("cell", { name: "reference ticket 1" }).waitFor();
    expect(await tile("Balance")).toBe("100");
    expect(await result().getAttribute("aria-live")).toBe("polite");
    expect(complaints).toEqual([]);
  });

  /** Goes on with Tab until this has the focus. */
  async function until(name: string): Promise<void> {
    for (let n = 0; n < 40; n++) {
      if ((await focused()) === name) return;
      await page.keyboard.press("Tab");
    }
    throw new Error(`${name} cannot be reached with the keyboard`);
  }

  const focused = () => page.evaluate<string>("document.activeElement.textContent.trim()");

  test("a task is released and a key revoked, each after a question that can be declined", async () => {
    const { key, keyId, accountId } = await gateway.givenKey({ credits: 100 });
    const made = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } });
    const taskId = made.body.data.task_id;
    await signIn(`find/${taskId}`);
    await page.getByRole("button", { name: "Release …" }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Release …" }).click();
    await page.getByRole("button", { name: "Release it" }).click();
    await page
      .getByText(`Task ${taskId} ended as failed; its slot is free and 10 credits are refunded.`)
      .waitFor();

    await view(`account/${accountId}`);
    await page.getByRole("button", { name: `Revoke key ${keyId}` }).click();
    await page.getByRole("button", { name: "Revoke it" }).click();
    await page.getByText(`Key ${keyId} is revoked.`).waitFor();
    expect((await gateway.request("GET", "/api/v1/credits", { key })).status).toBe(401);
    const actions = gateway.logs
      .filter((line) => line.includes('"audit":true'))
      .map((line) => JSON.parse(line));
    expect(actions.filter(({ target }) => [taskId, keyId].includes(target))).toMatchObject([
      { action: "release", outcome: "ended" },
      { action: "revoke", outcome: "revoked" },
    ]);
  });

  test("markup in what operators and customers name is text", async () => {
    const hostile = "<img src=x onerror=alert(1)><b>bold</b>";
    const { accountId } = await gateway.givenKey();
    await signIn();
    await page.evaluate(
      ([id, reference, token]) =>
        fetch("api/grant", {
          method: "POST",
          headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
          body: JSON.stringify({ account_id: id, amount: 1, reference }),
        }),
      [accountId, hostile, TOKEN],
    );
    await view(`account/${accountId}`);
    await page.getByRole("cell", { name: `reference ${hostile}` }).waitFor();
    await view(`find/${encodeURIComponent(hostile)}`);
    await page.getByText(`there is no account, key, task or request with the id ${hostile}`).waitFor();
    expect(await page.locator("#view img, #view b").count()).toBe(0);
    expect(complaints.filter((line) => !line.includes("400"))).toEqual([]);
  });

  test.each(["light", "dark"] as const)(
    "in %s all text stands out, and a narrow window does not scroll sideways",
    async (scheme) => {
      const { key, accountId } = await gateway.givenKey({ limits: { rateLimit: 1 } });
      for (let n = 0; n < 2; n++)
        await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "a boat" } });
      await page.emulateMedia({ colorScheme: scheme });
      await signIn();
      for (const name of [...VIEWS, `account/${accountId}`]) {
        await page.setViewportSize({ width: 1300, height: 900 });
        await view(name);
        await page.getByRole("table").first().waitFor();
        expect(await page.evaluate<string[]>(FAINT_TEXT), name).toEqual([]);
        await page.setViewportSize({ width: 320, height: 700 });
        expect(await page.evaluate("document.documentElement.scrollWidth"), name).toBeLessThanOrEqual(320);
      }
      await page.getByRole("button", { name: /^Revoke key/ }).click();
      expect(await page.evaluate<string[]>(FAINT_TEXT), "dialog").toEqual([]);
    },
  );

  test("another site's requests are refused, though the browser sends them", async ({ onTestFinished }) => {
    const open = await givenGateway();
    const site = await listening(
      createServer((_, res) => res.end("<!doctype html><title>another site</title>")),
    );
    onTestFinished(async () => {
      site.close();
      site.closeAllConnections();
      await open.stop();
    });
    const asked = new Set<string>();
    const answers: { requestId: string; statusCode: number }[] = [];
    await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    const network = await page.context().newCDPSession(page);
    await network.send("Network.enable");
    network.on("Network.requestWillBeSent", ({ requestId, request }) => {
      if (request.url.startsWith(open.adminUrl)) asked.add(requestId);
    });
    network.on("Network.responseReceivedExtraInfo", (answer) => answers.push(answer));
    await page.evaluate(async (admin) => {
      // Not even that it was refused may be seen.
      await fetch(`${admin}/console/api/top-keys`, { mode: "no-cors" }).catch(() => undefined);
      const post = { mode: "no-cors", method: "POST", body: "{}" } as const;
      await fetch(`${admin}/console/api/grant`, post).catch(() => undefined);
    }, open.adminUrl);
    const statuses = () =>
      answers.filter(({ requestId }) => asked.has(requestId)).map((one) => one.statusCode);
    await expect.poll(statuses, { timeout: 30_000 }).toEqual([403, 403]);
  });
});

async function listening(server: Server): Promise<Server> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", () => done()));
  return server;
}

/** True once each plot has lines: colours, where its axes and its grid are grey. */
const PLOTS_DRAWN = `[...document.querySelectorAll(".plot")].length === 4 &&
  [...document.querySelectorAll(".plot canvas")].every((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
      const colour = data.slice(at, at + 3);
      if (data[at + 3] === 255 && Math.max(...colour) - Math.min(...colour) > 60) return true;
    }
    return false;
  })`;

/** Texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2.2, 1.4.3), told with their ratio. */
const FAINT_TEXT = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest(":disabled, script, noscript")) continue;
    seen++;
    const levels = [light(rgb(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (levels[0] + 0.05) / (levels[1] + 0.05);
    if (ratio < 4.5) faint.push(text + " " + ratio.toFixed(2));
  }
  return seen > 10 ? faint : ["hardly any text was seen"];
})()`;
