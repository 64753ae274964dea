import { Type } from "typebox";
import { NEW_ACCOUNT_ID } from "../../domain/operator-texts.ts";
import { ACCOUNT_STATUSES } from "../../operations/accounts/operator-accounts.ts";
import {
  accountId,
  closed,
  credits,
  label,
  limits,
  newLimits,
  nullable,
  OF_ACCOUNT,
  time,
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
