import { Type } from "typebox";
import { CREDITS_MAX } from "../../domain/credit-packages.ts";
import { closed, nullable, text, time } from "./field-schemas.ts";

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
