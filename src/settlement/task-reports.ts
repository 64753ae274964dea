import { dropOldest } from "../domain/bounded.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { Verdict } from "./task-verdict.ts";

interface Telemetry {
  metrics: Metrics;
  log: Logger;
}

/** Logs a task that ended as failed though the upstream did not say so, and counts one that ended without any answer. */
export function reportEnd(
  { metrics, log }: Telemetry,
  { requestId, taskId, accountId }: { requestId: string; taskId: string; accountId: string },
  verdict: Verdict,
): void {
  if (verdict.status !== "gone" && verdict.status !== "expired") return;
  const fields = { request_id: requestId, task_id: taskId, account_id: accountId };
  if (!verdict.unanswered) {
    log.warn({ ...fields, why: verdict.status }, "a task ended as failed without the upstream saying so");
    return;
  }
  metrics.tasksEndedUnanswered.inc();
  log.error(
    { ...fields, why: "unanswered" },
    "a task ended as failed at twice its maximum age: the upstream gave no usable answer about it",
  );
}

/** Counts and logs a poll with whose answer something is wrong. @param of `requestId` is the one that was sent */
export function reportPoll(
  telemetry: Telemetry,
  of: { requestId: string; taskId: string },
  outcome: PollOutcome,
): void {
  const { metrics, log } = telemetry;
  const fields = { request_id: of.requestId, task_id: of.taskId };
  switch (outcome.outcome) {
    case "task":
      if (!outcome.lacksVideo) return;
      metrics.upstreamUnusableStates.inc({ kind: "completed_without_video" });
      if (isDue(log, outcome.outcome)) log.warn(fields, WITHOUT_VIDEO);
      return;
    case "unknown_status":
      metrics.upstreamUnusableStates.inc({ kind: "unknown_status" });
      if (isDue(log, outcome.word)) log.warn({ ...fields, upstream_status: outcome.word }, UNKNOWN_STATUS);
      return;
    case "refused":
      if (isDue(log, `${outcome.code}`)) log.warn({ ...fields, detail: outcome.detail }, REFUSED);
      return;
    // Logged where the upstream is resolved, once for all of its tasks.
    case "unroutable":
      metrics.upstreamUnroutable.inc();
      return;
    case "misrouted":
      metrics.upstreamMisrouted.inc();
      log.error({ ...fields, detail: outcome.detail }, MISROUTED);
      return;
    case "refused_gateway":
      metrics.upstreamRefusedGateway.inc();
      log.error({ ...fields, detail: outcome.detail }, REFUSED_GATEWAY);
      return;
    default:
      return;
  }
}

const WITHOUT_VIDEO =
  "the upstream says that a task has completed, without a usable video_url: it counts as processing and fails at its maximum age";
const UNKNOWN_STATUS =
  "the upstream answered with a state that is not known: say in upstream.statuses what it means, or the task fails at its maximum age";
const REFUSED = "the upstream refused a poll";
const MISROUTED =
  "a poll met a redirect, or a 404 that is not the upstream's API: check UPSTREAM_URL, its path and the proxies before it";
const REFUSED_GATEWAY =
  "the upstream refuses the gateway: check UPSTREAM_API_KEY, UPSTREAM_URL and the account behind them";

/** Each task is polled every few seconds, so the same line is written once a minute. */
const LOG_EVERY_MS = 60_000;
const LINES_MAX = 64;
const loggedMs = new WeakMap<Logger, Map<string, number>>();

function isDue(log: Logger, line: string): boolean {
  const lines = loggedMs.get(log) ?? new Map<string, number>();
  loggedMs.set(log, lines);
  const nowMs = performance.now();
  if (nowMs - (lines.get(line) ?? Number.NEGATIVE_INFINITY) < LOG_EVERY_MS) return false;
  dropOldest(lines, LINES_MAX);
  lines.set(line, nowMs);
  return true;
}
