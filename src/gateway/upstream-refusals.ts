import { retrySeconds } from "../domain/envelope.ts";
import { type ErrorName, type Refusal, refuse } from "../domain/errors.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { UpstreamRejection } from "../upstream/rejection.ts";
import type { UploadOutcome } from "../upstream/upload-stream.ts";
import type { GenerationOutcome } from "../upstream/upstream.ts";
import type { RequestContext } from "./http-exchange.ts";

const RATE_LIMITED_WAIT_MIN_SECONDS = 10;
const RATE_LIMITED_WAIT_MAX_SECONDS = 30;
const UNREACHABLE_WAIT_SECONDS = 10;
const FAILED_WAIT_SECONDS = 5;
const OVERLOADED_WAIT_SECONDS = 1;

type Refused = Omit<Extract<UpstreamRejection, { outcome: "refused" }>, "outcome">;
type Limited = Omit<Extract<UpstreamRejection, { outcome: "rate_limited" }>, "outcome">;

/** The upstream has definitely not created a task. */
export type RefusedGeneration = Exclude<
  GenerationOutcome,
  { outcome: "accepted" } | { outcome: "unclear" } | { outcome: "timed_out" }
>;

export function generationRefusal(context: RequestContext, outcome: RefusedGeneration): Refusal {
  switch (outcome.outcome) {
    case "refused":
      return refusedByUpstream(outcome);
    case "rate_limited":
      return rateLimited(outcome);
    case "refused_gateway": {
      const text = "The video generation service refused the gateway; nothing is charged";
      return gatewayRefused(context, outcome.detail, text);
    }
    case "overloaded":
      return refuse("overloaded", { retryAfterSeconds: OVERLOADED_WAIT_SECONDS, detail: outcome.detail });
    case "unreachable":
      return failed("upstream_failed", UNREACHABLE_WAIT_SECONDS, outcome.detail);
  }
}

/** A poll that did not return the task. */
export type FailedPoll = Exclude<PollOutcome, { outcome: "task" } | { outcome: "unknown_status" }>;

export function pollRefusal(outcome: FailedPoll): Refusal {
  switch (outcome.outcome) {
    // It may not know it yet. Once it has said so for a minute, OBSERVE ends the task, and that is the answer.
    case "gone":
      return notAsked({ detail: "the upstream does not know the task" });
    case "refused":
      return outcome.aboutTask ? refusedByUpstream(outcome) : notAsked(outcome);
    case "rate_limited":
      return rateLimited(outcome);
    case "refused_gateway":
      return failed("upstream_refused_gateway", FAILED_WAIT_SECONDS, outcome.detail);
    case "overloaded":
      return refuse("overloaded", { retryAfterSeconds: OVERLOADED_WAIT_SECONDS, detail: outcome.detail });
    case "misrouted":
    case "unroutable":
    case "failed":
      return notAsked(outcome);
    case "timed_out": {
      const text = "The video generation service gave no answer in time";
      return failed("upstream_timeout", FAILED_WAIT_SECONDS, outcome.detail, text);
    }
  }
}

const notAsked = ({ detail }: { detail: string }): Refusal => {
  const text = "The video generation service could not be asked for this task";
  return failed("upstream_failed", FAILED_WAIT_SECONDS, detail, text);
};

type RefusedUpload = Exclude<UploadOutcome, { outcome: "answered" } | { outcome: "client_gone" }>;

export function uploadRefusal(context: RequestContext, outcome: RefusedUpload): Refusal {
  switch (outcome.outcome) {
    case "refused":
      return outcome.refusal;
    case "upstream_refused":
      return refusedByUpstream(outcome);
    case "refused_gateway":
      return gatewayRefused(context, outcome.detail);
    case "upstream_rate_limited":
      return rateLimited(outcome);
    case "upstream_failed": {
      const text = "The video generation service did not take the upload";
      return failed("upstream_failed", FAILED_WAIT_SECONDS, outcome.detail, text);
    }
    case "upstream_timeout": {
      const text = "The video generation service did not take the upload in time";
      return failed("upstream_timeout", FAILED_WAIT_SECONDS, outcome.detail, text);
    }
  }
}

/** The upstream refused the request itself, and says so to the customer. */
const refusedByUpstream = ({ status, code, text, detail }: Refused): Refusal =>
  refuse("upstream_refused", { status, code, text, detail });

/** The upstream's own rate limit: its wait, clamped to 10..30 s. */
function rateLimited({ retryAfterSeconds, detail }: Limited): Refusal {
  const waitSeconds = retrySeconds((retryAfterSeconds ?? 0) * 1000);
  return refuse("upstream_rate_limited", {
    detail,
    retryAfterSeconds: Math.min(
      RATE_LIMITED_WAIT_MAX_SECONDS,
      Math.max(RATE_LIMITED_WAIT_MIN_SECONDS, waitSeconds),
    ),
  });
}

/** The upstream refused the gateway itself. Its text is not sent to the customer, who should not repeat before that is mended. */
function gatewayRefused({ gateway, exchange }: RequestContext, detail: string, text?: string): Refusal {
  gateway.metrics.upstreamRefusedGateway.inc();
  gateway.log.error(
    { request_id: exchange.requestId, detail },
    "the upstream refuses the gateway: check UPSTREAM_API_KEY, UPSTREAM_URL and the account behind them",
  );
  const extra = { detail, shouldRetry: false } as const;
  return refuse("upstream_refused_gateway", text === undefined ? extra : { ...extra, text });
}

function failed(name: ErrorName, retryAfterSeconds: number, detail: string, text?: string): Refusal {
  return refuse(
    name,
    text === undefined ? { retryAfterSeconds, detail } : { retryAfterSeconds, detail, text },
  );
}
