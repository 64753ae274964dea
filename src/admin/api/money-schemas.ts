import { Type } from "typebox";
import { CREDITS_MAX } from "../../domain/money.ts";
import { CURRENCY } from "../../domain/operator-texts.ts";
import { ENTRY_KINDS, GRANT_KINDS } from "../../records/ledger-entries.ts";
import {
  accountId,
  count,
  credits,
  described,
  metadata,
  nullable,
  object,
  text,
  textOrNull,
  time,
  titled,
  words,
} from "./field-schemas.ts";

// Credits, statements and prices of the API.

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
  reversed: Type.Optional(
    count(
      "Of a reversal: the credits that it took back. Of a grant, in the account's list: those that reversals have taken back of it, if any.",
    ),
  ),
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

export const TransactionOfAll = titled("TransactionOfAll", {
  account_id: accountId,
  ...Transaction.properties,
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

export const Sale = titled("Sale", {
  kind: Type.Enum([...GRANT_KINDS], { description: "What it is to an accountant." }),
  package: textOrNull("Its name; null for credits by number, `*` for packages beyond a hundred together."),
  currency: textOrNull(),
  grants: count(),
  credits,
  amount_paid: textOrNull("What customers paid, a decimal in `currency`."),
});

export const Package = titled("Package", {
  package: text,
  credits,
  price: textOrNull("What it costs, a decimal such as 9.90. null where none is set."),
  currency: textOrNull("Of the price, by ISO 4217."),
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
