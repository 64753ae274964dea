import type { ApiAnswer } from "../domain/envelope.ts";
import { createRequestLog, logRequest, logSlow } from "../telemetry/log.ts";
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
  const requestLog = createRequestLog(gateway.log);
  return (exchange, answer) => complete(gateway, requestLog, exchange, answer);
}

function complete(
  gateway: Gateway,
  requestLog: ReturnType<typeof createRequestLog>,
  exchange: Exchange,
  answer: ApiAnswer | undefined,
): void {
  const { metrics, log } = gateway;
  const { route: template, startedMs, upstreamMs, req } = exchange;
  const status = answer?.status ?? 499;
  const outcome = answer?.outcome ?? "client_gone";
  const elapsedMs = performance.now() - startedMs;
  // A limit of zero means that no script has answered.
  if (exchange.keyUsage && exchange.state.limit > 0 && !exchange.degraded)
    exchange.keyUsage.state = exchange.state;
  metrics.inFlight.dec();
  if (exchange.countedIn) exchange.countedIn.inFlight--;
  metrics.requests.inc({ route: template, status, outcome });
  metrics.requestSeconds.observe(
    { route: template, class: CLASSES[Math.floor(status / 100)]! },
    elapsedMs / 1000,
  );
  if (answer && status >= 400 && status < 500 && exchange.accountId !== undefined) {
    gateway.countRefusal(exchange.keyId ?? "", exchange.accountId, outcome);
  }
  logRequest(requestLog, status >= 500 ? "warn" : "info", {
    request_id: exchange.requestId,
    client_request_id: exchange.shownId === exchange.requestId ? undefined : exchange.shownId,
    trace_id: exchange.trace?.traceId,
    method: req.method,
    route: template,
    status,
    outcome,
    key_id: exchange.keyId,
    account_id: exchange.accountId,
    task_id: exchange.taskId,
    price: exchange.price,
    duration_ms: elapsedMs,
    upstream_ms: upstreamMs,
    degraded: exchange.degraded,
    shadow: exchange.shadow,
    client_gone: exchange.clientGone,
    detail: answer?.refused?.detail,
    limit: answer?.refused?.limit,
    limit_of: answer?.refused?.limitOf,
    used: answer?.refused?.used,
    balance: answer?.refused?.balance,
    retry_after_seconds: answer?.refused?.retryAfterSeconds,
  });
  const { slowRequestMs } = gateway.config().log;
  if (slowRequestMs > 0) logSlow(log, slowRequestMs, elapsedMs, exchange);
  exchange.trace?.spans?.end({ ...exchange, method: req.method, status, outcome });
}
