import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";
import { givenCustomers, type Stage } from "./console-customers.ts";
import { viewScenes } from "./console-scenes.ts";
import { givenOperator, hasChromium, type Operator, openBrowser, TOKEN } from "./console-stage.ts";

/** From afar: each request takes 400 ms, and a second brings 50 KB. */
const AFAR = { offline: false, latency: 400, downloadThroughput: 50_000, uploadThroughput: 50_000 };
const REQUESTS_MAX = 10;
const MS_MAX = 2000;
/** Of the page 50 KB, of the plots 20 KB. */
const BYTES_MAX = 100_000;
/** Connections to a server that browsers open. */
const AT_A_TIME = 6;
/** Samples behind those that are there. They are asked for while somebody looks, and nothing waits for them. */
const REFRESH = /\/live\?after_ms=1\d{12}$/;
/** With `CONSOLE_SLOW=1` it is told how long each view took, which depends on what else the machine does. */
const IS_TOLD = process.env.CONSOLE_SLOW === "1";

interface Asked {
  url: string;
  sentAt: number;
  endedAt: number;
  bytes: number;
}

/** What the page asks the gateway for from now on; not what the browser has. */
async function recorded(page: Page): Promise<Map<string, Asked>> {
  const session = await page.context().newCDPSession(page);
  const all = new Map<string, Asked>();
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", AFAR);
  session.on("Network.requestWillBeSent", ({ requestId, request: { url }, timestamp }) => {
    if (url.startsWith("http") && !REFRESH.test(url))
      all.set(requestId, { url, sentAt: timestamp, endedAt: Number.POSITIVE_INFINITY, bytes: 0 });
  });
  session.on("Network.requestServedFromCache", ({ requestId }) => void all.delete(requestId));
  session.on("Network.responseReceived", ({ requestId, response }) => {
    if (response.fromDiskCache) all.delete(requestId);
  });
  session.on("Network.loadingFinished", ({ requestId, timestamp, encodedDataLength }) =>
    Object.assign(all.get(requestId) ?? {}, { endedAt: timestamp, bytes: encodedDataLength }),
  );
  return all;
}

/** The time that a line from afar takes for it, without what the machine of the test takes: the requests that wait for another, and all bytes. */
function msOf(asked: readonly Asked[]): number {
  const depths = new Map<Asked, number>();
  for (const one of asked.toSorted((a, b) => a.sentAt - b.sentAt)) {
    const before = [...depths].filter(([{ endedAt }]) => endedAt <= one.sentAt).map(([, depth]) => depth);
    depths.set(one, Math.max(0, ...before) + 1);
  }
  const sizes = new Map<number, number>();
  for (const depth of depths.values()) sizes.set(depth, (sizes.get(depth) ?? 0) + 1);
  const rounds = [...sizes.values()].reduce((sum, size) => sum + Math.ceil(size / AT_A_TIME), 0);
  return rounds * AFAR.latency + bytesOf(asked) / (AFAR.downloadThroughput / 1000);
}

const bytesOf = (asked: readonly Asked[]): number => asked.reduce((sum, { bytes }) => sum + bytes, 0);

const listed = (name: string, asked: readonly Asked[]): string =>
  [name, ...asked.map(({ url, sentAt, endedAt, bytes }) => `${url} ${sentAt} to ${endedAt}, ${bytes}`)].join(
    "\n",
  );

describe.skipIf(!hasChromium)("what a view of the console loads", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let stage: Stage;
  let operator: Operator;
  let asked: Map<string, Asked>;

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
    asked = await recorded(operator.page);
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  /** All that was asked for since the last time, once there is nothing more. */
  async function load(): Promise<Asked[]> {
    const isThere = () => [...asked.values()].every(({ endedAt }) => endedAt < Number.POSITIVE_INFINITY);
    await operator.page.waitForLoadState("networkidle");
    await expect.poll(isThere, { timeout: 30_000 }).toBe(true);
    const all = [...asked.values()];
    asked.clear();
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

  test("a link to any view takes ten requests and two seconds at most", async () => {
    const { page } = operator;
    for (const [name, { place }] of Object.entries(viewScenes(stage))) {
      await page.goto("about:blank");
      asked.clear();
      const begunMs = performance.now();
      await operator.view(place);
      await page.locator("#view-title").waitFor();
      const tookMs = performance.now() - begunMs;
      const view = await load();
      if (IS_TOLD) {
        const figures = `${view.length} requests, ${bytesOf(view)} bytes, ${Math.round(msOf(view))} ms`;
        console.log(`${name}: ${figures}; shown after ${Math.round(tookMs)} ms`);
      }
      expect(view.length, listed(name, view)).toBeLessThanOrEqual(REQUESTS_MAX);
      expect(view.length, listed(name, view)).toBeGreaterThanOrEqual(2);
      expect(msOf(view), listed(name, view)).toBeLessThan(MS_MAX);
    }
  }, 600_000);
});
