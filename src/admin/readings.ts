import type { Metrics } from "../telemetry/metrics.ts";

/** One value of a metric, as prom-client has it. */
export interface Value {
  value: number;
  labels: object;
  metricName?: string;
}

/** The metrics that the console shows. */
const SHOWN = [
  "requests",
  "requestSeconds",
  "upstreamSeconds",
  "inFlight",
  "outbox",
  "outboxOfOtherStores",
  "unconfirmed",
  "journalUsable",
  "storeUp",
  "storeOlder",
  "partitionsFrozen",
  "archiveLag",
  "archiveViolations",
  "ledgerViolations",
  "ledgerCheckedAt",
  "ledgerCheckInterval",
] as const satisfies readonly (keyof Metrics)[];

/** What one process's metrics say at one moment, as far as it is shown. */
export type Reading = Record<(typeof SHOWN)[number], readonly Value[]>;

/** Reads metric by metric: a read of the whole registry would start its percentiles anew. */
export async function readMetrics(metrics: Metrics): Promise<Reading> {
  const read = SHOWN.map(async (name): Promise<[string, readonly Value[]]> => {
    const { values } = await metrics[name].get();
    return [name, values as Value[]];
  });
  return Object.fromEntries(await Promise.all(read)) as Reading;
}
