import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { labelSet } from "../../tools/metrics-labels.ts";

const ROOT = join(import.meta.dirname, "../..");
export const readText = (file: string): string => readFileSync(join(ROOT, file), "utf8");

/** A query and where it stands. */
export interface Query {
  where: string;
  expr: string;
}

interface GrafanaPanel {
  title: string;
  type: string;
  description?: string;
  fieldConfig?: { defaults: { unit: string } };
  targets?: { expr: string }[];
}

export interface Dashboard {
  panels: GrafanaPanel[];
  templating: { list: { name: string; definition?: string }[] };
}

export interface Alert {
  alert: string;
  expr: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

export const dashboard = (): Dashboard => JSON.parse(readText("config/grafana/tollgate.json"));

export const dashboardQueries = (): Query[] =>
  dashboard().panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ where: `panel "${title}"`, expr })),
  );

export function alerts(): Alert[] {
  const { groups } = parse(readText("config/prometheus/alerts.yaml")) as { groups: { rules: Alert[] }[] };
  return groups.flatMap(({ rules }) => rules);
}

export const alertQueries = (): Query[] =>
  alerts().map(({ alert, expr }) => ({ where: `alert ${alert}`, expr }));

/** The queries that docs/metrics.md offers. */
export const documentedQueries = (): Query[] =>
  [...readText("docs/metrics.md").matchAll(/^- (.*\?) `(.*)`$/gm)].map(([, where = "", expr = ""]) => ({
    where,
    expr,
  }));

/** Labels that Prometheus itself puts on series. */
const ADDED = ["job", "instance"];
const SELECTOR = /\b((?:tollgate|nodejs|process)_\w+)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"/g;

/**
 * Faults of a query: metrics that do not exist, labels that they do not have, values that those never take.
 * @param labelsOf the labels of each metric, by name; of a histogram's parts by their own names
 */
export function faultsOf(expr: string, labelsOf: ReadonlyMap<string, readonly string[]>): string[] {
  const faults: string[] = [];
  const seen = new Set(ADDED);
  for (const [, name = "", inside = ""] of expr.matchAll(SELECTOR)) {
    const labels = labelsOf.get(name);
    if (!labels) {
      faults.push(`no metric ${name}`);
      continue;
    }
    for (const label of labels) seen.add(label);
    for (const [, label = "", operator = "", value = ""] of inside.matchAll(MATCHER)) {
      if (ADDED.includes(label)) continue;
      if (!labels.includes(label)) faults.push(`${name} has no label ${label}`);
      else if (!canMatch(name, label, operator, value)) faults.push(`${label} of ${name} is never ${value}`);
    }
  }
  for (const [, list = ""] of expr.matchAll(/\b(?:by|on|group_left|without)\s*\(([^)]*)\)/g)) {
    for (const label of list.split(",").map((part) => part.trim())) {
      if (label !== "" && !seen.has(label)) faults.push(`no metric here has a label ${label}`);
    }
  }
  return faults;
}

/** True if some value of a closed set fits; each alternative of a pattern must fit one. */
function canMatch(metric: string, label: string, operator: string, pattern: string): boolean {
  if (label === "le" || pattern.startsWith("$")) return true;
  const set = labelSet(metric.replace(/_(bucket|sum|count)$/, ""), label);
  if (typeof set === "string") return true;
  if (!operator.endsWith("~")) return set.values.includes(pattern);
  return pattern
    .split("|")
    .every((alternative) => set.values.some((value) => new RegExp(`^(?:${alternative})$`).test(value)));
}
