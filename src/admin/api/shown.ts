import { type Static, type TSchema, Type } from "typebox";
import { isObject, parseObject } from "../../domain/json.ts";
import type { Tiers } from "../../domain/limits.ts";
import type { ListedAccount } from "../../operations/accounts/account-lists.ts";
import { daysLeft } from "../../operations/accounts/account-ranks.ts";
import type { AccountObject } from "../../operations/accounts/operator-accounts.ts";
import { effectiveLimits, type KeyRecord } from "../../operations/keys/keys.ts";
import { CALLBACK_DELIVERIES, type Delivery } from "../../operations/webhooks/deliveries.ts";
import type { Endpoint } from "../../operations/webhooks/endpoints.ts";
import {
  detailsOf,
  kindOf,
  type LedgerEntry,
  shownType,
  transactionId,
} from "../../records/ledger-entries.ts";
import { Key } from "./account-schemas.ts";

export const isoTime = (atMs: number): string => new Date(atMs).toISOString();

interface ShownSchema {
  type?: string | string[];
  properties?: Record<string, TSchema>;
  items?: TSchema;
  additionalProperties?: unknown;
}

/**
 * An object with the fields of its schema, each from the member of that name or of the name in records: `created_at` is `createdAtMs`,
 * Unix ms. What is undefined is null, and left out where it may be; so is an empty text where the schema has null for it.
 */
export function shownAs<Schema extends TSchema>(schema: Schema, value: unknown): Static<Schema>;
export function shownAs(schema: ShownSchema, value: unknown): unknown {
  const { items, properties, additionalProperties } = schema;
  if (Array.isArray(value) && items) return value.map((one) => shownAs(items, one));
  if (!properties || !isObject(value)) return value;
  const fields = Object.entries(properties).flatMap(([name, field]): [string, unknown][] => {
    const shown = shownAs(field, memberOf(value, name));
    if (shown === undefined && Type.IsOptional(field)) return [];
    const isNull = shown === undefined || (shown === "" && isNullable(field));
    return [[name, isNull ? null : shown]];
  });
  return { ...(additionalProperties !== false && value), ...Object.fromEntries(fields) };
}

const isNullable = ({ type }: ShownSchema): boolean => Array.isArray(type) && type.includes("null");

function memberOf(value: Readonly<Record<string, unknown>>, name: string): unknown {
  if (name in value) return value[name];
  const own = name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  if (own in value) return value[own];
  const atMs = value[`${own}Ms`];
  return typeof atMs === "number" && !Number.isNaN(atMs) ? isoTime(atMs) : undefined;
}

// Fields that are not in records under their names.

export const accountShown = (account: AccountObject) => ({
  ...account,
  effective_limits: account.limits,
  alerts: account.creditsBelow.length > 0 ? { credits_below: account.creditsBelow } : undefined,
  price_multiplier: Number(account.priceMultiplier),
});

export const listedAccountShown = ({ spent, ...account }: ListedAccount) => ({
  ...accountShown(account),
  spent_today: spent.today,
  spent_7d: spent.week,
  days_left: tenths(daysLeft(account.balance, spent)),
});

const tenths = (number: number | undefined): number | undefined =>
  number === undefined ? undefined : Math.floor(number * 10) / 10;

/** @param secret the key itself, in the answer that makes it */
export const keyShown = (key: KeyRecord, tiers: Tiers, secret?: string) =>
  shownAs(Key, {
    ...key.limits,
    ...key,
    effective_limits: effectiveLimits(key, tiers),
    allowed_endpoints: key.restrictions.endpoints,
    allowed_addresses: key.restrictions.addresses,
    key: secret,
  });

/** @param balance credits that can be spent, in the answer that makes it */
export const transactionShown = (entry: LedgerEntry, balance?: number) => ({
  ...entry,
  ...detailsOf(entry),
  id: transactionId(entry),
  type: shownType(entry),
  kind: kindOf(entry),
  endpoint: (shownType(entry) === "consume" && entry.endpoint) || undefined,
  created_at: isoTime(entry.atMs),
  reason: entry.note || entry.reason,
  reversed: kindOf(entry) === "reversal" ? -entry.amount : undefined,
  balance,
});

/** @param data of a task as customers see them, JSON; empty for none */
export function seenShown(data: string) {
  const { video_url: videoUrl, failure_reason: reason } = data === "" ? {} : (parseObject(data) ?? {});
  return {
    video_url: typeof videoUrl === "string" ? videoUrl : null,
    failure_reason: typeof reason === "string" ? reason : null,
  };
}

export const webhookShown = (endpoint: Endpoint, secret?: string) => ({
  ...endpoint,
  id: endpoint.endpointId,
  bothSignUntilMs: endpoint.previousUntilMs,
  secret,
});

export const deliveryShown = ({ atMs, ...delivery }: Delivery) => ({
  ...delivery,
  id: delivery.eventId,
  webhook_id: delivery.endpointId ?? CALLBACK_DELIVERIES,
  attempts: delivery.leases,
  nextAttemptAtMs: delivery.status === "waiting" ? atMs : undefined,
  lastAttemptAtMs: delivery.triedAtMs,
  endedAtMs: delivery.state === "waiting" ? undefined : atMs,
  response_status: delivery.httpStatus,
  response: delivery.answer,
  response_ms: delivery.triedAtMs === undefined ? undefined : delivery.tookMs,
});
