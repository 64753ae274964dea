import { Type } from "typebox";
import { LISTED_STATUSES } from "../../operations/tasks/task-view.ts";
import { accountId, closed, credits, nullable, text, time } from "./field-schemas.ts";

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
