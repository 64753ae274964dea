import { type Check, runbookOf } from "../../checks/check.ts";
import { parseObject } from "../../domain/json.ts";
import { byLimit, CAPS, type LimitChanges, TIER_LIMITS, type Tiers } from "../../domain/limits.ts";
import type { AuditRecord } from "../../operations/access/audit.ts";
import type { TokenRecord } from "../../operations/access/tokens.ts";
import type { ListedAccount } from "../../operations/accounts/account-lists.ts";
import { daysLeft } from "../../operations/accounts/account-ranks.ts";
import type { AccountObject } from "../../operations/accounts/operator-accounts.ts";
import type { Refusal } from "../../operations/accounts/refusal-log.ts";
import type { HourlyRefusals } from "../../operations/accounts/refusals.ts";
import { effectiveLimits, type KeyRecord } from "../../operations/keys/keys.ts";
import type { Labels } from "../../operations/labels.ts";
import type { TaskView } from "../../operations/tasks/task-view.ts";
import { CALLBACK_DELIVERIES, type Delivery } from "../../operations/webhooks/deliveries.ts";
import type { Endpoint } from "../../operations/webhooks/endpoints.ts";
import {
  detailsOf,
  kindOf,
  type LedgerEntry,
  shownType,
  transactionId,
} from "../../records/ledger-entries.ts";

// Objects as the API shows them: snake_case, times as ISO 8601 UTC, null for what is not there.

export const isoTime = (atMs: number): string => new Date(atMs).toISOString();

export const isoTimeOrNull = (atMs: number | undefined): string | null =>
  atMs === undefined || Number.isNaN(atMs) ? null : isoTime(atMs);

export const reachShown = (reachesBackToMs: number | undefined) =>
  reachesBackToMs === undefined ? {} : { reaches_back_to: isoTimeOrNull(reachesBackToMs) };

export const checkShown = ({ name, status, message, advice }: Check) => ({
  name,
  status,
  message,
  advice: advice ?? null,
  runbook: runbookOf(name),
});

const textOrNull = (text: string | undefined): string | null => text || null;

const limitsShown = (limits: LimitChanges) => byLimit(TIER_LIMITS, ({ name }) => limits[name] ?? null);

export const accountShown = (account: AccountObject) => ({
  account_id: account.accountId,
  label: account.label,
  metadata: account.metadata,
  status: account.status,
  limits: limitsShown(account.limits),
  effective_limits: limitsShown(account.limits),
  ...(account.creditsBelow.length > 0 && { alerts: { credits_below: account.creditsBelow } }),
  price_multiplier: Number(account.priceMultiplier),
  balance: account.balance,
  held: account.held,
  total_used: account.totalUsed,
  total_requests: account.totalRequests,
  created_at: isoTime(account.createdAtMs),
});

export const listedAccountShown = ({ spent, ...account }: ListedAccount) => ({
  ...accountShown(account),
  spent_today: spent.today,
  spent_7d: spent.week,
  days_left: tenths(daysLeft(account.balance, spent)),
});

const tenths = (number: number | undefined): number | null =>
  number === undefined ? null : Math.floor(number * 10) / 10;

/** @param secret the key itself, in the answer that makes it */
export const keyShown = (key: KeyRecord, tiers: Tiers, secret?: string) => ({
  key_id: key.keyId,
  account_id: key.accountId,
  label: key.label ?? null,
  tier: key.tier,
  status: key.status,
  limits: limitsShown(key.limits),
  ...byLimit(CAPS, ({ name }) => key.limits[name] ?? null),
  effective_limits: effectiveLimits(key, tiers),
  allowed_endpoints: key.restrictions.endpoints ?? null,
  allowed_addresses: key.restrictions.addresses ?? null,
  spent_this_month: key.spentThisMonth,
  created_at: isoTimeOrNull(key.createdAtMs),
  expires_at: isoTimeOrNull(key.expiresAtMs),
  revoked_at: isoTimeOrNull(key.revokedAtMs),
  rotated_to: key.rotatedTo ?? null,
  ...(secret !== undefined && { key: secret }),
});

function detailsShown(entry: LedgerEntry) {
  const { all: _, ...details } = detailsOf(entry);
  return kindOf(entry) === "reversal" ? { ...details, reversed: -entry.amount } : details;
}

/** @param balance credits that can be spent, in the answer that makes it */
export const transactionShown = (entry: LedgerEntry, balance?: number) => ({
  id: transactionId(entry),
  type: shownType(entry),
  kind: kindOf(entry),
  amount: entry.amount,
  balance_after: entry.balanceAfter,
  ...(shownType(entry) === "consume" && entry.endpoint !== "" && { endpoint: entry.endpoint }),
  created_at: isoTime(entry.atMs),
  task_id: textOrNull(entry.taskId),
  request_id: textOrNull(entry.requestId),
  key_id: textOrNull(entry.keyId),
  reason: textOrNull(entry.note || entry.reason),
  reference: textOrNull(entry.reference),
  ...detailsShown(entry),
  by: textOrNull(entry.by),
  ...(balance !== undefined && { balance }),
});

export const taskShown = (task: TaskView) => ({
  task_id: task.taskId ?? null,
  request_id: task.requestId,
  account_id: task.accountId,
  key_id: textOrNull(task.keyId),
  endpoint: textOrNull(task.endpoint),
  price: task.price,
  status: task.status,
  created_at: isoTimeOrNull(task.createdAtMs),
  bound_at: isoTimeOrNull(task.boundAtMs),
  finished_at: isoTimeOrNull(task.finishedAtMs),
  refunded: task.refunded,
});

/** @param data of a task as customers see them, JSON; empty for none */
export function seenShown(data: string) {
  const { video_url: videoUrl, failure_reason: reason } = data === "" ? {} : (parseObject(data) ?? {});
  return {
    video_url: typeof videoUrl === "string" ? videoUrl : null,
    failure_reason: typeof reason === "string" ? reason : null,
  };
}

export const tokenShown = (record: TokenRecord, secret?: string) => ({
  token_id: record.tokenId,
  label: record.label,
  scopes: record.scopes,
  accounts: record.accounts ?? null,
  parent: record.parent ?? null,
  created_at: isoTime(record.createdAtMs),
  expires_at: isoTimeOrNull(record.expiresAtMs),
  revoked_at: isoTimeOrNull(record.revokedAtMs),
  ...(secret !== undefined && { token: secret }),
});

export const auditShown = (record: AuditRecord & Labels) => ({
  audit_id: record.auditId,
  at: isoTime(record.atMs),
  by: record.by,
  action: record.action,
  account_id: textOrNull(record.accountId),
  target: textOrNull(record.target),
  ...labelsShown(record),
  before: record.before,
  after: record.after,
  request_id: textOrNull(record.requestId),
});

export const keyRefusalShown = (refusal: Refusal) => ({
  at: isoTime(refusal.atMs),
  outcome: refusal.outcome,
  limit: refusal.limit ?? null,
  used: refusal.used ?? null,
  retry_after: refusal.retryAfterSeconds ?? null,
  request_id: refusal.requestId,
  client_request_id: refusal.shownId === refusal.requestId ? null : refusal.shownId,
});

export const labelsShown = (row: Labels) => ({
  account_label: row.accountLabel,
  key_label: row.keyLabel,
});

export const refusalShown = ({ atMs, keyId, outcome, count }: HourlyRefusals) => ({
  hour: isoTime(atMs),
  key_id: keyId,
  outcome,
  count,
});

export const webhookShown = (endpoint: Endpoint, secret?: string) => ({
  id: endpoint.endpointId,
  account_id: endpoint.accountId,
  url: endpoint.url,
  events: endpoint.events,
  label: endpoint.label ?? null,
  status: endpoint.status,
  disabled_reason: endpoint.disabledReason ?? null,
  created_at: isoTime(endpoint.createdAtMs),
  both_sign_until: isoTimeOrNull(endpoint.previousUntilMs),
  failing_since: isoTimeOrNull(endpoint.failingSinceMs),
  delivered_at: isoTimeOrNull(endpoint.deliveredAtMs),
  waiting: endpoint.waiting,
  dropped: endpoint.dropped,
  dropped_at: isoTimeOrNull(endpoint.droppedAtMs),
  ...(secret !== undefined && { secret }),
});

export const deliveryShown = (delivery: Delivery) => ({
  id: delivery.eventId,
  webhook_id: delivery.endpointId ?? CALLBACK_DELIVERIES,
  url: delivery.url ?? null,
  type: delivery.type,
  event_at: isoTime(delivery.eventAtMs),
  status: delivery.status,
  attempts: delivery.leases,
  next_attempt_at: isoTimeOrNull(delivery.status === "waiting" ? delivery.atMs : undefined),
  last_attempt_at: isoTimeOrNull(delivery.triedAtMs),
  ended_at: isoTimeOrNull(delivery.state === "waiting" ? undefined : delivery.atMs),
  response_status: delivery.httpStatus ?? null,
  response: textOrNull(delivery.answer),
  response_ms: delivery.triedAtMs === undefined ? null : delivery.tookMs,
});
