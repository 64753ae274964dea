import { type Static, type TSchema, Type } from "typebox";
import { ADDRESS_RANGES_MAX } from "../../domain/key-restrictions.ts";
import { byLimit, TIER_LIMITS } from "../../domain/limits.ts";
import { NEW_ACCOUNT_ID, OVERLAP } from "../../domain/operator-texts.ts";
import { ACCOUNT_STATUSES, ALERTS_MAX } from "../../operations/accounts/operator-accounts.ts";
import { KEY_STATUSES } from "../../operations/keys/keys.ts";
import * as t from "./field-schemas.ts";

type Metadata = Readonly<Record<string, unknown>>;

const accountStatus = t.oneOf(
  ACCOUNT_STATUSES,
  "suspended: polls and credits work, generations and uploads are 403. closed: everything is 403.",
);

const alerts = t.object({
  credits_below: Type.Array(t.whole(1, Number.MAX_SAFE_INTEGER), {
    maxItems: ALERTS_MAX,
    description:
      "Numbers of credits. When a charge leaves less to spend than one of them, the event `credits.low` tells the account's endpoints, once until a recharge leaves it above again.",
    examples: [[100, 10]],
  }),
});

export const Account = t.titled("Account", {
  account_id: t.accountId,
  label: t.nullable<string>(t.label),
  metadata: t.nullable<Metadata>(t.metadata),
  status: accountStatus,
  limits: t.limits(t.OF_ACCOUNT),
  effective_limits: t.limits(
    `What is enforced ${t.OF_ACCOUNT.charAt(0).toLowerCase()}${t.OF_ACCOUNT.slice(1)}`,
  ),
  alerts: t.optional(alerts),
  price_multiplier: t.number("Its requests cost the list price times this, rounded up.", 1),
  balance: t.count("Credits that can be spent: without those that are held.", 450),
  held: t.credits,
  total_used: t.count("Credits charged, without those that were refunded.", 1000),
  total_requests: t.count(undefined, 21),
  created_at: t.time,
});

export const ListedAccount = t.titled("ListedAccount", {
  ...Account.properties,
  spent_today: t.count(
    "Credits charged on this UTC day, without what was refunded on it; about a second behind.",
    120,
  ),
  spent_7d: t.count("The same of the last seven UTC days, this one included.", 730),
  days_left: t.nullable<number>(
    t.number("Days that `balance` lasts at the pace of these seven; null if nothing was spent.", 2.5),
  ),
});

export const NewAccount = t.object({
  account_id: t.optional(Type.String({ pattern: NEW_ACCOUNT_ID.source, examples: ["acme"] })),
  label: t.optional(t.label),
  metadata: t.optional(t.metadata),
  limits: t.optional(t.newLimits(t.OF_ACCOUNT)),
});

const multiplier = Type.Number({
  minimum: 0.01,
  maximum: 10,
  description:
    "From 0.01 to 10, two decimals at most: requests from then on cost the list price times this, rounded up to a whole credit. null: 1.",
});

export const AccountChanges = t.object(
  {
    label: t.optional(t.nullable<string>(t.label)),
    metadata: t.optional(t.nullable<Metadata>(t.metadata)),
    status: t.optional(accountStatus),
    alerts: t.optional(t.nullable<Static<typeof alerts>>(alerts)),
    limits: t.optional(t.newLimits(t.OF_ACCOUNT)),
    price_multiplier: t.optional(t.nullable<number>(multiplier)),
  },
  { minProperties: 1 },
);

const allowedEndpoints = t.nullable<string[]>(
  Type.Array(t.bounded(200), {
    minItems: 1,
    maxItems: 20,
    examples: [["gen2/text-to-video"]],
    description:
      "The only generation endpoints that the key may use, such as `gen2/text-to-video` or `/api/v1/gen2/text-to-video`; stored and answered in the short form. null: all.",
  }),
);
const allowedAddresses = t.nullable<string[]>(
  Type.Array(t.bounded(60), {
    minItems: 1,
    maxItems: ADDRESS_RANGES_MAX,
    examples: [["203.0.113.0/24"]],
    description:
      "The only client addresses that the key may be used from, as CIDR ranges or addresses. From elsewhere the key is answered as an unknown one. null: all.",
  }),
);

export const Key = t.titled("Key", {
  key_id: t.keyId,
  account_id: t.accountId,
  label: t.nullable<string>(t.label),
  tier: t.words(undefined, "standard"),
  status: t.oneOf(KEY_STATUSES, "By the clock of Redis."),
  limits: t.limits(t.OF_KEY),
  ...t.caps,
  effective_limits: t.described(
    "What is enforced: the key's own limit or that of its tier, or that over all keys of the account if it is lower.",
    byLimit(TIER_LIMITS, ({ example }) => t.count(undefined, example.limit)),
  ),
  allowed_endpoints: allowedEndpoints,
  allowed_addresses: allowedAddresses,
  spent_this_month: t.count("Credits held and consumed in this UTC month, without refunds.", 1050),
  created_at: t.time,
  expires_at: t.seldomTime,
  revoked_at: t.seldomTime,
  rotated_to: t.textOrNull("The key that replaces it."),
  key: t.optional(t.words("The key itself. Only in the answer that makes it: it is stored as a SHA-256.")),
});

const keyFields = <Label extends TSchema>(label: Label) => ({
  tier: t.optional(t.bounded(64)),
  label: t.optional(label),
  limits: t.optional(t.newLimits(t.OF_KEY)),
  ...t.newCaps,
  allowed_endpoints: t.optional(allowedEndpoints),
  allowed_addresses: t.optional(allowedAddresses),
  expires_at: t.optional(t.timeOrNull),
});
export const NewKey = t.object(keyFields(t.label));
const secretOfKey = Type.String({
  minLength: 8,
  maxLength: 256,
  description: "The key itself, `sk_...`; stored as a SHA-256.",
});
export const ImportedKey = t.object({ key: secretOfKey, ...NewKey.properties });
export const KeySecret = t.object({ key: { ...secretOfKey, description: "The key itself, `sk_...`." } });

export const KeyChanges = t.object(keyFields(t.nullable<string>(t.label)), { minProperties: 1 });

export const KeyRefusal = t.titled("KeyRefusal", {
  at: t.time,
  outcome: t.words("A name of docs/errors.md, such as `rate_limited`.", "rate_limited"),
  limit: t.countOrNull("The limit that refused it.", 20),
  used: t.countOrNull("How much of it was used.", 20),
  retry_after: t.countOrNull("Seconds, as it was answered.", 12),
  request_id: t.requestId,
  client_request_id: t.textOrNull("The id that the client sent and got back, if it sent one."),
});

export const overlapOf = (description: string) =>
  t.object({ overlap: t.optional(Type.String({ pattern: OVERLAP.source, default: "24h", description })) });

export const Rotation = overlapOf("How long the old key goes on working, such as 24h; 0s ends it at once.");
