import type { Metrics } from "../telemetry/metrics.ts";

export interface Value {
  value: number;
  labels: object;
  metricName?: string;
}

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
  "untrustedProxy",
] as const satisfies readonly (keyof Metrics)[];

export type MetricsReading = Record<(typeof SHOWN)[number], readonly Value[]>;

/** Reads metric by metric: a read of the whole registry would start its percentiles anew. */
export async function readMetrics(metrics: Metrics): Promise<MetricsReading> {
  const read = SHOWN.map(async (name): Promise<[string, readonly Value[]]> => {
    const { values } = await metrics[name].get();
    return [name, values as Value[]];
  });
  return Object.fromEntries(await Promise.all(read)) as MetricsReading;
}

/** Outcomes of an exchange in which the upstream did not answer as it should. */
const FAILURES = [
  "unreachable",
  "failed",
  "unclear",
  "timed_out",
  "misrouted",
  "refused_gateway",
  "upstream_failed",
  "upstream_timeout",
] as const;
const LIMITED: readonly string[] = ["rate_limited", "upstream_rate_limited"];
const NOT_ASKED: readonly string[] = ["overloaded", "unroutable", "client_gone"];

/** Exchanges with the upstream that a client waited for, since the start of the processes. */
export interface UpstreamCounts {
  answered: number;
  limited: number;
  failures: ReadonlyMap<string, number>;
}

export function countExchanges(upstreamSeconds: readonly Value[]): UpstreamCounts {
  const counts = { answered: 0, limited: 0, failures: new Map<string, number>() };
  for (const { value, labels, metricName } of upstreamSeconds) {
    const { outcome = "" } = labels as { outcome?: string };
    if (!metricName?.endsWith("_count") || NOT_ASKED.includes(outcome)) continue;
    if (LIMITED.includes(outcome)) counts.limited += value;
    else if ((FAILURES as readonly string[]).includes(outcome))
      counts.failures.set(outcome, (counts.failures.get(outcome) ?? 0) + value);
    else counts.answered += value;
  }
  return counts;
}

/** @param seconds between the two @returns `failure`: the outcome of most failures; null without one */
export function upstreamBetween(before: UpstreamCounts, now: UpstreamCounts, seconds: number) {
  // A worker that has gone takes its counts with it.
  const grown = (after: number, earlier: number): number => Math.max(0, after - earlier);
  const failures = [...now.failures]
    .map(([outcome, count]) => [outcome, grown(count, before.failures.get(outcome) ?? 0)] as const)
    .filter(([, count]) => count > 0)
    .sort(([, a], [, b]) => b - a);
  return {
    window_seconds: Math.round(seconds),
    answered: grown(now.answered, before.answered),
    limited: grown(now.limited, before.limited),
    failed: failures.reduce((sum, [, count]) => sum + count, 0),
    failure: failures[0]?.[0] ?? null,
  };
}

export function dependenciesOf(readings: readonly MetricsReading[]) {
  const values = (name: keyof MetricsReading): number[] => readings.map((one) => sumOf(one[name]));
  const worst = (name: keyof MetricsReading): number => Math.max(0, ...values(name));
  const all = (name: keyof MetricsReading): boolean => values(name).every((value) => value === 1);
  const sum = (name: keyof MetricsReading): number => values(name).reduce((total, value) => total + value, 0);
  return {
    redis: {
      usable: all("storeUp"),
      older: worst("storeOlder") > 0,
      frozen_partitions: worst("partitionsFrozen"),
    },
    archive: {
      lag_seconds: Math.round(worst("archiveLag")),
      violations: worst("archiveViolations"),
    },
    ledger: {
      /** Unix ms; 0 before the first check that this gateway knows of. */
      checkedAtMs: worst("ledgerCheckedAt") * 1000,
      violations: worst("ledgerViolations"),
      check_interval_seconds: worst("ledgerCheckInterval"),
    },
    journal: {
      usable: all("journalUsable"),
      waiting: sum("outbox"),
      of_other_stores: sum("outboxOfOtherStores"),
      unconfirmed: sum("unconfirmed"),
    },
    untrustedProxies: sum("untrustedProxy"),
  };
}

export const sumOf = (values: readonly Value[]): number => values.reduce((sum, { value }) => sum + value, 0);
