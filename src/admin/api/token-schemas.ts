import { Type } from "typebox";
import { SCOPES } from "../../domain/scopes.ts";
import { accountId, closed, label, nullable, text, time } from "./field-schemas.ts";

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
