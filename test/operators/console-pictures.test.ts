import { mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";
import { givenCustomers, givenReports, managing, type Stage } from "./console-customers.ts";
import { formScenes, viewScenes } from "./console-scenes.ts";
import {
  axeFindings,
  COVERED,
  CUT_OFF,
  FAINT_TEXT,
  givenOperator,
  hasChromium,
  LOOK,
  NAMELESS,
  type Operator,
  openBrowser,
  plotsDrawn,
  TOKEN,
} from "./console-stage.ts";

/** With `CONSOLE_PICTURES=docs/images` the pictures of the documentation are made anew. */
const KEPT = process.env.CONSOLE_PICTURES;
const WEBHOOKS = { secretKey: WEBHOOK_SECRET_KEY, allowNetworks: ["127.0.0.0/8"], retriesMs: [] };

describe.skipIf(!hasChromium)("pictures of the console", () => {
  let redis: TestRedis;
  let gateway: TestGateway;
  let neighbour: TestGateway;
  let browser: Browser;
  let folder: string;
  let stage: Stage;
  /** Findings of axe, told together. */
  let found: string[] = [];

  beforeAll(async () => {
    redis = await givenRedis();
    gateway = await givenGateway({
      config: {
        admin: { token: TOKEN },
        webhooks: WEBHOOKS,
        store: { ledgerCheckIntervalMs: 60_000 },
      },
      redisUrl: redis.url,
    });
    // Another one beside it, with other settings.
    neighbour = await givenGateway({
      config: { admin: { token: TOKEN }, webhooks: WEBHOOKS, tasks: { cacheMs: 1000 } },
      redisUrl: redis.url,
      generator: gateway.generator,
    });
    browser = await openBrowser();
    folder = LOOK ?? (await mkdtemp(join(tmpdir(), "tollgate-pictures-")));
    await mkdir(folder, { recursive: true });
    stage = await givenCustomers(gateway);
    await givenReports(gateway, 2);
  });
  afterAll(async () => {
    await browser?.close();
    await neighbour?.stop();
    await gateway?.stop();
    await redis?.stop();
    if (LOOK === undefined && folder) await rm(folder, { recursive: true });
  });

  /** A quarter of an hour of traffic in place of what the gateway has just begun to sample. */
  async function withHistory(page: Page): Promise<void> {
    await page.route("**/manage/v1/live?after_ms=0", async (route) => {
      const response = await route.fetch();
      const live = await response.json();
      const last = live.at_ms.at(-1) ?? Date.now();
      const moments = Array.from({ length: 440 }, (_, at) => last - (439 - at) * live.sample_every_ms);
      const wave = (middle: number, height: number, apart: number) =>
        moments.map((_, at) => Math.max(0, middle + height * Math.sin(at / apart)));
      const waves: Record<string, number[]> = {
        ok: wave(38, 9, 50),
        refused: wave(1.4, 1.6, 31),
        rate_limited: wave(1.1, 1.3, 31),
        concurrency_limited: wave(0.3, 0.35, 44),
        slots: wave(150, 32, 70).map(Math.round),
        in_flight: wave(14, 5, 40).map(Math.round),
        all_p50: wave(0.021, 0.004, 33),
        all_p99: wave(0.14, 0.05, 27),
        all_upstream_p99: wave(0.12, 0.045, 27),
      };
      for (const name of Object.keys(live.series)) live.series[name] = waves[name] ?? moments.map(() => 0);
      live.at_ms = moments;
      await route.fulfill({ response, json: live });
    });
    // Nothing is added while the pictures are taken.
    await page.route(/\/manage\/v1\/live\?after_ms=1\d{9}/, async (route) => {
      const response = await route.fetch();
      const live = await response.json();
      await route.fulfill({ response, json: { ...live, at_ms: [], series: {} } });
    });
  }

  /** The subject of the picture is drawn, can be read and named, and nothing needs a sideways scroll. */
  async function look({ page }: Operator, name: string, width: number): Promise<void> {
    if (name === "overview") await plotsDrawn(page, 4);
    if (name === "account") await plotsDrawn(page, 1);
    expect(await page.evaluate("document.documentElement.scrollWidth"), name).toBeLessThanOrEqual(width);
    expect(await page.evaluate(width === 390 ? CUT_OFF : SCROLLED), name).toEqual([]);
    expect(await page.evaluate<string[]>(COVERED), name).toEqual([]);
    expect(await page.evaluate<string[]>(FAINT_TEXT), name).toEqual([]);
    expect(await page.evaluate<string[]>(NAMELESS), name).toEqual([]);
    found.push(...(await axeFindings(page)).map((finding) => `${name} ${width}: ${finding}`));
  }

  test.each([
    [1280, 900, "light"],
    [1280, 900, "dark"],
    [390, 800, "light"],
    [390, 800, "dark"],
  ] as const)(
    "%i by %i, %s: every view and form fits the window and has what it is about",
    async (width, height, scheme) => {
      found = [];
      const operator = await givenOperator(browser, gateway, { width, height });
      const { page } = operator;
      try {
        await page.emulateMedia({ colorScheme: scheme });
        await withHistory(page);
        const picture = async (name: string, fullPage: boolean) => {
          const path = join(folder, `${name}-${width}-${scheme}.png`);
          await page.screenshot({ path, fullPage });
          expect((await stat(path)).size, name).toBeGreaterThan(5000);
        };
        await operator.view("overview");
        await page.getByRole("textbox", { name: "Token" }).waitFor();
        await picture("sign-in", false);
        await operator.signIn();
        for (const [name, { place }] of Object.entries(viewScenes(stage))) {
          await operator.open(place);
          await look(operator, name, width);
          await picture(name, true);
        }
        for (const [name, { place, act }] of Object.entries(formScenes(stage))) {
          await operator.open(place);
          await act?.(page);
          await look(operator, name, width);
          await picture(name, false);
          await page.reload();
        }
        expect([...operator.complaints, ...found]).toEqual([]);
      } finally {
        await operator.close();
      }
    },
    600_000,
  );

  test.skipIf(KEPT === undefined)("the documentation's pictures", async () => {
    const ledger = async (): Promise<string> => {
      const { checks } = await managing(gateway)("GET", "/health");
      return checks.find((one: { name: string }) => one.name === "ledger").status;
    };
    await expect.poll(ledger, { timeout: 100_000, interval: 1000 }).toBe("ok");
    const operator = await givenOperator(browser, gateway, { width: 1200, height: 1000 });
    const { page } = operator;
    try {
      await page.emulateMedia({ colorScheme: "light" });
      await withHistory(page);
      await operator.signIn();
      for (const [name, place] of Object.entries({ overview: "overview", account: "account/acme" })) {
        await operator.open(place);
        await look(operator, name, 1200);
        await page.screenshot({ path: join(KEPT ?? "", `console-${name}.png`) });
      }
    } finally {
      await operator.close();
    }
  });
});

/** Tables that are wider than the window. */
const SCROLLED = `[...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => box.getAttribute("aria-label"))`;
