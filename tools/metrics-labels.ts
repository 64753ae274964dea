import { ROUTES } from "../src/admin/api/routes.ts";
import { CHECK_NAMES } from "../src/checks/check.ts";
import { CERTIFICATE_SETTINGS } from "../src/config/tls.ts";
import { ERROR_NAMES } from "../src/domain/errors.ts";
import { GATE_REFUSALS } from "../src/domain/fair-gate.ts";
import { SHADOW_LIMITS } from "../src/domain/limits.ts";
import { ROUTE_TEMPLATES } from "../src/gateway/request-lifecycle.ts";
import { POLL_OUTCOMES } from "../src/redis/topology/follow-placement.ts";
import { SCRIPTS } from "../src/scripts/all.ts";
import type { Admission } from "../src/scripts/holds.ts";
import { AGES, OPEN_STATES } from "../src/scripts/surveys.ts";
import type { Observed } from "../src/settlement/store.ts";
import { OVERLOADS, SIGN_IN_REFUSALS } from "../src/telemetry/metrics/requests.ts";
import { ARCHIVED_KINDS, KEPT_IN, REPLAY_OUTCOMES, STORE_FAILURES } from "../src/telemetry/metrics/store.ts";
import { CALLBACK_REFUSALS, CALLBACK_RESULTS, DELIVERY_OUTCOMES } from "../src/telemetry/metrics/webhooks.ts";
import { SETTLEMENTS } from "../src/telemetry/metrics.ts";
import { ADAPTER_FUNCTIONS } from "../src/upstream/dialect.ts";
import type { PollOutcome } from "../src/upstream/poll-request.ts";
import type { UploadOutcome } from "../src/upstream/upload-stream.ts";
import type { GenerationOutcome } from "../src/upstream/upstream.ts";

/** The values that a label takes: a closed list, or in words where the program does not fix them. */
export type LabelSet = string | { readonly values: readonly string[] };

/** The members of a union, which the compiler keeps complete. */
const all = <Member extends string>(members: Record<Member, true>): { values: Member[] } => ({
  values: Object.keys(members) as Member[],
});

const UPSTREAM = all<(GenerationOutcome | PollOutcome | UploadOutcome)["outcome"]>({
  accepted: true,
  task: true,
  unknown_status: true,
  answered: true,
  rate_limited: true,
  upstream_rate_limited: true,
  refused: true,
  upstream_refused: true,
  refused_gateway: true,
  gone: true,
  overloaded: true,
  misrouted: true,
  unroutable: true,
  unreachable: true,
  failed: true,
  upstream_failed: true,
  unclear: true,
  timed_out: true,
  upstream_timeout: true,
  client_gone: true,
});

const ADMISSIONS = all<Admission["outcome"]>({
  admitted: true,
  replayed: true,
  rate_limited: true,
  concurrency_limited: true,
  outcomes_unknown: true,
  daily_limited: true,
  spend_capped: true,
  insufficient_credits: true,
  account_suspended: true,
  idempotency_in_progress: true,
  idempotency_mismatch: true,
  unknown_key: true,
  restricted: true,
  stale: true,
  void: true,
});

const SWEPT = all<Observed["outcome"] | PollOutcome["outcome"] | SweptOtherwise>({
  void: true,
  bound: true,
  not_due: true,
  missing: true,
  observed: true,
  finished: true,
  already_finished: true,
  task: true,
  unknown_status: true,
  gone: true,
  misrouted: true,
  unroutable: true,
  rate_limited: true,
  refused: true,
  refused_gateway: true,
  overloaded: true,
  failed: true,
  timed_out: true,
  interrupted: true,
  collected: true,
});
/** Outcomes of VOID, and those that the sweeper counts itself. */
type SweptOtherwise = "void" | "bound" | "not_due" | "missing" | "interrupted" | "collected";

const TIER = "as in the configuration, and `other`";
const ROUTE = { values: ROUTE_TEMPLATES };

/** By `metric{label}`, or by `label` where it is the same everywhere. */
const SETS: Readonly<Record<string, LabelSet>> = {
  route: ROUTE,
  status: "HTTP status; 499 when the client had gone",
  "tollgate_management_requests_total{route}": {
    values: ["unknown", ...ROUTES.map(({ method, path }) => `${method} ${path}`)],
  },
  "tollgate_management_requests_total{status}": "HTTP status",
  "tollgate_sign_ins_refused_total{reason}": { values: SIGN_IN_REFUSALS },
  "tollgate_check{check}": { values: CHECK_NAMES },
  class: { values: ["2xx", "4xx", "5xx"] },
  tier: TIER,
  limit: { values: ["window", "slots"] },
  script: { values: SCRIPTS.map(({ name }) => name) },
  reason: { values: STORE_FAILURES },
  kept_in: { values: KEPT_IN },
  "tollgate_primary_questions_total{outcome}": { values: POLL_OUTCOMES },
  primary: "`host:port` of each primary in use",
  replication_id: "`master_replid` of the server",
  state: { values: OPEN_STATES },
  age: { values: AGES.map(([name]) => name) },
  bound: { values: OVERLOADS },
  version: "one",
  revision: "one",
  hash: "one",
  setting: { values: CERTIFICATE_SETTINGS },
  "tollgate_spans_dropped_total{reason}": { values: ["queue_full", "export_failed"] },
  "tollgate_requests_total{outcome}": {
    values: [
      "ok",
      "cached",
      "charge_waits",
      "uncollected",
      "replayed",
      "unmetered",
      "client_gone",
      ...ERROR_NAMES,
    ],
  },
  "tollgate_upstream_adapter_faults_total{call}": { values: ADAPTER_FUNCTIONS },
  "tollgate_upstream_duration_seconds{kind}": { values: ["generate", "poll", "upload"] },
  "tollgate_upstream_duration_seconds{outcome}": UPSTREAM,
  "tollgate_upstream_unusable_states_total{kind}": { values: ["unknown_status", "completed_without_video"] },
  "tollgate_upstream_waiting_requests{kind}": { values: ["generate", "poll"] },
  "tollgate_upstream_wait_duration_seconds{kind}": { values: ["generate", "poll"] },
  "tollgate_upstream_overloaded_total{kind}": { values: ["generate", "poll"] },
  "tollgate_upstream_overloaded_total{reason}": { values: GATE_REFUSALS },
  "tollgate_admissions_total{outcome}": ADMISSIONS,
  "tollgate_shadow_refusals_total{limit}": { values: SHADOW_LIMITS },
  "tollgate_store_replayed_charges_total{outcome}": { values: REPLAY_OUTCOMES },
  "tollgate_settlements_total{outcome}": { values: SETTLEMENTS },
  "tollgate_archive_rows_total{kind}": { values: ARCHIVED_KINDS },
  "tollgate_callbacks_total{outcome}": { values: [...CALLBACK_RESULTS, ...CALLBACK_REFUSALS] },
  "tollgate_webhook_deliveries_total{outcome}": { values: DELIVERY_OUTCOMES },
  "tollgate_ledger_credits{type}": { values: ["recharged", "consumed", "refunded"] },
  "tollgate_sweeper_items_total{kind}": { values: ["hold", "task", "record"] },
  "tollgate_sweeper_items_total{outcome}": SWEPT,
  "nodejs_gc_duration_seconds{kind}": { values: ["major", "minor", "incremental", "weakcb"] },
  space: "V8's heap spaces",
  major: "one",
  minor: "one",
  patch: "one",
};

/** @throws Error for a label that nobody has described, which may well be one without a bound */
export function labelSet(metric: string, label: string): LabelSet {
  const set = SETS[`${metric}{${label}}`] ?? SETS[label];
  if (set === undefined) throw new Error(`say in ${import.meta.filename} what ${label} of ${metric} can be`);
  return set;
}
