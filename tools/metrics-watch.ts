/** Advice to operators, by metric. The names of alerts are those of config/prometheus/alerts.yaml. */
export const WATCH: Readonly<Record<string, string>> = {
  tollgate_build_info: "more than one version outside of a rollout",
  tollgate_requests_total:
    'share of `status=~"5.."`, but for 505: `TollgateErrorBudgetBurn`; `internal` above 0: `TollgateInternalErrors`',
  tollgate_request_duration_seconds: 'p99 of `class="2xx"` by route; most of a generation is the generator',
  tollgate_requests_in_flight: "rises without end: the generator or the store hangs",
  tollgate_management_requests_total:
    '`status="401"` or `429` climbing: somebody guesses tokens, or a backend has an old one; 503: Redis, or more calls at a time than are served',
  tollgate_sign_ins_refused_total:
    "`wrong_token`, `too_many_wrong_tokens`, `other_site`, `wrong_host`: `TollgateSignInsRefused`",
  tollgate_overload_total:
    "`requests_in_flight`, `body_bytes`, `connections`: `TollgateOverloaded`; the others are about one client each",
  tollgate_connections: "near `server.max_connections`: add a gateway, or look who holds them",
  tollgate_pipelined_requests_waiting:
    "above 0 for long: a client sends far ahead of its answers; they wait, others do not",
  tollgate_unread_answer_bytes:
    "megabytes: clients that do not read; the worst are ended (`unread_answers` of `tollgate_overload_total`)",
  tollgate_read_rests_total:
    "rises by several a second: an address floods; find it in the log of the proxy in front, or with `ss`",
  tollgate_upstream_duration_seconds:
    "`unreachable`, `failed`, `unclear`, `timed_out`, `misrouted`: `TollgateUpstreamFailing`; `rate_limited`: `TollgateUpstreamRateLimited`",
  tollgate_upstream_waiting_requests: "above 0 for long: `TollgateUpstreamQueueing`",
  tollgate_upstream_wait_duration_seconds: "its rate of counts: how many found all connections in use",
  tollgate_upstream_overloaded_total: "any: `TollgateUpstreamOverloaded`; customers get 503",
  tollgate_upstream_unknown_outcomes_total:
    "above a percent of generations: `TollgateUpstreamUnknownOutcomes`",
  tollgate_untrusted_proxy_total:
    "any: `TollgateProxyNotTrusted`; all customers share one limit on unknown keys",
  tollgate_upstream_refused_gateway_total: "any: `TollgateUpstreamRefusesGateway`; customers get 502",
  tollgate_upstream_adapter_faults_total:
    "any: `TollgateUpstreamAdapterFaults`; the log has what the adapter did, and generations get an unknown outcome",
  tollgate_upstream_misrouted_polls_total: "any: `TollgateUpstreamMisrouted`; tasks are not followed",
  tollgate_upstream_unusable_states_total:
    "any: `TollgateUpstreamUnusableStates`; tasks fail at their maximum age though videos may exist",
  tollgate_upstream_unroutable_polls_total:
    "any for longer than a rollout: `TollgateUpstreamUnroutable`; a former generator's tasks are not followed",
  tollgate_admissions_total: "refusals by tier: a customer outgrows the tier, or a client runs wild",
  tollgate_shadow_refusals_total: "who would be refused if the limit in shadow mode were enforced",
  tollgate_admissions_near_limit_total: "share of the admitted: who will be refused next",
  tollgate_degraded_requests_total: "any is lost revenue: `TollgateUnmeteredRequests`",
  tollgate_settlements_total:
    "`refunded` against `bound`: `TollgateRefundRate`; `uncollected`, `forgotten`: `TollgateUncollected`; `conflict` is a fault of the generator",
  tollgate_tasks_ended_unanswered_total:
    "any: `TollgateTasksEndedUnanswered`; tasks were refunded without evidence",
  tollgate_uploads_in_flight: "close to `upstream.upload_connections`: further uploads are 503",
  tollgate_holds: "as requests in flight, for generations alone",
  tollgate_credits_consumed_total: "falls to 0 while requests come: nothing is sold",
  tollgate_credits_refunded_total: "in proportion to the credits consumed",
  tollgate_credits_uncollected_total: "any: videos were made that nobody may have paid for",
  tollgate_store_failures_total:
    "`refused`: Redis is full or misconfigured, `TollgateStoreRefuses`; `overloaded`: `TollgateStoreOverloaded`",
  tollgate_store_call_duration_seconds:
    "p99 of `admit`, `bind` and `inspect` above 50 ms: `TollgateStoreSlow`",
  tollgate_store_calls_waiting: "above 0 for minutes: one key floods, or Redis is slow",
  tollgate_store_up: "0: `TollgateStoreDegraded`",
  tollgate_partitions_frozen: "above 0 for an hour: `TollgatePartitionsFrozen`",
  tollgate_primary_up: "0: `TollgatePrimaryAway`",
  tollgate_primary_questions_total: "no `answered` for minutes: `TollgatePrimariesUnknown`",
  tollgate_primary_info: "more ids than primaries: `TollgateTwoPrimaries`",
  tollgate_store_outbox_entries: "above 0 for long: `TollgateSettlementsWaiting`",
  tollgate_store_confirmations_total:
    "`journal` rises: replicas are slow or unavailable, `TollgateReplicaLag`, `TollgateChargesUnconfirmed`; `memory`: the journal cannot be written, too",
  tollgate_store_replayed_charges_total:
    "`uncollected`, `conflict`, `forgotten` rise: answered charges are lost, `TollgateReplayedChargesLost`",
  tollgate_store_unconfirmed_entries: "above 0 for minutes: `TollgateChargesUnconfirmed`",
  tollgate_journal_usable: "0: `TollgateJournalUnusable`",
  tollgate_store_older: "1: `TollgateStoreOlder`",
  tollgate_store_replaced: "1: `TollgateStoreReplaced`",
  tollgate_store_outbox_other_store_entries:
    "any: charges wait for a store that the gateway no longer uses; see `TollgateSettlementsWaiting`",
  tollgate_open_requests:
    "tasks above 30 minutes: `TollgateStuckTasks`; a hold with a `callBackUrl` and an unknown outcome lasts for `tasks.max_age`",
  tollgate_open_requests_oldest_seconds: "the same, as one number",
  tollgate_holds_overdue_seconds: "minutes: no sweeper voids it, `TollgateStuckHolds`",
  tollgate_sweeper_lag_seconds: "some seconds are normal; minutes: `TollgateSweeperLag`",
  tollgate_store_survey_unread_partitions:
    "above 0: open requests and lag are those of the other partitions; see `TollgatePrimaryAway` and `tollgate partitions list`",
  tollgate_store_survey_age_seconds:
    "minutes: the store-wide figures are old, too: `TollgateStoreNumbersStale`",
  tollgate_placement_servers_silent: "above 0 for minutes: `TollgatePlacementServersSilent`",
  tollgate_redis_clock_ahead_seconds: "more than a second either way: `TollgateRedisClockSkewed`",
  tollgate_redis_memory_used_bytes: "near `tollgate_redis_memory_max_bytes`: `TollgateRedisMemoryLow`",
  tollgate_redis_memory_max_bytes: "the threshold of `TollgateRedisMemoryLow`",
  tollgate_redis_persistent: "0: `TollgateRedisNotPersistent`",
  tollgate_redis_replicas_online: "fewer than wanted: `TollgateReplicasMissing`",
  tollgate_redis_replicas_wanted: "the threshold of `TollgateReplicasMissing`",
  tollgate_ledger_violations: "not 0: `TollgateLedgerDrift`; `tollgate ledger verify` names each",
  tollgate_ledger_check_timestamp_seconds: "old: `TollgateLedgerUnchecked`",
  tollgate_ledger_credits: "recharged - consumed + refunded is the credits of all customers",
  tollgate_ledger_check_interval_seconds: "the threshold of `TollgateLedgerUnchecked`",
  tollgate_ledger_check_failures_total: "rises: the log says why",
  tollgate_usage_unexplained_entries: "not 0: `TollgateUsageDrift`",
  tollgate_archive_rows_total:
    "`entry` stands still while credits are charged: see `tollgate_archive_lag_seconds`",
  tollgate_archive_lag_seconds: "some seconds are normal; minutes: `TollgateArchiveLag`",
  tollgate_archive_violations: "not 0: `TollgateArchiveDrift`; `tollgate archive verify` names each",
  tollgate_archive_trimmed_entries_total:
    "stands still while entries are older than `archive.keep`: a task that does not end, or the log of the gateway that copies",
  tollgate_archive_forks_total: "any: `TollgateArchiveFork`",
  tollgate_callbacks_total:
    "`bound`, `late`: would have been free; `unanswered` rises: the upstream calls back and does not answer; `forged`: addresses that no gateway made",
  tollgate_webhook_deliveries_total:
    "`retried` and `failed` against `delivered`: `TollgateWebhooksFailing`; `disabled`: `TollgateWebhookEndpointDisabled`",
  tollgate_webhook_overdue_seconds: "minutes: no gateway sends, `TollgateWebhooksOverdue`",
  tollgate_webhook_deliveries_waiting: "rises without end: endpoints of customers are away or too slow",
  tollgate_webhook_events_bytes: "against the memory of Redis; bounded for each account and each partition",
  tollgate_webhook_deliveries_dropped: "rises: `TollgateWebhooksDropped`",
  tollgate_sweeper_items_total: "`interrupted`: the store; `failed`, `timed_out`: the generator",
  tollgate_sweep_duration_seconds: "far above `tasks.sweep_interval`: Redis is slow, or there is a backlog",
  tollgate_log_lines_dropped_total: "any: `TollgateLogLinesDropped`",
  tollgate_spans_dropped_total:
    "rises: the collector is unavailable or too slow; requests do not wait for it",
  tollgate_config_last_reload_successful: "0: `TollgateConfigReloadFailed`",
  tollgate_config_last_reload_success_timestamp_seconds: "older than your last change: it was not seen",
  tollgate_config_settings_awaiting_restart:
    "above 0: a change in the file has not taken effect; the log names it",
  tollgate_tier_keys: "`other` above 0: these keys have the limits of standard, `TollgateTierUnknown`",
  tollgate_check: "2 for ten minutes: `TollgateCheckFailed`; 1 deserves a look",
  tollgate_config_info: "more than one hash for long: `TollgateConfigDiffers`",
  tollgate_tls_certificate_expiry_timestamp_seconds:
    "less than two weeks ahead: `TollgateCertificateExpires`",
  process_cpu_seconds_total: "near 1 a second: the event loop is the limit, add a gateway",
  process_resident_memory_bytes: "rises without end",
  process_open_fds: "near `process_max_fds`: `TollgateFileDescriptorsLow`",
  process_start_time_seconds: "changes without a rollout: it crashes",
  nodejs_eventloop_lag_p99_seconds: "above 0.2: `TollgateEventLoopLag`; a quiet process has 0.1",
  nodejs_gc_duration_seconds: "a rate of its sum near 0.1: too little memory",
};
