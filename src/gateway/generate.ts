import { hash } from "node:crypto";
import type { Config } from "../config/config.ts";
import { validateBody } from "../config/relayed-body.ts";
import { API_PREFIX, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type HandlerResult, success } from "../domain/envelope.ts";
import { type Problem, type Refusal, refuse } from "../domain/errors.ts";
import { pricesAround, type ValidBody, validateGeneration } from "../domain/generation.ts";
import { IDEMPOTENCY_KEY } from "../domain/limits.ts";
import { type Admission, type Generation, nextPollMs, type UnknownOutcome } from "../scripts/holds.ts";
import { withoutVideo } from "../upstream/answer.ts";
import type { CheckedRequest } from "../upstream/dialect.ts";
import type { GenerationOutcome } from "../upstream/upstream.ts";
import { refuseAdmission } from "./admission-refusals.ts";
import { readJson } from "./body.ts";
import { continueReading, type RequestContext, storeStep, UpstreamStep } from "./http-exchange.ts";
import { refuseKnown } from "./inspect-key.ts";
import { recordAffordable, refuseFromMemory, rememberGoodKey, rememberTask } from "./key-memory.ts";
import { completeJson, jsonHeadFault, type RequestHead } from "./protocol.ts";
import { type Relayed, relay } from "./relay.ts";
import { isAllowed, rememberRestrictions } from "./restricted-keys.ts";
import { isOthersTask, passUnmetered, rememberUnmetered, showKnownLimits } from "./unmetered.ts";
import { generationRefusal, type RefusedGeneration } from "./upstream-refusals.ts";

/** Validate, price, ADMIT, forward, BIND or VOID, answer. @returns undefined when the client went away before admission */
export async function generate(
  context: RequestContext,
  endpoint: GenerationEndpoint,
): Promise<HandlerResult | undefined> {
  const { config, exchange, gateway, head } = context;
  const headFault = jsonHeadFault(head) ?? idempotencyKeyFault(head);
  if (headFault) return refuseKnown(context, headFault);
  continueReading(exchange);
  const bodyFromMs = performance.now();
  await undefined;
  const read =
    completeJson(exchange.req, head.contentLength, gateway.bodyRead) ??
    (await readJson(exchange.req, head.contentLength, config.server.bodyTimeoutMs, {
      budget: gateway.bodies,
      keyId: context.key.keyId,
      onRead: gateway.bodyRead,
    }));
  exchange.bodyMs = performance.now() - bodyFromMs;
  if (read.outcome === "client_gone") return undefined;
  if (read.outcome === "refused") return refuseKnown(context, read.refusal);
  const mayRelay = config.webhooks.publicUrl !== undefined;
  const validation = mayRelay
    ? validateBody(config, endpoint, read.value)
    : validateGeneration(endpoint, read.value, config.sourceVideoHost);
  if (!validation.ok) return refuseKnown(context, invalid(validation.problems));
  const relayed = mayRelay ? await relay(context, endpoint, validation) : undefined;
  if (relayed && "problem" in relayed) return refuseKnown(context, invalid([relayed.problem]));

  const nowMs = gateway.store.nowMs(context.key.partition);
  const priced = pricesAround(config.priceLists, endpoint, validation.body, nowMs);
  exchange.price = priced.price;
  const generation = generationOf(context, API_PREFIX + endpoint, priced, validation, relayed);
  const create = ({ body, text }: ValidBody) => context.upstream.create({ endpoint, body, text });
  const request = create(relayed?.sent ?? validation);
  if ("unsupported" in request) return refuseKnown(context, invalid(request.unsupported));
  const refusedFromMemory = refuseFromMemory(context, generation);
  if (refusedFromMemory) return refusedFromMemory;
  if ("outcome" in request)
    return refuseKnown(context, generationRefusal(context, { ...request, outcome: "unreachable" }));
  const calledAtMs = gateway.overLimit.now();
  let admission: Admission;
  try {
    if (relayed?.storeError !== undefined) throw relayed.storeError;
    admission = await storeStep(context, "ADMIT", gateway.store.admit(generation, config.tiers));
    if (admission.outcome === "restricted") admission = await admitRestricted(context, generation, admission);
  } catch (error) {
    if (!(await passUnmetered(context, error, true))) throw error;
    const unmetered = relayed && create(relayed.sentUnmetered);
    return forwardUnmetered(context, generation, unmetered && "path" in unmetered ? unmetered : request);
  }
  exchange.state = admission.state;
  if ("price" in admission) exchange.price = generation.price = admission.price;
  if (admission.outcome !== "admitted" && admission.outcome !== "replayed")
    return refuseAdmission(context, admission, priced.price, calledAtMs);
  rememberGoodKey(context, admission, "active");
  if (admission.outcome === "replayed")
    return success(admission.data, ["Idempotency-Replayed", "true"], "replayed");
  recordAffordable(context, priced.price, true);
  if (admission.shadow) exchange.shadow = admission.shadow;
  return forward(context, generation, request);
}

/** From here on the exchange is completed and the task bound even if the client goes away. */
async function forward(
  context: RequestContext,
  generation: Generation,
  request: CheckedRequest,
): Promise<HandlerResult> {
  const { gateway, exchange } = context;
  gateway.holds.pending++;
  try {
    const step = new UpstreamStep(context, "generate");
    const sent = send(context, step, generation, request, exchange.requestId);
    return await settle(context, generation, step.end(await sent));
  } finally {
    gateway.holds.pending--;
  }
}

/** ADMIT again, with the restrictions that the key has now, while they allow this request. */
async function admitRestricted(
  context: RequestContext,
  generation: Generation,
  first: Admission,
): Promise<Admission> {
  const { gateway, config } = context;
  let admission = first;
  for (let times = 0; admission.outcome === "restricted" && times < RESTRICTIONS_READ_MAX; times++) {
    rememberRestrictions(context, admission.restrictions);
    if (!isAllowed(context)) break;
    generation.restrictions = admission.restrictions;
    admission = await storeStep(context, "ADMIT", gateway.store.admit(generation, config.tiers));
  }
  return admission;
}

/** How often the restrictions of a key may change while one of its requests waits for admission. */
const RESTRICTIONS_READ_MAX = 5;

const KEY_RULE = "Idempotency-Key must be 1 to 255 visible ASCII characters";

function idempotencyKeyFault({ idempotencyKey }: RequestHead): Refusal | undefined {
  if (idempotencyKey === undefined || IDEMPOTENCY_KEY.test(idempotencyKey)) return undefined;
  return invalid([{ path: "", message: KEY_RULE }]);
}

const invalid = (details: readonly Problem[]): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${details[0]?.message}`, details });

/** @param requestId also the Idempotency-Key that the upstream gets */
function send(
  { upstream }: RequestContext,
  { carried }: UpstreamStep,
  { key: { accountId } }: Generation,
  { path, body, headers }: CheckedRequest,
  requestId: string,
): Promise<GenerationOutcome> {
  return upstream.generate(path, body ?? "", { accountId, requestId, carried }, headers);
}

/** BIND when a task was created, VOID when definitely none was; an unknown outcome leaves the hold to its due time. */
function settle(
  context: RequestContext,
  generation: Generation,
  outcome: GenerationOutcome,
): Promise<HandlerResult> | HandlerResult {
  switch (outcome.outcome) {
    case "accepted":
      return bind(context, generation, outcome.taskId, outcome.data);
    case "unclear":
    case "timed_out":
      return leaveUnknown(context, generation, outcome);
    default:
      return voidRefused(context, generation, outcome);
  }
}

/** @param unmetered it was not admitted, and is not charged */
async function bind(
  context: RequestContext,
  generation: Generation,
  taskId: string,
  data: string,
  unmetered = false,
): Promise<HandlerResult> {
  const { gateway, config, exchange, upstream } = context;
  exchange.taskId = taskId;
  const { pollIntervalMs, maxAgeMs } = config.tasks;
  const pollMs = nextPollMs(pollIntervalMs, 0, maxAgeMs);
  const tag = upstream.tagOf(generation.endpoint);
  const task = { taskId, data: generation.idempotency ? data : "", pollMs, maxAgeMs, upstream: tag };
  const { store } = gateway;
  const bound = unmetered ? store.bindUnmetered(generation, task) : store.bind(generation, task);
  const binding = await storeStep(context, "BIND", bound);
  if (binding === "conflict") {
    upstream.resetConnectionPool();
    return refuseTakenId(context, generation, taskId);
  }
  if (binding === undefined && isOthersTask(context, taskId))
    return refuseTakenId(context, generation, taskId);
  rememberTask(context, taskId, tag);
  const isCharged = binding === "bound" || binding === "late";
  if (!unmetered)
    return success(isCharged ? data : withoutVideo(data), undefined, CHARGES[binding ?? "waiting"]);
  rememberUnmetered(context, taskId, tag);
  showKnownLimits(context);
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
const refuseTakenId = (context: RequestContext, generation: Generation, taskId: string): Promise<Refusal> =>
  leaveUnknown(context, generation, { outcome: "unclear", detail: `task id ${taskId} is bound already` });

async function voidRefused(
  context: RequestContext,
  generation: Generation,
  outcome: RefusedGeneration,
): Promise<Refusal> {
  const { gateway, config, exchange } = context;
  // A request that the gateway itself did not send uses nothing, not even a place in the window.
  const reason = outcome.outcome === "overloaded" ? "unsent" : "refused";
  const voided = await storeStep(context, "VOID", gateway.store.voidHold(generation, config.tiers, reason));
  exchange.state = voided?.state ?? exchange.state;
  // Its callback came first, and the upstream has confirmed the task.
  if (voided?.outcome === "bound")
    return leaveUnknown(context, generation, { outcome: "unclear", detail: outcome.detail });
  return generationRefusal(context, outcome);
}

/** Without an Idempotency-Key a retry may create a second paid task, so SDKs are told not to retry. */
async function leaveUnknown(
  context: RequestContext,
  generation: Generation,
  { outcome, detail }: { outcome: UnknownOutcome; detail: string },
): Promise<Refusal> {
  const { config } = context;
  const { log, metrics, store } = context.gateway;
  metrics.unknownOutcomes.inc();
  const noted = await store.noteUnknown(generation, outcome, config.tasks.unknownOutcomesPerAccount);
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
  return refuse(name, generation.idempotency ? { detail } : { detail, shouldRetry: false });
}

/**
 * The store is away and the strategy is `allow`: no hold, no charge; bound once the store is back. The upstream gets a digest of the
 * Idempotency-Key, the only idempotency that is possible now.
 */
async function forwardUnmetered(
  context: RequestContext,
  generation: Generation,
  request: CheckedRequest,
): Promise<HandlerResult> {
  const { exchange } = context;
  // No limit applies during an outage, including the rate of unaffordable generations.
  recordAffordable(context, generation.price, true);
  const requestId = generation.idempotency?.digest ?? exchange.requestId;
  const step = new UpstreamStep(context, "generate");
  const outcome = step.end(await send(context, step, generation, request, requestId));
  switch (outcome.outcome) {
    case "accepted":
      if (isOthersTask(context, outcome.taskId)) return refuseTakenId(context, generation, outcome.taskId);
      return bind(context, generation, outcome.taskId, outcome.data, true);
    case "unclear":
    case "timed_out":
      return leaveUnknown(context, generation, outcome);
    default:
      return generationRefusal(context, outcome);
  }
}

/** A hold outlives its exchange: headers timeout for a connection, then the total timeout. This is left for ADMIT and BIND. Decision 0025. */
const HOLD_SLACK_MS = 8000;

/** How long a hold of unknown outcome lasts, ms. With a `callBackUrl` the customer gets its video: as long as a task runs. Decision 0003. */
function holdMsOf({ upstream, tasks }: Config, hasCallback: boolean): number {
  if (hasCallback) return Math.min(tasks.maxAgeMs, tasks.retentionMs);
  return upstream.connectTimeoutMs + upstream.headersTimeoutMs + upstream.totalTimeoutMs + HOLD_SLACK_MS;
}

function generationOf(
  context: RequestContext,
  path: string,
  priced: Pick<Generation, "price" | "prices">,
  { text, body }: ValidBody,
  relayed: Relayed | undefined,
): Generation {
  const { config, exchange, head, key, upstream } = context;
  // Behind a relay, an upstream that calls nobody back brings no video of an unknown outcome.
  const hasCallback = body.callBackUrl !== undefined && (!relayed || upstream.takesCallbacks);
  const generation: Generation = {
    requestId: exchange.requestId,
    key,
    ...priced,
    endpoint: path,
    holdMs: holdMsOf(config, hasCallback),
    retentionMs: config.tasks.retentionMs,
    restrictions: context.usage.restrictions?.text,
    // Both are set at the admission.
    storeId: undefined,
    admittedAtMs: undefined,
  };
  if (relayed?.callBackUrl !== undefined) generation.callback = relayed.callBackUrl;
  if (head.idempotencyKey !== undefined) {
    generation.idempotency = {
      digest: hash("sha256", `${key.accountId}\0${head.idempotencyKey}`),
      fingerprint: hash("sha256", `${path}\n${text}`),
    };
  }
  return generation;
}
