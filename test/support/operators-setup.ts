import type { TestProject } from "vitest/node";
import { findPrometheus, type PrometheusBinaries } from "./prometheus.ts";

declare module "vitest" {
  export interface ProvidedContext {
    prometheus: PrometheusBinaries;
  }
}

/** Only `npm run test:operators` comes here: it wants a Prometheus, and fails without. */
export default async function setup(project: TestProject): Promise<void> {
  project.provide("prometheus", await findPrometheus());
}
