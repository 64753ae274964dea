import { Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { metricsIn } from "../../../src/telemetry/metrics/factory.ts";
import { madeOnce } from "../../../src/telemetry/metrics/series.ts";

test("a histogram of series that are kept is what prom-client makes of the same observations", async () => {
  const buckets = [0.1, 1, 10];
  const [ours, theirs] = [new Registry(), new Registry()];
  const kept = metricsIn(ours).histogram("seconds", "Help.", buckets, ["route", "class"]);
  const plain = new Histogram({
    name: "seconds",
    help: "Help.",
    buckets,
    labelNames: ["route", "class"],
    registers: [theirs],
  });
  const labels = { route: 'a"b', class: "2xx" };
  const series = kept.of(labels);
  for (const value of [0.1, 0.100001, 1, 9, 10, 11, 0]) {
    series.add(value);
    plain.observe(labels, value);
  }
  kept.observe({ route: "c", class: "4xx" }, 3);
  plain.observe({ route: "c", class: "4xx" }, 3);
  expect(await ours.metrics()).toBe(await theirs.metrics());
});

test("a scrape adds what was counted in a series, once", async () => {
  const registry = new Registry();
  const define = metricsIn(registry);
  const requests = define.counter("requests_total", "Help.", ["outcome"]);
  const inFlight = define.gauge("in_flight", "Help.");
  const [ok, running] = [requests.series({ outcome: "ok" }), inFlight.series()];
  expect(await registry.metrics()).not.toContain("outcome=");
  ok.pending += 2;
  requests.inc({ outcome: "ok" });
  running.pending += 3;
  running.pending--;
  for (const _ of [1, 2]) {
    const text = await registry.metrics();
    expect(text).toContain('requests_total{outcome="ok"} 3');
    expect(text).toContain("in_flight 2");
  }
});

test("what was made for some values is found for the same values only", () => {
  let made = 0;
  const find = madeOnce(() => ++made);
  expect([find("a", "b", 1), find("a", "b", 2), find("b", "a", 1), find("a", "b", 1), find("a")]).toEqual([
    1, 2, 3, 1, 4,
  ]);
});
