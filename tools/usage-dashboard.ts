/** Grafana's own source for PostgreSQL. */
const DATASOURCE = { type: "grafana-postgresql-datasource", uid: "$datasource" };
const SCHEMA_VERSION = 39;
const WIDTH = 24;

/** Grafana quotes the values of a variable with several. */
const ACCOUNTS = "account_id IN ($account)";
/** Values of the time picker and the variable `account`. Days are by UTC, as in the views. */
const CHOSEN = `${ACCOUNTS} AND day BETWEEN ($__timeFrom()::timestamptz AT TIME ZONE 'UTC')::date AND ($__timeTo()::timestamptz AT TIME ZONE 'UTC')::date`;
const CHOSEN_ENTRIES = `${ACCOUNTS} AND at BETWEEN $__timeFrom()::timestamptz AND $__timeTo()::timestamptz`;
const TIME = "day::timestamp AT TIME ZONE 'UTC' AS time";

interface SqlPanel {
  type: "stat" | "timeseries" | "table";
  title: string;
  description: string;
  w: number;
  h: number;
  sql: string;
  unit?: string;
}

const PANELS: readonly SqlPanel[] = [
  {
    type: "stat",
    title: "Credits used",
    description: "Charged without what was refunded.",
    w: 6,
    h: 4,
    sql: `SELECT coalesce(sum(credits - refunds), 0) AS credits FROM tollgate.usage_daily WHERE ${CHOSEN}`,
  },
  {
    type: "stat",
    title: "Credits bought",
    description: "Grants of credits; refunds are none.",
    w: 6,
    h: 4,
    sql: `SELECT coalesce(sum(amount), 0) AS credits FROM tollgate.ledger_entries WHERE kind = 'purchase' AND ${CHOSEN_ENTRIES}`,
  },
  {
    type: "stat",
    title: "Credits owned now",
    description: "What these accounts can still spend or have on hold, whatever the time picker says.",
    w: 6,
    h: 4,
    sql: `SELECT coalesce(sum(balance), 0) AS credits FROM tollgate.balances WHERE ${ACCOUNTS}`,
  },
  {
    type: "stat",
    title: "Failed tasks",
    description: "Of the tasks that ended.",
    w: 6,
    h: 4,
    unit: "percentunit",
    sql: `SELECT sum(failed) / nullif(sum(completed) + sum(failed), 0) AS failed FROM tollgate.usage_daily WHERE ${CHOSEN}`,
  },
  {
    type: "timeseries",
    title: "Credits used a day, by endpoint",
    description: "Charged without what was refunded that day.",
    w: 12,
    h: 8,
    sql: `SELECT ${TIME}, endpoint AS metric, sum(credits - refunds) AS credits FROM tollgate.usage_daily WHERE ${CHOSEN} GROUP BY day, endpoint ORDER BY day, endpoint`,
  },
  {
    type: "timeseries",
    title: "Requests and ended tasks a day",
    description: "Charged requests by the day of the charge, tasks by the day of their end.",
    w: 12,
    h: 8,
    sql: `SELECT ${TIME}, sum(requests) AS requests, sum(completed) AS completed, sum(failed) AS failed FROM tollgate.usage_daily WHERE ${CHOSEN} GROUP BY day ORDER BY day`,
  },
  {
    type: "table",
    title: "Statements",
    description:
      "opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals = closing.",
    w: 12,
    h: 9,
    sql: `SELECT account_id, month::text, opening, purchases, trials, goodwill, charges, refunds, adjustments, reversals, closing, amounts_paid::text FROM tollgate.statements WHERE ${ACCOUNTS} AND month BETWEEN date_trunc('month', $__timeFrom()::timestamptz AT TIME ZONE 'UTC')::date AND ($__timeTo()::timestamptz AT TIME ZONE 'UTC')::date ORDER BY account_id, month`,
  },
  {
    type: "table",
    title: "Usage by account, endpoint and key",
    description: "Most credits first.",
    w: 12,
    h: 9,
    sql: `SELECT account_id, endpoint, key_id, sum(requests) AS requests, sum(credits) AS credits, sum(refunds) AS refunds, sum(completed) AS completed, sum(failed) AS failed FROM tollgate.usage_daily WHERE ${CHOSEN} GROUP BY account_id, endpoint, key_id ORDER BY sum(credits - refunds) DESC, 1, 2, 3 LIMIT 200`,
  },
  {
    type: "table",
    title: "Lowest balances",
    description: "Who runs out of credits next.",
    w: 12,
    h: 8,
    sql: `SELECT account_id, balance, last_entry_at FROM tollgate.balances WHERE ${ACCOUNTS} ORDER BY balance, account_id LIMIT 50`,
  },
  {
    type: "table",
    title: "Purchases, refunds and adjustments",
    description: "Ledger entries that are no charge, newest first.",
    w: 12,
    h: 8,
    sql: `SELECT at, account_id, kind, amount, balance_after, reference, reason, task_id FROM tollgate.ledger_entries WHERE kind <> 'charge' AND ${CHOSEN_ENTRIES} ORDER BY at DESC LIMIT 200`,
  },
];

/** The Grafana dashboard on the archive. */
export const usageDashboard = {
  file: "config/grafana/usage.json",
  text: (): string => `${JSON.stringify(model(), null, 2)}\n`,
};

function model() {
  return {
    uid: "tollgate-usage",
    title: "Tollgate usage",
    description: "Who uses and buys how much? From the archive in PostgreSQL.",
    tags: ["tollgate"],
    schemaVersion: SCHEMA_VERSION,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: "utc",
    time: { from: "now-30d", to: "now" },
    refresh: "",
    links: [],
    annotations: { list: [] },
    templating: { list: variables() },
    panels: laidOut(),
  };
}

function variables() {
  const accounts = "SELECT account_id FROM tollgate.balances ORDER BY account_id";
  return [
    { name: "datasource", label: "PostgreSQL", type: "datasource", query: DATASOURCE.type, refresh: 1 },
    {
      name: "account",
      label: "Account",
      type: "query",
      datasource: DATASOURCE,
      query: accounts,
      definition: accounts,
      refresh: 1,
      sort: 0,
      multi: true,
      includeAll: true,
      current: { text: ["All"], value: ["$__all"] },
    },
  ];
}

/** Panels from left to right, a new line when one is full. */
function laidOut() {
  let [x, y, height] = [0, 0, 0];
  return PANELS.map((panel, at) => {
    if (x + panel.w > WIDTH) [x, y, height] = [0, y + height, 0];
    const gridPos = { x, y, w: panel.w, h: panel.h };
    x += panel.w;
    height = Math.max(height, panel.h);
    return grafanaPanel(at + 1, panel, gridPos);
  });
}

function grafanaPanel(id: number, { type, title, description, sql, unit }: SqlPanel, gridPos: object) {
  const format = type === "timeseries" ? "time_series" : "table";
  const bars = { drawStyle: "bars", fillOpacity: 60, lineWidth: 1, stacking: { mode: "normal", group: "A" } };
  return {
    id,
    type,
    title,
    description,
    gridPos,
    datasource: DATASOURCE,
    targets: [
      { refId: "A", datasource: DATASOURCE, editorMode: "code", rawQuery: true, format, rawSql: sql },
    ],
    fieldConfig: {
      defaults: { unit: unit ?? "short", custom: type === "timeseries" ? bars : {} },
      overrides: [],
    },
    options: type === "stat" ? { reduceOptions: { calcs: ["lastNotNull"], fields: "", values: false } } : {},
  };
}
