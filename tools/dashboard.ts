import { type Panel, ROWS } from "./dashboard-rows.ts";

const DATASOURCE = { type: "prometheus", uid: "$datasource" };
const WIDTH = 24;
/** The oldest form of a dashboard that today's Grafana takes as it is; newer ones migrate it on loading. */
const SCHEMA_VERSION = 39;

/** The Grafana dashboard, written from the rows beside this file. */
export const dashboard = {
  file: "config/grafana/tollgate.json",
  text: (): string => `${JSON.stringify(model(), null, 2)}\n`,
};

function model() {
  return {
    uid: "tollgate",
    title: "Tollgate",
    description: "Is it up, who is limited and why, does money flow right, do tasks get stuck?",
    tags: ["tollgate"],
    schemaVersion: SCHEMA_VERSION,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: "browser",
    time: { from: "now-3h", to: "now" },
    refresh: "30s",
    links: [],
    annotations: { list: [] },
    templating: { list: variables() },
    panels: laidOut(),
  };
}

function variables() {
  const values = (name: string, label: string, metric: string) => ({
    name,
    label,
    type: "query",
    datasource: DATASOURCE,
    query: { query: `label_values(${metric}, ${name})`, refId: name },
    definition: `label_values(${metric}, ${name})`,
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: ".*",
    current: { text: ["All"], value: ["$__all"] },
  });
  return [
    { name: "datasource", label: "Prometheus", type: "datasource", query: "prometheus", refresh: 1 },
    values("instance", "Gateway", "tollgate_store_up"),
    values("route", "Route", "tollgate_requests_total"),
    values("tier", "Tier", "tollgate_admissions_total"),
  ];
}

/** Rows one below the other, panels from left to right, a new line when one is full. */
function laidOut() {
  const panels: object[] = [];
  let id = 0;
  let y = 0;
  for (const { title, panels: inRow } of ROWS) {
    const place = { x: 0, y, w: WIDTH, h: 1 };
    panels.push({ id: ++id, type: "row", title, collapsed: false, gridPos: place, panels: [] });
    y++;
    let x = 0;
    let height = 0;
    for (const panel of inRow) {
      if (x + panel.w > WIDTH) {
        x = 0;
        y += height;
        height = 0;
      }
      panels.push(grafanaPanel(++id, panel, { x, y, w: panel.w, h: panel.h }));
      x += panel.w;
      height = Math.max(height, panel.h);
    }
    y += height;
  }
  return panels;
}

function grafanaPanel(id: number, panel: Panel, gridPos: object) {
  const { type, title, description } = panel;
  const common = { id, type, title, description, gridPos };
  if (type === "text") return { ...common, options: { mode: "markdown", content: panel.content ?? "" } };
  const targets = (panel.queries ?? []).map(({ expr, legend }, at) => ({
    refId: String.fromCharCode(65 + at),
    datasource: DATASOURCE,
    expr,
    legendFormat: legend ?? "",
    ...(type === "timeseries" ? { range: true } : { instant: true }),
  }));
  return {
    ...common,
    datasource: DATASOURCE,
    targets,
    fieldConfig: { defaults: fieldDefaults(panel), overrides: [] },
    options: options(panel),
  };
}

function fieldDefaults({ type, unit, min, max, stack, thresholds, words }: Panel) {
  const steps = [{ color: thresholds?.base ?? "green", value: null }, ...(thresholds?.steps ?? [])];
  const shown = type === "timeseries" && thresholds ? { thresholdsStyle: { mode: "dashed" } } : {};
  const stacking = { mode: stack ? "normal" : "none", group: "A" };
  return {
    unit: unit ?? "short",
    ...(min === undefined ? {} : { min }),
    ...(max === undefined ? {} : { max }),
    color: { mode: type === "timeseries" ? "palette-classic" : "thresholds" },
    thresholds: { mode: "absolute", steps },
    mappings: words ? [{ type: "value", options: words }] : [],
    custom:
      type === "timeseries"
        ? {
            drawStyle: "line",
            lineWidth: 1,
            fillOpacity: stack ? 30 : 8,
            showPoints: "never",
            stacking,
            ...shown,
          }
        : {},
  };
}

function options({ type, textMode }: Panel) {
  if (type === "timeseries") {
    return {
      legend: { displayMode: "list", placement: "bottom", showLegend: true },
      tooltip: { mode: "multi", sort: "desc" },
    };
  }
  const reduceOptions = { calcs: ["lastNotNull"], fields: "", values: false };
  if (type === "bargauge") return { orientation: "horizontal", displayMode: "basic", reduceOptions };
  return { colorMode: "background", graphMode: "none", textMode: textMode ?? "auto", reduceOptions };
}
