import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { type Check, checksOf } from "../../checks/check.ts";
import type { Config } from "../../config/config.ts";
import { listInForce } from "../../config/price-lists.ts";
import type { GenerationEndpoint } from "../../domain/endpoints.ts";
import { priceOf, validateGeneration } from "../../domain/generation.ts";
import type { PollOutcome } from "../../upstream/poll-request.ts";
import { createUpstream, type GenerationOutcome, type Upstream } from "../../upstream/upstream.ts";
import { SAMPLE_BODIES } from "../adapter.ts";

const { good, failed } = checksOf("generation");

/** Without an endpoint, the cheaper of these two is tried. */
const ENDPOINTS = ["gen2/text-to-video", "gen2-pro/text-to-video"] as const;
/** They need no image and no video. */
export const TRIED_ENDPOINTS: readonly GenerationEndpoint[] = [...ENDPOINTS, "gen2-pro/storyboard"];
/** In place of an account: the generation is nobody's. */
const OWNER = "doctor";
const PAUSE_FIRST_MS = 250;
const PAUSE_MAX_MS = 5000;

/** The generation that is tried: the cheapest that needs nothing but a prompt. */
interface TestGeneration {
  endpoint: GenerationEndpoint;
  body: Readonly<Record<string, unknown>>;
  text: string;
  /** Credits by this machine's price file. */
  price: number;
}

export interface Step {
  /** ISO 8601, UTC. */
  at: string;
  /** Since the generation was sent. */
  after_ms: number;
  /** HTTP status of each answer; several if the generation was sent again, none without an answer. */
  http_statuses: number[];
  /** May hold text of the upstream. */
  finding: string;
}

type GenerationEnd =
  | Exclude<GenerationOutcome, { outcome: "accepted" }>
  /** The adapter does not send it. */
  | { outcome: "unsupported"; detail: string }
  /** Of its task, from the last poll. */
  | { outcome: "polled"; taskId: string; last: PollOutcome; videoHost: string | undefined }
  /** The task had not ended in time. */
  | { outcome: "not_ended"; taskId: string; timeoutMs: number; last: PollOutcome | undefined };

export interface GenerationRun {
  requestId: string;
  end: GenerationEnd;
  tookMs: number;
  steps: Step[];
  polls: number;
}

/** @param wanted one of `TRIED_ENDPOINTS` */
export function testGeneration(
  { priceLists, sourceVideoHost }: Config,
  wanted?: GenerationEndpoint,
): TestGeneration {
  const generations = (wanted === undefined ? ENDPOINTS : [wanted]).map((endpoint): TestGeneration => {
    const validation = validateGeneration(endpoint, SAMPLE_BODIES[endpoint], sourceVideoHost);
    if (!validation.ok) throw new Error(`the body for ${endpoint} is not valid`);
    const { body, text } = validation;
    return {
      endpoint,
      body: { ...body },
      text,
      price: priceOf(listInForce({ priceLists }).table, endpoint, body),
    };
  });
  return generations.reduce((cheapest, one) => (one.price < cheapest.price ? one : cheapest));
}

/** As a gateway does it; nothing is written to Redis. @param options.onStep called at once, so that a step is known even if the process is stopped */
export async function runGeneration(
  { upstream: settings }: Config,
  { endpoint, body, text }: TestGeneration,
  { timeoutMs, onStep }: { timeoutMs: number; onStep(step: Step): void },
): Promise<GenerationRun> {
  const upstream = createUpstream({ ...settings, idempotent: settings.idempotencyKey });
  const requestId = `doctor-${randomUUID()}`;
  const steps: Step[] = [];
  const startedMs = performance.now();
  const tookMs = () => Math.round(performance.now() - startedMs);
  const record: Recorder = (http_statuses, finding) => {
    const step = { at: new Date().toISOString(), after_ms: tookMs(), http_statuses, finding };
    steps.push(step);
    onStep(step);
  };
  try {
    const request = upstream.create({ endpoint, body, text });
    if (!("path" in request)) {
      const why =
        "unsupported" in request ? request.unsupported.map(({ message }) => message) : [request.detail];
      const end = { outcome: "unsupported", detail: why.join("; ") } as const;
      return { requestId, end, tookMs: tookMs(), steps, polls: 0 };
    }
    record([], `sending POST ${request.path} as request ${requestId}`);
    const answers = httpStatuses();
    const sender = { accountId: OWNER, requestId, carried: answers.carried };
    const outcome = await upstream.generate(request.path, request.body ?? "", sender, request.headers);
    if (outcome.outcome !== "accepted") {
      record(answers.statuses, `${inWords(outcome.outcome)}: ${outcome.detail}`);
      return { requestId, end: outcome, tookMs: tookMs(), steps, polls: 0 };
    }
    const { taskId } = outcome;
    record(answers.statuses, `accepted, task ${taskId}`);
    const { end, polls } = await pollUntilEnd(upstream, {
      taskId,
      tag: upstream.tagOf(endpoint),
      requestId,
      timeoutMs,
      record,
    });
    return { requestId, end, tookMs: tookMs(), steps, polls };
  } finally {
    await upstream.close();
  }
}

type Recorder = (statuses: number[], finding: string) => void;

async function pollUntilEnd(
  upstream: Upstream,
  task: { taskId: string; tag: string; requestId: string; timeoutMs: number; record: Recorder },
): Promise<{ end: GenerationEnd; polls: number }> {
  const { taskId, tag, requestId, timeoutMs, record } = task;
  const createdAtMs = Date.now();
  const deadlineMs = performance.now() + timeoutMs;
  const timedOut = setTimeout(timeoutMs, undefined, { ref: false });
  let last: PollOutcome | undefined;
  let lastFinding: string | undefined;
  for (let polls = 1; ; polls++) {
    const { carried, statuses } = httpStatuses();
    const outcome = await Promise.race([
      upstream.poll(taskId, { accountId: OWNER, requestId, carried, createdAtMs, tag }),
      timedOut,
    ]);
    if (outcome === undefined) return { end: { outcome: "not_ended", taskId, timeoutMs, last }, polls };
    last = outcome;
    const finding = pollInWords(outcome);
    // A state lasts for many polls.
    if (finding !== lastFinding) record(statuses, finding);
    lastFinding = finding;
    if (endsPolling(outcome))
      return { end: { outcome: "polled", taskId, last, videoHost: videoHostOf(outcome) }, polls };
    const leftMs = Math.max(0, deadlineMs - performance.now());
    await setTimeout(Math.min(leftMs, pauseMs(outcome, polls)));
  }
}

/** A state of the task may be transient, but not that the upstream does not have it, or refuses us. */
function endsPolling(outcome: PollOutcome): boolean {
  switch (outcome.outcome) {
    case "task":
      return outcome.status === "completed" || outcome.status === "failed";
    case "refused":
      return outcome.aboutTask;
    case "gone":
    case "refused_gateway":
    case "misrouted":
    case "unroutable":
      return true;
    case "unknown_status":
    case "rate_limited":
    case "overloaded":
    case "failed":
    case "timed_out":
      return false;
  }
}

function pauseMs(outcome: PollOutcome, polls: number): number {
  const usualMs = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** Math.min(polls, 10));
  const wantedSeconds = outcome.outcome === "rate_limited" ? (outcome.retryAfterSeconds ?? 0) : 0;
  return Math.max(usualMs, wantedSeconds * 1000);
}

function pollInWords(outcome: PollOutcome): string {
  switch (outcome.outcome) {
    case "task":
      return outcome.lacksVideo ? "completed, but without a usable video_url" : outcome.status;
    case "unknown_status":
      return `an unknown state: ${outcome.word}`;
    case "gone":
      return "the upstream does not know the task (code 404)";
    default:
      return `the poll's outcome is ${inWords(outcome.outcome)}: ${outcome.detail}`;
  }
}

const inWords = (outcome: string): string => outcome.replaceAll("_", " ");

/** Only the host: the rest of such an address often lets anybody fetch the video. */
function videoHostOf(outcome: PollOutcome): string | undefined {
  if (outcome.outcome !== "task" || outcome.status !== "completed") return undefined;
  return URL.parse((JSON.parse(outcome.data) as { video_url: string }).video_url)?.host;
}

function httpStatuses() {
  const statuses: number[] = [];
  return { statuses, carried: { headers: [], answered: (status: number) => void statuses.push(status) } };
}

/** After an unknown outcome it never advises to repeat the generation. */
export function generationCheck(run: GenerationRun, host: string): Check {
  const { end, requestId } = run;
  const by = `request ${requestId}`;
  switch (end.outcome) {
    case "unreachable":
      return failed(
        `${host} is not reachable or not available, and made no video: ${end.detail}`,
        "see the check `upstream`",
      );
    case "unsupported":
      return failed(
        `it was not sent, since the adapter refuses it: ${end.detail}`,
        "see its options in docs/upstreams.md, or try another --endpoint",
      );
    case "overloaded":
      return failed(`it was not sent: ${end.detail}`, "run it again");
    case "rate_limited":
      return failed(
        `${host} limits this gateway, and made no video: ${end.detail}`,
        `run it again in ${end.retryAfterSeconds ?? 60} s; if it happens again, ask the upstream for a higher limit`,
      );
    case "refused_gateway":
      return failed(
        `${host} refuses this gateway, and made no video: ${end.detail}`,
        "set UPSTREAM_API_KEY to a key that it takes, see that its account is in order and has credit, and that UPSTREAM_URL is the service's base address",
      );
    case "refused":
      return failed(
        `${host} refuses the request, and made no video: ${end.detail}`,
        `see that this is the API that the gateway speaks; ask the upstream's support about ${by}`,
      );
    case "unclear":
    case "timed_out":
      return failed(
        `whether ${host} made a video is not known: ${end.detail}`,
        `the video may have been made and billed, so find that out first: ask the upstream's support about ${by}, the value of its Idempotency-Key and X-Request-Id`,
      );
    case "not_ended":
      return failed(
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
    return good(`task ${taskId} completed after ${seconds(tookMs)}; the video is at ${videoHost}`);
  }
  if (last.outcome === "task") {
    return failed(`task ${taskId} failed at ${host} after ${seconds(tookMs)}`, support);
  }
  const whose =
    last.outcome === "gone" || last.outcome === "misrouted"
      ? "generations and polls seem to reach different servers"
      : "generations are accepted and polls are refused";
  return failed(
    `task ${taskId} was made, but cannot be polled: ${pollInWords(last)}`,
    `${whose}; the video may be made and billed: ${support}`,
  );
}

const wordAdvice = (last: PollOutcome | undefined): string =>
  last?.outcome === "unknown_status" ? "; name its word for the state in upstream.statuses" : "";

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;
