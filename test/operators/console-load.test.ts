import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";
import { givenCustomers, type Stage } from "./console-customers.ts";
import { viewScenes } from "./console-scenes.ts";
import { givenOperator, hasChromium, openBrowser, TOKEN } from "./console-stage.ts";

/** With `CONSOLE_SLOW=1` each view is opened from afar, and it is told how long that took. */
const SLOW = process.env.CONSOLE_SLOW === "1";
const AFAR = { offline: false, latency: 400, downloadThroughput: 50_000, uploadThroughput: 50_000 };
const REQUESTS_MAX = 10;
/** Live figures are asked for every two seconds behind those that are there, which on a slow line is before the view is whole. */
const REFRESH = /\/live\?after_ms=1\d{12}$/;
/** Of the page 49 KB, of the plots 20 KB. */
const BYTES_MAX = 100_000;

/** What a view costs somebody who has not been here before. */
interface Load {
  asked: string[];
  bytes: number;
}

/** Counts what the page asks for from now on, and how much comes, as it is sent. */
async function counted(page: Page): Promise<Load> {
  const session = await page.context().newCDPSession(page);
  const load: Load = { asked: [], bytes: 0 };
  await session.send("Network.enable");
  if (SLOW) await session.send("Network.emulateNetworkConditions", AFAR);
  session.on("Network.requestWillBeSent", ({ request }) => {
    if (!REFRESH.test(request.url)) load.asked.push(request.url);
  });
  session.on("Network.loadingFinished", ({ encodedDataLength }) => {
    load.bytes += encodedDataLength;
  });
  return load;
}

describe.skipIf(!hasChromium)("what a view of the console loads", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let stage: Stage;

  beforeAll(async () => {
    gateway = await givenGateway({
      config: {
        admin: { token: TOKEN },
        webhooks: { secretKey: WEBHOOK_SECRET_KEY, allowNetworks: ["127.0.0.0/8"] },
      },
    });
    browser = await openBrowser();
    stage = await givenCustomers(gateway);
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  // Guarantee: the console answers at once also from afar, where each request takes half a second.
  test("each view takes at most ten requests and 100 KB, the page with its first visit among them", async () => {
    for (const [name, { place }] of Object.entries(viewScenes(stage))) {
      const operator = await givenOperator(browser, gateway);
      const { page } = operator;
      try {
        const load = await counted(page);
        const begunMs = performance.now();
        await operator.view(place);
        await page.getByRole("textbox", { name: "Token" }).waitFor();
        const shownMs = performance.now();
        await operator.signIn(place);
        const viewMs = performance.now();
        // What is loaded when shown, such as plots.
        await page.waitForLoadState("networkidle");
        if (SLOW) {
          const again = await page.context().newPage();
          await counted(again);
          await again.addInitScript(`sessionStorage.setItem("tollgate-admin-token", "${TOKEN}")`);
          const againMs = performance.now();
          await again.goto(page.url());
          await again.locator("#view-title").waitFor();
          console.log(
            [name, `${load.asked.length} requests`, `${Math.round(load.bytes / 1000)} KB`]
              .concat(
                [shownMs - begunMs, viewMs - shownMs, performance.now() - againMs].map(
                  (ms) => `${Math.round(ms)} ms`,
                ),
              )
              .join(", "),
          );
        }
        expect(load.asked.length, `${name}\n${load.asked.join("\n")}`).toBeLessThanOrEqual(REQUESTS_MAX);
        expect(load.bytes, name).toBeLessThan(BYTES_MAX);
        expect(load.bytes, name).toBeGreaterThan(40_000);
      } finally {
        await operator.close();
      }
    }
  }, 600_000);
});
