import { type TProperties, type TSchema, Type } from "typebox";
import { CHECK_NAMES, CHECK_STATUSES } from "../../checks/check.ts";
import { TIER_LIMITS } from "../../domain/limits.ts";
import type { Use } from "../../operations/limit-use.ts";
import * as t from "./field-schemas.ts";

// Answers of operators' views of a running service: figures of the moment, not objects.

const gatewayState = t.described("The gateway that answers.", {
  host: t.words(undefined, "gateway-1"),
  pid: t.count(undefined, 4211),
  uptime_seconds: t.count(undefined, 93_211),
  not_ready: t.textOrNull("Why it is not ready; null when it is."),
  primaries: t.list(
    t.object({ name: t.text, usable: t.flag() }),
    "Of a store that Sentinels or a cluster place.",
    [],
  ),
});

const health = t.described("What the gateway depends on, from its own metrics: also while Redis is away.", {
  redis: t.object({
    usable: t.flag(undefined, true),
    older: t.flag(),
    frozen_partitions: t.count(undefined, 0),
  }),
  upstream: t.described("Exchanges that a client waited for.", {
    window_seconds: t.count("The period of the counts.", 60),
    answered: t.count(undefined, 2410),
    limited: t.count("Answered with 429.", 0),
    failed: t.count(undefined, 3),
    failure: t.textOrNull("The outcome of most failures.", "unreachable"),
    last_answer_at: t.timeOrNull,
  }),
  archive: Type.Union(
    [t.object({ lag_seconds: t.count(undefined, 2), violations: t.count(undefined, 0) }), Type.Null()],
    { description: "Null without an archive." },
  ),
  ledger: t.object({
    checked_at: t.timeOrNull,
    violations: t.count(undefined, 0),
    check_interval_seconds: t.number("0: no checks.", 3600),
  }),
  journal: t.object({
    usable: t.flag(undefined, true),
    waiting: t.count("Charges that wait for Redis.", 0),
    of_other_stores: t.count("Charges that wait for another Redis.", 0),
    unconfirmed: t.count("Charges that no replica is known to have.", 0),
  }),
});

const check = t.object({
  name: t.oneOf(CHECK_NAMES, undefined, "redis"),
  status: t.oneOf(CHECK_STATUSES, "warn: look at it. fail: mend it."),
  message: t.words(undefined, "all primaries answer and take writes"),
  advice: t.textOrNull("What to do; null for `ok`."),
  runbook: t.words("A page of the documentation.", "docs/operations/redis.md"),
});

export const Live = t.titled("Live", {
  gateway: gatewayState,
  health,
  checks: t.list(check, "What these figures tell."),
  sample_every_ms: t.count(undefined, 2000),
  at_ms: t.list(t.number(), undefined, [1_793_426_400_000]),
  series: t.open<Record<string, (number | null)[]>>(
    { type: "array", items: { type: ["number", "null"] } },
    "By name, each as long as `at_ms`; null where there is nothing to say.",
    { ok: [41.5], refused: [0.4], failed: [0], all_p99: [0.12] },
  ),
  denied: t.list(
    t.object({
      outcome: t.words(undefined, "rate_limited"),
      status: t.count(undefined, 429),
      last_minute: t.count(undefined, 24),
      last_15_minutes: t.count(undefined, 180),
    }),
    "Why requests were answered with 4xx or 5xx.",
  ),
});

const money = (of: string) =>
  t.described(of, {
    charged: t.count(undefined, 128_410),
    refunded: t.count(undefined, 1230),
    purchased: t.count("Of grants that were sold.", 250_000),
    trials: t.count("Of trial grants.", 1000),
    goodwill: t.count("Of goodwill grants.", 50),
    reversed: t.count("Taken back from grants.", 0),
    adjusted: t.count("Negative where more was taken away than given.", -500),
    uncollected: t.count("Of tasks that were made and could not be charged.", 0),
  });

const gatewayName = {
  gateway_id: t.words(undefined, "gtw_0f3a5c7d9e1b"),
  host: t.words(undefined, "gateway-1"),
};
const hash = t.words(undefined, "8f1c0aa9e2d4b753");

const gatewayReport = t.object({
  ...gatewayName,
  pid: t.count(undefined, 4211),
  started_at: t.time,
  seen_at: t.time,
  config_hash: hash,
  ready: t.flag(undefined, true),
  requests_per_second: t.number(undefined, 41.9),
  refused_per_second: t.number(undefined, 0.4),
  failed_per_second: t.number(undefined, 0),
  in_flight: t.count(undefined, 14),
  settlements_waiting: t.count(undefined, 0),
});

export const Overview = t.titled("Overview", {
  open: t.countOrNull("Holds and unfinished tasks, over all gateways.", 184),
  money: t.object({
    today: money("Credits of the UTC day."),
    month: money("Credits of the UTC month."),
    unread: t.unread,
  }),
  ledger: t.described("The last check of the whole ledger; null before the first one.", {
    right: t.nullable<boolean>(t.flag(undefined, true)),
    checked_at: t.timeOrNull,
    violations: t.countOrNull(undefined, 0),
  }),
  settlements_waiting: t.count("Charges that wait for Redis, in all gateways.", 0),
  gateways: t.list(gatewayReport, "Those that have reported in the last 20 s."),
});

const differingSetting = t.object({
  path: t.words(undefined, "server.port"),
  in_force: Type.Unknown({ examples: [8080] }),
  in_file: Type.Unknown({ examples: [8081] }),
  needs_restart: t.flag("It takes effect at a restart; false: as soon as the files are read.", true),
});

export const Configuration = t.titled("Configuration", {
  config: t.open<object>(true, "Settings and prices in force, without secrets.", { log: { level: "info" } }),
  config_hash: hash,
  in_force_since: t.time,
  from_environment: t.open<Record<string, string>>(
    { type: "string" },
    "Setting to the environment variable that decides it.",
    { "log.level": "LOG_LEVEL" },
  ),
  file: t.object({
    path: t.words(undefined, "/etc/tollgate/tollgate.yaml"),
    differs: t.list(
      differingSetting,
      "Settings and prices of the files that are not in force; null where one has none. Empty if the files cannot be read.",
    ),
    awaiting_signal: t.flag(
      "The files have changed, and the gateway reads them at SIGHUP (`reload: signal`).",
    ),
    problem: t.textOrNull(
      "Why the content that waits for SIGHUP, or else the one that was read last, cannot be put in force; null if it can.",
    ),
  }),
  gateways: t.list(t.object({ ...gatewayName, config_hash: hash })),
});

const use = Object.fromEntries(
  TIER_LIMITS.flatMap(({ name, used, counted, example }) => [
    [used, (typeof counted === "object" ? t.count : t.countOrNull)(undefined, example.used)],
    [name, t.countOrNull(undefined, example.limit)],
  ]),
) as Record<keyof Use, ReturnType<typeof t.countOrNull>>;

export const AccountUse = t.titled("AccountUse", {
  account: Type.Union([t.object(use), Type.Null()], {
    description: "Over all keys; null for an account without limits of its own.",
  }),
  keys: t.list(t.object({ key_id: t.keyId, ...use }), "In the order of the list of keys."),
  next_cursor: t.textOrNull("For `cursor`; null after the last key."),
});

const labels = {
  account_label: t.textOrNull(undefined, "Acme Films"),
  key_label: t.textOrNull(undefined, "backend"),
};
const account_id = t.words(undefined, "acme");
const outcome = t.words(undefined, "rate_limited");

const listOf = <Item extends TSchema, More extends TProperties>(title: string, item: Item, more: More) =>
  t.object({ data: t.list(item), next_cursor: Type.Null(), ...more }, { title });

export const TopKeys = listOf(
  "TopKeys",
  t.object({
    key_id: t.keyId,
    account_id,
    ...labels,
    tier: t.words(undefined, "standard"),
    usable: t.flag(undefined, true),
    ...use,
  }),
  { keys_looked_at: t.count(undefined, 211), complete: t.flag(undefined, true), unread: t.unread },
);

export const RefusalsOfDay = listOf(
  "RefusalsOfDay",
  t.object({ key_id: t.keyId, account_id, ...labels, outcome, count: t.count(undefined, 180) }),
  { since: t.time },
);

const refusalsOfHour = t.object({
  hour: t.time,
  key_id: t.words("`*`: further keys, which are counted together.", "key_Rx0dTdT1hDhbmzOa"),
  key_label: labels.key_label,
  outcome,
  count: t.count(undefined, 180),
});

export const AccountRefusals = t.titled("AccountRefusals", {
  ...t.pageOf(refusalsOfHour).properties,
  more: t.flag("There are earlier ones."),
  uncounted: t.countOrNull(
    "Refusals of this and other accounts that had no room in the counts; null for a token that may use some accounts only.",
    0,
  ),
});

export const Health = t.titled("Health", {
  status: t.oneOf(CHECK_STATUSES),
  checked_at: t.time,
  checks: t.list(check),
});

export const OpenRequests = listOf(
  "OpenRequests",
  t.object({
    request_id: t.requestId,
    task_id: t.textOrNull(undefined, "task_5f0c"),
    account_id,
    key_id: t.keyId,
    ...labels,
    state: t.words(undefined, "bound"),
    status: t.textOrNull(undefined, "processing"),
    endpoint: t.endpoint,
    price: t.count(undefined, 50),
    admitted_at: t.timeOrNull,
    age_seconds: t.count(undefined, 1200),
    due_in_seconds: t.count("Until the sweeper looks at it; negative when overdue.", 4),
  }),
  {
    old: t.count(undefined, 1),
    open: t.count(undefined, 184),
    looked_at_max: t.count(undefined, 20_000),
    complete: t.flag(undefined, true),
    unread: t.unread,
  },
);

const FOUND = [
  ...(["account", "key", "task", "request", "transaction"] as const),
  ...(["token", "audit", "reference", "refusal"] as const),
];

export const SearchResults = listOf(
  "SearchResults",
  t.object({
    kind: t.oneOf(FOUND, undefined, "key"),
    id: t.keyId,
    account_id: t.accountIdOrNull,
    label: labels.key_label,
    metadata: t.textOrNull("Of an account: name and value of the metadata by which it was found."),
    key_id: t.textOrNull("Of a refusal: the key that was refused."),
  }),
  { complete: t.flag("Whether these are all that there are.", true) },
);
