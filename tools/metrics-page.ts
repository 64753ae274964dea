import { createMetrics } from "../src/telemetry/metrics.ts";
import { labelSet } from "./metrics-labels.ts";
import { WATCH } from "./metrics-watch.ts";

/** The page of metrics, made from the registry: names, types and help are there, the rest beside this file. */
export const metricsPage = { file: "docs/metrics.md", text };

/** Sets with more values than this are listed below the table. */
const IN_CELL_MAX = 5;

interface Family {
  name: string;
  type: string;
  help: string;
  labels: readonly string[];
}

async function text(): Promise<string> {
  const { registry } = createMetrics();
  const families: Family[] = registry.getMetricsAsArray().map((metric) => {
    // Its types do not show what every metric of prom-client has.
    const { name, help, type, labelNames } = metric as unknown as Omit<Family, "labels"> & {
      labelNames: string[];
    };
    return { name, help, type, labels: labelNames };
  });
  const ours = families.filter(({ name }) => name.startsWith("tollgate_"));
  const defaults = families.filter(({ name }) => !name.startsWith("tollgate_"));
  return `${INTRODUCTION}
${table(ours)}

### Label values

A metric of many series is many because of its labels. All of these sets are closed: no key, account, task or path of a
client ever becomes a label, so the number of series is bounded by the program and its configuration.

${longSets(ours).join("\n")}

${READING}
## Metrics of the process

prom-client's own, on every Node program. The three \`nodejs_active_*\` families are left out: they cost a look at each
open socket, and their names break the rules of Prometheus.

${table(defaults)}
`;
}

function table(families: readonly Family[]): string {
  const rows = families.map(({ name, type, help, labels }) => {
    const cells = [`\`${name}\``, type, labels.map((label) => labelCell(name, label)).join("<br>"), help];
    return `| ${[...cells, WATCH[name] ?? ""].join(" | ")} |`;
  });
  return ["| name | type | labels | what | watch |", "| --- | --- | --- | --- | --- |", ...rows].join("\n");
}

function labelCell(metric: string, label: string): string {
  const set = labelSet(metric, label);
  if (typeof set === "string") return `\`${label}\`: ${set}`;
  if (set.values.length > IN_CELL_MAX) return `\`${label}\`: [${set.values.length}](#label-values)`;
  return `\`${label}\`: ${set.values.map((value) => `\`${value}\``).join(" ")}`;
}

function longSets(families: readonly Family[]): string[] {
  const lines = families.flatMap(({ name, labels }) =>
    labels.flatMap((label) => {
      const set = labelSet(name, label);
      if (typeof set === "string" || set.values.length <= IN_CELL_MAX) return [];
      return [
        { of: `\`${label}\` of \`${name}\``, values: set.values.map((value) => `\`${value}\``).join(", ") },
      ];
    }),
  );
  const bySet = new Map<string, string[]>();
  for (const { of, values } of lines) bySet.set(values, [...(bySet.get(values) ?? []), of]);
  return [...bySet].map(([values, of]) => `- ${of.join(" and ")}: ${values}.`);
}

const INTRODUCTION = `# Metrics

The admin port answers \`GET /metrics\` in Prometheus's text format. This page is made from the code by
\`npm run generate\`. Beside it are ready to use:

- [config/prometheus/prometheus.yaml](../config/prometheus/prometheus.yaml): how to scrape. Name the job \`tollgate\`;
  some alerts look for it.
- [config/prometheus/alerts.yaml](../config/prometheus/alerts.yaml): whom to wake, and when. What to do then
  is in the [operations guide](operations/incidents.md).
- [config/grafana/tollgate.json](../config/grafana/tollgate.json): a dashboard to import. It asks which Prometheus to
  use. [config/grafana/usage.json](../config/grafana/usage.json) is one for usage and statements, on the PostgreSQL of the
  [archive](archive.md#usage-and-statements).

\`npm run test:operators\` tries them with a real Prometheus.

## Metrics of the gateway
`;

const READING = `## How to read them

**Counters count one gateway; figures of the ledger count the store.** Rates of counters add up over gateways. What
describes the store as a whole is the same from every gateway that shares it, so take \`max\`, never \`sum\`:
\`tollgate_open_requests\`, \`tollgate_open_requests_oldest_seconds\`, \`tollgate_holds_overdue_seconds\`, \`tollgate_sweeper_lag_seconds\`,
\`tollgate_redis_*\` and all \`tollgate_ledger_*\` gauges. One gateway counts every 10 seconds and
leaves the figures in the store; the others read them there ([decision 0016](decisions/0016-metrics-and-log.md)).

- What share of requests fails? \`sum(rate(tollgate_requests_total{status=~"5..", outcome!="version_unsupported"}[5m])) / sum(rate(tollgate_requests_total[5m]))\`
- How much of the time is the generator's? \`sum(rate(tollgate_upstream_duration_seconds_sum[5m])) / sum(rate(tollgate_request_duration_seconds_sum[5m]))\`
- Who is limited, and by what? \`sum by (tier, outcome) (rate(tollgate_admissions_total{outcome!="admitted"}[5m]))\`
- Who will be next? \`sum by (tier, limit) (rate(tollgate_admissions_near_limit_total[5m])) / on (tier) group_left () sum by (tier) (rate(tollgate_admissions_total{outcome="admitted"}[5m]))\`
- How many slots are taken? \`sum(max by (state, age) (tollgate_open_requests))\`
- Are tasks stuck? \`max(tollgate_open_requests_oldest_seconds{state="bound"})\`
- What came in and went out, ever? \`max by (type) (tollgate_ledger_credits)\`
- How many tasks are refunded? \`sum(increase(tollgate_settlements_total{outcome="refunded"}[1h])) / sum(increase(tollgate_settlements_total{outcome=~"bound|late"}[1h]))\`

**Which key is it?** No metric says: keys have no bound, and each would be some hundred series. The log has \`key_id\` and
\`account_id\` on each line, and the console on the admin port lists the keys with the most use and the most refusals.

**Near a limit** means that an admission left less than 20 % of the key's window, or took its last slot. A key with a
limit of one slot is near it at each admission.

**Recharges and releases** are counted by no gateway, since the command line or the console makes them. Their credits are
in \`tollgate_ledger_credits\`, which is as old as \`tollgate_ledger_check_timestamp_seconds\` says.
`;
