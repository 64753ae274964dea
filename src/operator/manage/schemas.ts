import { type TSchema, Type } from "typebox";
import Format from "typebox/format";
import { isMomentMs } from "../../domain/moments.ts";
import { ACCOUNT_ID, NEW_ACCOUNT_ID, OVERLAP } from "../../domain/operator-texts.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { CURSOR_CHARS_MAX } from "../../store/cursors.ts";
import { ACCOUNT_STATUSES } from "../../store/operator-accounts.ts";
import { LISTED_STATUSES } from "../../store/task-lists.ts";

// typebox's own lets a leap second through, which Unix time does not have.
Format.Set("date-time", (text) => Format.IsDateTime(text) && isMomentMs(Date.parse(text)));

const closed = { additionalProperties: false } as const;
const CREDITS_MAX = Number.MAX_SAFE_INTEGER;

type Schema<T> = ReturnType<typeof Type.Unsafe<T>>;

/** The same schema, with null for what is not there. */
export function nullable<T>(schema: TSchema): Schema<T | null> {
  return Type.Unsafe<T | null>({ ...schema, type: [(schema as { type?: string }).type, "null"] });
}

const accountId = Type.String({ pattern: ACCOUNT_ID.source, examples: ["acme"] });
const newAccountId = Type.String({ pattern: NEW_ACCOUNT_ID.source, examples: ["acme"] });
export const time = Type.String({ format: "date-time", examples: ["2026-10-31T12:00:00.000Z"] });
const text = Type.String();
const limit = Type.Integer({ minimum: 0, maximum: CREDITS_MAX });
const credits = Type.Integer({ minimum: 0, maximum: CREDITS_MAX, description: "Whole credits." });
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
const label = Type.String({ minLength: 1, maxLength: 100, description: "For people." });
const metadata = Type.Unsafe<Readonly<Record<string, unknown>>>({
  type: "object",
  additionalProperties: true,
  description: "An object of your own, at most 4 KiB of JSON. Tollgate stores it and does nothing with it.",
});

const limits = (of: string) =>
  Type.Object(
    {
      rate_limit: nullable<number>(limit),
      max_concurrent: nullable<number>(limit),
      daily_limit: nullable<number>(limit),
    },
    { ...closed, description: of },
  );
const newLimits = (of: string) => Type.Partial(limits(of), { ...closed, description: of });

const OF_ACCOUNT =
  "Over all keys of the account: requests per 60 s, tasks at a time, requests per UTC day. null: no limit.";
const OF_KEY = "Requests per 60 s, tasks at a time, requests per UTC day. null: that of the tier.";

const accountStatus = Type.Enum([...ACCOUNT_STATUSES], {
  description:
    "suspended: polls and credits work, generations and uploads are 403. closed: everything is 403.",
});

export const Account = Type.Object(
  {
    account_id: accountId,
    label: nullable<string>(label),
    metadata: nullable<Readonly<Record<string, unknown>>>(metadata),
    status: accountStatus,
    limits: limits(OF_ACCOUNT),
    balance: Type.Integer({ description: "Credits that can be spent: without those that are held." }),
    held: credits,
    total_used: Type.Integer({ description: "Credits charged, without those that were refunded." }),
    total_requests: Type.Integer(),
    created_at: time,
  },
  { ...closed, title: "Account" },
);

export const NewAccount = Type.Object(
  {
    account_id: Type.Optional(newAccountId),
    label: Type.Optional(label),
    metadata: Type.Optional(metadata),
  },
  closed,
);

export const AccountChanges = Type.Object(
  {
    label: Type.Optional(nullable<string>(label)),
    metadata: Type.Optional(nullable<Readonly<Record<string, unknown>>>(metadata)),
    status: Type.Optional(accountStatus),
    limits: Type.Optional(newLimits(OF_ACCOUNT)),
  },
  { ...closed, minProperties: 1 },
);

const monthlyCredits = Type.Integer({
  minimum: 0,
  maximum: CREDITS_MAX,
  description: "Spend cap: credits that requests of one UTC month may hold and consume together. null: none.",
});

export const Key = Type.Object(
  {
    key_id: text,
    account_id: accountId,
    label: nullable<string>(label),
    tier: text,
    limits: limits(OF_KEY),
    monthly_credits: nullable<number>(monthlyCredits),
    spent_this_month: Type.Integer({
      description: "Credits held and consumed in this UTC month, without refunds.",
    }),
    created_at: time,
    expires_at: nullable<string>(time),
    revoked_at: nullable<string>(time),
    rotated_to: nullable<string>(Type.String({ description: "The key that replaces it." })),
    key: Type.Optional(
      Type.String({
        description: "The key itself. Only in the answer that makes it: it is stored as a SHA-256.",
      }),
    ),
  },
  { ...closed, title: "Key" },
);

export const NewKey = Type.Object(
  {
    tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    label: Type.Optional(label),
    limits: Type.Optional(newLimits(OF_KEY)),
    monthly_credits: Type.Optional(nullable<number>(monthlyCredits)),
    expires_at: Type.Optional(nullable<string>(time)),
  },
  closed,
);

export const KeyChanges = Type.Object(
  {
    tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    label: Type.Optional(nullable<string>(label)),
    limits: Type.Optional(newLimits(OF_KEY)),
    monthly_credits: Type.Optional(nullable<number>(monthlyCredits)),
    expires_at: Type.Optional(nullable<string>(time)),
  },
  { ...closed, minProperties: 1 },
);

export const Rotation = Type.Object(
  {
    overlap: Type.Optional(
      Type.String({
        pattern: OVERLAP.source,
        default: "24h",
        description: "How long the old key goes on working, such as 24h; 0s ends it at once.",
      }),
    ),
  },
  closed,
);

export const TransactionKind = Type.Enum(["charge", "refund", "purchase", "adjustment"], {
  description: "What it is to an accountant.",
});

export const Transaction = Type.Object(
  {
    id: text,
    type: Type.Enum(["consume", "recharge"]),
    kind: TransactionKind,
    amount: Type.Integer({ description: "Credits: negative for consume, positive for recharge." }),
    balance_after: Type.Integer({ description: "What the account owned after it, with what was held." }),
    endpoint: Type.Optional(Type.String({ description: "The path that was charged; on charges only." })),
    created_at: time,
    task_id: nullable<string>(text),
    request_id: nullable<string>(text),
    key_id: nullable<string>(text),
    reason: nullable<string>(
      Type.String({ description: "Why; of a refund that nobody ordered it is `refund`." }),
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
    rate_limit: Type.Integer(),
    max_concurrent: Type.Integer(),
    daily_limit: Type.Integer(),
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

export const UsageRow = Type.Object(
  {
    day: Type.Optional(Type.String({ format: "date", examples: ["2026-10-31"] })),
    endpoint: Type.Optional(text),
    key_id: Type.Optional(text),
    requests: Type.Integer({ description: "Charged generations." }),
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
            description:
              "A JSON pointer into the body, such as `/limits/rate_limit`; `?` and the name of a query parameter; or the name of a header.",
          }),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);

/** A list in pages. */
export const pageOf = <Item extends TSchema>(item: Item) =>
  Type.Object(
    {
      data: Type.Array(item),
      next_cursor: nullable<string>(
        Type.String({ description: "For `cursor`, to get the next page; null after the last one." }),
      ),
    },
    closed,
  );

/** What a list over all accounts lacks while a primary is away. */
export const mayLack = {
  unread: Type.Optional(
    Type.Object(
      { partitions: Type.Array(Type.Integer()), why: text },
      { additionalProperties: false, description: "Nothing of these partitions is in the list." },
    ),
  ),
};

/** How far back a list reaches. */
export const reaches = {
  reaches_back_to: Type.Optional(
    nullable<string>({
      ...time,
      description:
        "Older ones are not in Redis, and there is no archive: the time of the oldest one that is known.",
    }),
  ),
};

/** The parameters of a list in pages. */
export const paging = {
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: CURSOR_CHARS_MAX,
      description: "`next_cursor` of the page before.",
    }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 20, description: "Rows of a page, at most." }),
  ),
};
export const LIMIT_DEFAULT = 20;

/** Query names of lists that begin and end at a time. */
export const period = {
  from: Type.Optional(
    Type.String({ description: "A day or a time, itself included.", examples: ["2026-10-01"] }),
  ),
  to: Type.Optional(
    Type.String({
      description: "A day, itself included, or a time, itself not included.",
      examples: ["2026-10-31"],
    }),
  ),
};

/** Schemas that the description names; all others stand where they are used. */
export const NAMED = {
  Account,
  Key,
  Transaction,
  Task,
  Release,
  Token,
  WhoAmI,
  AuditRecord,
  Package,
  Price,
  Tier,
  Tiers,
  Usage,
  UsageRow,
  Problem,
};
