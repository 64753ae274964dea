import type { PollOutcome } from "../../upstream/poll-request.ts";
import { type Check, failed, good } from "./doctor-check.ts";
import { type GenerationRun, pollInWords } from "./doctor-generate.ts";

const NAME = "generation";

/** What the run of the test generation says of the upstream. After an unknown outcome it never advises to repeat it. */
export function generationCheck(run: GenerationRun, host: string): Check {
  const { end, requestId } = run;
  const by = `request ${requestId}`;
  switch (end.outcome) {
    case "unreachable":
      return failed(
        NAME,
        `${host} is not reachable or not available, and made no video: ${end.detail}`,
        "see the check `upstream`",
      );
    case "unsupported":
      return failed(
        NAME,
        `it was not sent, since the adapter refuses it: ${end.detail}`,
        "see its options in docs/upstreams.md, or try another --endpoint",
      );
    case "overloaded":
      return failed(NAME, `it was not sent: ${end.detail}`, "run it again");
    case "rate_limited":
      return failed(
        NAME,
        `${host} limits this gateway, and made no video: ${end.detail}`,
        `run it again in ${end.retryAfterSeconds ?? 60} s; if it happens again, ask the upstream for a higher limit`,
      );
    case "refused_gateway":
      return failed(
        NAME,
        `${host} refuses this gateway, and made no video: ${end.detail}`,
        "set UPSTREAM_API_KEY to a key that it takes, see that its account is in order and has credit, and that UPSTREAM_URL is the service's base address",
      );
    case "refused":
      return failed(
        NAME,
        `${host} refuses the request, and made no video: ${end.detail}`,
        `see that this is the API that the gateway speaks; ask the upstream's support about ${by}`,
      );
    case "unclear":
    case "timed_out":
      return failed(
        NAME,
        `whether ${host} made a video is not known: ${end.detail}`,
        `the video may have been made and billed, so find that out first: ask the upstream's support about ${by}, the value of its Idempotency-Key and X-Request-Id`,
      );
    case "not_ended":
      return failed(
        NAME,
        `the task has not ended within ${seconds(end.timeoutMs)}; ${end.last === undefined ? "no poll was answered" : `the last poll said: ${pollInWords(end.last)}`}`,
        `the task goes on at the upstream, and may be billed: ask its support about task ${end.taskId}, ${by}${wordAdvice(end.last)}`,
      );
    case "polled":
      return polledCheck(run, end, host);
  }
}

function polledCheck(
  { requestId, tookMs }: GenerationRun,
  { taskId, last, videoHost }: Extract<GenerationRun["end"], { outcome: "polled" }>,
  host: string,
): Check {
  const support = `ask the upstream's support about task ${taskId}, request ${requestId}`;
  if (last.outcome === "task" && last.status === "completed") {
    return good(NAME, `task ${taskId} completed after ${seconds(tookMs)}; the video is at ${videoHost}`);
  }
  if (last.outcome === "task") {
    return failed(NAME, `task ${taskId} failed at ${host} after ${seconds(tookMs)}`, support);
  }
  const whose =
    last.outcome === "gone" || last.outcome === "misrouted"
      ? "generations and polls seem to reach different servers"
      : "generations are accepted and polls are refused";
  return failed(
    NAME,
    `task ${taskId} was made, but cannot be polled: ${pollInWords(last)}`,
    `${whose}; the video may be made and billed: ${support}`,
  );
}

const wordAdvice = (last: PollOutcome | undefined): string =>
  last?.outcome === "unknown_status" ? "; name its word for the state in upstream.statuses" : "";

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;
