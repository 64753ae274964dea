import type { TestProject } from "vitest/node";
import { findPrometheus, type PrometheusBinaries } from "./prometheus.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** Undefined where nobody has asked for it. */
    prometheus: PrometheusBinaries | undefined;
  }
}

/** `npm run test:operators` wants a Prometheus, and fails without; `npm test` leaves it out, for half a minute's sake. */
export default async function setup(project: TestProject): Promise<void> {
  const wanted = process.env.TOLLGATE_OPERATORS === "1";
  project.provide("prometheus", wanted ? await findPrometheus() : undefined);
}
