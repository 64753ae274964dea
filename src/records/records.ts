import { byLimit, LIMITS, type PeriodField, TIER_LIMITS } from "../domain/limits.ts";

/**
 * The fields of all records in the store; Lua headers and TypeScript refer to this file. All values are texts, times are
 * Unix ms by the store's clock, amounts are whole credits. A field is missing where it does not apply.
 */
type RecordOf<Fields> = Readonly<Partial<Record<keyof Fields, string>>>;

/**
 * `tg:{pNN}:request:<request id>`: one generation, until it is collected. Its text begins with these parts in this order, with
 * spaces between; then comes ` name=value` for each further field. `requestOf` and lua/include/request.lua read it.
 */
const REQUEST_PARTS = {
  state: "held, bound, finished or void",
  account_id: "whose balance it uses",
  key_id: "whose slot it has",
  endpoint: "the full path, as charged and listed",
  price: "fixed at admission",
  retention_ms: "how long the record is kept after its end",
  admitted_at:
    "the key's clock at its admission; missing where the store had forgotten the request before its BIND",
  due_at:
    "when its hold ends; when it was admitted where the store had forgotten the request before its BIND",
} as const;
export const REQUEST_FIELDS = {
  task_id: "the upstream's",
  bound_at: "when it was bound",
  max_age_ms: "of its task",
  upstream: "which upstream made its task",
  retention_ms:
    "instead of that of its admission: minutes once it was refused or unsent, twice as long if it ended as too old",
  account_at:
    "`limited` of its account, `@`, and the account's clock at its admission, if it had limits over all its keys",
  unknown: "unclear or timed_out, where the upstream left open whether it made a task",
  idempotency: "digest of its Idempotency-Key",
  uncollected: "1 if it was bound late and not charged",
  unmetered: "1 if it passed while the store was away: its price is 0, and it has no slot",
  gone_count: "404s in a row",
  gone_since: "the first of them",
  status: "completed or failed, once finished",
  ended_by: "upstream, gone, expired or released, once finished",
  finished_at: "when it finished",
  refunded: "1 once its charge was refunded",
  reason:
    "why it was void: refused (by the upstream, or it could not be reached), unsent (by the gateway), due or released; stays if it is bound late",
  void_at: "when it was void",
  first_void_id:
    "as the record of its Idempotency-Key had it when it was void with an unknown outcome; a later BIND compares them",
  archived: "generation of the archive that has it, a slash, and the state in which it was copied",
  details: "what its charge says of the price, JSON; missing for a list price that is always in force",
  fingerprint: "of path and body, if it had an Idempotency-Key, once it was void with an unknown outcome",
  callback: "the customer's callBackUrl, if the gateway relays it",
  charged_again:
    "1 once its refund was taken back: it had ended as too old, and its task completed after all",
  trimmed_charge: "id of its charge, if that has left the ledger",
  trimmed_refund: "id of its refund, if that has left the ledger",
} as const;
export type RequestRecord = RecordOf<typeof REQUEST_PARTS> & RecordOf<typeof REQUEST_FIELDS>;

const PERIODS = Object.fromEntries(
  TIER_LIMITS.flatMap(({ used, counted }) =>
    typeof counted === "object"
      ? [
          [counted.period, `the UTC ${counted.period} of \`${used}\`, as ${counted.period}s since 1970`],
          [used, `requests admitted in that ${counted.period}`],
        ]
      : [],
  ),
) as Record<PeriodField, string>;

/** The words of the field `counters` of a key or an account, as records/packed-fields.ts and lua/include/limits.lua have them. */
export const COUNTER_FIELDS = {
  clock_ms: "the latest moment of an admission; never goes back",
  spent:
    "of a key: credits held and consumed by requests admitted in its `month`, without what was given back",
  ...PERIODS,
  limits:
    "of a key: those that the latest admission was held to, in the order of domain/limits.ts, and letters of those in shadow mode",
} as const;

/** The words of the field `money` of an account, as records/packed-fields.ts and lua/include/money.lua have them. */
export const MONEY_FIELDS = {
  balance: "what the ledger sums to; what can be spent is that without `held`",
  held: "by requests that are held",
  total_used: "consumed without what was refunded",
  total_requests: "admitted, without those that never went upstream",
  last_entry: "id of its latest ledger entry, which names the one before it",
} as const;

/** `tg:{pNN}:account:<account id>`. */
export const ACCOUNT_FIELDS = {
  money: "the fields above, and `+` if it has one of those that lua/include/money.lua names",
  created_at: "when it was created, or its first key was issued",
  collected_until: "the latest `due_at` of its requests that were collected",
  blocked_until:
    "until when it makes no further request, since too many have an unknown outcome; missing otherwise",
  unknown_limit: "how many unknown outcomes it may have; only beside `blocked_until`",
  label: "a name that operators gave it",
  metadata: "what operators keep with it, JSON",
  status: "suspended (polls and credits work) or closed (nothing does); missing while it is active",
  revision: "how often operators changed it; missing before the first time",
  price_multiplier: "by which prices are multiplied for it, a decimal with two digits at most; missing for 1",
  ...byLimit(TIER_LIMITS, ({ unit }) => `${unit}, of all its keys together`),
  limited:
    "its revision when it got limits over all its keys; missing while it has none, as is the field below",
  counters: "what requests count over all its keys",
  alerts: "credits below which it is told, the highest first, with spaces",
  alerted: "`alerts` as they were, `/`, and the lowest that was told since the latest recharge",
  webhooks: "its enabled webhook endpoints, each with the events that it wants; missing without one",
} as const;
export type AccountFields = RecordOf<typeof ACCOUNT_FIELDS>;
export type AccountRecord = AccountFields & RecordOf<typeof MONEY_FIELDS>;
export type BarredStatus = "suspended" | "closed";
export type AccountStatus = "active" | BarredStatus;

/** @param stored the field `status`, missing or empty for an active account */
export const statusOf = (stored: unknown): AccountStatus =>
  stored === "suspended" || stored === "closed" ? stored : "active";

/** `tg:{pNN}:key:<key id>`: one API key. Limits left out are those of its tier. */
export const KEY_FIELDS = {
  account_id: "whose key it is",
  tier: "a name in the configuration; an unknown one means `standard`",
  sha256: "of the key itself",
  ...byLimit(LIMITS, ({ unit }) => unit),
  created_at: "when it was issued",
  expires_at: "from when on it is invalid",
  revoked_at: "since when it is invalid for good",
  rotated_to: "id of the key that replaces it",
  label: "a name that operators gave it",
  revision: "how often operators changed it; missing before the first time",
  restrictions:
    "the only endpoints and client addresses that it may be used with, as domain/key-restrictions.ts writes them",
  fingerprint: "of the call with an Idempotency-Key that made it",
  counted: "the tier under which `tg:{pNN}:tiers` counts it; missing while it is revoked",
  terms:
    "limits and what else operators fixed, as lua/include/limits.lua packs it; missing after a change of it",
  counters: "what its requests count",
  spends_in: "the first of the keys that this one replaces, in whose record month and `spent` are",
  month: "the UTC month of `spent`, as months since January 1970",
  late_day: "the UTC day of `late_count`",
  late_count: "requests of that day that were bound after their hold was void",
} as const;
export type KeyFields = RecordOf<typeof KEY_FIELDS>;
export type UnpackedKey = KeyFields & RecordOf<typeof COUNTER_FIELDS>;

/** `tg:{p00}:maintenance`: missing without maintenance. */
export const MAINTENANCE_FIELDS = {
  on: "1 while generations and uploads are refused",
  retry_after: "seconds that customers are told to wait",
  message: "for customers",
  since: "when it began",
} as const;
export type MaintenanceFields = RecordOf<typeof MAINTENANCE_FIELDS>;

/** `tg:{p00}:token:<token id>`: a token of the management API. */
export const TOKEN_FIELDS = {
  label: "for people",
  scopes: "what it may do (JSON)",
  accounts: "the only accounts that it may use (JSON)",
  sha256: "of the token itself",
  created_at: "when it was made",
  expires_at: "from when on it is invalid",
  revoked_at: "since when it is invalid for good",
  by: "who made it",
  parent: "the token that it was made with; operators made one without",
  root: "the first of these, which operators made",
} as const;
export type StoredToken = RecordOf<typeof TOKEN_FIELDS>;

/** `tg:{pNN}:webhook:<endpoint id>`: where an account wants to be told of events. */
export const ENDPOINT_FIELDS = {
  account_id: "whose events it gets",
  url: "where they are sent",
  events: "types of events that it gets, with commas",
  label: "for people",
  status: "enabled, disabled, or deleted while its deliveries are being removed",
  disabled_reason: "gone (it answered 410), failing (for five days) or operator, while it is disabled",
  secret: "with which messages are signed, sealed",
  previous_secret: "those before, sealed, the newest first, with spaces",
  previous_until: "until when those before sign, too",
  created_at: "when it was registered",
  revision: "how often operators changed it",
  failing_since: "the first of the tries in a row that failed; missing while the latest succeeded",
  failures: "how many tries in a row failed",
  is_slow:
    "1 if its latest try failed or took seconds: its first tries then share the budget of retries; 0 if not; none before its first try has ended",
  delivered_at: "when a delivery succeeded last",
  dropped: "how many events it never got since too many waited",
  dropped_at: "when the last of them was dropped",
} as const;
export type EndpointRecord = RecordOf<typeof ENDPOINT_FIELDS>;

/** `tg:{pNN}:event:<event id>`: an event, and a field per endpoint that gets it, packed by lua/include/deliveries.lua. */
export const EVENT_FIELDS = {
  event: "its type, when it was, the account id, and the data (JSON)",
  url: "of the delivery to an address that the request names: its queue, and the address",
} as const;

/** `tg:{pNN}:idempotency:<digest>`: the request of an Idempotency-Key. */
export const IDEMPOTENCY_FIELDS = {
  request_id: "the first request with this key; missing while the key is free again",
  fingerprint: "of its path and body",
  due_at: "when its outcome is known at the latest",
  unknown: "unclear or timed_out, where the upstream left open whether it made a task",
  task_id: "its task, from BIND on",
  response: "what the upstream answered, JSON",
  void_until: "until when a request that had this key may still be bound",
  first_void_id:
    "the first request that was void with an unknown outcome since this record exists, so it tells this record from a later one",
} as const;

/** `tg:{pNN}:archive`: what the archive has of a partition. It exists while the store has an archive. */
export const ARCHIVE_FIELDS = {
  generation: "a random text; another one means that accounts, keys and requests are copied again",
  archive: "id of the archive",
  listed: "the generation once all its accounts and keys are noted as changed",
  newest: "id of the newest ledger entry that the archive is known to have",
  batch: "number of the newest batch that the archive is known to have",
  writing:
    "the batch that is written next, and the one that was noted when it was read: `<number> after <number>`",
  looked_until: "the score in `done` up to which ended requests were looked at",
} as const;
export type ArchiveRecord = RecordOf<typeof ARCHIVE_FIELDS>;

/** `tg:{pNN}:trimmed`: where a partition's ledger begins, if entries have left it. */
export const TRIMMED_FIELDS = {
  last_entry: "id of the last entry that has left it",
  at: "when that entry was made",
  entries: "how many have left it",
} as const;

/** `tg:{pNN}:rolled`: how far a partition's ledger is rolled up into usage. It exists from the first ROLLUP on. */
export const ROLLED_FIELDS = {
  entry: "id of the last entry that counts in usage",
  entries: "how many entries count",
  skipped: "how many had left the ledger before the first ROLLUP; they do not count",
  since: "from when on entries count; 0 if all do",
  ended_since: "from when on ended tasks count",
  week: "the first UTC day, since 1970, that may still be in the spending of a week",
  week_at: "how many accounts of that day have lost it",
} as const;

/**
 * `tg:{pNN}:usage:<account id>:<UTC month>`: by "day endpoint key id", or "day - -"; `tg:{pNN}:totals:<UTC month>`: by "day" or
 * "day endpoint". Values are these numbers, with spaces between; zeros in the end are left out.
 */
export const USAGE_NUMBERS = {
  requests: "charged generations, and unmetered ones",
  charged: "credits charged for them",
  refunded: "credits refunded",
  completed: "tasks that ended as completed",
  failed: "tasks that ended as failed",
  purchased: "credits of purchases",
  adjusted: "credits of adjustments, negative downwards",
  uncollected: "tasks that were made and not charged",
  uncollected_credits: "what they would have cost",
  seconds: "how long the completed tasks ran",
  trials: "credits of trial grants",
  goodwill: "credits of goodwill grants",
  reversed: "credits of reversals, positive",
} as const;

/** The latest status of a task, and when it was observed, Unix ms. */
export interface Sighting {
  status: string;
  atMs: number;
}

/**
 * `tg:{pNN}:task:<task id>`: request id, key id, account id, when it was bound, and after the first observation when that was, status and
 * data. `!` in front: the upstream gave the id to another request, too. lua/include/task.lua reads it.
 */
interface TaskRecord {
  requestId: string;
  accountId: string;
  seen: Sighting | undefined;
  /** The task as customers see it, JSON; empty before the first observation. */
  data: string;
}

/** Behind the six words in front of it. */
const DATA = /^(?:\S* ){6}(.*)$/s;

export function taskRecord(text: string): TaskRecord {
  const [requestId = "", , accountId = "", , atMs, status] = text.replace(/^!/, "").split(" ", 6);
  const seen = status === undefined ? undefined : { status, atMs: Number(atMs) };
  return { requestId, accountId, seen, data: DATA.exec(text)?.[1] ?? "" };
}

const PARTS = Object.keys(REQUEST_PARTS) as (keyof typeof REQUEST_PARTS)[];

/** Fields that may hold spaces, at which a field ends. */
const ENCODED: ReadonlySet<string> = new Set<keyof RequestRecord>(["details", "fingerprint"]);
const encoded = (value: string): string =>
  value.replace(/[\t-\r %]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
const decoded = (value: string): string =>
  value.replace(/%([\dA-F]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));

/** A request from its text. Empty parts are not there. Lua reads it in lua/include/request.lua. */
export function requestOf(text: string | null | undefined): RequestRecord {
  const record: Partial<Record<keyof RequestRecord, string>> = {};
  if (!text) return record;
  const words = text.split(" ");
  for (const [at, part] of PARTS.entries()) if (words[at]) record[part] = words[at];
  for (const word of words.slice(PARTS.length)) {
    const [name = "", ...values] = word.split("=");
    const value = values.join("=");
    record[name as keyof RequestRecord] = ENCODED.has(name) ? decoded(value) : value;
  }
  return record;
}

const fieldText = ([name, value]: [string, string]): string =>
  `${name}=${ENCODED.has(name) ? encoded(value) : value}`;

export function requestText(record: RequestRecord): string {
  const parts = PARTS.map((part) => record[part] ?? "");
  const fields = Object.entries(record).filter(([name]) => !(name in REQUEST_PARTS));
  return [...parts, ...fields.map(fieldText)].join(" ");
}
