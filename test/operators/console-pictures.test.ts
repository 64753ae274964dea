import { mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import type { Overview } from "../../src/operator/console/page/objects.d.ts";
import { partitionOf, totalsName, usageName } from "../../src/store/names.ts";
import { oneNode } from "../../src/store/nodes.ts";
import { partitionsOf } from "../../src/store/store-facts.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenOperator, hasChromium, openBrowser, plotsDrawn, TOKEN } from "./console-stage.ts";

const DAY_MS = 86_400_000;
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
/** With `CONSOLE_PICTURES=docs/images` the pictures of the documentation are made anew. */
const KEPT = process.env.CONSOLE_PICTURES;
const CUSTOMERS = [
  { accountId: "acme", label: "Acme Film Ltd", credits: 60_000, tier: "enterprise", busy: 1 },
  { accountId: "northwind", label: "Northwind Traders", credits: 4200, tier: "standard", busy: 0.3 },
  { accountId: "pixelworks", label: "Pixelworks Studio", credits: 900, tier: "standard", busy: 0.1 },
] as const;

describe.skipIf(!hasChromium)("pictures of the console", () => {
  let redis: TestRedis;
  let gateway: TestGateway;
  let browser: Browser;
  let folder: string;

  beforeAll(async () => {
    redis = await givenRedis();
    gateway = await givenGateway({ config: { admin: { token: TOKEN } }, redisUrl: redis.url });
    browser = await openBrowser();
    folder = KEPT ?? (await mkdtemp(join(tmpdir(), "tollgate-pictures-")));
    await mkdir(folder, { recursive: true });
    await givenCustomers();
    // What a gateway does every quarter of an hour.
    const { violations, credits } = await verifyLedger(oneNode(gateway.redis));
    expect(violations).toEqual([]);
    const report = { atMs: Date.now(), violations: 0, credits };
    await gateway.redis.set("tg:ledger-report", JSON.stringify(report));
    // Open tasks are counted every ten seconds, and the gateway reports itself every five.
    await until(async () => {
      const headers = { authorization: `Bearer ${TOKEN}` };
      const answer = await fetch(`${gateway.adminUrl}/manage/v1/overview`, { headers });
      const overview = (await answer.json()) as Overview;
      return overview.open !== null && overview.gateways.length > 0 && overview.ledger.right === true;
    }, "an overview with all figures");
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
    await redis?.stop();
    if (KEPT === undefined && folder) await rm(folder, { recursive: true });
  });

  const manage = async (method: string, path: string, body?: object): Promise<void> => {
    const answer = await fetch(`${gateway.adminUrl}/manage/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${TOKEN}`,
        "content-type": "application/json",
        "x-tollgate-client": "console",
        "idempotency-key": path,
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    expect(answer.status, `${method} ${path}: ${answer.ok ? "" : await answer.text()}`).toBeLessThan(300);
  };

  /** Customers with a label, keys, some weeks of usage, and a few requests and refusals of today. */
  async function givenCustomers(): Promise<void> {
    for (const { accountId, label, credits, tier, busy } of CUSTOMERS) {
      await manage("POST", "/accounts", { account_id: accountId, label });
      if (accountId === "acme") {
        await manage("PATCH", "/accounts/acme", { limits: { rate_limit: 300, max_concurrent: 60 } });
      }
      const production = await gateway.givenKey({
        accountId,
        label: "production",
        tier,
        credits,
        limits: { rateLimit: 40, maxConcurrent: 30 },
        monthlyCredits: accountId === "acme" ? 90_000 : undefined,
      });
      const staging = await gateway.givenKey({
        accountId,
        label: "staging",
        credits: 0,
        limits: { rateLimit: 3 },
        expiresAtMs: Date.now() + 90 * DAY_MS,
      });
      await seedUsage(accountId, production.keyId, busy);
      const requests = Math.ceil(30 * busy);
      for (let n = 0; n < requests; n++) {
        await gateway.request("POST", TEXT_TO_VIDEO, { key: production.key, body: { prompt: "a boat" } });
      }
      for (let n = 0; n < 6; n++) {
        await gateway.request("POST", TEXT_TO_VIDEO, { key: staging.key, body: { prompt: "a boat" } });
      }
    }
    await manage("PATCH", "/accounts/pixelworks", { status: "suspended" });
    await manage("POST", "/tokens", { label: "billing backend", scopes: ["accounts:read", "credits:write"] });
    await manage("POST", "/accounts/northwind/adjustments", {
      amount: -150,
      reason: "granted twice",
      reference: "ticket 2041",
    });
  }

  /** What ROLLUP would have counted of the days before: it counts by the store's clock, which a test cannot turn back. */
  async function seedUsage(accountId: string, keyId: string, busy: number): Promise<void> {
    const nodes = oneNode(gateway.redis);
    const partition = partitionOf(accountId, await partitionsOf(nodes));
    for (let ago = 1; ago < 26; ago++) {
      const date = new Date(Date.now() - ago * DAY_MS).toISOString();
      const [month, day] = [date.slice(0, 7), date.slice(8, 10)];
      const requests = Math.round(busy * (160 + 70 * Math.sin(ago / 2.1) + 30 * Math.cos(ago * 1.7)));
      const failed = Math.round(requests / 30);
      const numbers = `${requests} ${requests * 10} ${failed * 10} ${requests - failed} ${failed}`;
      const field = `${day} ${TEXT_TO_VIDEO} ${keyId}`;
      await gateway.redis.hset(usageName(partition, accountId, month), field, numbers);
      await gateway.redis.hset(totalsName(partition, month), day, numbers);
    }
  }

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
    await page.route("**/manage/v1/live?after_ms=1?????????*", async (route) => {
      const response = await route.fetch();
      const live = await response.json();
      await route.fulfill({ response, json: { ...live, at_ms: [], series: {} } });
    });
  }

  const PLACES = {
    overview: "overview",
    accounts: "accounts",
    account: "account/acme",
    transactions: "account/northwind/transactions",
    tasks: "account/acme/tasks",
    refusals: "account/acme/refusals",
    keys: "keys",
    "open-tasks": "tasks?older=0",
    configuration: "configuration",
    audit: "audit",
    tokens: "tokens",
    search: "search?q=nothing-of-the-kind",
  };

  test.each([
    [1300, 900, "light"],
    [1300, 900, "dark"],
    [400, 800, "light"],
    [400, 800, "dark"],
    // Of the documentation.
    [1200, 1000, "light"],
  ] as const)(
    "%i by %i, %s: every view fits the window and has what it is about",
    async (width, height, scheme) => {
      const operator = await givenOperator(browser, gateway, { width, height });
      const { page } = operator;
      try {
        await page.emulateMedia({ colorScheme: scheme });
        await withHistory(page);
        await operator.signIn();
        for (const [name, place] of Object.entries(PLACES)) {
          await operator.open(place);
          if (name === "overview") await plotsDrawn(page, 4);
          if (name === "account") await plotsDrawn(page, 1);
          expect(await page.evaluate("document.documentElement.scrollWidth"), name).toBeLessThanOrEqual(
            width,
          );
          const isDocumented = width === 1200 && ["overview", "account"].includes(name);
          if (KEPT !== undefined && !isDocumented) continue;
          const path = join(folder, isDocumented ? `console-${name}.png` : `${name}-${width}-${scheme}.png`);
          await page.screenshot({ path, fullPage: KEPT === undefined });
          expect((await stat(path)).size, name).toBeGreaterThan(10_000);
        }
        expect(operator.complaints).toEqual([]);
      } finally {
        await operator.close();
      }
    },
  );
});
