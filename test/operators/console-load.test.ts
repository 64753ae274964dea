import type { Browser, CDPSession } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";
import { givenCustomers, type Stage } from "./console-customers.ts";
import { bytesOf, listed, msOf, type RecordedRequest, recorded } from "./console-line.ts";
import { viewScenes } from "./console-scenes.ts";
import { givenOperator, hasChromium, type Operator, openBrowser, TOKEN } from "./console-stage.ts";

const REQUESTS_MAX = 10;
const MS_MAX = 2000;
/** Of the page 50 KB, of the plots 20 KB. */
const BYTES_MAX = 100_000;
/** Samples of a gateway that is busy for long, which the test's own has not; see live-figures.test.ts. */
const HISTORY_BYTES = 12_000;
/** With `CONSOLE_SLOW=1` it is told how long each view took, which depends on what else the machine does. */
const IS_TOLD = process.env.CONSOLE_SLOW === "1";

describe.skipIf(!hasChromium)("what a view of the console loads", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let stage: Stage;
  let operator: Operator;
  let requests: Map<string, RecordedRequest>;
  let session: CDPSession;

  beforeAll(async () => {
    gateway = await givenGateway({
      config: {
        admin: { token: TOKEN },
        webhooks: { secretKey: WEBHOOK_SECRET_KEY, allowNetworks: ["127.0.0.0/8"] },
      },
    });
    browser = await openBrowser();
    stage = await givenCustomers(gateway);
    operator = await givenOperator(browser, gateway);
    session = await operator.page.context().newCDPSession(operator.page);
    requests = await recorded(session, `${gateway.adminUrl}/console/`);
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  /** All that was asked for since the last time, once there is nothing more. */
  async function load(): Promise<RecordedRequest[]> {
    const isThere = () => [...requests.values()].every(({ endedAt }) => endedAt < Number.POSITIVE_INFINITY);
    await operator.page.waitForLoadState("networkidle");
    await expect.poll(isThere, { timeout: 30_000 }).toBe(true);
    const all = [...requests.values()];
    requests.clear();
    for (const one of all)
      if (one.url.endsWith("/live?after_ms=0")) one.bytes = Math.max(one.bytes, HISTORY_BYTES);
    return all;
  }

  // Guarantee: the console answers at once also from afar, where each request takes half a second.
  test("a first visit takes two seconds up to the form, and two for the overview behind it", async () => {
    const { page } = operator;
    await operator.view("overview");
    await page.getByRole("textbox", { name: "Token" }).waitFor();
    const visit = await load();
    expect(msOf(visit), listed("visit", visit)).toBeLessThan(MS_MAX);
    await page.getByRole("textbox", { name: "Token" }).fill(TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#view-title").waitFor();
    await page.locator(".plot canvas").first().waitFor();
    const view = await load();
    expect(msOf(view), listed("overview", view)).toBeLessThan(MS_MAX);
    const all = [...visit, ...view];
    expect(all.length, listed("both", all)).toBeLessThanOrEqual(REQUESTS_MAX);
    expect(bytesOf(all), listed("both", all)).toBeLessThan(BYTES_MAX);
    expect(bytesOf(all)).toBeGreaterThan(40_000);
  }, 120_000);

  /** The requests of a view that is opened anew. */
  async function loaded(name: string, place: string, isCold: boolean): Promise<RecordedRequest[]> {
    const { page } = operator;
    await page.goto("about:blank");
    if (isCold) await session.send("Network.clearBrowserCache");
    requests.clear();
    const begunMs = performance.now();
    await operator.view(place);
    await page.locator("#view-title").waitFor();
    const tookMs = performance.now() - begunMs;
    const view = await load();
    if (IS_TOLD) {
      const figures = `${view.length} requests, ${bytesOf(view)} bytes, ${msOf(view)} ms`;
      console.log(`${isCold ? "cold" : "warm"} ${name}: ${figures}; shown after ${Math.round(tookMs)} ms`);
    }
    return view;
  }

  test.each([
    ["a link to any view", false],
    ["a link to any view in a browser that has nothing of the console", true],
  ])(
    "%s takes ten requests and two seconds at most",
    async (_, isCold) => {
      for (const [name, { place }] of Object.entries(viewScenes(stage))) {
        const view = await loaded(name, place, isCold);
        expect(view.length, listed(name, view)).toBeLessThanOrEqual(REQUESTS_MAX);
        expect(view.length, listed(name, view)).toBeGreaterThanOrEqual(2);
        expect(msOf(view), listed(name, view)).toBeLessThan(MS_MAX);
        expect(new Set(view.map(({ url }) => url)).size, listed(name, view)).toBe(view.length);
        if (isCold) expect(bytesOf(view)).toBeGreaterThan(40_000);
      }
    },
    600_000,
  );
});
