import { Type } from "typebox";
import { ADDRESS_RANGES_MAX } from "../../domain/key-restrictions.ts";
import { byLimit, TIER_LIMITS } from "../../domain/limits.ts";
import { NEW_ACCOUNT_ID, OVERLAP } from "../../domain/operator-texts.ts";
import { ACCOUNT_STATUSES, ALERTS_MAX } from "../../operations/accounts/operator-accounts.ts";
import { KEY_STATUSES } from "../../operations/keys/keys.ts";
import {
  accountId,
  caps,
  count,
  countOrNull,
  credits,
  described,
  label,
  limits,
  metadata,
  newCaps,
  newLimits,
  nullable,
  OF_ACCOUNT,
  OF_KEY,
  object,
  text,
  textOrNull,
  time,
  timeOrNull,
  titled,
  words,
} from "./field-schemas.ts";

const newAccountId = Type.String({ pattern: NEW_ACCOUNT_ID.source, examples: ["acme"] });

const accountStatus = Type.Enum([...ACCOUNT_STATUSES], {
  description:
    "suspended: polls and credits work, generations and uploads are 403. closed: everything is 403.",
});

const alerts = object({
  credits_below: Type.Array(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }), {
    maxItems: ALERTS_MAX,
    description:
      "Numbers of credits. When a charge leaves less to spend than one of them, the event `credits.low` tells the account's endpoints, once until a recharge leaves it above again.",
  }),
});

export const Account = titled("Account", {
  account_id: accountId,
  label: nullable<string>(label),
  metadata: nullable<Readonly<Record<string, unknown>>>(metadata),
  status: accountStatus,
  limits: limits(OF_ACCOUNT),
  effective_limits: limits(`What is enforced ${OF_ACCOUNT.charAt(0).toLowerCase()}${OF_ACCOUNT.slice(1)}`),
  alerts: Type.Optional(alerts),
  price_multiplier: Type.Number({
    description: "Its requests cost the list price times this, rounded up.",
    examples: [1],
  }),
  balance: count("Credits that can be spent: without those that are held."),
  held: credits,
  total_used: count("Credits charged, without those that were refunded."),
  total_requests: count(),
  created_at: time,
});

export const ListedAccount = titled("ListedAccount", {
  ...Account.properties,
  spent_today: count(
    "Credits charged on this UTC day, without what was refunded on it; about a second behind.",
  ),
  spent_7d: count("The same of the last seven UTC days, this one included."),
  days_left: nullable<number>(
    Type.Number({
      description: "Days that `balance` lasts at the pace of these seven; null if nothing was spent.",
      examples: [2.5],
    }),
  ),
});

export const NewAccount = object({
  account_id: Type.Optional(newAccountId),
  label: Type.Optional(label),
  metadata: Type.Optional(metadata),
  limits: Type.Optional(newLimits(OF_ACCOUNT)),
});

export const AccountChanges = object(
  {
    label: Type.Optional(nullable<string>(label)),
    metadata: Type.Optional(nullable<Readonly<Record<string, unknown>>>(metadata)),
    status: Type.Optional(accountStatus),
    alerts: Type.Optional(alerts),
    limits: Type.Optional(newLimits(OF_ACCOUNT)),
    price_multiplier: Type.Optional(
      nullable<number>(
        Type.Number({
          minimum: 0.01,
          maximum: 10,
          description:
            "From 0.01 to 10, two decimals at most: requests from then on cost the list price times this, rounded up to a whole credit. null: 1.",
        }),
      ),
    ),
  },
  { minProperties: 1 },
);

const allowedEndpoints = nullable<string[]>(
  Type.Array(Type.String({ minLength: 1, maxLength: 200 }), {
    minItems: 1,
    maxItems: 20,
    examples: [["gen2/text-to-video"]],
    description:
      "The only generation endpoints that the key may use, such as `gen2/text-to-video` or `/api/v1/gen2/text-to-video`; stored and answered in the short form. null: all.",
  }),
);
const allowedAddresses = nullable<string[]>(
  Type.Array(Type.String({ minLength: 1, maxLength: 60 }), {
    minItems: 1,
    maxItems: ADDRESS_RANGES_MAX,
    examples: [["203.0.113.0/24"]],
    description:
      "The only client addresses that the key may be used from, as CIDR ranges or addresses. From elsewhere the key is answered as an unknown one. null: all.",
  }),
);

export const Key = titled("Key", {
  key_id: text,
  account_id: accountId,
  label: nullable<string>(label),
  tier: text,
  status: Type.Enum([...KEY_STATUSES], { description: "By the clock of Redis." }),
  limits: limits(OF_KEY),
  ...caps,
  effective_limits: described(
    "What is enforced: the key's own limit or that of its tier, or that over all keys of the account if it is lower.",
    byLimit(TIER_LIMITS, () => count()),
  ),
  allowed_endpoints: allowedEndpoints,
  allowed_addresses: allowedAddresses,
  spent_this_month: count("Credits held and consumed in this UTC month, without refunds."),
  created_at: time,
  expires_at: timeOrNull,
  revoked_at: timeOrNull,
  rotated_to: textOrNull("The key that replaces it."),
  key: Type.Optional(words("The key itself. Only in the answer that makes it: it is stored as a SHA-256.")),
});

/** Fields of the body that creates a key. */
const keyFields = {
  tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  label: Type.Optional(label),
  limits: Type.Optional(newLimits(OF_KEY)),
  ...newCaps,
  allowed_endpoints: Type.Optional(allowedEndpoints),
  allowed_addresses: Type.Optional(allowedAddresses),
  expires_at: Type.Optional(timeOrNull),
};
export const NewKey = object(keyFields);
const secretOfKey = Type.String({
  minLength: 8,
  maxLength: 256,
  description: "The key itself, `sk_...`; stored as a SHA-256.",
});
export const ImportedKey = object({ key: secretOfKey, ...keyFields });
export const KeySecret = object({ key: { ...secretOfKey, description: "The key itself, `sk_...`." } });

export const KeyChanges = object(
  {
    tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    label: Type.Optional(nullable<string>(label)),
    limits: Type.Optional(newLimits(OF_KEY)),
    ...newCaps,
    allowed_endpoints: Type.Optional(allowedEndpoints),
    allowed_addresses: Type.Optional(allowedAddresses),
    expires_at: Type.Optional(timeOrNull),
  },
  { minProperties: 1 },
);

export const KeyRefusal = titled("KeyRefusal", {
  at: time,
  outcome: words("A name of docs/errors.md, such as `rate_limited`."),
  limit: countOrNull("The limit that refused it."),
  used: countOrNull("How much of it was used."),
  retry_after: countOrNull("Seconds, as it was answered."),
  request_id: text,
  client_request_id: textOrNull("The id that the client sent and got back, if it sent one."),
});

export const Rotation = object({
  overlap: Type.Optional(
    Type.String({
      pattern: OVERLAP.source,
      default: "24h",
      description: "How long the old key goes on working, such as 24h; 0s ends it at once.",
    }),
  ),
});
