import { setTimeout } from "node:timers/promises";
import { FairGate, type GateObserver } from "../domain/fair-gate.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { DETAILS_MAX } from "../domain/problems.ts";
import type { Carried } from "../telemetry/trace.ts";
import type { CallbackRequest, Created, Generation, Unsupported } from "./adapter.ts";
import { type AdapterChoice, ENVELOPE_CHOICE } from "./adapter-choice.ts";
import { type Answer, dataText, newTask, type StatusWords, shownTaskId, taskWithId } from "./answer.ts";
import { describeAnswer } from "./answer-excerpt.ts";
import {
  type AdapterFault,
  AdapterMistake,
  type AdapterObserver,
  type CheckedRequest,
  checkRequest,
  Dialect,
  responseOf,
  returned,
} from "./dialect.ts";
import {
  ACCEPT_JSON,
  createJsonClient,
  type ExchangeResult,
  type JsonClient,
  type JsonClientOptions,
  type JsonRequest,
  overloaded,
} from "./json-client.ts";
import { SpacedWork } from "./large-answers.ts";
import { type PollOutcome, type PollSender, sendPoll } from "./poll-request.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";
import { taskTag, upstreamTag } from "./task-route.ts";

export interface Upstream {
  /** Identifies this upstream, its credential and its adapter. */
  readonly tag: string;
  /** Stored with a task that the endpoint made. */
  tagOf(endpoint: string): string;
  create(generation: Generation): CheckedRequest | Unsupported | AdapterFault;
  /** @param body exactly what was priced @param headers flat name, value pairs of the adapter's */
  generate(
    path: string,
    body: string,
    sender: Sender,
    headers?: readonly string[],
  ): Promise<GenerationOutcome>;
  poll(taskId: string, sender: PollSender): Promise<PollOutcome>;
  /** True if the adapter reads callbacks, so generations may have a `callBackUrl`. */
  readonly takesCallbacks: boolean;
  /** The task that a callback names, as customers know it; undefined if it names none. Nothing else of it is read. */
  taskOfCallback(request: CallbackRequest): string | undefined;
  /** A generation got another request's response: the connections for generations are not used again. */
  resetConnectionPool(): void;
  close(): Promise<void>;
}

/** Polls of the sweeper in flight, at one upstream. */
export const SWEEP_POLLS_MAX = 4;
/** Requests per free connection: an account alone may have three quarters of all, beside another three sevenths. Decision 0025. */
const ACCOUNT_PER_FREE_MAX = 3;
/** Of a path or a message about a parameter that the upstream does not have. */
const PROBLEM_CHARS_MAX = 500;

export interface UpstreamOptions extends Omit<JsonClientOptions, "largeAnswerWork" | "auth"> {
  /** How the upstream is spoken to; the interface's own shapes by default. */
  dialect?: AdapterChoice;
  /** Connections for polls; `SWEEP_POLLS_MAX` of them, at most half, are the sweeper's. */
  pollConnections: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
  /** Words for task states, beside those that are known anyway (`upstream.statuses`). */
  statuses?: StatusWords;
  /** Receives what happens to requests that wait for a connection. */
  observer?: Readonly<Record<"generate" | "poll", GateObserver>> & { adapter?: AdapterObserver };
}

/** Leaves a request its headers timeout within `totalTimeoutMs`. At most the headers timeout, by which a hold outlives the exchange. */
export function waitMaxMs({
  headersTimeoutMs,
  totalTimeoutMs,
}: Pick<UpstreamOptions, "headersTimeoutMs" | "totalTimeoutMs">): number {
  return Math.max(0, Math.min(headersTimeoutMs, totalTimeoutMs - headersTimeoutMs));
}

/** Generations, customers' polls and the sweeper's polls have connections of their own, so that none waits for another kind. */
export function createUpstream(options: UpstreamOptions): Upstream {
  const { connections, pollConnections, totalTimeoutMs, idempotent, statuses, observer } = options;
  const dialect = new Dialect(options.dialect ?? ENVELOPE_CHOICE, observer?.adapter);
  const shared = { ...options, auth: dialect.adapter.auth, largeAnswerWork: new SpacedWork() };
  const waiting = { waitMaxMs: waitMaxMs(options) };
  const generations = {
    client: createJsonClient(shared),
    gate: new FairGate({
      ...waiting,
      inFlightMax: connections,
      inFlightPerFreeMax: ACCOUNT_PER_FREE_MAX,
      waitingMax: connections,
      observer: observer?.generate,
    }),
    connections,
    totalTimeoutMs,
    idempotent,
    statuses,
    dialect,
  };
  const client = createJsonClient({ ...shared, connections: pollConnections });
  const pollChannel = (share: number, who: string, inFlightPerFreeMax?: number) => ({
    client,
    gate: new FairGate({
      ...waiting,
      inFlightMax: share,
      inFlightPerFreeMax,
      waitingMax: share,
      observer: observer?.poll,
    }),
    limit: `${share} upstream.poll_connections for ${who}`,
    totalTimeoutMs,
    statuses,
    dialect,
  });
  const sweeperShare = Math.min(SWEEP_POLLS_MAX, Math.floor(pollConnections / 2));
  const customerShare = pollConnections - sweeperShare;
  const sweeps = pollChannel(sweeperShare, "the sweeper");
  const polls = pollChannel(customerShare, "customers", ACCOUNT_PER_FREE_MAX);
  const tag = upstreamTag(options.url, options.apiKey, dialect.name);
  const tags: Record<string, string> = {};
  return {
    tag,
    tagOf: (endpoint) => (tags[endpoint] ??= taskTag(tag, endpoint)),
    create: (generation) => createRequest(dialect, generation),
    generate: (path, body, sender, headers) => sendGeneration(generations, path, body, sender, headers),
    poll: (taskId, sender) => sendPoll(sender.accountId === undefined ? sweeps : polls, taskId, sender),
    takesCallbacks: dialect.adapter.callback !== undefined,
    taskOfCallback: (request) => taskOfCallback(dialect, request),
    resetConnectionPool: generations.client.reset,
    async close() {
      for (const { gate } of [generations, polls, sweeps]) gate.close();
      await Promise.all([generations.client.close(), client.close()]);
    },
  };
}

/** @returns what is sent, or the parameters that the upstream does not have */
export function createRequest(
  dialect: Dialect,
  generation: Generation,
): CheckedRequest | Unsupported | AdapterFault {
  return dialect.call("create", generation.text, () => {
    const created = returned(dialect.adapter.create(generation, dialect.options));
    if ("unsupported" in created) return checkUnsupported(created);
    const request = checkRequest(created);
    if (request.method === "POST") return request;
    throw new AdapterMistake("returned a request that is no POST");
  });
}

function taskOfCallback(dialect: Dialect, request: CallbackRequest): string | undefined {
  const named = dialect.call("callback", request.body, () => {
    const taskId: unknown = returned(dialect.adapter.callback?.(request, dialect.options));
    if (taskId === undefined || typeof taskId === "string") return { taskId };
    throw new AdapterMistake("returned an id that is no text");
  });
  return "taskId" in named && named.taskId !== undefined ? shownTaskId(named.taskId) : undefined;
}

/** @throws AdapterMistake */
function checkUnsupported({ unsupported }: Unsupported): Unsupported {
  const isProblem = (one: Unsupported["unsupported"][number]): boolean =>
    typeof one?.path === "string" && typeof one.message === "string";
  if (!Array.isArray(unsupported) || unsupported.length === 0 || !unsupported.every(isProblem))
    throw new AdapterMistake("returned `unsupported` without a list of paths and messages");
  return {
    unsupported: unsupported.slice(0, DETAILS_MAX).map(({ path, message }) => ({
      path: path.slice(0, PROBLEM_CHARS_MAX).toWellFormed(),
      message: message.slice(0, PROBLEM_CHARS_MAX).toWellFormed(),
    })),
  };
}

/** `accepted` is the definite yes; after `unclear` and `timed_out` the task may run. All others are a definite no. */
export type GenerationOutcome =
  | GenerationAnswer
  /** No connection was free in time; it was not sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "timed_out"; detail: string };

type UnknownGeneration = Extract<GenerationOutcome, { outcome: "unclear" } | { outcome: "timed_out" }>;

interface Sender {
  accountId: string;
  requestId: string;
  carried?: Carried | undefined;
}

interface GenerationChannel {
  client: JsonClient;
  gate: FairGate;
  connections: number;
  totalTimeoutMs: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
  statuses: StatusWords | undefined;
  dialect: Dialect;
}

const HEADERS: readonly string[] = ["content-type", "application/json", ...ACCEPT_JSON];

/** How often a request is sent in all to an idempotent upstream, and the pause before the first repeat. */
const ATTEMPTS_MAX = 3;
const PAUSE_MS = 250;

/** Only an idempotent upstream is sent a request of unknown outcome again, with its key and deadline. @param body exactly what was priced */
async function sendGeneration(
  { client, gate, connections, totalTimeoutMs, idempotent, statuses, dialect }: GenerationChannel,
  path: string,
  body: string,
  { accountId: owner, requestId, carried }: Sender,
  more: readonly string[] = [],
): Promise<GenerationOutcome> {
  if (!gate.enter(owner)) {
    const refusal = await gate.wait(owner);
    if (refusal) return overloaded(refusal, `${connections} upstream.connections`);
  }
  try {
    const headers = [...HEADERS, "idempotency-key", requestId, "x-request-id", requestId, ...more];
    const request: JsonRequest = { method: "POST", path, headers, body, carried, gate, owner };
    // The wait for a connection does not count: a request must not be sent with too little time for its answer.
    const deadlineMs = performance.now() + totalTimeoutMs;
    let unknown: UnknownGeneration | undefined;
    for (let attempt = 1; ; attempt++) {
      if (attempt > 1) request.budgetMs = Math.ceil(deadlineMs - performance.now());
      const outcome = generationOutcome(await client.send(request), body, statuses, dialect);
      if (outcome.outcome === "accepted") return outcome;
      const detail = unknown ? `${unknown.detail}; then ${outcome.detail}` : outcome.detail;
      if (outcome.outcome === "unclear" || outcome.outcome === "timed_out") unknown = { ...outcome, detail };
      // A no to a repeat says nothing about the attempt before it, which may have made the task.
      else if (unknown) unknown = { ...unknown, detail };
      else return outcome;
      const pauseMs = PAUSE_MS * attempt;
      const attemptsMax = idempotent ? ATTEMPTS_MAX : 1;
      if (attempt >= attemptsMax || deadlineMs - performance.now() <= pauseMs) return unknown;
      await setTimeout(pauseMs);
    }
  } finally {
    gate.leave(owner);
  }
}

/** Exported for tests of each row. */
export function generationOutcome(
  result: ExchangeResult,
  sent: string,
  statuses: StatusWords | undefined,
  dialect: Dialect,
): GenerationOutcome {
  switch (result.outcome) {
    case "not_sent":
      return { outcome: "unreachable", detail: result.detail };
    case "lost": {
      const { received, timedOut } = result;
      const detail = received
        ? `${result.detail}; ${describeAnswer(received, undefined, sent)}`
        : result.detail;
      return { outcome: timedOut ? "timed_out" : "unclear", detail };
    }
    case "answered":
      return readGeneration(result, sent, statuses, dialect);
  }
}

/** The meaning of an answer to a generation. After `unclear` the task may run; only `accepted` is a definite yes. */
type GenerationAnswer =
  | UpstreamRejection
  /** `taskId` as customers get it. */
  | { outcome: "accepted"; taskId: string; data: string }
  /** The upstream says that it was not run. */
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string };

/** An answer that its adapter makes nothing of is unclear. Decision 0003. @param sent the request's body, of which nothing must get into the log */
export function readGeneration(
  answer: Answer,
  sent: string,
  statuses: StatusWords | undefined,
  dialect: Dialect,
): GenerationAnswer {
  const json = parseObject(answer.body);
  const { adapter, options } = dialect;
  const described = () => describeAnswer(answer, json, sent);
  const read = dialect.call("created", sent, (): GenerationAnswer => {
    const created: Created = returned(adapter.created(responseOf(answer, json), options));
    switch (created.outcome) {
      case "accepted":
        return accepted(created, (task, taskId) => taskText(dialect, sent, task, taskId, statuses));
      case "unavailable":
        return { outcome: "unreachable", detail: described() };
      case "unclear":
        return { outcome: "unclear", detail: described() };
      default:
        return readRejection(created, answer, described());
    }
  });
  if (read.outcome !== "adapter_fault") return read;
  return { outcome: "unclear", detail: `${read.detail}; ${described()}` };
}

type Accepted = Extract<Created, { outcome: "accepted" }>;

/** Nothing is charged without an id in hand; with one, the task is bound whatever else is said. @throws AdapterMistake */
function accepted(
  { taskId: id, task = {} }: Accepted,
  textOf: (task: unknown, taskId: string) => string,
): GenerationAnswer {
  const taskId = typeof id === "string" ? shownTaskId(id) : undefined;
  if (taskId === undefined) throw new AdapterMistake(`accepted a generation ${whyNoId(id)}`);
  return { outcome: "accepted", taskId, data: textOf(task, taskId) };
}

/** The data of a new task; the id alone if the adapter's cannot be used. */
function taskText(
  dialect: Dialect,
  sent: string,
  task: unknown,
  taskId: string,
  statuses: StatusWords | undefined,
): string {
  const text = dialect.call("created", sent, () => {
    if (!isObject(task)) throw new AdapterMistake("accepted a generation with a task that is no object");
    return dataText(newTask(taskWithId(task, taskId), statuses));
  });
  return typeof text === "string" ? text : JSON.stringify({ task_id: taskId });
}

function whyNoId(id: unknown): string {
  if (typeof id !== "string" || id === "") return "without a task id";
  return `with a task id of ${id.length} characters that is too long or ill-formed`;
}
