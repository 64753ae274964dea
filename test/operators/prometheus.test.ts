import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import {
  findPrometheus,
  type PrometheusBinaries,
  promtool,
  type RunningPrometheus,
  startPrometheus,
} from "../support/prometheus.ts";
import { alertQueries, dashboardQueries, documentedQueries, readText } from "../support/queries.ts";
import { away, generate, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";

/** The first check of the ledger comes ten seconds after the start, and has a process of its own to start. */
const PATIENCE_MS = 100_000;

describe("with a real Prometheus", () => {
  let tools: PrometheusBinaries;
  beforeAll(async () => {
    tools = await findPrometheus();
  }, 180_000);

  test("promtool finds no fault in the rules, and every case of them holds", async () => {
    expect(await promtool(tools, ["check", "rules", "config/prometheus/alerts.yaml"])).toMatchObject({
      code: 0,
    });
    const cases = await promtool(tools, ["test", "rules", "test/operators/alerts.cases.yaml"]);
    expect(cases).toMatchObject({ code: 0, output: expect.stringContaining("SUCCESS") });
  }, 180_000);

  test("promtool takes the shipped prometheus.yaml, and notices a broken one", async () => {
    expect(await promtool(tools, ["check", "config", "config/prometheus/prometheus.yaml"])).toMatchObject({
      code: 0,
    });
    expect((await promtool(tools, ["check", "metrics"], "# TYPE a_total gauge\na_total 1\n")).code).not.toBe(
      0,
    );
  });

  describe("that scrapes two gateways under traffic and an outage", () => {
    let redis: TestRedis;
    let first: TestGateway;
    let second: TestGateway;
    let prometheus: RunningPrometheus;

    beforeAll(async () => {
      redis = await givenRedis();
      const config = {
        store: { fallbackStrategy: "allow" as const, commandTimeoutMs: 1000, ledgerCheckIntervalMs: 1000 },
        tasks: { sweepIntervalMs: 500, pollIntervalMs: 100, cacheMs: 0 },
        webhooks: { secretKey: WEBHOOK_SECRET_KEY },
      };
      first = await givenGateway({ redisUrl: redis.url, config });
      second = await givenGateway({ redisUrl: redis.url, config, generator: first.generator });
      await Promise.all([ready(first), ready(second)]);
      const targets = [first, second].map(({ adminUrl }) => new URL(adminUrl).host);
      prometheus = await startPrometheus(tools, scraping(targets), {
        "alerts.yaml": readText("config/prometheus/alerts.yaml"),
      });
      // It looks for targets some seconds after its start; what happens before is no increase.
      await until(async () => (await prometheus.query("up == 1")).length === 2, "the first scrapes");
      await drive(first, second, redis);
    }, 60_000);
    afterAll(async () => {
      await prometheus?.stop();
      await second?.stop();
      await first?.stop();
      await redis?.stop();
    });

    test("the page of metrics is clean, after all that traffic", async () => {
      for (const { adminUrl } of [first, second]) {
        const page = await (await fetch(`${adminUrl}/metrics`)).text();
        expect(await promtool(tools, ["check", "metrics"], page)).toEqual({ code: 0, output: "" });
      }
    });

    test("every query of the dashboard and of docs/metrics.md returns data", async () => {
      const expected = [...dashboardQueries(), ...documentedQueries()];
      let empty = expected;
      const deadlineMs = performance.now() + PATIENCE_MS;
      while (empty.length > 0 && performance.now() < deadlineMs) {
        const found = await Promise.all(empty.map(({ expr }) => prometheus.query(chosen(expr))));
        empty = empty.filter((_, at) => !found[at]!.some(({ value }) => value[1] !== "NaN"));
        await delay(500);
      }
      expect(empty).toEqual([]);
    }, 120_000);

    test("Prometheus has loaded all alerts, and can evaluate each", async () => {
      const { groups } = await prometheus.get("rules");
      // biome-ignore lint/suspicious/noExplicitAny: Prometheus's own shape.
      const rules = groups.flatMap((group: any) => group.rules) as { name: string; health: string }[];
      expect(rules.length).toBe(alertQueries().length);
      expect(rules.filter(({ health }) => health === "err")).toEqual([]);
    });

    test("uncharged requests of the outage raise their alert", async () => {
      const raised = 'ALERTS{alertname="TollgateUnmeteredRequests", alertstate="firing"}';
      await until(async () => (await prometheus.query(raised)).length > 0, raised);
    });

    test("both gateways report the same open requests, though one has counted them", async () => {
      const open = 'sum by (instance) (tollgate_open_requests{state="bound"})';
      await until(async () => {
        const values = (await prometheus.query(open)).map(({ value }) => value[1]);
        return values.length === 2 && values[0] === values[1] && values[0] !== "0";
      }, "the same from both");
    });
  });
});

/** As the shipped prometheus.yaml, but every second, and of these gateways. */
const scraping = (targets: readonly string[]): string =>
  JSON.stringify({
    global: { scrape_interval: "1s", evaluation_interval: "1s" },
    rule_files: ["alerts.yaml"],
    scrape_configs: [{ job_name: "tollgate", static_configs: [{ targets }] }],
  });

/** A query as Grafana sends it with everything chosen; rates over a window that the test has seen. */
const chosen = (expr: string): string =>
  expr.replaceAll("$__rate_interval", "30s").replaceAll(/"\$\w+"/g, '".+"');

/** Traffic of every kind that a panel shows. */
async function drive(first: TestGateway, second: TestGateway, redis: TestRedis): Promise<void> {
  const wide = await issueKey(
    oneNode(redis.client),
    {
      credits: 10_000,
      limits: { rate_limit: 1000, max_concurrent: 1000 },
    },
    cliActor(),
  );
  const narrow = await issueKey(
    oneNode(redis.client),
    {
      credits: 10_000,
      limits: { rate_limit: 1 },
      tier: "enterprise",
    },
    cliActor(),
  );
  const poor = await issueKey(oneNode(redis.client), { credits: 5 }, cliActor());
  const ask = (gateway: TestGateway, key: IssuedKey, directive = "duration=0") =>
    generate(gateway, key, `[sandbox: ${directive}]`);

  for (const gateway of [first, second]) {
    await ask(gateway, wide);
    await ask(gateway, wide, "status=429");
    await ask(gateway, wide, "status=401");
    await ask(gateway, wide, "fault=reset");
    await ask(gateway, narrow);
    await ask(gateway, poor);
    await gateway.request("GET", "/api/v1/credits", { key: "sk_unknown" });
    await gateway.request("GET", "/nowhere");
    const { body } = await ask(gateway, wide, "duration=0 fail");
    await gateway.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key: wide.key });
  }
  await ask(first, wide, "duration=3600s");

  const counted = first.generator.requests.length;
  redis.pause();
  await ask(first, wide).catch(() => undefined);
  await away(first);
  await ask(first, wide);
  expect(first.generator.requests.length).toBeGreaterThan(counted);
  redis.resume();
  await Promise.all([ready(first), ready(second)]);
  // So that the next look counts what is open now.
  await redis.client.del("tg:survey-lease");
  // Rates want two samples with something between them.
  await delay(2200);
  for (const gateway of [first, second]) {
    await ask(gateway, wide);
    await ask(gateway, wide, "status=429");
    await ask(gateway, narrow);
  }
}
