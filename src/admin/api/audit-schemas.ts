import { Type } from "typebox";
import { closed, nullable, text, time } from "./field-schemas.ts";

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
