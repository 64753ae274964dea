import { expect, test } from "vitest";
import { createAggregatedMetrics } from "../../../src/process/supervisor.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";

type Process = ReturnType<typeof createMetrics>;

/** A page as the supervisor puts it together, told what these say, by their place from `from` on. */
async function updated(page: ReturnType<typeof createAggregatedMetrics>, from: number, ...all: Process[]) {
  for (const [at, { registry }] of all.entries()) page.update(from + at, await registry.getMetricsAsJSON());
}

const pageOf = async (...all: Process[]): Promise<string[]> => {
  const page = createAggregatedMetrics();
  await updated(page, 1, ...all);
  return (await page.text()).split("\n");
};

// Guarantee: on the page of several processes each figure means what it means on the page of one.
test("on one page of two processes counters add up, and what is true of the store is not doubled", async () => {
  const first = createMetrics();
  const second = createMetrics();
  for (const metrics of [first, second]) {
    metrics.requests.inc({ route: "/api/v1/credits", status: 200, outcome: "ok" });
    metrics.inFlight.set(2);
    metrics.nearLimit.inc({ tier: "standard", limit: "slots" });
    metrics.ledgerCheckInterval.set(3600);
  }
  first.storeUp.set(1);
  second.storeUp.set(0);
  // Only the first of them looks after the store.
  first.openRequests.set({ state: "bound", age: "<1m" }, 7);
  first.sweeperLag.set(4);
  first.ledgerViolations.set(3);
  first.ledgerCredits.set({ type: "recharged" }, 70);

  const page = await pageOf(first, second);
  expect(page).toEqual(
    expect.arrayContaining([
      'tollgate_requests_total{route="/api/v1/credits",status="200",outcome="ok"} 2',
      "tollgate_requests_in_flight 4",
      'tollgate_admissions_near_limit_total{tier="standard",limit="slots"} 2',
      "tollgate_ledger_check_interval_seconds 3600",
      "tollgate_store_up 0",
      'tollgate_open_requests{state="bound",age="<1m"} 7',
      "tollgate_sweeper_lag_seconds 4",
      "tollgate_ledger_violations 3",
      'tollgate_ledger_credits{type="recharged"} 70',
      expect.stringMatching(/^tollgate_build_info\{version="[\d.]+",revision="\w+"\} 1$/),
      expect.stringMatching(/^process_start_time_seconds 1[.\d]+/),
    ]),
  );
});

// Guarantee: a process that ends makes no counter fall, which Prometheus would take for a burst of all that is left.
test("what ended processes had counted stays on the page, what they were does not", async () => {
  const page = createAggregatedMetrics();
  const first = createMetrics();
  first.requests.inc({ route: "none", status: 505, outcome: "version_unsupported" });
  for (let id = 2; id <= 4; id++) {
    const second = createMetrics();
    second.requests.inc({ route: "/api/v1/credits", status: 200, outcome: "ok" });
    second.requestSeconds.observe({ route: "/api/v1/credits", class: "2xx" }, 0.2);
    second.nearLimit.inc({ tier: "standard", limit: "slots" });
    second.inFlight.set(2);
    second.storeUp.set(0);
    await updated(page, id, second);
    page.processEnded(id);
  }
  first.storeUp.set(1);
  await updated(page, 1, first);
  const route = 'route="/api/v1/credits"';
  expect((await page.text()).split("\n")).toEqual(
    expect.arrayContaining([
      'tollgate_requests_total{route="none",status="505",outcome="version_unsupported"} 1',
      `tollgate_requests_total{${route},status="200",outcome="ok"} 3`,
      `tollgate_request_duration_seconds_bucket{le="0.1",${route},class="2xx"} 0`,
      `tollgate_request_duration_seconds_bucket{le="0.25",${route},class="2xx"} 3`,
      `tollgate_request_duration_seconds_count{${route},class="2xx"} 3`,
      'tollgate_admissions_near_limit_total{tier="standard",limit="slots"} 3',
      "tollgate_requests_in_flight 0",
      "tollgate_store_up 1",
    ]),
  );
});

test("a process that ended before it said anything, and an end that is told twice, change nothing", async () => {
  const page = createAggregatedMetrics();
  const only = createMetrics();
  only.requests.inc({ route: "none", status: 400, outcome: "invalid_request" });
  await updated(page, 1, only);
  for (const id of [2, 1, 1]) page.processEnded(id);
  expect(await page.text()).toContain('outcome="invalid_request"} 1\n');
});
