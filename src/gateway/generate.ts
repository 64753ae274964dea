import { API_PREFIX, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type ApiAnswer, refusal, success } from "../domain/envelope.ts";
import { type Problem, type Refusal, refuse } from "../domain/errors.ts";
import { validateGeneration } from "../domain/generation-body.ts";
import { priceOf } from "../domain/prices.ts";
import { IDEMPOTENCY_KEY } from "../domain/request-sizes.ts";
import { nextPollMs } from "../domain/task-states.ts";
import type { Admission, Generation } from "../scripts/admit.ts";
import type { UnknownOutcome } from "../scripts/unclear.ts";
import type { GenerationOutcome } from "../upstream/generation-request.ts";
import { generationOf, refuseAdmission, refuseFromMemory } from "./admission.ts";
import { jsonHeadFault, readJson } from "./body.ts";
import { continueReading } from "./http-exchange.ts";
import { refuseKnown } from "./inspect-key.ts";
import { recordAffordable } from "./key-usage.ts";
import type { RequestHead } from "./protocol.ts";
import { type Call, storeStep, UpstreamStep } from "./request-context.ts";
import {
  isOthersTask,
  passUnmetered,
  rememberTask,
  rememberUnmetered,
  showKnownLimits,
} from "./unmetered-fallback.ts";
import { generationRefusal, type RefusedGeneration } from "./upstream-refusals.ts";

/**
 * POST to a generation endpoint: validate, price, ADMIT, forward, BIND or VOID, answer.
 * @returns undefined when the client went away before admission: then nothing has happened
 */
export async function generate(call: Call, endpoint: GenerationEndpoint): Promise<ApiAnswer | undefined> {
  const { config, exchange, gateway, head } = call;
  const headFault = jsonHeadFault(head) ?? idempotencyKeyFault(head);
  if (headFault) return refuseEarly(call, headFault);
  continueReading(exchange);
  const bodyFromMs = performance.now();
  const read = await readJson(exchange.req, head.contentLength, config.server.bodyTimeoutMs, {
    budget: gateway.bodies,
    keyId: call.key.keyId,
    onRead: gateway.bodyRead,
  });
  exchange.bodyMs = performance.now() - bodyFromMs;
  if (read.outcome === "client_gone") return undefined;
  if (read.outcome === "refused") return refuseEarly(call, read.refusal);
  const validation = validateGeneration(endpoint, read.value, config.sourceVideoHost);
  if (!validation.ok) return refuseEarly(call, invalid(validation.problems));

  const price = priceOf(config.prices, endpoint, validation.body);
  exchange.price = price;
  const generation = generationOf(call, API_PREFIX + endpoint, price, validation);
  const refusedFromMemory = refuseFromMemory(call, generation);
  if (refusedFromMemory) return answer(call, refusedFromMemory);
  const calledAtMs = gateway.overLimit.now();
  let admission: Admission;
  try {
    admission = await storeStep(call, "ADMIT", gateway.store.admit(generation, config.tiers));
  } catch (error) {
    if (!(await passUnmetered(call, error, true))) throw error;
    return forwardUnmetered(call, generation, validation.text);
  }
  const refused = refuseAdmission(call, admission, price, calledAtMs);
  if (refused) return answer(call, refused);
  if (admission.outcome === "replayed")
    return success(admission.data, ["Idempotency-Replayed", "true"], "replayed");

  // From here on the exchange is completed and the task bound even if the client goes away.
  gateway.holds.pending++;
  try {
    const step = new UpstreamStep(call, "generate");
    const sent = send(call, step, generation, validation.text, exchange.requestId);
    return await settle(call, generation, step.end(await sent));
  } finally {
    gateway.holds.pending--;
  }
}

const KEY_RULE = "Idempotency-Key must be 1 to 255 visible ASCII characters";

function idempotencyKeyFault({ idempotencyKey }: RequestHead): Refusal | undefined {
  if (idempotencyKey === undefined || IDEMPOTENCY_KEY.test(idempotencyKey)) return undefined;
  return invalid([{ path: "", message: KEY_RULE }]);
}

const invalid = (details: readonly Problem[]): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${details[0]?.message}`, details });

/** Refuses before admission. */
async function refuseEarly(call: Call, refused: Refusal): Promise<ApiAnswer> {
  return answer(call, await refuseKnown(call, refused));
}

/** @param requestId also the Idempotency-Key that the upstream gets */
function send(
  { gateway, config }: Call,
  { carried }: UpstreamStep,
  { endpoint, key: { accountId } }: Generation,
  text: string,
  requestId: string,
): Promise<GenerationOutcome> {
  return gateway.upstream(config).generate(endpoint, text, { accountId, requestId, carried });
}

/** BIND when a task was created, VOID when definitely none was; an unknown outcome leaves the hold to its due time. */
function settle(
  call: Call,
  generation: Generation,
  outcome: GenerationOutcome,
): Promise<ApiAnswer> | ApiAnswer {
  switch (outcome.outcome) {
    case "accepted":
      return bind(call, generation, outcome.taskId, outcome.data);
    case "unclear":
    case "timed_out":
      return leaveUnknown(call, generation, outcome);
    default:
      return voidRefused(call, generation, outcome);
  }
}

/** @param unmetered it was not admitted, and is not charged */
async function bind(
  call: Call,
  generation: Generation,
  taskId: string,
  data: string,
  unmetered = false,
): Promise<ApiAnswer> {
  const { gateway, config, exchange } = call;
  exchange.taskId = taskId;
  const { pollIntervalMs, maxAgeMs } = config.tasks;
  const upstream = gateway.upstream(config);
  const pollMs = nextPollMs(pollIntervalMs, 0, maxAgeMs);
  const task = { taskId, data, pollMs, maxAgeMs, upstream: upstream.tag };
  const { store } = gateway;
  const bound = unmetered ? store.bindUnmetered(generation, task) : store.bind(generation, task);
  const binding = await storeStep(call, "BIND", bound);
  if (binding === "conflict") {
    upstream.resetConnectionPool();
    return refuseTakenId(call, generation, taskId);
  }
  if (binding === undefined && isOthersTask(call, taskId)) return refuseTakenId(call, generation, taskId);
  rememberTask(call, taskId, upstream.tag);
  if (!unmetered) return success(data, undefined, CHARGES[binding ?? "waiting"]);
  rememberUnmetered(call, taskId, upstream.tag);
  showKnownLimits(call);
  return success(data, undefined, "unmetered");
}

/** The outcome in the log line of an accepted generation, by how it was charged; docs/logging.md. */
const CHARGES = {
  bound: "ok",
  late: "ok",
  uncollected: "uncollected",
  forgotten: "uncollected",
  waiting: "charge_waits",
} as const;

/** The upstream returned the task id of another request: whose task it created is unknown. */
const refuseTakenId = (call: Call, generation: Generation, taskId: string): Promise<ApiAnswer> =>
  leaveUnknown(call, generation, { outcome: "unclear", detail: `task id ${taskId} is bound already` });

async function voidRefused(
  call: Call,
  generation: Generation,
  outcome: RefusedGeneration,
): Promise<ApiAnswer> {
  const { gateway, config, exchange } = call;
  // A request that the gateway itself did not send uses nothing, not even a place in the window.
  const reason = outcome.outcome === "overloaded" ? "unsent" : "refused";
  const state = await storeStep(call, "VOID", gateway.store.voidHold(generation, config.tiers, reason));
  exchange.state = state ?? exchange.state;
  return answer(call, generationRefusal(call, outcome));
}

/** Without an Idempotency-Key a retry may create a second paid task, so SDKs are told not to retry. */
async function leaveUnknown(
  call: Call,
  generation: Generation,
  { outcome, detail }: { outcome: UnknownOutcome; detail: string },
): Promise<ApiAnswer> {
  const { config } = call;
  const { log, metrics, store } = call.gateway;
  metrics.unknownOutcomes.inc();
  const noted = await store.noteUnknown(generation, outcome, config.tasks.unknownOutcomesMax);
  if (noted?.outcome === "noted" && noted.blockedUntilMs !== undefined) {
    const { count, blockedUntilMs } = noted;
    log.error(
      {
        account_id: generation.key.accountId,
        unknown_outcomes: count,
        blocked_until: new Date(blockedUntilMs).toISOString(),
      },
      "generations of this account are refused: too many of its requests have an unknown outcome",
    );
  }
  const name = outcome === "unclear" ? "upstream_unclear" : "upstream_timeout";
  return answer(call, refuse(name, generation.idempotency ? { detail } : { detail, shouldRetry: false }));
}

/**
 * The store is unavailable and the strategy is `allow`: forwards without a hold and without a charge. The upstream gets a digest
 * of the customer's Idempotency-Key, the only idempotency that is possible now. The task is bound once the store is back.
 */
async function forwardUnmetered(call: Call, generation: Generation, text: string): Promise<ApiAnswer> {
  const { exchange } = call;
  // No limit applies during an outage, including the rate of unaffordable generations.
  recordAffordable(call, generation.price, true);
  const requestId = generation.idempotency?.digest ?? exchange.requestId;
  const step = new UpstreamStep(call, "generate");
  const outcome = step.end(await send(call, step, generation, text, requestId));
  switch (outcome.outcome) {
    case "accepted":
      if (isOthersTask(call, outcome.taskId)) return refuseTakenId(call, generation, outcome.taskId);
      return bind(call, generation, outcome.taskId, outcome.data, true);
    case "unclear":
    case "timed_out":
      return leaveUnknown(call, generation, outcome);
    default:
      return answer(call, generationRefusal(call, outcome));
  }
}

const answer = (call: Call, refused: Refusal): ApiAnswer => refusal(refused, call.exchange.shownId);
