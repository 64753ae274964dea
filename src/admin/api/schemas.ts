import { Type } from "typebox";
import { CREDITS_MAX } from "../../domain/credit-packages.ts";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS } from "../../domain/limits.ts";
import { CURRENCY, NEW_ACCOUNT_ID, OVERLAP } from "../../domain/operator-texts.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { ACCOUNT_STATUSES, ALERTS_MAX } from "../../operations/accounts/operator-accounts.ts";
import { KEY_STATUSES } from "../../operations/keys/keys.ts";
import { LISTED_STATUSES } from "../../operations/tasks/task-view.ts";
import { ENTRY_KINDS, GRANT_KINDS } from "../../records/ledger-entries.ts";
import {
  accountId,
  caps,
  count,
  credits,
  described,
  label,
  limits,
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

const metadata = Type.Unsafe<Readonly<Record<string, unknown>>>({
  type: "object",
  additionalProperties: true,
  description: "An object of your own, at most 4 KiB of JSON. Tollgate stores it and does nothing with it.",
});

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

export const NewAccount = object({
  account_id: Type.Optional(newAccountId),
  label: Type.Optional(label),
  metadata: Type.Optional(metadata),
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

export const Key = titled("Key", {
  key_id: text,
  account_id: accountId,
  label: nullable<string>(label),
  tier: text,
  status: Type.Enum([...KEY_STATUSES], { description: "By the clock of Redis." }),
  limits: limits(OF_KEY),
  ...caps,
  spent_this_month: count("Credits held and consumed in this UTC month, without refunds."),
  created_at: time,
  expires_at: timeOrNull,
  revoked_at: timeOrNull,
  rotated_to: textOrNull("The key that replaces it."),
  key: Type.Optional(words("The key itself. Only in the answer that makes it: it is stored as a SHA-256.")),
});

export const NewKey = object({
  tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  label: Type.Optional(label),
  limits: Type.Optional(newLimits(OF_KEY)),
  ...newCaps,
  expires_at: Type.Optional(timeOrNull),
});

export const KeyChanges = object(
  {
    tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    label: Type.Optional(nullable<string>(label)),
    limits: Type.Optional(newLimits(OF_KEY)),
    ...newCaps,
    expires_at: Type.Optional(timeOrNull),
  },
  { minProperties: 1 },
);

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

const reason = Type.String({
  minLength: 1,
  maxLength: 200,
  description: "Why; 1 to 200 printable characters on one line. Customers see the reason of an adjustment.",
});
const reference = Type.String({
  minLength: 1,
  maxLength: 200,
  description:
    "Your own name of this, such as an invoice; 1 to 200 printable ASCII characters. The same reference of an account has effect once.",
});

export const TransactionKind = Type.Enum([...ENTRY_KINDS], {
  description: "What it is to an accountant.",
});

export const Transaction = titled("Transaction", {
  id: text,
  type: Type.Enum(["consume", "recharge"]),
  kind: TransactionKind,
  amount: count("Credits: negative for consume, or 0 for an unmetered task; positive for recharge."),
  balance_after: count("What the account owned after it, with what was held."),
  endpoint: Type.Optional(words("The path that was charged; on charges only.")),
  created_at: time,
  task_id: textOrNull(),
  request_id: textOrNull(),
  key_id: textOrNull(),
  reason: textOrNull(
    "Why; `refund` of a refund that nobody ordered, `unmetered` of a task that passed while Redis was away.",
  ),
  reference: textOrNull(),
  package: Type.Optional(words("Of a grant by package: its name.")),
  package_price: Type.Optional(words("What the package cost then, in `package_currency`.")),
  package_currency: Type.Optional(text),
  amount_paid: Type.Optional(words("Of a purchase: what the customer paid, in `currency`. A decimal.")),
  currency: Type.Optional(text),
  metadata: Type.Optional(metadata),
  of: Type.Optional(words("Of a reversal: the reference of the grant.")),
  requested: Type.Optional(count("Of a reversal: the credits that were asked for.")),
  reversed: Type.Optional(count("Of a reversal: the credits that were taken back.")),
  list_price: Type.Optional(
    count(
      "Of a charge with a `multiplier` or by a `price_list` that begins at a time: the price in the list.",
    ),
  ),
  multiplier: Type.Optional(words("Of a charge: the account's `price_multiplier` then. A decimal.")),
  price_list: Type.Optional(words("Of a charge: the price file, where the configuration has several.")),
  by: textOrNull(
    "Who did it: a token's id and label, `admin_token`, `console`, or `cli` and a name. null for what the gateway did.",
  ),
  balance: Type.Optional(
    count("Credits that can be spent now. Only in the answer to the call that made it."),
  ),
});

export const NewGrant = described("Either `credits` or `package`.", {
  credits: Type.Optional(Type.Integer({ minimum: 1, maximum: CREDITS_MAX })),
  package: Type.Optional(
    Type.String({ minLength: 1, maxLength: 64, description: "A name of GET /packages." }),
  ),
  reference,
  kind: Type.Optional(
    Type.Enum([...GRANT_KINDS], { default: "purchase", description: "What it is to an accountant." }),
  ),
  amount_paid: Type.Optional(
    Type.String({
      maxLength: 32,
      description: "Of a purchase: what the customer paid, a decimal. The package's price when left out.",
      examples: ["9.90"],
    }),
  ),
  currency: Type.Optional(
    Type.String({
      pattern: CURRENCY.source,
      description: "Of `amount_paid`, by ISO 4217.",
      examples: ["USD"],
    }),
  ),
  metadata: Type.Optional(metadata),
});

export const NewReversal = object({
  of: Type.String({ minLength: 1, maxLength: 200, description: "The reference of the grant." }),
  reference,
  reason,
  amount: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: CREDITS_MAX,
      description: "Credits; all that is left when left out.",
    }),
  ),
});

export const NewAdjustment = object({
  amount: Type.Integer({
    minimum: -CREDITS_MAX,
    maximum: CREDITS_MAX,
    description: "Credits; negative takes them away, at most what can be spent. Not 0.",
  }),
  reason,
  reference,
});

export const NewCorrection = object({
  from: Type.String({
    maxLength: 40,
    description: "A time, itself included.",
    examples: ["2026-11-01T10:00:00Z"],
  }),
  to: Type.String({
    maxLength: 40,
    description: "A time, itself not included.",
    examples: ["2026-11-01T10:30:00Z"],
  }),
  prices: Type.Array(
    object({
      endpoint: Type.String({ maxLength: 100, description: "In the short form, or as a path." }),
      charged: Type.Integer({
        minimum: 1,
        maximum: CREDITS_MAX,
        description: "What was charged by mistake.",
      }),
      correct: Type.Integer({
        minimum: 0,
        maximum: CREDITS_MAX,
        description: "What it should have been: less.",
      }),
    }),
    { minItems: 1, maxItems: 100 },
  ),
  price_list: Type.Optional(
    Type.String({ maxLength: 200, description: "Only charges by this price file, as transactions name it." }),
  ),
  reference: Type.String({
    minLength: 1,
    maxLength: 150,
    description: "Your own name of the correction. However often it is sent, each charge is corrected once.",
  }),
  reason,
  dry_run: Type.Optional(
    Type.Boolean({ default: false, description: "Changes nothing, and lists the charges." }),
  ),
  cursor: Type.Optional(Type.String({ maxLength: 6000, description: "`next_cursor` of the call before." })),
});

export const Correction = titled("Correction", {
  charges: count("Charges by a wrong price that were not refunded."),
  corrected: count("Of these, corrected by this call."),
  repeated: count("Corrected by an earlier call with this reference."),
  refunded: count("Refunded, or corrected under another reference: nothing is given back."),
  running: count("Their tasks have not ended. Repeat the call later."),
  credits: count("Given back by this call; in a dry run, what would be."),
  data: Type.Array(
    object({
      account_id: accountId,
      request_id: text,
      endpoint: text,
      charged: credits,
      credits: count("What goes back."),
      at: time,
    }),
    { description: "The first 100 of these charges." },
  ),
  next_cursor: textOrNull("For `cursor` of the next call; null after the last one."),
});

export const NewRefund = object({ reason, reference });

export const Task = titled("Task", {
  task_id: textOrNull(),
  request_id: text,
  account_id: accountId,
  key_id: textOrNull(),
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

export const Statement = titled("Statement", {
  account_id: accountId,
  month: Type.String({ examples: ["2026-10"] }),
  opening: count("Credits at the first moment of the month."),
  purchases: count("Grants that were sold."),
  trials: count("Trial grants."),
  goodwill: count("Goodwill grants."),
  charges: count("Credits charged for generations."),
  refunds: count("What went back of charges."),
  adjustments: count("Corrections by hand; negative where more was taken than given."),
  reversals: count("What was taken back of grants."),
  closing: count("Credits at the last moment of the month."),
  amounts_paid: Type.Unsafe<Record<string, string>>({
    type: "object",
    additionalProperties: { type: "string" },
    description: "What was paid for purchases, a decimal by currency.",
  }),
  source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
  since: nullable<string>({
    ...time,
    description:
      "Entries of the month before this moment have left Redis and are in `opening`; null if it is whole.",
  }),
  until: nullable<string>({
    ...time,
    description: "The archive has all entries up to this moment; null from Redis, which has the latest.",
  }),
});

export const Package = titled("Package", {
  package: text,
  credits,
  price: textOrNull("What it costs, a decimal such as 9.90. null where none is set."),
  currency: textOrNull("Of the price, by ISO 4217."),
});

export const Price = titled("Price", {
  endpoint: text,
  price: Type.Unsafe<number | object>({
    description: "Credits, or credits by quality and seconds, as in the price file.",
  }),
});

export const NewQuote = object({
  endpoint: Type.String({
    maxLength: 100,
    description: "In the short form, such as gen2/text-to-video, or as a path.",
  }),
  body: Type.Unsafe<Readonly<Record<string, unknown>>>({
    type: "object",
    additionalProperties: true,
    description: "The body of the generation.",
  }),
  account_id: Type.Optional(accountId),
  at: Type.Optional(
    Type.String({
      maxLength: 40,
      description: "A time; now when left out.",
      examples: ["2026-12-01T00:00:00Z"],
    }),
  ),
});

export const Quote = titled("Quote", {
  price: count("Credits: the list price times the multiplier, rounded up."),
  list_price: credits,
  file: words("The price file in force then."),
  multiplier: Type.Number({ examples: [0.8] }),
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
