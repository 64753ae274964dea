import { Type } from "typebox";
import { OVERLAP } from "../../domain/operator-texts.ts";
import { KEY_STATUSES } from "../../operations/keys/keys.ts";
import {
  accountId,
  caps,
  closed,
  label,
  limits,
  newCaps,
  newLimits,
  nullable,
  OF_KEY,
  text,
  time,
} from "./field-schemas.ts";

export const Key = Type.Object(
  {
    key_id: text,
    account_id: accountId,
    label: nullable<string>(label),
    tier: text,
    status: Type.Enum([...KEY_STATUSES], { description: "By the clock of Redis." }),
    limits: limits(OF_KEY),
    ...caps,
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
    ...newCaps,
    expires_at: Type.Optional(nullable<string>(time)),
  },
  closed,
);

export const KeyChanges = Type.Object(
  {
    tier: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
    label: Type.Optional(nullable<string>(label)),
    limits: Type.Optional(newLimits(OF_KEY)),
    ...newCaps,
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
