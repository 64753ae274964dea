import type { ApiAnswer } from "../domain/envelope.ts";
import type { Refusal } from "../domain/errors.ts";
import { logRequest, logSlow } from "../telemetry/log.ts";
import { madeOnce } from "../telemetry/metrics/factory.ts";
import type { Exchange } from "./http-exchange.ts";
import type { Gateway } from "./request-context.ts";

/** Status classes by the first digit. */
const CLASSES = ["", "1xx", "2xx", "3xx", "4xx", "5xx"];

/**
 * Completes a request, once, after its answer: frees its place among the requests in flight, keeps the rate-limit headers of its
 * key, counts it, writes its log line and ends its trace. Without an answer its client went away.
 */
export function createCompletion(
  gateway: Gateway,
): (exchange: Exchange, answer: ApiAnswer | undefined) => void {
  const { requests, requestSeconds } = gateway.metrics;
  const countsOf = madeOnce((route, outcome, status) => ({
    requests: requests.series({ route, status, outcome }),
    seconds: requestSeconds.of({ route, class: CLASSES[Math.floor(status / 100)]! }),
  }));
  return (exchange, answer) => {
    const status = answer?.status ?? 499;
    const outcome = answer?.outcome ?? "client_gone";
    const elapsedMs = performance.now() - exchange.startedMs;
    // A limit of zero means that no script has answered.
    if (exchange.keyUsage && exchange.state.rateLimit > 0 && !exchange.degraded)
      exchange.keyUsage.state = exchange.state;
    if (exchange.countedIn) exchange.countedIn.inFlight--;
    const counts = countsOf(exchange.route, outcome, status);
    counts.requests.pending++;
    counts.seconds.add(elapsedMs / 1000);
    if (answer && status >= 400 && status < 500 && exchange.accountId !== undefined) {
      gateway.countRefusal(exchange.keyId ?? "", exchange.accountId, outcome);
    }
    report(gateway, exchange, { status, outcome, elapsedMs, refused: answer?.refused });
  };
}

/** Writes the log line of a request, and ends its trace. */
function report(
  { log, config }: Gateway,
  exchange: Exchange,
  {
    status,
    outcome,
    elapsedMs,
    refused,
  }: { status: number; outcome: string; elapsedMs: number; refused: Refusal | undefined },
): void {
  const { req } = exchange;
  logRequest(log, status >= 500 ? "warn" : "info", {
    request_id: exchange.requestId,
    client_request_id: exchange.shownId === exchange.requestId ? undefined : exchange.shownId,
    trace_id: exchange.trace?.traceId,
    method: req.method,
    route: exchange.route,
    status,
    outcome,
    key_id: exchange.keyId,
    account_id: exchange.accountId,
    task_id: exchange.taskId,
    price: exchange.price,
    duration_ms: elapsedMs,
    upstream_ms: exchange.upstreamMs,
    degraded: exchange.degraded,
    shadow: exchange.shadow,
    client_gone: exchange.clientGone,
    detail: refused?.detail,
    limit: refused?.limit,
    limit_of: refused?.limitOf,
    used: refused?.used,
    balance: refused?.balance,
    retry_after_seconds: refused?.retryAfterSeconds,
  });
  const { slowRequestMs } = config().log;
  if (slowRequestMs > 0) logSlow(log, slowRequestMs, elapsedMs, exchange);
  exchange.trace?.spans?.end({ ...exchange, method: req.method, status, outcome });
}
