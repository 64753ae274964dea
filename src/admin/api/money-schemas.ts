import { Type } from "typebox";
import { CREDITS_MAX } from "../../domain/money.ts";
import { CURRENCY } from "../../domain/operator-texts.ts";
import { ENTRY_KINDS, GRANT_KINDS } from "../../records/ledger-entries.ts";
import * as t from "./field-schemas.ts";

const reason = t.bounded(
  200,
  "Why; 1 to 200 printable characters on one line. Customers see the reason of an adjustment.",
);
const reference = t.bounded(
  200,
  "Your own name of this, such as an invoice; 1 to 200 printable ASCII characters. The same reference of an account has effect once.",
);

const ACCOUNTING = "What it is to an accountant.";
export const TransactionKind = t.oneOf(ENTRY_KINDS, ACCOUNTING, "purchase");
const grantKind = t.oneOf(GRANT_KINDS, ACCOUNTING, "purchase");

export const Transaction = t.titled("Transaction", {
  id: t.words(undefined, "txn_12_1761890400000-0"),
  type: t.oneOf(["consume", "recharge"], undefined, "recharge"),
  kind: TransactionKind,
  amount: t.count("Credits: negative for consume, or 0 for an unmetered task; positive for recharge.", 500),
  balance_after: t.count("What the account owned after it, with what was held.", 500),
  endpoint: t.optional(t.words("The path that was charged; on charges only.")),
  created_at: t.time,
  task_id: t.textOrNull(),
  request_id: t.textOrNull(),
  key_id: t.textOrNull(),
  reason: t.textOrNull(
    "Why; `refund` of a refund that nobody ordered, `unmetered` of a task that passed while Redis was away.",
  ),
  reference: t.textOrNull(undefined, "order-1001"),
  package: t.optional(t.words("Of a grant by package: its name.", "premium")),
  package_price: t.optional(t.words("What the package cost then, in `package_currency`.", "39.90")),
  package_currency: t.optional(t.words(undefined, "USD")),
  amount_paid: t.optional(
    t.words("Of a purchase: what the customer paid, in `currency`. A decimal.", "39.90"),
  ),
  currency: t.optional(t.words(undefined, "USD")),
  metadata: t.optional(t.metadata),
  of: t.optional(t.words("Of a reversal: the reference of the grant.")),
  requested: t.optional(t.count("Of a reversal: the credits that were asked for.")),
  reversed: t.optional(
    t.count(
      "Of a reversal: the credits that it took back. Of a grant, in the account's list: those that reversals have taken back of it, if any.",
    ),
  ),
  list_price: t.optional(
    t.count(
      "Of a charge with a `multiplier` or by a `price_list` that begins at a time: the price in the list.",
    ),
  ),
  multiplier: t.optional(t.words("Of a charge: the account's `price_multiplier` then. A decimal.")),
  price_list: t.optional(t.words("Of a charge: the price file, where the configuration has several.")),
  by: t.textOrNull(
    "Who did it: a token's id and label, `admin_token`, `console`, or `cli` and a name. null for what the gateway did.",
    "tok_9yKq2m4vTz0a shop",
  ),
  balance: t.optional(t.count("Credits that can be spent now. Only in the answer to the call that made it.")),
});

export const TransactionOfAll = t.titled("TransactionOfAll", {
  account_id: t.accountId,
  ...Transaction.properties,
});

export const NewGrant = t.described("Either `credits` or `package`.", {
  credits: t.optional(t.whole(1, CREDITS_MAX)),
  package: t.filter(64, "A name of GET /packages."),
  reference,
  kind: t.optional(Type.Enum([...GRANT_KINDS], { default: "purchase", description: ACCOUNTING })),
  amount_paid: t.optional(
    t.upTo(
      32,
      "Of a purchase: what the customer paid, a decimal. The package's price when left out.",
      "9.90",
    ),
  ),
  currency: t.optional(
    Type.String({
      pattern: CURRENCY.source,
      description: "Of `amount_paid`, by ISO 4217.",
      examples: ["USD"],
    }),
  ),
  metadata: t.optional(t.metadata),
});

export const NewReversal = t.object({
  of: t.bounded(200, "The reference of the grant."),
  reference,
  reason,
  amount: t.optional(t.whole(1, CREDITS_MAX, "Credits; all that is left when left out.")),
});

export const NewAdjustment = t.object({
  amount: t.whole(
    -CREDITS_MAX,
    CREDITS_MAX,
    "Credits; negative takes them away, at most what can be spent. Not 0.",
  ),
  reason,
  reference,
});

const wrongPrice = t.object({
  endpoint: t.upTo(100, "In the short form, or as a path."),
  charged: t.whole(1, CREDITS_MAX, "The list price that was charged by mistake."),
  correct: t.whole(
    0,
    CREDITS_MAX,
    "The list price that it should have been: less. Of both an account with a `price_multiplier` pays its share.",
  ),
});

export const NewCorrection = t.object({
  from: t.upTo(40, "A time, itself included.", "2026-11-01T10:00:00Z"),
  to: t.upTo(40, "A time, itself not included.", "2026-11-01T10:30:00Z"),
  prices: Type.Array(wrongPrice, { minItems: 1, maxItems: 100 }),
  price_list: t.optional(t.upTo(200, "Only charges by this price file, as transactions name it.")),
  reference: t.bounded(
    150,
    "Your own name of the correction. However often it is sent, each charge is corrected once.",
  ),
  reason,
  dry_run: t.optional(
    Type.Boolean({ default: false, description: "Changes nothing, and lists the charges." }),
  ),
  cursor: t.optional(t.upTo(6000, "`next_cursor` of the call before.")),
});

const correctedCharge = t.object({
  account_id: t.accountId,
  request_id: t.requestId,
  endpoint: t.endpoint,
  charged: t.credits,
  credits: t.count("What goes back.", 40),
  at: t.time,
});

export const Correction = t.titled("Correction", {
  charges: t.count("Charges by a wrong price that were not refunded.", 2),
  corrected: t.count("Of these, corrected by this call.", 1),
  repeated: t.count("Corrected by an earlier call with this reference.", 0),
  refunded: t.count("Refunded, or corrected under another reference: nothing is given back.", 1),
  running: t.count("Their tasks have not ended. Repeat the call later.", 1),
  credits: t.count("Given back by this call; in a dry run, what would be.", 40),
  data: t.list(correctedCharge, "The first 100 of these charges."),
  next_cursor: t.textOrNull("For `cursor` of the next call; null after the last one."),
});

export const NewRefund = t.object({ reason, reference });

export const Statement = t.titled("Statement", {
  account_id: t.accountId,
  month: t.words(undefined, "2026-10"),
  opening: t.count("Credits at the first moment of the month.", 480),
  purchases: t.count("Grants that were sold.", 500),
  trials: t.count("Trial grants.", 0),
  goodwill: t.count("Goodwill grants.", 50),
  charges: t.count("Credits charged for generations.", 150),
  refunds: t.count("What went back of charges.", 80),
  adjustments: t.count("Corrections by hand; negative where more was taken than given.", 0),
  reversals: t.count("What was taken back of grants.", 100),
  closing: t.count("Credits at the last moment of the month.", 860),
  amounts_paid: t.open<Record<string, string>>(
    { type: "string" },
    "What was paid for purchases, a decimal by currency.",
    { USD: "39.90" },
  ),
  source: t.source,
  since: t.seldomTimed(
    "Entries before this moment have left Redis and are in `opening`, or the archive has lost them; null if it is whole.",
  ),
  until: t.timedOrNull(
    "The archive has all entries up to this moment, 1970 if it has none; null from Redis, which has the latest.",
  ),
});

const { account_id: _, until: __, opening, closing, ...summed } = Statement.properties;
const ofAll = (schema: object) => t.nullable<number>(schema);

export const TotalStatement = t.titled("TotalStatement", {
  ...summed,
  opening: ofAll({
    ...opening,
    description: "Credits that all accounts had at the first moment of the month.",
  }),
  closing: ofAll({ ...closing, description: "The same at its last moment: what is owed to customers." }),
  since: t.seldomTimed("Entries of the month before this moment are not counted; null if all are."),
  until: t.seldomTimed(t.ARCHIVED_UNTIL),
  unread: t.unread,
});

export const Sale = t.titled("Sale", {
  kind: grantKind,
  package: t.textOrNull(
    "Its name; null for credits by number, `*` for packages beyond a hundred together.",
    "premium",
  ),
  currency: t.textOrNull(undefined, "USD"),
  grants: t.count(undefined, 1),
  credits: t.credits,
  amount_paid: t.textOrNull("What customers paid, a decimal in `currency`.", "39.90"),
});

export const Package = t.titled("Package", {
  package: t.words(undefined, "premium"),
  credits: t.credits,
  price: t.textOrNull("What it costs, a decimal such as 9.90. null where none is set.", "39.90"),
  currency: t.textOrNull("Of the price, by ISO 4217.", "USD"),
});

export const NewQuote = t.object({
  endpoint: t.upTo(100, "In the short form, such as gen2/text-to-video, or as a path."),
  body: t.open<Readonly<Record<string, unknown>>>(true, "The body of the generation."),
  account_id: t.optional(t.accountId),
  at: t.optional(t.upTo(40, "A time; now when left out.", "2026-12-01T00:00:00Z")),
});

export const Quote = t.titled("Quote", {
  price: t.count("Credits: the list price times the multiplier, rounded up.", 40),
  list_price: t.credits,
  file: t.words("The price file in force then.", "reference.yaml"),
  multiplier: t.number(undefined, 0.8),
});
