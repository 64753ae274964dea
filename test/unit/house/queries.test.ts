import { describe, expect, test } from "vitest";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { WATCH } from "../../../tools/metrics-watch.ts";
import {
  alertQueries,
  alerts,
  dashboard,
  dashboardQueries,
  documentedQueries,
  faultsOf,
  readText,
} from "../../support/queries.ts";

interface Family {
  name: string;
  type?: string;
  labelNames: string[];
}
const FAMILIES = createMetrics().registry.getMetricsAsArray() as unknown as Family[];
/** Names of series to their labels: a histogram has three. */
const LABELS = new Map(
  FAMILIES.flatMap(({ name, type, labelNames }): [string, string[]][] =>
    type === "histogram"
      ? [
          [`${name}_bucket`, [...labelNames, "le"]],
          [`${name}_sum`, labelNames],
          [`${name}_count`, labelNames],
        ]
      : [[name, labelNames]],
  ),
);

describe("every query names metrics and labels that the gateway has", () => {
  const queries = [...dashboardQueries(), ...alertQueries(), ...documentedQueries()];

  test("there are queries of all three kinds", () => {
    expect(dashboardQueries().length).toBeGreaterThan(40);
    expect(alertQueries().length).toBeGreaterThan(20);
    expect(documentedQueries().length).toBeGreaterThan(5);
  });

  test.each(queries)("$where", ({ expr }) => {
    expect(faultsOf(expr, LABELS)).toEqual([]);
  });

  test("a metric, a label or a value that there is not is found", () => {
    const expr = `sum by (nobody) (tollgate_request_total) / on (tier) sum(rate(tollgate_requests_total{rout="a", outcome=~"ok|fine", status="200"}[5m]))`;
    expect(faultsOf(expr, LABELS)).toEqual([
      "no metric tollgate_request_total",
      "tollgate_requests_total has no label rout",
      "outcome of tollgate_requests_total is never ok|fine",
      "no metric here has a label nobody",
      "no metric here has a label tier",
    ]);
  });
});

test("the dashboard's variables ask for series and labels that there are", () => {
  const definitions = dashboard().templating.list.flatMap(({ definition }) => definition ?? []);
  expect(definitions.length).toBe(3);
  for (const definition of definitions) {
    const [, metric = "", label = ""] = /^label_values\((\w+), (\w+)\)$/.exec(definition) ?? [];
    expect(["instance", ...(LABELS.get(metric) ?? [])]).toContain(label);
  }
});

test("each panel says what it shows, and in which unit", () => {
  const panels = dashboard().panels.filter(({ type }) => type !== "row");
  expect(panels.filter(({ description }) => !description).map(({ title }) => title)).toEqual([]);
  const graphs = panels.filter(({ type }) => type !== "text");
  expect(graphs.filter(({ fieldConfig }) => !fieldConfig?.defaults.unit).map(({ title }) => title)).toEqual(
    [],
  );
});

describe("alerts", () => {
  const rules = alerts();
  const names = [...new Set(rules.map(({ alert }) => alert))];

  test.each(rules)("$alert says what is wrong, how urgent it is, and where to read on", (rule) => {
    expect(["page", "ticket"]).toContain(rule.labels.severity);
    expect(rule.annotations.summary).toMatch(/\.$/);
    expect(rule.annotations.description).toMatch(/\.$/);
    const [page = "", anchor] = (rule.annotations.runbook_url ?? "").split("#");
    expect(page).toMatch(/^docs\/operations\/alerts-\w+\.md$/);
    expect(anchor).toBe(rule.alert.toLowerCase());
    expect(readText(page)).toContain(`\n### ${rule.alert}\n`);
  });

  test("each has a case in which it fires and one in which it does not", () => {
    const cases = readText("test/operators/alerts.cases.yaml");
    const tried = [...cases.matchAll(/alertname="(\w+)".*\n.*\n.*value: (\d) /g)];
    const results = (name: string) => new Set(tried.filter(([, of]) => of === name).map(([, , n]) => n));
    expect(names.filter((name) => results(name).size !== 2)).toEqual([]);
  });
});

test("docs/metrics.md says of each metric of the gateway what to watch, and of no other", () => {
  const ours = FAMILIES.map(({ name }) => name).filter((name) => name.startsWith("tollgate_"));
  expect(ours.filter((name) => !WATCH[name])).toEqual([]);
  const all = FAMILIES.map(({ name }) => name);
  expect(Object.keys(WATCH).filter((name) => !all.includes(name))).toEqual([]);
});
