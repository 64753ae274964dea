import { Type } from "typebox";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS } from "../../domain/limits.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX } from "../../operations/store/maintenance.ts";
import { LISTED_STATUSES } from "../../operations/tasks/task-view.ts";
import {
  accountId,
  count,
  countOrNull,
  credits,
  label,
  nullable,
  object,
  text,
  textOrNull,
  time,
  timeOrNull,
  titled,
  unread,
  words,
} from "./field-schemas.ts";
import { Transaction } from "./money-schemas.ts";

export const Task = titled("Task", {
  task_id: textOrNull(),
  request_id: text,
  account_id: accountId,
  key_id: textOrNull(),
  key_label: Type.Optional(textOrNull("In lists.")),
  endpoint: textOrNull(),
  price: nullable<number>(credits),
  status: Type.Enum([...LISTED_STATUSES], {
    description: "held: it has no task yet. void: it got none, and nothing was charged.",
  }),
  created_at: timeOrNull,
  bound_at: timeOrNull,
  finished_at: timeOrNull,
  refunded: Type.Boolean(),
});

export const TaskDetail = titled("TaskDetail", {
  ...Task.properties,
  video_url: textOrNull("As the customer saw it last; null without one."),
  failure_reason: textOrNull("Why it failed, in the generator's words; null if it gave none."),
});

export const Release = titled("Release", {
  outcome: Type.Enum(["ended", "voided", "already_finished", "already_void"]),
  refunded: Type.Optional(count("Credits that went back, of a task that was charged.")),
  credits: Type.Optional(count("Credits that are no longer held.")),
});

const scope = Type.Enum([...SCOPES]);

export const Token = titled("Token", {
  token_id: text,
  label,
  scopes: Type.Array(scope),
  accounts: nullable<string[]>(
    Type.Array(accountId, { description: "The only accounts that it may use. null: all." }),
  ),
  parent: textOrNull(
    "The token that it was made with, which ends it when it is revoked. null: operators made it.",
  ),
  created_at: time,
  expires_at: timeOrNull,
  revoked_at: timeOrNull,
  token: Type.Optional(
    words("The token itself. Only in the answer that makes it: it is stored as a SHA-256."),
  ),
});

export const NewToken = object({
  label,
  scopes: Type.Array(scope, { minItems: 1, maxItems: SCOPES.length }),
  accounts: Type.Optional(nullable<string[]>(Type.Array(accountId, { minItems: 1, maxItems: 100 }))),
  expires_at: Type.Optional(timeOrNull),
});

export const WhoAmI = titled("WhoAmI", {
  token_id: textOrNull(),
  label: text,
  scopes: Type.Array(scope),
  accounts: nullable<string[]>(Type.Array(accountId)),
});

const anything = Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true });

export const AuditRecord = titled("AuditRecord", {
  audit_id: text,
  at: time,
  by: text,
  action: Type.String({ examples: ["credits.grant"] }),
  account_id: textOrNull(),
  account_label: textOrNull("The label that the account has now."),
  target: textOrNull(),
  key_label: textOrNull("The label that the key has now, if the target is one."),
  before: anything,
  after: anything,
  request_id: textOrNull(),
});

export const TimelineEvent = titled("TimelineEvent", {
  at: time,
  transaction: Type.Optional(Transaction),
  audit: Type.Optional(AuditRecord),
});

export const UsageRow = titled("UsageRow", {
  day: Type.Optional(Type.String({ format: "date", examples: ["2026-10-31"] })),
  endpoint: Type.Optional(text),
  key_id: Type.Optional(text),
  requests: count("Charged generations, and unmetered ones."),
  credits: count("Credits charged for them."),
  refunds: count("Credits refunded."),
  completed: count(),
  failed: count(),
  seconds: count("How long the completed tasks ran, each in whole seconds."),
});

export const Usage = titled("Usage", {
  data: Type.Array(UsageRow),
  next_cursor: textOrNull("Always null."),
  source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
  since: nullable<string>({
    ...time,
    description:
      "Charges and refunds before this moment are not counted; null if all that were asked for are.",
  }),
  ended_since: nullable<string>({ ...time, description: "The same of completed and failed tasks." }),
});

export const Maintenance = titled("Maintenance", {
  on: Type.Boolean(),
  retry_after: countOrNull("Seconds that customers are told to wait."),
  message: textOrNull("For customers; null: the usual words."),
  since: timeOrNull,
});

export const NewMaintenance = object({
  on: Type.Boolean(),
  retry_after: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: RETRY_AFTER_MAX,
      default: RETRY_AFTER_DEFAULT,
      description: "Seconds.",
    }),
  ),
  message: Type.Optional(
    nullable<string>(
      Type.String({ minLength: 1, maxLength: 100, description: "For customers, on one line." }),
    ),
  ),
});

export const AllUsage = titled("AllUsage", {
  ...Usage.properties,
  data: Type.Array(
    titled("UsageRowOfAll", {
      month: Type.Optional(Type.String({ examples: ["2026-10"] })),
      account_id: Type.Optional(text),
      ...UsageRow.properties,
    }),
  ),
  next_cursor: textOrNull("For `cursor`, to get the next page; null after the last one."),
  unread,
});

export const TopAccounts = titled("TopAccounts", {
  data: Type.Array(
    object({
      account_id: accountId,
      label: nullable<string>(label),
      credits: Type.Optional(count("By spend.")),
      refusals: Type.Optional(count("By refusals.")),
    }),
  ),
  next_cursor: textOrNull("Always null."),
  source: Type.Enum(["archive", "redis"], { description: "Where it was read." }),
  since: nullable<string>({
    ...time,
    description: "What was before this moment is not counted; null if all that was asked for is.",
  }),
  complete: Type.Boolean({ description: "Whether no other account can belong to the list." }),
  unread,
});

export const Price = titled("Price", {
  endpoint: text,
  price: Type.Unsafe<number | object>({
    description: "Credits, or credits by quality and seconds, as in the price file.",
  }),
});

export const Tier = titled("Tier", {
  tier: text,
  ...byLimit(TIER_LIMITS, () => count()),
  shadow: Type.Array(Type.String(), { description: "Limits that count and refuse nothing." }),
  deprecated: Type.Boolean({ description: "No new key gets it." }),
  keys: nullable<number>(
    count(
      "How many keys of all accounts use it; null while that is not known, and for a token that may use some accounts only.",
    ),
  ),
});

export const Tiers = titled("Tiers", {
  data: Type.Array(Tier),
  next_cursor: textOrNull("Always null."),
  missing: nullable<{ tier: string; keys: number }[]>(
    Type.Array(object({ tier: text, keys: count() }), {
      description:
        "Tiers that keys use and that the configuration does not name, those with the most keys first, 100 at most. Such keys have the " +
        "limits of standard. null while that is not known, and for a token that may use some accounts only.",
    }),
  ),
});

export const Problem = Type.Object(
  {
    type: text,
    title: text,
    status: count(),
    detail: text,
    code: text,
    request_id: text,
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: words(
            `A JSON pointer into the body, such as \`/limits/${SHADOW_LIMITS[0]}\`; \`?\` and the name of a query parameter; or the name of a header.`,
          ),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);
