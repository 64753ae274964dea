import { type TSchema, Type } from "typebox";
import { TIER_LIMITS } from "../../domain/limits.ts";
import type { Use } from "../../operations/limit-use.ts";
import { pageOf } from "./list-schemas.ts";

// What operators' views of a running service answer: the console's above all. Figures of the moment, not objects.

const closed = { additionalProperties: false } as const;
const orNull = <T>(type: string, more: object = {}) =>
  Type.Unsafe<T | null>({ ...more, type: [type, "null"] });
const time = Type.String({ format: "date-time", examples: ["2026-10-31T12:00:00.000Z"] });
const timeOrNull = orNull<string>("string", { format: "date-time" });
const text = Type.String();
const count = Type.Integer();
const countOrNull = orNull<number>("integer");

export const unread = Type.Optional(
  Type.Object(
    { partitions: Type.Array(count), why: text },
    {
      ...closed,
      description: "Partitions that could not be read, and why; nothing of them is in the answer.",
    },
  ),
);

const primary = Type.Object({ name: text, usable: Type.Boolean() }, closed);

const gatewayState = Type.Object(
  {
    host: text,
    pid: count,
    uptime_seconds: count,
    not_ready: orNull<string>("string", { description: "Why it is not ready; null when it is." }),
    primaries: Type.Array(primary, { description: "Of a store that Sentinels or a cluster place." }),
  },
  { ...closed, description: "The gateway that answers." },
);

const health = Type.Object(
  {
    redis: Type.Object({ usable: Type.Boolean(), older: Type.Boolean(), frozen_partitions: count }, closed),
    upstream: Type.Object(
      {
        window_seconds: Type.Integer({ description: "The period of the counts." }),
        answered: count,
        limited: Type.Integer({ description: "Answered with 429." }),
        failed: count,
        failure: orNull<string>("string", { description: "The outcome of most failures." }),
        last_answer_at: timeOrNull,
      },
      { ...closed, description: "Exchanges that a client waited for." },
    ),
    archive: Type.Union([Type.Object({ lag_seconds: count, violations: count }, closed), Type.Null()], {
      description: "Null without an archive.",
    }),
    ledger: Type.Object(
      {
        checked_at: timeOrNull,
        violations: count,
        check_interval_seconds: Type.Number({ description: "0: no checks." }),
      },
      closed,
    ),
    journal: Type.Object(
      {
        usable: Type.Boolean(),
        waiting: Type.Integer({ description: "Charges that wait for Redis." }),
        of_other_stores: Type.Integer({ description: "Charges that wait for another Redis." }),
        unconfirmed: Type.Integer({ description: "Charges that no replica is known to have." }),
      },
      closed,
    ),
  },
  { ...closed, description: "What the gateway depends on, from its own metrics: also while Redis is away." },
);

export const Live = Type.Object(
  {
    gateway: gatewayState,
    health,
    sample_every_ms: count,
    at_ms: Type.Array(Type.Number()),
    series: Type.Unsafe<Record<string, (number | null)[]>>({
      type: "object",
      additionalProperties: { type: "array", items: { type: ["number", "null"] } },
      description: "By name, each as long as `at_ms`; null where there is nothing to say.",
    }),
    denied: Type.Array(
      Type.Object({ outcome: text, status: count, last_minute: count, last_15_minutes: count }, closed),
      { description: "Why requests were answered with 4xx or 5xx." },
    ),
  },
  { ...closed, title: "Live" },
);

const money = (of: string) =>
  Type.Object(
    {
      charged: count,
      refunded: count,
      purchased: count,
      adjusted: Type.Integer({ description: "Negative where more was taken away than given." }),
      uncollected: Type.Integer({ description: "Of tasks that were made and could not be charged." }),
    },
    { ...closed, description: of },
  );

const gatewayReport = Type.Object(
  {
    gateway_id: text,
    host: text,
    pid: count,
    started_at: time,
    seen_at: time,
    config_hash: text,
    ready: Type.Boolean(),
    requests_per_second: Type.Number(),
    refused_per_second: Type.Number(),
    failed_per_second: Type.Number(),
    in_flight: count,
    settlements_waiting: count,
  },
  closed,
);

export const Overview = Type.Object(
  {
    open: orNull<number>("integer", { description: "Holds and unfinished tasks, over all gateways." }),
    money: Type.Object(
      { today: money("Credits of the UTC day."), month: money("Credits of the UTC month."), unread },
      closed,
    ),
    ledger: Type.Object(
      { right: orNull<boolean>("boolean"), checked_at: timeOrNull, violations: countOrNull },
      { ...closed, description: "The last check of the whole ledger; null before the first one." },
    ),
    settlements_waiting: Type.Integer({ description: "Charges that wait for Redis, in all gateways." }),
    gateways: Type.Array(gatewayReport, { description: "Those that have reported in the last 20 s." }),
  },
  { ...closed, title: "Overview" },
);

export const Configuration = Type.Object(
  {
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
    file: Type.Object(
      {
        path: text,
        differs: Type.Array(
          Type.Object(
            {
              path: text,
              in_force: Type.Unknown(),
              in_file: Type.Unknown(),
              needs_restart: Type.Boolean({
                description: "It takes effect at a restart; false: as soon as the files are read.",
              }),
            },
            closed,
          ),
          {
            description:
              "Settings and prices of the files that are not in force; null where one has none. Empty if the files cannot be read.",
          },
        ),
        awaiting_signal: Type.Boolean({
          description: "The files have changed, and the gateway reads them at SIGHUP (`reload: signal`).",
        }),
        problem: orNull<string>("string", {
          description:
            "Why the content that waits for SIGHUP, or else the one that was read last, cannot be put in force; null if it can.",
        }),
      },
      closed,
    ),
    gateways: Type.Array(Type.Object({ gateway_id: text, host: text, config_hash: text }, closed)),
  },
  { ...closed, title: "Configuration" },
);

const use = Object.fromEntries(
  TIER_LIMITS.flatMap(({ name, used, counted }) => [
    [used, typeof counted === "object" ? count : countOrNull],
    [name, countOrNull],
  ]),
) as Record<keyof Use, typeof countOrNull>;

export const AccountUse = Type.Object(
  {
    account: Type.Union([Type.Object(use, closed), Type.Null()], {
      description: "Over all keys; null for an account without limits of its own.",
    }),
    keys: Type.Array(Type.Object({ key_id: text, ...use }, closed), {
      description: "In the order of the list of keys.",
    }),
    next_cursor: orNull<string>("string", { description: "For `cursor`; null after the last key." }),
  },
  { ...closed, title: "AccountUse" },
);

const list = <Item extends TSchema, More extends Record<string, TSchema>>(
  title: string,
  item: Item,
  more: More,
) => Type.Object({ data: Type.Array(item), next_cursor: Type.Null(), ...more }, { ...closed, title });

export const TopKeys = list(
  "TopKeys",
  Type.Object({ key_id: text, account_id: text, tier: text, usable: Type.Boolean(), ...use }, closed),
  { keys_looked_at: count, complete: Type.Boolean(), unread },
);

export const RefusalsOfDay = list(
  "RefusalsOfDay",
  Type.Object({ key_id: text, account_id: text, outcome: text, count }, closed),
  { since: time },
);

export const AccountRefusals = Type.Object(
  {
    ...pageOf(
      Type.Object(
        {
          hour: time,
          key_id: Type.String({ description: "`*`: further keys, which are counted together." }),
          outcome: text,
          count,
        },
        closed,
      ),
    ).properties,
    more: Type.Boolean({ description: "There are earlier ones." }),
    uncounted: orNull<number>("integer", {
      description:
        "Refusals of this and other accounts that had no room in the counts; null for a token that may use some accounts only.",
    }),
  },
  { ...closed, title: "AccountRefusals" },
);

export const OpenRequests = list(
  "OpenRequests",
  Type.Object(
    {
      request_id: text,
      task_id: orNull<string>("string"),
      account_id: text,
      key_id: text,
      state: text,
      status: orNull<string>("string"),
      endpoint: text,
      price: count,
      admitted_at: timeOrNull,
      age_seconds: count,
      due_in_seconds: Type.Integer({ description: "Until the sweeper looks at it; negative when overdue." }),
    },
    closed,
  ),
  { old: count, open: count, looked_at_max: count, complete: Type.Boolean(), unread },
);

export const SearchResults = list(
  "SearchResults",
  Type.Object(
    {
      kind: Type.Enum(["account", "key", "task", "request", "transaction", "token", "audit", "reference"]),
      id: text,
      account_id: orNull<string>("string"),
      label: orNull<string>("string"),
    },
    closed,
  ),
  {
    complete: Type.Boolean({
      description: "Whether these are all accounts with the label or the reference.",
    }),
  },
);
