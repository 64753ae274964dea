import { Type } from "typebox";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS } from "../../domain/limits.ts";
import { SCOPES } from "../../domain/scopes.ts";
import { RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX } from "../../operations/store/maintenance.ts";
import { LISTED_STATUSES } from "../../operations/tasks/task-lists.ts";
import * as t from "./field-schemas.ts";
import { Transaction } from "./money-schemas.ts";

export const Task = t.titled("Task", {
  task_id: t.textOrNull(undefined, "task_5f0c"),
  request_id: t.requestId,
  account_id: t.accountId,
  key_id: t.nullable<string>(t.keyId),
  key_label: t.optional(t.textOrNull(undefined, "backend")),
  endpoint: t.nullable<string>(t.endpoint),
  price: t.nullable<number>(t.credits),
  status: t.oneOf(
    LISTED_STATUSES,
    "held: it has no task yet. void: it got none, and nothing was charged.",
    "completed",
  ),
  created_at: t.timeOrNull,
  bound_at: t.timeOrNull,
  finished_at: t.timeOrNull,
  refunded: t.flag(),
});

export const TaskDetail = t.titled("TaskDetail", {
  ...Task.properties,
  account_label: t.textOrNull(undefined, "Acme Films"),
  video_url: t.textOrNull(
    "As the customer saw it last; null without one.",
    "https://cdn.example/task_5f0c.mp4",
  ),
  failure_reason: t.textOrNull("Why it failed, in the generator's words; null if it gave none."),
});

export const Release = t.titled("Release", {
  outcome: t.oneOf(["ended", "voided", "already_finished", "already_void"]),
  refunded: t.optional(t.count("Credits that went back, of a task that was charged.", 50)),
  credits: t.optional(t.count("Credits that are no longer held.")),
});

const scope = t.oneOf(SCOPES);
const tokenFields = {
  label: t.label,
  scopes: t.list(scope, undefined, ["accounts:write", "keys:write", "credits:write"]),
};

export const Token = t.titled("Token", {
  token_id: t.words(undefined, "tok_9yKq2m4vTz0a"),
  ...tokenFields,
  accounts: t.nullable<string[]>({
    ...t.list(t.accountId, "The only accounts that it may use. null: all."),
    examples: [null],
  }),
  parent: t.textOrNull(
    "The token that it was made with, which ends it when it is revoked. null: operators made it.",
  ),
  created_at: t.time,
  expires_at: t.seldomTime,
  revoked_at: t.seldomTime,
  token: t.optional(
    t.words("The token itself. Only in the answer that makes it: it is stored as a SHA-256."),
  ),
});

export const NewToken = t.object({
  label: t.label,
  scopes: Type.Array(scope, { minItems: 1, maxItems: SCOPES.length }),
  accounts: t.optional(t.nullable<string[]>(Type.Array(t.accountId, { minItems: 1, maxItems: 100 }))),
  expires_at: t.optional(t.timeOrNull),
});

export const WhoAmI = t.titled("WhoAmI", {
  token_id: t.textOrNull(undefined, "tok_9yKq2m4vTz0a"),
  label: t.words(undefined, "shop"),
  scopes: tokenFields.scopes,
  accounts: t.nullable<string[]>({ ...t.list(t.accountId), examples: [null] }),
});

const anything = (example: object) =>
  Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true, examples: [example] });

export const AuditRecord = t.titled("AuditRecord", {
  audit_id: t.words(undefined, "aud_12_1761890400000-0"),
  at: t.time,
  by: t.words(undefined, "tok_9yKq2m4vTz0a shop"),
  action: t.words(undefined, "account.patch"),
  account_id: t.accountIdOrNull,
  account_label: t.textOrNull("The label that the account has now."),
  target: t.accountIdOrNull,
  key_label: t.textOrNull("The label that the key has now, if the target is one."),
  before: anything({ status: null }),
  after: anything({ status: "suspended" }),
  request_id: t.nullable<string>(t.requestId),
});

export const TimelineEvent = t.titled("TimelineEvent", {
  at: t.time,
  transaction: t.optional(Transaction),
  audit: t.optional(AuditRecord),
});

export const UsageRow = t.titled("UsageRow", {
  day: t.optional(Type.String({ format: "date", examples: ["2026-10-31"] })),
  endpoint: t.optional(t.text),
  key_id: t.optional(t.text),
  requests: t.count("Charged generations, and unmetered ones.", 20),
  credits: t.count("Credits charged for them.", 1000),
  refunds: t.count("Credits refunded.", 50),
  completed: t.count(undefined, 19),
  failed: t.count(undefined, 1),
  seconds: t.count(
    "How long the completed tasks ran until the gateway learned of their end, each in whole seconds.",
    1710,
  ),
});

export const Usage = t.titled("Usage", {
  data: t.list(UsageRow),
  next_cursor: t.textOrNull("For `cursor`, to get the next page; null after the last one."),
  source: t.source,
  since: t.seldomTimed(
    "Charges and refunds before this moment are not counted; null if all that were asked for are.",
  ),
  ended_since: t.seldomTimed("The same of completed and failed tasks."),
  until: t.seldomTimed(t.ARCHIVED_UNTIL),
});

export const Maintenance = t.titled("Maintenance", {
  on: t.flag(undefined, true),
  retry_after: t.countOrNull("Seconds that customers are told to wait.", 120),
  message: t.textOrNull("For customers; null: the usual words.", "Back at 14:00 UTC"),
  since: t.timeOrNull,
});

export const NewMaintenance = t.object({
  on: t.flag(),
  retry_after: t.wholeOr(RETRY_AFTER_DEFAULT, 1, RETRY_AFTER_MAX, "Seconds."),
  message: t.optional(t.nullable<string>(t.bounded(100, "For customers, on one line."))),
});

export const AllUsage = t.titled("AllUsage", {
  ...Usage.properties,
  data: t.list(
    t.titled("UsageRowOfAll", {
      month: t.optional(t.words(undefined, "2026-10")),
      account_id: t.optional(t.text),
      ...UsageRow.properties,
    }),
  ),
  unread: t.unread,
});

export const TopAccounts = t.titled("TopAccounts", {
  data: t.list(
    t.object({
      account_id: t.accountId,
      label: t.nullable<string>(t.label),
      credits: t.optional(t.count("By spend.", 12_840)),
      refusals: t.optional(t.count("By refusals.")),
    }),
  ),
  next_cursor: t.textOrNull(t.ALWAYS_NULL),
  source: t.source,
  since: t.seldomTimed("What was before this moment is not counted; null if all that was asked for is."),
  complete: t.flag("Whether no other account can belong to the list.", true),
  unread: t.unread,
});

export const Price = t.titled("Price", {
  endpoint: t.endpoint,
  price: Type.Unsafe<number | object>({
    description: "Credits, or credits by quality and seconds, as in the price file.",
    examples: [50],
  }),
});

export const Tier = t.titled("Tier", {
  tier: t.words(undefined, "standard"),
  ...byLimit(TIER_LIMITS, ({ tiers }) => t.count(undefined, tiers.standard)),
  shadow: t.list(t.text, "Limits that count and refuse nothing.", []),
  deprecated: t.flag("No new key gets it."),
  keys: t.countOrNull(
    "How many keys of all accounts use it; null while that is not known, and for a token that may use some accounts only.",
    120,
  ),
});

export const Tiers = t.titled("Tiers", {
  data: t.list(Tier),
  next_cursor: t.textOrNull(t.ALWAYS_NULL),
  missing: t.nullable<{ tier: string; keys: number }[]>(
    t.list(
      t.object({ tier: t.text, keys: t.count() }),
      "Tiers that keys use and that the configuration does not name, those with the most keys first, 100 at most. Such keys have the " +
        "limits of standard. null while that is not known, and for a token that may use some accounts only.",
      [],
    ),
  ),
});

const fieldProblem = Type.Object({
  path: t.words(
    `A JSON pointer into the body, such as \`/limits/${SHADOW_LIMITS[0]}\`; \`?\` and the name of a query parameter; or the name of a header.`,
    "/amount",
  ),
  message: t.words(undefined, "amount is required"),
});

export const Problem = Type.Object(
  {
    type: t.words(undefined, "about:blank"),
    title: t.words(undefined, "Bad Request"),
    status: t.count(undefined, 400),
    detail: t.words(undefined, "amount is required"),
    code: t.words(undefined, "invalid"),
    request_id: t.requestId,
    errors: t.optional(t.list(fieldProblem)),
  },
  { title: "Problem" },
);
