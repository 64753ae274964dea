import type { MetricFactory } from "./factory.ts";

export const STORE_FAILURES = [
  "timeout",
  "connection",
  "refused",
  "open",
  "overloaded",
  "frozen",
  "moving",
  "moved",
] as const;

export const KEPT_IN = ["replicas", "journal", "memory"] as const;

export const REPLAY_OUTCOMES = ["bound", "late", "uncollected", "conflict", "forgotten"] as const;

export const ARCHIVED_KINDS = ["entry", "request", "account", "key", "audit"] as const;

const CALL_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

export function storeMetrics({ counter, gauge, histogram }: MetricFactory) {
  return {
    storeFailures: counter(
      "tollgate_store_failures_total",
      "Store calls that failed; `open`: not sent because the breaker is open; `overloaded`: not sent because too many wait; `frozen`: for a frozen partition; `moving`: a slot is moving to another node; `moved`: its partition has moved to another primary, to which it is sent once more.",
      ["reason"],
      STORE_FAILURES,
    ),
    ...confirmationMetrics(counter),
    storeSeconds: histogram(
      "tollgate_store_call_duration_seconds",
      "Duration of script calls to the store, by script.",
      CALL_BUCKETS,
      ["script"],
    ),
    storeWaiting: gauge(
      "tollgate_store_calls_waiting",
      "Requests in the fair queue because the maximum number of store calls is in progress; keys take turns.",
    ),
    storeUp: gauge("tollgate_store_up", "1 while the store is usable (the breaker is closed), else 0.", {
      aggregator: "min",
    }),
    partitionsFrozen: gauge(
      "tollgate_partitions_frozen",
      "Partitions that an operator has frozen with `tollgate partitions freeze`; their accounts get 503.",
      { aggregator: "max" },
    ),
    ...primaryMetrics({ counter, gauge }),
    outbox: gauge("tollgate_store_outbox_entries", "Settlements waiting until the store is available again."),
    unconfirmed: gauge(
      "tollgate_store_unconfirmed_entries",
      "Answered charges that the primary has and no replica is known to have; they are in the journal.",
    ),
    journalUsable: gauge(
      "tollgate_journal_usable",
      "1 while the journal files exist and can grow, else 0: a crash during a store outage would lose charges.",
      { aggregator: "min" },
    ),
    storeOlder: gauge(
      "tollgate_store_older",
      "1 while the store lacks data that it has confirmed; it is not used until an operator accepts it.",
      { aggregator: "max" },
    ),
    storeReplaced: gauge(
      "tollgate_store_replaced",
      "1 while Redis is empty, or holds another store than the journal folder knows; it is not used until an operator accepts it.",
      { aggregator: "max" },
    ),
    outboxOfOtherStores: gauge(
      "tollgate_store_outbox_other_store_entries",
      "Waiting settlements that belong to another store than the one in use.",
    ),
  };
}

const confirmationMetrics = (counter: MetricFactory["counter"]) => ({
  confirmations: counter(
    "tollgate_store_confirmations_total",
    "Charges by where they were kept besides the primary when they were answered; only with `store.confirm_replicas`.",
    ["kept_in"],
    KEPT_IN,
  ),
  replayedCharges: counter(
    "tollgate_store_replayed_charges_total",
    "Answered charges that were sent again after a primary changed or a gateway ended, by outcome; `uncollected`, `conflict` and `forgotten` are lost charges.",
    ["outcome"],
    REPLAY_OUTCOMES,
  ),
});

/** Of each primary; but for the ids only with Sentinel and Redis Cluster. */
const primaryMetrics = ({ counter, gauge }: Pick<MetricFactory, "counter" | "gauge">) => ({
  primaryUp: gauge(
    "tollgate_primary_up",
    "1 while this primary is usable (its breaker is closed), else 0; only with Sentinel and Redis Cluster.",
    { labelNames: ["primary"], aggregator: "min" },
  ),
  primaryInfo: gauge(
    "tollgate_primary_info",
    "1 for the replication id of each primary that this gateway uses; a primary that is away has none.",
    { labelNames: ["primary", "replication_id"], aggregator: "max" },
  ),
  primaryQuestions: counter(
    "tollgate_primary_questions_total",
    "Polls of Sentinels or cluster nodes for the primaries; `outdated`: an answer from before a failover, not used.",
    ["outcome"],
  ),
  silentServers: gauge(
    "tollgate_placement_servers_silent",
    "Sentinels or cluster nodes that did not answer the last poll for the primaries.",
    { aggregator: "max" },
  ),
});

/** Figures of each Redis primary, read by one process of each gateway. */
export function redisMetrics({ gauge }: MetricFactory) {
  const perPrimary = { labelNames: ["primary"], aggregator: "max" } as const;
  return {
    redisClockAhead: gauge(
      "tollgate_redis_clock_ahead_seconds",
      "How far the clock of a Redis primary is ahead of this machine's; negative: behind.",
      perPrimary,
    ),
    redisMemory: gauge("tollgate_redis_memory_used_bytes", "Memory that a Redis primary uses.", perPrimary),
    redisMemoryMax: gauge(
      "tollgate_redis_memory_max_bytes",
      "`maxmemory` of a Redis primary, or the memory of its machine if that is not set.",
      perPrimary,
    ),
    redisPersistent: gauge(
      "tollgate_redis_persistent",
      "1 while the append-only file of a Redis primary is on and can be written, else 0.",
      perPrimary,
    ),
    redisReplicas: gauge(
      "tollgate_redis_replicas_online",
      "Replicas that are connected to a Redis primary and in step.",
      perPrimary,
    ),
    redisReplicasWanted: gauge(
      "tollgate_redis_replicas_wanted",
      "`store.confirm_replicas`: replicas that each charge waits for.",
      { aggregator: "max" },
    ),
  };
}

/** One gateway counts and leaves them in the store; all report the same values, so queries take the maximum. */
export function sharedStoreMetrics({ counter, gauge }: MetricFactory) {
  const aggregator = "max";
  return {
    openRequests: gauge(
      "tollgate_open_requests",
      "Holds and unfinished tasks in the store, by state and age; each occupies a slot.",
      { labelNames: ["state", "age"], aggregator },
    ),
    openRequestsOldest: gauge(
      "tollgate_open_requests_oldest_seconds",
      "Age of the oldest hold and of the oldest unfinished task in the store; 0 if there is none.",
      { labelNames: ["state"], aggregator },
    ),
    holdsOverdue: gauge(
      "tollgate_holds_overdue_seconds",
      "How far the most overdue hold in the store is past its due time; 0 if none is.",
      { aggregator },
    ),
    sweeperLag: gauge(
      "tollgate_sweeper_lag_seconds",
      "Time that the most overdue item in the store has been waiting for a sweeper.",
      { aggregator },
    ),
    surveyUnread: gauge(
      "tollgate_store_survey_unread_partitions",
      "Partitions that the last survey did not count, because their primary was unavailable or they were frozen; 0 if it is complete.",
      { aggregator },
    ),
    surveyAge: gauge(
      "tollgate_store_survey_age_seconds",
      "Time since this gateway last saw a new count of open requests, or since it started.",
      { aggregator },
    ),
    ledgerViolations: gauge(
      "tollgate_ledger_violations",
      "Violated invariants that the last check of the ledger found; anything but 0 is a fault.",
      { aggregator },
    ),
    ledgerCheckedAt: gauge(
      "tollgate_ledger_check_timestamp_seconds",
      "Unix time at which a gateway last checked the ledger; 0 if none did.",
      { aggregator },
    ),
    ledgerCredits: gauge(
      "tollgate_ledger_credits",
      "Credits in the whole ledger at its last check, by type of entry; includes recharges from the command line.",
      { labelNames: ["type"], aggregator },
    ),
    ledgerCheckInterval: gauge(
      "tollgate_ledger_check_interval_seconds",
      "Configured time between two checks of the ledger; 0: no checks.",
      { aggregator },
    ),
    usageUnexplained: gauge(
      "tollgate_usage_unexplained_entries",
      "Ledger entries that usage by day does not account for, as this gateway last found; anything but 0 is a fault.",
      { aggregator },
    ),
    ledgerCheckFailures: counter(
      "tollgate_ledger_check_failures_total",
      "Checks of the ledger that this gateway started and could not complete.",
    ),
  };
}

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
