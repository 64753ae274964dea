import { readFileSync } from "node:fs";
import { cli } from "./cli.ts";
import { configSchema, priceSchema } from "./config-schemas.ts";
import { dashboard } from "./dashboard.ts";
import { adminOpenApi } from "./management-openapi.ts";
import { metricsPage } from "./metrics-page.ts";
import { openApi } from "./openapi.ts";
import { usageDashboard } from "./usage-dashboard.ts";

/** A file that is made from the code and committed; a house test holds it against `text`. */
export interface Generated {
  /** Relative to the top of the repository. */
  file: string;
  text(): string | Promise<string>;
}

/** Helm reads only files of the chart. */
const chartAlerts: Generated = {
  file: "deploy/helm/files/alerts.yaml",
  text: () => readFileSync(new URL("../config/prometheus/alerts.yaml", import.meta.url), "utf8"),
};

export const GENERATED: readonly Generated[] = [
  cli,
  openApi,
  adminOpenApi,
  metricsPage,
  dashboard,
  usageDashboard,
  configSchema,
  priceSchema,
  chartAlerts,
];
