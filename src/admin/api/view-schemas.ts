import { type TSchema, Type } from "typebox";
import { CHECK_NAMES, CHECK_STATUSES } from "../../checks/check.ts";
import { TIER_LIMITS } from "../../domain/limits.ts";
import type { Use } from "../../operations/limit-use.ts";
import {
  count,
  countOrNull,
  described,
  nullable,
  object,
  pageOf,
  text,
  textOrNull,
  time,
  timeOrNull,
  titled,
  unread,
  words,
} from "./field-schemas.ts";

// Answers of operators' views of a running service: figures of the moment, not objects.

const primary = object({ name: text, usable: Type.Boolean() });

const gatewayState = described("The gateway that answers.", {
  host: text,
  pid: count(),
  uptime_seconds: count(),
  not_ready: textOrNull("Why it is not ready; null when it is."),
  primaries: Type.Array(primary, { description: "Of a store that Sentinels or a cluster place." }),
});

const health = described("What the gateway depends on, from its own metrics: also while Redis is away.", {
  redis: object({ usable: Type.Boolean(), older: Type.Boolean(), frozen_partitions: count() }),
  upstream: described("Exchanges that a client waited for.", {
    window_seconds: count("The period of the counts."),
    answered: count(),
    limited: count("Answered with 429."),
    failed: count(),
    failure: textOrNull("The outcome of most failures."),
    last_answer_at: timeOrNull,
  }),
  archive: Type.Union([object({ lag_seconds: count(), violations: count() }), Type.Null()], {
    description: "Null without an archive.",
  }),
  ledger: object({
    checked_at: timeOrNull,
    violations: count(),
    check_interval_seconds: Type.Number({ description: "0: no checks." }),
  }),
  journal: object({
    usable: Type.Boolean(),
    waiting: count("Charges that wait for Redis."),
    of_other_stores: count("Charges that wait for another Redis."),
    unconfirmed: count("Charges that no replica is known to have."),
  }),
});

export const Live = titled("Live", {
  gateway: gatewayState,
  health,
  sample_every_ms: count(),
  at_ms: Type.Array(Type.Number()),
  series: Type.Unsafe<Record<string, (number | null)[]>>({
    type: "object",
    additionalProperties: { type: "array", items: { type: ["number", "null"] } },
    description: "By name, each as long as `at_ms`; null where there is nothing to say.",
  }),
  denied: Type.Array(
    object({ outcome: text, status: count(), last_minute: count(), last_15_minutes: count() }),
    { description: "Why requests were answered with 4xx or 5xx." },
  ),
});

const money = (of: string) =>
  described(of, {
    charged: count(),
    refunded: count(),
    purchased: count("Of grants that were sold."),
    trials: count("Of trial grants."),
    goodwill: count("Of goodwill grants."),
    reversed: count("Taken back from grants."),
    adjusted: count("Negative where more was taken away than given."),
    uncollected: count("Of tasks that were made and could not be charged."),
  });

const gatewayReport = object({
  gateway_id: text,
  host: text,
  pid: count(),
  started_at: time,
  seen_at: time,
  config_hash: text,
  ready: Type.Boolean(),
  requests_per_second: Type.Number(),
  refused_per_second: Type.Number(),
  failed_per_second: Type.Number(),
  in_flight: count(),
  settlements_waiting: count(),
});

export const Overview = titled("Overview", {
  open: countOrNull("Holds and unfinished tasks, over all gateways."),
  money: object({
    today: money("Credits of the UTC day."),
    month: money("Credits of the UTC month."),
    unread,
  }),
  ledger: described("The last check of the whole ledger; null before the first one.", {
    right: nullable<boolean>(Type.Boolean()),
    checked_at: timeOrNull,
    violations: countOrNull(),
  }),
  settlements_waiting: count("Charges that wait for Redis, in all gateways."),
  gateways: Type.Array(gatewayReport, { description: "Those that have reported in the last 20 s." }),
});

export const Configuration = titled("Configuration", {
  config: Type.Unsafe<object>({
    type: "object",
    additionalProperties: true,
    description: "Settings and prices in force, without secrets.",
  }),
  config_hash: text,
  in_force_since: time,
  from_environment: Type.Unsafe<Record<string, string>>({
    type: "object",
    additionalProperties: { type: "string" },
    description: "Setting to the environment variable that decides it.",
  }),
  file: object({
    path: text,
    differs: Type.Array(
      object({
        path: text,
        in_force: Type.Unknown(),
        in_file: Type.Unknown(),
        needs_restart: Type.Boolean({
          description: "It takes effect at a restart; false: as soon as the files are read.",
        }),
      }),
      {
        description:
          "Settings and prices of the files that are not in force; null where one has none. Empty if the files cannot be read.",
      },
    ),
    awaiting_signal: Type.Boolean({
      description: "The files have changed, and the gateway reads them at SIGHUP (`reload: signal`).",
    }),
    problem: textOrNull(
      "Why the content that waits for SIGHUP, or else the one that was read last, cannot be put in force; null if it can.",
    ),
  }),
  gateways: Type.Array(object({ gateway_id: text, host: text, config_hash: text })),
});

const use = Object.fromEntries(
  TIER_LIMITS.flatMap(({ name, used, counted }) => [
    [used, typeof counted === "object" ? count() : countOrNull()],
    [name, countOrNull()],
  ]),
) as Record<keyof Use, ReturnType<typeof countOrNull>>;

export const AccountUse = titled("AccountUse", {
  account: Type.Union([object(use), Type.Null()], {
    description: "Over all keys; null for an account without limits of its own.",
  }),
  keys: Type.Array(object({ key_id: text, ...use }), {
    description: "In the order of the list of keys.",
  }),
  next_cursor: textOrNull("For `cursor`; null after the last key."),
});

const labels = { account_label: textOrNull(), key_label: textOrNull() };

const list = <Item extends TSchema, More extends Record<string, TSchema>>(
  title: string,
  item: Item,
  more: More,
) => object({ data: Type.Array(item), next_cursor: Type.Null(), ...more }, { title });

export const TopKeys = list(
  "TopKeys",
  object({ key_id: text, account_id: text, ...labels, tier: text, usable: Type.Boolean(), ...use }),
  { keys_looked_at: count(), complete: Type.Boolean(), unread },
);

export const RefusalsOfDay = list(
  "RefusalsOfDay",
  object({ key_id: text, account_id: text, ...labels, outcome: text, count: count() }),
  { since: time },
);

export const AccountRefusals = titled("AccountRefusals", {
  ...pageOf(
    object({
      hour: time,
      key_id: words("`*`: further keys, which are counted together."),
      key_label: textOrNull(),
      outcome: text,
      count: count(),
    }),
  ).properties,
  more: Type.Boolean({ description: "There are earlier ones." }),
  uncounted: countOrNull(
    "Refusals of this and other accounts that had no room in the counts; null for a token that may use some accounts only.",
  ),
});

export const Health = titled("Health", {
  status: Type.Enum([...CHECK_STATUSES]),
  checked_at: time,
  checks: Type.Array(
    object({
      name: Type.Enum([...CHECK_NAMES]),
      status: Type.Enum([...CHECK_STATUSES], { description: "warn: look at it. fail: mend it." }),
      message: text,
      advice: textOrNull("What to do; null for `ok`."),
      runbook: words("A page of the documentation."),
    }),
  ),
});

export const OpenRequests = list(
  "OpenRequests",
  object({
    request_id: text,
    task_id: textOrNull(),
    account_id: text,
    key_id: text,
    ...labels,
    state: text,
    status: textOrNull(),
    endpoint: text,
    price: count(),
    admitted_at: timeOrNull,
    age_seconds: count(),
    due_in_seconds: count("Until the sweeper looks at it; negative when overdue."),
  }),
  { old: count(), open: count(), looked_at_max: count(), complete: Type.Boolean(), unread },
);

export const SearchResults = list(
  "SearchResults",
  object({
    kind: Type.Enum([
      "account",
      "key",
      "task",
      "request",
      "transaction",
      "token",
      "audit",
      "reference",
      "refusal",
    ]),
    id: text,
    account_id: textOrNull(),
    label: textOrNull(),
    metadata: textOrNull("Of an account: name and value of the metadata by which it was found."),
    key_id: textOrNull("Of a refusal: the key that was refused."),
  }),
  {
    complete: Type.Boolean({
      description: "Whether these are all that there are.",
    }),
  },
);
