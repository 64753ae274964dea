import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { VIEW_EXAMPLES } from "./view-examples.ts";

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

/** One example of each object of the API, by the title of its schema. */
export const EXAMPLES = {
  ...VIEW_EXAMPLES,
  Account: {
    account_id: "acme",
    label: "Acme Films",
    metadata: { crm_id: "4711" },
    status: "active",
    limits: limitsWith(0),
    balance: 450,
    held: 50,
    total_used: 1000,
    total_requests: 21,
    created_at: "2026-10-01T08:00:00.000Z",
  },
  Key: {
    key_id: "key_Rx0dTdT1hDhbmzOa",
    account_id: "acme",
    label: "backend",
    tier: "standard",
    status: "active",
    limits: limitsWith(1),
    ...CAPPED,
    spent_this_month: 1050,
    created_at: "2026-10-01T08:00:00.000Z",
    expires_at: null,
    revoked_at: null,
    rotated_to: null,
  },
  Transaction: {
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
  },
  Task: {
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
export const BODIES: Readonly<Record<string, object>> = {
  createAccount: { account_id: "acme", label: "Acme Films", metadata: { crm_id: "4711" } },
  changeAccount: { status: "suspended", limits: { [FIRST!.name]: FIRST!.example.limit } },
  createKey: {
    tier: "standard",
    label: "backend",
    limits: { [SECOND!.name]: SECOND!.example.limit },
    ...CAPPED,
  },
  changeKey: { ...byLimit(CAPS, () => null), expires_at: "2099-12-31T00:00:00Z" },
  rotateKey: { overlap: "24h" },
  createToken: { label: "shop", scopes: ["accounts:write", "keys:write", "credits:write"] },
  grantCredits: { package: "premium", reference: "order-1001" },
  adjustCredits: { amount: -200, reason: "granted twice", reference: "ticket-17" },
  refundTask: { reason: "black frames", reference: "ticket-18" },
};
