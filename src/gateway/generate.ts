import { hash } from "node:crypto";
import { API_PREFIX, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type Answer, refusal, retrySeconds, success } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { validateGeneration } from "../domain/generation-body.ts";
import { priceOf } from "../domain/prices.ts";
import { IDEMPOTENCY_KEY } from "../domain/request-limits.ts";
import { askAgainMs } from "../domain/task-states.ts";
import type { Admission, Generation } from "../store/scripts/admit.ts";
import type { UnknownOutcome } from "../store/scripts/unclear.ts";
import type { GenerationOutcome } from "../upstream/generation-request.ts";
import { jsonHeadFault, readJson } from "./body.ts";
import { continueReading } from "./exchange.ts";
import type { RefusedKeys } from "./full-windows.ts";
import {
  type Call,
  disown,
  gatewayRefused,
  isOthersTask,
  limitUnaffordable,
  noteAffordable,
  passUnmetered,
  refuseKnown,
  sawKeyGood,
  sawTask,
  storeStep,
  UpstreamStep,
  upstreamLimited,
} from "./handler-context.ts";

const CONCURRENCY_WAIT_SECONDS = 10;
const UNREACHABLE_WAIT_SECONDS = 10;
const OVERLOADED_WAIT_SECONDS = 1;
const IN_PROGRESS_WAIT_MAX_SECONDS = 10;
/**
 * A hold outlives its exchange: at most `waitMaxMs`, never more than the headers timeout, for a connection, then at most
 * the total timeout. The connect timeout and this remain for ADMIT and BIND. Decision 0032.
 */
const HOLD_SLACK_MS = 8000;
const KEY_RULE = "Idempotency-Key must be 1 to 255 visible ASCII characters";

/**
 * One generation from its body to its answer: validate, price, ADMIT, forward, BIND or VOID, respond.
 * @returns undefined when the client went away before admission: then nothing has happened
 */
export async function generate(call: Call, endpoint: GenerationEndpoint): Promise<Answer | undefined> {
  const { config, exchange, gateway, head } = call;
  const path = API_PREFIX + endpoint;
  const headFault = jsonHeadFault(head);
  if (headFault) return deny(call, headFault);
  if (head.idempotencyKey !== undefined && !IDEMPOTENCY_KEY.test(head.idempotencyKey)) {
    const details = [{ path: "", message: KEY_RULE }];
    return deny(call, refuse("invalid_request", { text: `Invalid request: ${KEY_RULE}`, details }));
  }
  continueReading(exchange);
  const bodyFromMs = performance.now();
  const read = await readJson(exchange.req, head.contentLength, config.server.bodyTimeoutMs, {
    budget: gateway.bodies,
    keyId: call.key.keyId,
    onRead: gateway.bodyRead,
  });
  exchange.bodyMs = performance.now() - bodyFromMs;
  if (read.outcome === "client_gone") return undefined;
  if (read.outcome === "refused") return deny(call, read.refusal);
  const validation = validateGeneration(endpoint, read.value, config.sourceVideoHost);
  if (!validation.ok) {
    const text = `Invalid request: ${validation.problems[0]?.message}`;
    return deny(call, refuse("invalid_request", { text, details: validation.problems }));
  }

  const price = priceOf(config.prices, endpoint, validation.body);
  exchange.price = price;
  const generation = generationOf(call, path, price, validation.text);
  const hammering = generation.idempotency ? undefined : gateway.refusedKeys.recall(call.key.keyId);
  if (hammering) return refuseAgain(call, hammering);
  const slowDown = limitUnaffordable(call, price);
  if (slowDown) return answer(call, slowDown);
  let admission: Admission;
  const askedAtMs = gateway.refusedKeys.now();
  try {
    admission = await storeStep(call, "ADMIT", gateway.store.admit(generation, config.tiers));
  } catch (error) {
    if (!(await passUnmetered(call, error, true))) throw error;
    // Without limits, so this is none either.
    noteAffordable(call, price, true);
    return unmetered(call, generation, validation.text);
  }
  exchange.state = admission.state;
  if (admission.outcome !== "unknown_key") sawKeyGood(call);
  if (admission.outcome === "replayed")
    return success(admission.data, ["Idempotency-Replayed", "true"], "replayed");
  remember(call, admission, price, askedAtMs);
  const refused = refusedAdmission(call, admission, price);
  if (refused) return answer(call, refused);

  if (admission.outcome === "admitted" && admission.shadow) exchange.shadow = admission.shadow;
  // From here on the client may go: the exchange is finished and the task bound all the same.
  gateway.metrics.holds.inc();
  try {
    const step = new UpstreamStep(call, "generate");
    const { accountId } = call.key;
    const sender = { accountId, requestId: exchange.requestId, carried: step.carried };
    const sent = gateway.upstream(config).generate(path, validation.text, sender);
    return await settle(call, generation, step.end(await sent));
  } finally {
    gateway.metrics.holds.dec();
  }
}

/** Refuses before admission. */
async function deny(call: Call, early: Refusal): Promise<Answer> {
  return answer(call, await refuseKnown(call, early));
}

/** The window is still full: no need to ask the store. */
function refuseAgain(call: Call, refused: NonNullable<ReturnType<RefusedKeys["recall"]>>): Answer {
  const { state, tier, retryAfterSeconds } = refused;
  call.exchange.state = state;
  call.gateway.store.countAdmission(tier, "rate_limited", call.config.tiers);
  return answer(call, refuse("rate_limited", { retryAfterSeconds }));
}

/** Keeps what spares the store a question when the key's next generation comes. */
function remember(call: Call, admission: Admission, price: number, askedAtMs: number): void {
  const { gateway, key } = call;
  switch (admission.outcome) {
    case "admitted":
      noteAffordable(call, price, true);
      return;
    case "insufficient_credits":
      noteAffordable(call, price, false);
      return;
    case "rate_limited": {
      const { state, tier, retryAfterMs } = admission;
      gateway.refusedKeys.remember(key.keyId, state, tier, askedAtMs, retryAfterMs);
    }
  }
}

function generationOf(call: Call, path: string, price: number, text: string): Generation {
  const { config, exchange, head, key } = call;
  const { connectTimeoutMs, headersTimeoutMs, totalTimeoutMs } = config.upstream;
  const holdMs = connectTimeoutMs + headersTimeoutMs + totalTimeoutMs + HOLD_SLACK_MS;
  const { retentionMs } = config.tasks;
  const generation: Generation = {
    requestId: exchange.requestId,
    key,
    price,
    endpoint: path,
    holdMs,
    retentionMs,
  };
  if (head.idempotencyKey !== undefined) {
    generation.idempotency = {
      digest: sha256(`${key.accountId}\0${head.idempotencyKey}`),
      fingerprint: sha256(`${path}\n${text}`),
    };
  }
  return generation;
}

/** The refusal an admission means, if it is one. */
function refusedAdmission(call: Call, admission: Admission, price: number): Refusal | undefined {
  switch (admission.outcome) {
    case "admitted":
    case "replayed":
      return undefined;
    case "unknown_key":
      return disown(call);
    case "rate_limited":
      return refuse("rate_limited", { retryAfterSeconds: retrySeconds(admission.retryAfterMs) });
    case "daily_limited":
      return refuse("daily_limited", { retryAfterSeconds: retrySeconds(admission.retryAfterMs) });
    case "concurrency_limited":
      return refuse("concurrency_limited", { retryAfterSeconds: CONCURRENCY_WAIT_SECONDS });
    case "insufficient_credits":
      return refuse("insufficient_credits", {
        text: `Insufficient credits: this request costs ${price}, the balance is ${admission.balance}`,
      });
    case "idempotency_mismatch":
      return refuse("idempotency_mismatch");
    case "idempotency_in_progress":
      return inProgress(admission);
    case "stale":
    case "void":
      return refuse("store_unavailable", {
        retryAfterSeconds: 1,
        detail: `admission is ${admission.outcome}`,
      });
  }
}

/** A repeat whose first request is under way is soon answered; one whose outcome is unknown waits for the end of its hold. */
function inProgress({ retryAfterMs, dueAtMs, unknown }: InProgress): Refusal {
  const waitSeconds = retrySeconds(retryAfterMs);
  if (unknown === undefined) {
    const retryAfterSeconds = Math.min(IN_PROGRESS_WAIT_MAX_SECONDS, waitSeconds);
    return refuse("idempotency_in_progress", { retryAfterSeconds });
  }
  const answer = unknown === "timed_out" ? "no answer in time" : "no clear answer";
  const text =
    `The first request with this Idempotency-Key got ${answer} from the video generation service; ` +
    `its outcome is known at ${new Date(dueAtMs).toISOString()} at the latest`;
  return refuse("idempotency_in_progress", { text, retryAfterSeconds: waitSeconds });
}

type InProgress = Extract<Admission, { outcome: "idempotency_in_progress" }>;

/** BIND on a definite yes, VOID on a definite no; an unknown outcome leaves the hold to its due time. */
function settle(call: Call, generation: Generation, outcome: GenerationOutcome): Promise<Answer> | Answer {
  switch (outcome.outcome) {
    case "accepted":
      return bind(call, generation, outcome.taskId, outcome.data);
    case "unclear":
    case "timed_out":
      return unknown(call, generation, outcome);
    default:
      return voidAfterRefusal(call, generation, outcome);
  }
}

async function voidAfterRefusal(call: Call, generation: Generation, outcome: DefiniteNo): Promise<Answer> {
  const { gateway, config, exchange } = call;
  // The gateway's own refusal consumes nothing, not even a place in the window.
  const reason = outcome.outcome === "overloaded" ? "unsent" : "refused";
  const state = await storeStep(call, "VOID", gateway.store.voidHold(generation, config.tiers, reason));
  exchange.state = state ?? exchange.state;
  return answer(call, definiteNo(call, outcome));
}

async function bind(call: Call, generation: Generation, taskId: string, data: string): Promise<Answer> {
  const { gateway, config, exchange } = call;
  exchange.taskId = taskId;
  const { pollIntervalMs, maxAgeMs } = config.tasks;
  const pollMs = askAgainMs(pollIntervalMs, 0, maxAgeMs);
  const task = { taskId, data, pollMs, maxAgeMs, upstream: gateway.upstream(config).tag };
  const bound = gateway.store.bind(generation, task);
  const binding = await storeStep(call, "BIND", bound);
  if (binding === "conflict") {
    gateway.upstream(config).resetConnectionPool();
    return taken(call, generation, taskId);
  }
  if (binding === undefined && isOthersTask(call, taskId)) return taken(call, generation, taskId);
  sawTask(call, taskId, task.upstream);
  return success(data, undefined, CHARGES[binding ?? "waiting"]);
}

/** What the log line of an accepted generation says of its charge; docs/logging.md. */
const CHARGES = { bound: "ok", late: "ok", uncollected: "uncollected", waiting: "charge_waits" } as const;

/** The upstream gave a task id that is another request's: whose task it made, nobody can tell. */
const taken = (call: Call, generation: Generation, taskId: string): Promise<Answer> =>
  unknown(call, generation, { outcome: "unclear", detail: `task id ${taskId} is bound already` });

type DefiniteNo = Exclude<
  GenerationOutcome,
  { outcome: "accepted" } | { outcome: "unclear" } | { outcome: "timed_out" }
>;

function definiteNo(call: Call, outcome: DefiniteNo): Refusal {
  switch (outcome.outcome) {
    case "refused":
      return refuse("upstream_refused", { status: outcome.status, code: outcome.code, text: outcome.text });
    case "rate_limited":
      return upstreamLimited(outcome.retryAfterSeconds);
    case "refused_gateway":
      return gatewayRefused(
        call,
        outcome.detail,
        "The video generation service refused the gateway; nothing is charged",
      );
    case "overloaded":
      return refuse("overloaded", { retryAfterSeconds: OVERLOADED_WAIT_SECONDS, detail: outcome.detail });
    case "unreachable":
      return refuse("upstream_failed", {
        retryAfterSeconds: UNREACHABLE_WAIT_SECONDS,
        detail: outcome.detail,
      });
  }
}

/** Without an Idempotency-Key a retry of an unknown outcome may be a second paid task: SDKs are told not to. */
async function unknown(
  call: Call,
  generation: Generation,
  { outcome, detail }: { outcome: UnknownOutcome; detail: string },
): Promise<Answer> {
  const { metrics, store } = call.gateway;
  metrics.unknownOutcomes.inc();
  await store.noteUnknown(generation, outcome);
  const name = outcome === "unclear" ? "upstream_unclear" : "upstream_timeout";
  return answer(call, refuse(name, generation.idempotency ? { detail } : { detail, shouldRetry: false }));
}

/**
 * The store is away and the strategy is `allow`: forwarded without a hold, uncharged, and marked so. The customer's
 * Idempotency-Key reaches the upstream in digested form, which is all that can be done for it now.
 */
async function unmetered(call: Call, generation: Generation, text: string): Promise<Answer> {
  const { gateway, config, exchange, key } = call;
  const upstreamKey = generation.idempotency?.digest ?? exchange.requestId;
  const step = new UpstreamStep(call, "generate");
  const sender = { accountId: key.accountId, requestId: upstreamKey, carried: step.carried };
  const sent = gateway.upstream(config).generate(generation.endpoint, text, sender);
  const outcome = step.end(await sent);
  switch (outcome.outcome) {
    case "accepted":
      exchange.taskId = outcome.taskId;
      if (isOthersTask(call, outcome.taskId)) return taken(call, generation, outcome.taskId);
      for (const seen of [gateway.seenTasks, gateway.unmeteredTasks]) {
        seen.add(outcome.taskId, key.accountId, gateway.upstream(config).tag);
      }
      return success(outcome.data, [], "unmetered");
    case "unclear":
    case "timed_out":
      return unknown(call, generation, outcome);
    default:
      return answer(call, definiteNo(call, outcome));
  }
}

const answer = (call: Call, refused: Refusal): Answer => refusal(refused, call.exchange.shownId);
const sha256 = (text: string): string => hash("sha256", text);
