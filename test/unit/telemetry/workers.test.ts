import { AggregatorRegistry } from "prom-client";
import { expect, test } from "vitest";
import { createMetrics } from "../../../src/telemetry/metrics.ts";

/** One page of two processes, as the supervisor puts it together. */
async function pageOf(...all: ReturnType<typeof createMetrics>[]): Promise<string[]> {
  const read = await Promise.all(all.map(({ registry }) => registry.getMetricsAsJSON()));
  const page = await AggregatorRegistry.aggregate(read).metrics();
  return page.split("\n");
}

// Guarantee: on the page of several processes each figure means what it means on the page of one.
test("on one page of two processes counters add up, and what is true of the store is not doubled", async () => {
  const first = createMetrics();
  const second = createMetrics();
  for (const metrics of [first, second]) {
    metrics.requests.inc({ route: "/api/v1/credits", status: 200, outcome: "ok" });
    metrics.inFlight.set(2);
    metrics.nearLimit.admitted("standard", { rateLimit: 10, remaining: 1, maxConcurrent: 3, active: 3 });
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
      expect.stringMatching(/^tollgate_build_info\{version="[\d.]+"\} 1$/),
      expect.stringMatching(/^process_start_time_seconds 1[.\d]+/),
    ]),
  );
});
