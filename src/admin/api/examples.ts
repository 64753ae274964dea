import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";

const USE = Object.fromEntries(
  TIER_LIMITS.flatMap(({ name, used, example }) => [
    [used, example.used],
    [name, example.limit],
  ]),
);
const KEY = "key_Rx0dTdT1hDhbmzOa";
const HOUR = "2026-10-31T06:00:00.000Z";

/** One example of each of operators' views, by the title of its schema. */
const VIEW_EXAMPLES = {
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
    checks: [
      {
        name: "redis",
        status: "ok",
        message: "all primaries answer and take writes",
        runbook: "docs/operations/redis.md",
      },
    ],
  },
  Overview: {
    open: 184,
    money: {
      today: { charged: 128_410, refunded: 1230, purchased: 250_000, adjusted: -500, uncollected: 0 },
      month: { charged: 2_884_100, refunded: 30_120, purchased: 3_500_000, adjusted: 1200, uncollected: 0 },
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
    data: [{ key_id: KEY, account_id: "acme", tier: "standard", usable: true, ...USE }],
    next_cursor: null,
    keys_looked_at: 211,
    complete: true,
  },
  RefusalsOfDay: {
    data: [{ key_id: KEY, account_id: "acme", outcome: "rate_limited", count: 180 }],
    next_cursor: null,
    since: "2026-10-31T00:00:00.000Z",
  },
  AccountRefusals: {
    data: [{ hour: HOUR, key_id: KEY, outcome: "rate_limited", count: 180 }],
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

const [FIRST, SECOND] = TIER_LIMITS;
const CAPPED = byLimit(CAPS, ({ example }) => example.limit);
const TIER = {
  tier: "standard",
  ...byLimit(TIER_LIMITS, ({ tiers }) => tiers.standard),
  ...{ shadow: [], deprecated: false, keys: 120 },
};

/** Limits of which one is set. */
const limitsWith = (set: number) =>
  byLimit(TIER_LIMITS, (limit) => (limit === TIER_LIMITS[set] ? limit.example.limit : null));

const TASK = {
  task_id: "task_5f0c",
  request_id: "req_mh8p2k0a1b2c3d4e000001",
  account_id: "acme",
  key_id: "key_Rx0dTdT1hDhbmzOa",
  endpoint: "/api/v1/gen2/text-to-video",
  price: 50,
  status: "completed",
  created_at: "2026-10-31T06:00:00.000Z",
  bound_at: "2026-10-31T06:00:01.000Z",
  finished_at: "2026-10-31T06:03:00.000Z",
  refunded: false,
} as const;

const TRANSACTION = {
  id: "txn_12_1761890400000-0",
  type: "recharge",
  kind: "purchase",
  amount: 500,
  balance_after: 500,
  created_at: "2026-10-31T06:00:00.000Z",
  task_id: null,
  request_id: null,
  key_id: null,
  reason: null,
  reference: "order-1001",
  by: "tok_9yKq2m4vTz0a shop",
} as const;

const USAGE = { requests: 20, credits: 1000, refunds: 50, completed: 19, failed: 1, seconds: 1710 };

const ACCOUNT = {
  account_id: "acme",
  label: "Acme Films",
  metadata: { crm_id: "4711" },
  status: "active",
  limits: limitsWith(0),
  effective_limits: limitsWith(0),
  balance: 450,
  held: 50,
  total_used: 1000,
  total_requests: 21,
  created_at: "2026-10-01T08:00:00.000Z",
} as const;

/** One example of each object of the API, by the title of its schema. */
export const OBJECT_EXAMPLES = {
  ...VIEW_EXAMPLES,
  Account: ACCOUNT,
  ListedAccount: { ...ACCOUNT, spent_today: 120, spent_7d: 730 },
  Key: {
    key_id: "key_Rx0dTdT1hDhbmzOa",
    account_id: "acme",
    label: "backend",
    tier: "standard",
    status: "active",
    limits: limitsWith(1),
    ...CAPPED,
    effective_limits: {
      ...byLimit(TIER_LIMITS, ({ tiers }) => tiers.standard),
      [SECOND!.name]: SECOND!.example.limit,
    },
    allowed_endpoints: ["gen2/text-to-video"],
    allowed_addresses: null,
    spent_this_month: 1050,
    created_at: "2026-10-01T08:00:00.000Z",
    expires_at: null,
    revoked_at: null,
    rotated_to: null,
  },
  TransactionPage: {
    data: [{ account_id: "acme", ...TRANSACTION }],
    next_cursor: null,
    source: "archive",
  },
  TransactionOfAll: { account_id: "acme", ...TRANSACTION },
  Transaction: TRANSACTION,
  Task: TASK,
  TaskDetail: { ...TASK, video_url: "https://cdn.example/task_5f0c.mp4", failure_reason: null },
  KeyRefusal: {
    at: HOUR,
    ...{ outcome: "rate_limited", limit: 20, used: 20, retry_after: 12 },
    request_id: "req_mh8p2k0a1b2c3d4e000001",
    client_request_id: null,
  },
  Release: { outcome: "ended", refunded: 50 },
  Token: {
    token_id: "tok_9yKq2m4vTz0a",
    label: "shop",
    scopes: ["accounts:write", "keys:write", "credits:write"],
    accounts: null,
    parent: null,
    created_at: "2026-10-01T08:00:00.000Z",
    expires_at: null,
    revoked_at: null,
  },
  WhoAmI: {
    token_id: "tok_9yKq2m4vTz0a",
    label: "shop",
    scopes: ["accounts:write", "keys:write", "credits:write"],
    accounts: null,
  },
  AuditRecord: {
    audit_id: "aud_12_1761890400000-0",
    at: "2026-10-31T06:00:00.000Z",
    by: "tok_9yKq2m4vTz0a shop",
    action: "account.patch",
    account_id: "acme",
    target: "acme",
    before: { status: null },
    after: { status: "suspended" },
    request_id: "req_mh8p2k0a1b2c3d4e000002",
  },
  Maintenance: { on: true, retry_after: 120, message: "Back at 14:00 UTC", since: HOUR },
  Package: { package: "premium", credits: 500 },
  Price: { endpoint: "/api/v1/gen2/text-to-video", price: 50 },
  Tier: TIER,
  Tiers: {
    data: [TIER],
    next_cursor: null,
    missing: [],
  },
  UsageRow: {
    day: "2026-10-31",
    endpoint: "/api/v1/gen2/text-to-video",
    key_id: "key_Rx0dTdT1hDhbmzOa",
    requests: 20,
    credits: 1000,
    refunds: 50,
    completed: 19,
    failed: 1,
    seconds: 1710,
  },
  Usage: {
    data: [
      {
        day: "2026-10-31",
        requests: 20,
        credits: 1000,
        refunds: 50,
        completed: 19,
        failed: 1,
        seconds: 1710,
      },
    ],
    next_cursor: null,
    source: "redis",
    since: null,
    ended_since: null,
  },
  UsageRowOfAll: { month: "2026-10", account_id: "acme", ...USAGE },
  AllUsage: {
    data: [{ month: "2026-10", account_id: "acme", ...USAGE }],
    next_cursor: null,
    source: "redis",
    since: null,
    ended_since: null,
  },
  TopAccounts: {
    data: [{ account_id: "acme", label: "Acme Films", credits: 12_840 }],
    next_cursor: null,
    source: "redis",
    since: null,
    complete: true,
  },
  Problem: {
    type: "about:blank",
    title: "Bad Request",
    status: 400,
    detail: "amount is required",
    code: "invalid",
    request_id: "req_mh8p2k0a1b2c3d4e000003",
    errors: [{ path: "/amount", message: "amount is required" }],
  },
} as const;

/** Bodies of requests, by `operationId`. */
export const BODY_EXAMPLES: Readonly<Record<string, object>> = {
  createAccount: {
    account_id: "acme",
    label: "Acme Films",
    metadata: { crm_id: "4711" },
    limits: { [FIRST!.name]: FIRST!.example.limit },
  },
  changeAccount: { status: "suspended", limits: { [FIRST!.name]: FIRST!.example.limit } },
  createKey: {
    tier: "standard",
    label: "backend",
    limits: { [SECOND!.name]: SECOND!.example.limit },
    ...CAPPED,
  },
  importKey: { key: "sk_live_4f9aB7c2e8d1", label: "taken over", allowed_addresses: ["203.0.113.0/24"] },
  changeKey: {
    ...byLimit(CAPS, () => null),
    allowed_endpoints: ["gen2/text-to-video"],
    expires_at: "2099-12-31T00:00:00Z",
  },
  rotateKey: { overlap: "24h" },
  setMaintenance: { on: false },
  createToken: { label: "shop", scopes: ["accounts:write", "keys:write", "credits:write"] },
  grantCredits: { package: "premium", reference: "order-1001" },
  adjustCredits: { amount: -200, reason: "granted twice", reference: "ticket-17" },
  refundTask: { reason: "black frames", reference: "ticket-18" },
};
