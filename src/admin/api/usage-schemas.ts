import { Type } from "typebox";
import { closed, nullable, text, time } from "./field-schemas.ts";

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
