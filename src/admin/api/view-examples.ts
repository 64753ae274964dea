import { TIER_LIMITS } from "../../domain/limits.ts";

const USE = Object.fromEntries(
  TIER_LIMITS.flatMap(({ name, used, example }) => [
    [used, example.used],
    [name, example.limit],
  ]),
);
const KEY = "key_Rx0dTdT1hDhbmzOa";
const LABELS = { account_label: "Acme Films", key_label: "backend" };
export const HOUR = "2026-10-31T06:00:00.000Z";

/** One example of each of operators' views, by the title of its schema. */
export const VIEW_EXAMPLES = {
  Live: {
    gateway: { host: "gateway-1", pid: 4211, uptime_seconds: 93_211, not_ready: null, primaries: [] },
    health: {
      redis: { usable: true, older: false, frozen_partitions: 0 },
      upstream: {
        window_seconds: 60,
        answered: 2410,
        limited: 0,
        failed: 3,
        failure: "unreachable",
        last_answer_at: HOUR,
      },
      archive: { lag_seconds: 2, violations: 0 },
      ledger: { checked_at: HOUR, violations: 0, check_interval_seconds: 3600 },
      journal: { usable: true, waiting: 0, of_other_stores: 0, unconfirmed: 0 },
    },
    sample_every_ms: 2000,
    at_ms: [1_793_426_400_000],
    series: { ok: [41.5], refused: [0.4], failed: [0], all_p99: [0.12] },
    denied: [{ outcome: "rate_limited", status: 429, last_minute: 24, last_15_minutes: 180 }],
  },
  Health: {
    status: "ok",
    checked_at: HOUR,
    checks: [
      {
        name: "redis",
        status: "ok",
        message: "all primaries answer and take writes",
        advice: null,
        runbook: "docs/operations/redis.md",
      },
    ],
  },
  Overview: {
    open: 184,
    money: {
      today: {
        charged: 128_410,
        refunded: 1230,
        purchased: 250_000,
        trials: 1000,
        goodwill: 50,
        reversed: 0,
        adjusted: -500,
        uncollected: 0,
      },
      month: {
        charged: 2_884_100,
        refunded: 30_120,
        purchased: 3_500_000,
        trials: 31_000,
        goodwill: 700,
        reversed: 500,
        adjusted: 1200,
        uncollected: 0,
      },
    },
    ledger: { right: true, checked_at: HOUR, violations: 0 },
    settlements_waiting: 0,
    gateways: [
      {
        gateway_id: "gtw_0f3a5c7d9e1b",
        host: "gateway-1",
        pid: 4211,
        started_at: "2026-10-30T04:06:29.000Z",
        seen_at: HOUR,
        config_hash: "8f1c0aa9e2d4b753",
        ready: true,
        requests_per_second: 41.9,
        refused_per_second: 0.4,
        failed_per_second: 0,
        in_flight: 14,
        settlements_waiting: 0,
      },
    ],
  },
  Configuration: {
    config: { log: { level: "info" } },
    config_hash: "8f1c0aa9e2d4b753",
    in_force_since: HOUR,
    from_environment: { "log.level": "LOG_LEVEL" },
    file: {
      path: "/etc/tollgate/tollgate.yaml",
      differs: [{ path: "server.port", in_force: 8080, in_file: 8081, needs_restart: true }],
      awaiting_signal: false,
      problem: null,
    },
    gateways: [{ gateway_id: "gtw_0f3a5c7d9e1b", host: "gateway-1", config_hash: "8f1c0aa9e2d4b753" }],
  },
  AccountUse: {
    account: { ...USE, [TIER_LIMITS[1]!.name]: null },
    keys: [{ key_id: KEY, ...USE }],
    next_cursor: null,
  },
  TopKeys: {
    data: [{ key_id: KEY, account_id: "acme", ...LABELS, tier: "standard", usable: true, ...USE }],
    next_cursor: null,
    keys_looked_at: 211,
    complete: true,
  },
  RefusalsOfDay: {
    data: [{ key_id: KEY, account_id: "acme", ...LABELS, outcome: "rate_limited", count: 180 }],
    next_cursor: null,
    since: "2026-10-31T00:00:00.000Z",
  },
  AccountRefusals: {
    data: [{ hour: HOUR, key_id: KEY, key_label: LABELS.key_label, outcome: "rate_limited", count: 180 }],
    next_cursor: null,
    more: false,
    uncounted: 0,
  },
  OpenRequests: {
    data: [
      {
        request_id: "req_mh8p2k0a1b2c3d4e000001",
        task_id: "task_5f0c",
        account_id: "acme",
        key_id: KEY,
        ...LABELS,
        state: "bound",
        status: "processing",
        endpoint: "/api/v1/gen2/text-to-video",
        price: 50,
        admitted_at: HOUR,
        age_seconds: 1200,
        due_in_seconds: 4,
      },
    ],
    next_cursor: null,
    old: 1,
    open: 184,
    looked_at_max: 20_000,
    complete: true,
  },
  SearchResults: {
    data: [{ kind: "key", id: KEY, account_id: "acme", label: "backend", key_id: null }],
    next_cursor: null,
    complete: true,
  },
} as const;
