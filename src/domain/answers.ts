import { type Static, Type } from "typebox";
import { byLimit, TIER_LIMITS } from "./limits.ts";
import { DAY } from "./moments.ts";
import { DETAILS_MAX } from "./problems.ts";

export const TASK_STATUSES = ["pending", "processing", "completed", "failed"] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

export type Observation = TaskStatus | "gone" | "expired" | "released";

/** `.` and `..` would be steps in a path. No look-ahead, which many languages lack. */
export const TASK_ID =
  /^(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,199}|\.[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,198}|\.\.[A-Za-z0-9_.~-]{1,198})$/;

export const isTaskStatus = (value: unknown): value is TaskStatus =>
  (TASK_STATUSES as readonly unknown[]).includes(value);

export const isFinal = (status: string): boolean => status === "completed" || status === "failed";

export const failedTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "failed", createdAtMs);

export const pendingTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "pending", createdAtMs);

function ownData(taskId: string, status: TaskStatus, createdAtMs: number): string {
  return JSON.stringify({ task_id: taskId, status, created_at: new Date(createdAtMs).toISOString() });
}

/** Objects are open, because the upstream's fields pass through. */

const time = (description: string) => Type.String({ format: "date-time", description });
/** Passed on unchecked, so no `format`. */
const url = (description: string) => Type.String({ description });
const credits = (description: string) => Type.Integer({ description });

const taskId = Type.String({
  pattern: TASK_ID.source,
  description: "Identifier of the task, for `GET /api/v1/tasks/{taskId}`.",
});

export const GENERATION = Type.Object(
  {
    task_id: taskId,
    status: Type.Optional(
      Type.Enum([...TASK_STATUSES], { description: "State of the new task: `pending`." }),
    ),
  },
  { description: "The task that was made. It has been charged." },
);

export const TASK = Type.Object(
  {
    task_id: taskId,
    status: Type.Enum([...TASK_STATUSES], {
      description:
        "`pending`: queued. `processing`: at work. `completed`: finished, `video_url` is there. `failed`: ended without " +
        "a video. The last two are final: stop polling, the state does not change any more.",
    }),
    progress: Type.Optional(
      Type.Number({ minimum: 0, maximum: 100, description: "Percent; 100 on a completed task." }),
    ),
    video_url: Type.Optional(url("The video; on a completed task.")),
    thumbnail_url: Type.Optional(url("A still image of the video; on a completed task.")),
    created_at: time("When the task was made, UTC."),
    completed_at: Type.Optional(time("When it was completed, UTC; on a completed task.")),
    failure_reason: Type.Optional(
      Type.String({
        description: "Why it failed, in the generator's words; on a failed task, if it said why.",
      }),
    ),
  },
  {
    description:
      "A task as the generator last described it. Further fields of the generator pass through, unless the task is " +
      "longer than 64 KiB: then only the fields listed here remain.",
  },
);

export const UPLOADED_IMAGE = Type.Object(
  {
    url: Type.String({
      format: "https-url",
      description: "Temporary address of the image: use it at once as `imageUrl`.",
    }),
    expires_at: time("When the address ends, UTC; five minutes after the upload."),
  },
  { description: "Where the uploaded image can be fetched." },
);

export const TRANSACTION = Type.Object(
  {
    id: Type.String({ description: "Identifier of the transaction." }),
    type: Type.Enum(["consume", "recharge"], {
      description:
        "`consume`: a generation was charged, or credits were deducted. `recharge`: credits were added or refunded.",
    }),
    amount: credits(
      "Whole credits: negative for `consume`, or 0 for an unmetered task; positive for `recharge`.",
    ),
    balance_after: credits("Balance of the account after the transaction, with open holds still in it."),
    endpoint: Type.Optional(
      Type.String({
        description: "Path that was charged; on `consume` only. Empty where credits were taken back.",
      }),
    ),
    reason: Type.Optional(
      Type.String({
        description:
          "`refund` where the credits of a task were refunded; `unmetered` where a task was not charged, since it was made during an " +
          "outage; `completed_late` where a refund was taken back, since the task completed after all; why, where the balance was corrected by hand; else absent.",
      }),
    ),
    task_id: Type.Optional(
      Type.String({
        description: "The task; on refunds, on what takes them back and on unmetered tasks only.",
      }),
    ),
    created_at: time("When it happened, UTC."),
  },
  { description: "One movement of credits." },
);
export type Transaction = Static<typeof TRANSACTION>;

export const KEY_LIMITS = Type.Object(
  byLimit(TIER_LIMITS, ({ forCustomers }) => Type.Integer({ minimum: 0, description: forCustomers })),
  { description: "Limits as they are enforced for this key." },
);

export const CREDIT_ACCOUNT = Type.Object(
  {
    balance: Type.Integer({
      minimum: 0,
      description:
        "Whole credits that can be spent now; what requests under way will cost is taken off already.",
    }),
    total_used: Type.Integer({
      minimum: 0,
      description: "Credits that generations have consumed in total; refunds are taken off.",
    }),
    total_requests: Type.Integer({ minimum: 0, description: "Generation requests that were admitted." }),
    tier: Type.String({ description: "Tier of the key, such as `standard` or `enterprise`." }),
    limits: KEY_LIMITS,
    recent_transactions: Type.Array(TRANSACTION, { description: "The last ten, most recent first." }),
  },
  { description: "The account behind the key, and the limits of the key itself." },
);

const utcDay = (description: string) => Type.String({ pattern: DAY.source, description });

export const USAGE_ROW = Type.Object(
  {
    day: Type.Optional(utcDay("UTC day, with `group_by=day`.")),
    endpoint: Type.Optional(Type.String({ description: "Path, with `group_by=endpoint`." })),
    key_id: Type.Optional(
      Type.String({ description: "Id of the key, with `group_by=key`; `*`: further keys together." }),
    ),
    requests: Type.Integer({ description: "Generations that were charged." }),
    credits: credits("Credits charged for them."),
    refunds: credits("Credits refunded."),
    completed: Type.Integer({ description: "Tasks that completed." }),
    failed: Type.Integer({ description: "Tasks that failed." }),
    seconds: Type.Integer({
      description:
        "How long the completed tasks ran until the gateway learned of their end, in whole seconds.",
    }),
  },
  { description: "What was used in a day, of an endpoint or with a key." },
);

export const USAGE = Type.Object(
  {
    from: utcDay("The first UTC day."),
    to: utcDay("The last UTC day, itself included."),
    group_by: Type.Enum(["day", "endpoint", "key"]),
    since: Type.Union([time("Charges and refunds before this moment are not counted."), Type.Null()], {
      description:
        "Null if all charges and refunds that were asked for are counted. Tasks that ended before the operator restored a lost store are not.",
    }),
    rows: Type.Array(USAGE_ROW),
  },
  { description: "What the account has used, about a second behind." },
);

export const PROBLEM = Type.Object(
  {
    path: Type.String({
      description:
        "Where, as a JSON pointer into the body, such as `/shots/0/duration`; empty for the request as a whole.",
    }),
    message: Type.String({ description: "The parameter and the rule, in words." }),
  },
  { description: "One broken rule." },
);

export const ERROR = Type.Object(
  {
    code: Type.Integer({
      description:
        "What went wrong; each response lists its codes. Mostly the HTTP status; 2001 to 2007 tell limits apart. Where the " +
        "generator refused the request itself, this is the generator's own code.",
    }),
    msg: Type.String({ description: "The reason in words, for people and logs; do not compare it." }),
    error: Type.String({ description: "The same text." }),
    retryAfter: Type.Optional(
      Type.Integer({
        minimum: 1,
        description: "Seconds to wait before trying again; the same number as `Retry-After`.",
      }),
    ),
    details: Type.Optional(
      Type.Array(PROBLEM, {
        maxItems: DETAILS_MAX,
        description: `The broken rules, where there are any to name; the first ${DETAILS_MAX} of them.`,
      }),
    ),
    request_id: Type.String({ description: "The same as `X-Request-Id`: quote it when you ask for help." }),
  },
  { description: "Any answer whose code is not 200." },
);

export const successOf = (data: Type.TSchema) =>
  Type.Object({
    code: Type.Literal(200, { description: "200 means success." }),
    msg: Type.Literal("success"),
    data,
  });
