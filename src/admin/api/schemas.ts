import { Type } from "typebox";
import { CREDITS_MAX } from "../../domain/credit-packages.ts";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS } from "../../domain/limits.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { LISTED_STATUSES } from "../../operations/tasks/task-view.ts";
import { accountId, closed, credits, label, nullable, text, time } from "./field-schemas.ts";

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

export const TransactionKind = Type.Enum(["charge", "refund", "purchase", "adjustment"], {
  description: "What it is to an accountant.",
});

export const Transaction = Type.Object(
  {
    id: text,
    type: Type.Enum(["consume", "recharge"]),
    kind: TransactionKind,
    amount: Type.Integer({
      description: "Credits: negative for consume, or 0 for an unmetered task; positive for recharge.",
    }),
    balance_after: Type.Integer({ description: "What the account owned after it, with what was held." }),
    endpoint: Type.Optional(Type.String({ description: "The path that was charged; on charges only." })),
    created_at: time,
    task_id: nullable<string>(text),
    request_id: nullable<string>(text),
    key_id: nullable<string>(text),
    reason: nullable<string>(
      Type.String({
        description:
          "Why; `refund` of a refund that nobody ordered, `unmetered` of a task that passed while Redis was away.",
      }),
    ),
    reference: nullable<string>(text),
    by: nullable<string>(
      Type.String({
        description:
          "Who did it: a token's id and label, `admin_token`, `console`, or `cli` and a name. null for what the gateway did.",
      }),
    ),
    balance: Type.Optional(
      Type.Integer({
        description: "Credits that can be spent now. Only in the answer to the call that made it.",
      }),
    ),
  },
  { ...closed, title: "Transaction" },
);

export const NewGrant = Type.Object(
  {
    credits: Type.Optional(Type.Integer({ minimum: 1, maximum: CREDITS_MAX })),
    package: Type.Optional(
      Type.String({ minLength: 1, maxLength: 64, description: "A name of GET /packages." }),
    ),
    reference,
  },
  { ...closed, description: "Either `credits` or `package`." },
);

export const NewAdjustment = Type.Object(
  {
    amount: Type.Integer({
      minimum: -CREDITS_MAX,
      maximum: CREDITS_MAX,
      description: "Credits; negative takes them away, at most what can be spent. Not 0.",
    }),
    reason,
    reference,
  },
  closed,
);

export const NewRefund = Type.Object({ reason, reference }, closed);

export const Task = Type.Object(
  {
    task_id: nullable<string>(text),
    request_id: text,
    account_id: accountId,
    key_id: nullable<string>(text),
    endpoint: nullable<string>(text),
    price: nullable<number>(credits),
    status: Type.Enum([...LISTED_STATUSES], {
      description: "held: it has no task yet. void: it got none, and nothing was charged.",
    }),
    created_at: nullable<string>(time),
    bound_at: nullable<string>(time),
    finished_at: nullable<string>(time),
    refunded: Type.Boolean(),
  },
  { ...closed, title: "Task" },
);

export const Release = Type.Object(
  {
    outcome: Type.Enum(["ended", "voided", "already_finished", "already_void"]),
    refunded: Type.Optional(
      Type.Integer({ description: "Credits that went back, of a task that was charged." }),
    ),
    credits: Type.Optional(Type.Integer({ description: "Credits that are no longer held." })),
  },
  { ...closed, title: "Release" },
);

const scope = Type.Enum([...SCOPES]);

export const Token = Type.Object(
  {
    token_id: text,
    label,
    scopes: Type.Array(scope),
    accounts: nullable<string[]>(
      Type.Array(accountId, { description: "The only accounts that it may use. null: all." }),
    ),
    parent: nullable<string>(
      Type.String({
        description:
          "The token that it was made with, which ends it when it is revoked. null: operators made it.",
      }),
    ),
    created_at: time,
    expires_at: nullable<string>(time),
    revoked_at: nullable<string>(time),
    token: Type.Optional(
      Type.String({
        description: "The token itself. Only in the answer that makes it: it is stored as a SHA-256.",
      }),
    ),
  },
  { ...closed, title: "Token" },
);

export const NewToken = Type.Object(
  {
    label,
    scopes: Type.Array(scope, { minItems: 1, maxItems: SCOPES.length }),
    accounts: Type.Optional(nullable<string[]>(Type.Array(accountId, { minItems: 1, maxItems: 100 }))),
    expires_at: Type.Optional(nullable<string>(time)),
  },
  closed,
);

export const WhoAmI = Type.Object(
  {
    token_id: nullable<string>(text),
    label: text,
    scopes: Type.Array(scope),
    accounts: nullable<string[]>(Type.Array(accountId)),
  },
  { ...closed, title: "WhoAmI" },
);

const anything = Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true });

export const AuditRecord = Type.Object(
  {
    audit_id: text,
    at: time,
    by: text,
    action: Type.String({ examples: ["credits.grant"] }),
    account_id: nullable<string>(text),
    target: nullable<string>(text),
    before: anything,
    after: anything,
    request_id: nullable<string>(text),
  },
  { ...closed, title: "AuditRecord" },
);

export const UsageRow = Type.Object(
  {
    day: Type.Optional(Type.String({ format: "date", examples: ["2026-10-31"] })),
    endpoint: Type.Optional(text),
    key_id: Type.Optional(text),
    requests: Type.Integer({ description: "Charged generations, and unmetered ones." }),
    credits: Type.Integer({ description: "Credits charged for them." }),
    refunds: Type.Integer({ description: "Credits refunded." }),
    completed: Type.Integer(),
    failed: Type.Integer(),
    seconds: Type.Integer({ description: "How long the completed tasks ran, each in whole seconds." }),
  },
  { ...closed, title: "UsageRow" },
);

export const Usage = Type.Object(
  {
    data: Type.Array(UsageRow),
    next_cursor: nullable<string>(Type.String({ description: "Always null." })),
    source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
    since: nullable<string>({
      ...time,
      description:
        "Charges and refunds before this moment are not counted; null if all that were asked for are.",
    }),
    ended_since: nullable<string>({ ...time, description: "The same of completed and failed tasks." }),
  },
  { additionalProperties: false, title: "Usage" },
);

export const Package = Type.Object({ package: text, credits }, { ...closed, title: "Package" });

export const Price = Type.Object(
  {
    endpoint: text,
    price: Type.Unsafe<number | object>({
      description: "Credits, or credits by quality and seconds, as in the price file.",
    }),
  },
  { ...closed, title: "Price" },
);

export const Tier = Type.Object(
  {
    tier: text,
    ...byLimit(TIER_LIMITS, () => Type.Integer()),
    shadow: Type.Array(Type.String(), { description: "Limits that count and refuse nothing." }),
    deprecated: Type.Boolean({ description: "No new key gets it." }),
    keys: nullable<number>(
      Type.Integer({
        description:
          "How many keys of all accounts use it; null while that is not known, and for a token that may use some accounts only.",
      }),
    ),
  },
  { ...closed, title: "Tier" },
);

export const Tiers = Type.Object(
  {
    data: Type.Array(Tier),
    next_cursor: nullable<string>(Type.String({ description: "Always null." })),
    missing: nullable<{ tier: string; keys: number }[]>(
      Type.Array(Type.Object({ tier: text, keys: Type.Integer() }, closed), {
        description:
          "Tiers that keys use and that the configuration does not name, those with the most keys first, 100 at most. Such keys have the " +
          "limits of standard. null while that is not known, and for a token that may use some accounts only.",
      }),
    ),
  },
  { ...closed, title: "Tiers" },
);

export const Problem = Type.Object(
  {
    type: text,
    title: text,
    status: Type.Integer(),
    detail: text,
    code: text,
    request_id: text,
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: Type.String({
            description: `A JSON pointer into the body, such as \`/limits/${SHADOW_LIMITS[0]}\`; \`?\` and the name of a query parameter; or the name of a header.`,
          }),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);
