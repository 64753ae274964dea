import { Type } from "typebox";
import { ADDRESS_RANGES_MAX } from "../../domain/key-restrictions.ts";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS } from "../../domain/limits.ts";
import { NEW_ACCOUNT_ID, OVERLAP } from "../../domain/operator-texts.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { ACCOUNT_STATUSES, ALERTS_MAX } from "../../operations/accounts/operator-accounts.ts";
import { KEY_STATUSES } from "../../operations/keys/keys.ts";
import { RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX } from "../../operations/store/maintenance.ts";
import { LISTED_STATUSES } from "../../operations/tasks/task-view.ts";
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
  unread,
  words,
} from "./field-schemas.ts";
import { Transaction } from "./money-schemas.ts";

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

/** What the body of a key's creation has. */
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

// Objects of the API beside accounts and keys, and the bodies that make them.

export const Task = titled("Task", {
  task_id: textOrNull(),
  request_id: text,
  account_id: accountId,
  key_id: textOrNull(),
  key_label: Type.Optional(textOrNull("In lists.")),
  endpoint: textOrNull(),
  price: nullable<number>(credits),
  status: Type.Enum([...LISTED_STATUSES], {
    description: "held: it has no task yet. void: it got none, and nothing was charged.",
  }),
  created_at: timeOrNull,
  bound_at: timeOrNull,
  finished_at: timeOrNull,
  refunded: Type.Boolean(),
});

export const TaskDetail = titled("TaskDetail", {
  ...Task.properties,
  video_url: textOrNull("As the customer saw it last; null without one."),
  failure_reason: textOrNull("Why it failed, in the generator's words; null if it gave none."),
});

export const Release = titled("Release", {
  outcome: Type.Enum(["ended", "voided", "already_finished", "already_void"]),
  refunded: Type.Optional(count("Credits that went back, of a task that was charged.")),
  credits: Type.Optional(count("Credits that are no longer held.")),
});

const scope = Type.Enum([...SCOPES]);

export const Token = titled("Token", {
  token_id: text,
  label,
  scopes: Type.Array(scope),
  accounts: nullable<string[]>(
    Type.Array(accountId, { description: "The only accounts that it may use. null: all." }),
  ),
  parent: textOrNull(
    "The token that it was made with, which ends it when it is revoked. null: operators made it.",
  ),
  created_at: time,
  expires_at: timeOrNull,
  revoked_at: timeOrNull,
  token: Type.Optional(
    words("The token itself. Only in the answer that makes it: it is stored as a SHA-256."),
  ),
});

export const NewToken = object({
  label,
  scopes: Type.Array(scope, { minItems: 1, maxItems: SCOPES.length }),
  accounts: Type.Optional(nullable<string[]>(Type.Array(accountId, { minItems: 1, maxItems: 100 }))),
  expires_at: Type.Optional(timeOrNull),
});

export const WhoAmI = titled("WhoAmI", {
  token_id: textOrNull(),
  label: text,
  scopes: Type.Array(scope),
  accounts: nullable<string[]>(Type.Array(accountId)),
});

const anything = Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true });

export const AuditRecord = titled("AuditRecord", {
  audit_id: text,
  at: time,
  by: text,
  action: Type.String({ examples: ["credits.grant"] }),
  account_id: textOrNull(),
  target: textOrNull(),
  before: anything,
  after: anything,
  request_id: textOrNull(),
});

export const TimelineEvent = titled("TimelineEvent", {
  at: time,
  transaction: Type.Optional(Transaction),
  audit: Type.Optional(AuditRecord),
});

export const UsageRow = titled("UsageRow", {
  day: Type.Optional(Type.String({ format: "date", examples: ["2026-10-31"] })),
  endpoint: Type.Optional(text),
  key_id: Type.Optional(text),
  requests: count("Charged generations, and unmetered ones."),
  credits: count("Credits charged for them."),
  refunds: count("Credits refunded."),
  completed: count(),
  failed: count(),
  seconds: count("How long the completed tasks ran, each in whole seconds."),
});

export const Usage = titled("Usage", {
  data: Type.Array(UsageRow),
  next_cursor: textOrNull("Always null."),
  source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
  since: nullable<string>({
    ...time,
    description:
      "Charges and refunds before this moment are not counted; null if all that were asked for are.",
  }),
  ended_since: nullable<string>({ ...time, description: "The same of completed and failed tasks." }),
});

export const Maintenance = titled("Maintenance", {
  on: Type.Boolean(),
  retry_after: countOrNull("Seconds that customers are told to wait."),
  message: textOrNull("For customers; null: the usual words."),
  since: timeOrNull,
});

export const NewMaintenance = object({
  on: Type.Boolean(),
  retry_after: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: RETRY_AFTER_MAX,
      default: RETRY_AFTER_DEFAULT,
      description: "Seconds.",
    }),
  ),
  message: Type.Optional(
    nullable<string>(
      Type.String({ minLength: 1, maxLength: 100, description: "For customers, on one line." }),
    ),
  ),
});

export const AllUsage = titled("AllUsage", {
  ...Usage.properties,
  data: Type.Array(
    titled("UsageRowOfAll", {
      month: Type.Optional(Type.String({ examples: ["2026-10"] })),
      account_id: Type.Optional(text),
      ...UsageRow.properties,
    }),
  ),
  next_cursor: textOrNull("For `cursor`, to get the next page; null after the last one."),
  unread,
});

export const TopAccounts = titled("TopAccounts", {
  data: Type.Array(
    object({
      account_id: accountId,
      label: nullable<string>(label),
      credits: Type.Optional(count("By spend.")),
      refusals: Type.Optional(count("By refusals.")),
    }),
  ),
  next_cursor: textOrNull("Always null."),
  source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
  since: nullable<string>({
    ...time,
    description: "What was before this moment is not counted; null if all that was asked for is.",
  }),
  complete: Type.Boolean({ description: "Whether no other account can belong to the list." }),
  unread,
});

export const Price = titled("Price", {
  endpoint: text,
  price: Type.Unsafe<number | object>({
    description: "Credits, or credits by quality and seconds, as in the price file.",
  }),
});

export const Tier = titled("Tier", {
  tier: text,
  ...byLimit(TIER_LIMITS, () => count()),
  shadow: Type.Array(Type.String(), { description: "Limits that count and refuse nothing." }),
  deprecated: Type.Boolean({ description: "No new key gets it." }),
  keys: nullable<number>(
    count(
      "How many keys of all accounts use it; null while that is not known, and for a token that may use some accounts only.",
    ),
  ),
});

export const Tiers = titled("Tiers", {
  data: Type.Array(Tier),
  next_cursor: textOrNull("Always null."),
  missing: nullable<{ tier: string; keys: number }[]>(
    Type.Array(object({ tier: text, keys: count() }), {
      description:
        "Tiers that keys use and that the configuration does not name, those with the most keys first, 100 at most. Such keys have the " +
        "limits of standard. null while that is not known, and for a token that may use some accounts only.",
    }),
  ),
});

export const Problem = Type.Object(
  {
    type: text,
    title: text,
    status: count(),
    detail: text,
    code: text,
    request_id: text,
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: words(
            `A JSON pointer into the body, such as \`/limits/${SHADOW_LIMITS[0]}\`; \`?\` and the name of a query parameter; or the name of a header.`,
          ),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);
