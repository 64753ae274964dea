import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { Verdict } from "./task-verdict.ts";

/** Where operators see it. */
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
    "a task ended as failed at twice its maximum age: the upstream never answered about it",
  );
}

/** Counts and logs a poll whose failure is for the operator to mend. @param requestId as sent to the upstream */
export function reportPollFault({ metrics, log }: Telemetry, requestId: string, outcome: PollOutcome): void {
  // Logged where the upstream is resolved, once for all of its tasks.
  if (outcome.outcome === "unroutable") metrics.upstreamUnroutable.inc();
  if (outcome.outcome === "misrouted") {
    metrics.upstreamMisrouted.inc();
    log.error(
      { request_id: requestId, detail: outcome.detail },
      "a poll met a 404 that is not the upstream's API: check UPSTREAM_URL, its path and the proxies before it",
    );
  }
  if (outcome.outcome === "refused_gateway") {
    metrics.upstreamRefusedGateway.inc();
    log.error(
      { request_id: requestId, detail: outcome.detail },
      "the upstream refuses the gateway: check UPSTREAM_API_KEY, UPSTREAM_URL and the account behind them",
    );
  }
}
