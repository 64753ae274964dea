import type { MetricFactory } from "./factory.ts";

export const ARCHIVED_KINDS = ["entry", "request", "account", "key", "audit"] as const;

/** Copying to the archive. Each partition is copied by one gateway, which alone shows figures of it. */
export function archiveMetrics({ counter, gauge }: MetricFactory) {
  const aggregator = "max";
  return {
    archiveRows: counter(
      "tollgate_archive_rows_total",
      "Rows that this gateway has written to the archive, by kind.",
      ["kind"],
      ARCHIVED_KINDS,
    ),
    archiveLag: gauge(
      "tollgate_archive_lag_seconds",
      "Age of the oldest ledger entry that the archive has not got, in the partitions that this gateway copies; 0 if there is none. While " +
        "copying fails, at least the time since it last succeeded.",
      { aggregator },
    ),
    archiveViolations: gauge(
      "tollgate_archive_violations",
      "Differences between the archive and the store that the last check found; anything but 0 is a fault.",
      { aggregator },
    ),
    archiveTrimmed: counter(
      "tollgate_archive_trimmed_entries_total",
      "Ledger entries that were removed from Redis because the archive has them.",
    ),
    archiveForks: counter(
      "tollgate_archive_forks_total",
      "Times that the store had lost ledger entries that the archive has; their rows are hidden from its views.",
    ),
  };
}
