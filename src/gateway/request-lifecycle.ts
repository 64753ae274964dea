import type { Socket } from "node:net";
import { isRelaying } from "../config/relayed-body.ts";
import { API_PREFIX, decoded, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type ApiAnswer, type HandlerResult, refusal } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import type { KeyRef } from "../records/names.ts";
import type { Series } from "../telemetry/metrics/series.ts";
import { drainBody } from "./body.ts";
import { CALLBACKS, receiveCallback } from "./callbacks.ts";
import type { ReceivedRequest } from "./connections/client-connection.ts";
import type { ClientConnections } from "./connections/client-connections.ts";
import { generate } from "./generate.ts";
import {
  createCompletion,
  type Exchange,
  type Gateway,
  openExchange,
  type RequestContext,
  respond,
  type Snapshot,
  takeRequestId,
} from "./http-exchange.ts";
import { credits, denyInMaintenance, inspectKey, refuseKnown } from "./inspect-key.ts";
import { limitRequestsInFlight, limitUtilityRequests } from "./key-memory.ts";
import { TaskPolls } from "./poll.ts";
import { PollSummary, TASK_TEMPLATE } from "./poll-summary.ts";
import { isPreflight, isWebSocketUpgrade, type RequestHead, readHead } from "./protocol.ts";
import { isAllowed, isFromAllowedAddress, mayConfirm, refuseRestricted } from "./restricted-keys.ts";
import { Uploads } from "./upload.ts";
import { usage } from "./usage.ts";

/** A request whose answer is decided; without an answer its client went away. */
interface Decided {
  exchange: Exchange;
  answer: ApiAnswer | undefined;
  close: boolean;
}

/** Takes each request to exactly one answer, one log line and one count. */
export class RequestLifecycle {
  readonly #gateway: Gateway;
  readonly #connections: ClientConnections;
  readonly #dispatcher: Dispatcher;
  readonly #polls: PollSummary;
  readonly #complete: ReturnType<typeof createCompletion>;
  /** Later requests on a connection that ends with a response may be smuggled in, so they are dropped. */
  readonly #ending = new WeakSet<Socket>();
  /** Requests without a log line so far, whether their clients are still connected or not. */
  #inFlight = 0;
  #becameIdle = ignore;
  readonly #inFlightSeries: Series;

  constructor(gateway: Gateway, connections: ClientConnections) {
    this.#inFlightSeries = gateway.metrics.inFlight.series();
    this.#gateway = gateway;
    this.#connections = connections;
    this.#dispatcher = new Dispatcher(gateway);
    this.#polls = new PollSummary(gateway.log);
    this.#complete = createCompletion(gateway, this.#polls);
  }

  /** @param isRefused its connection exceeds a limit @returns undefined for a request that is dropped because its connection ends */
  readonly start = (
    { req, res, expectsContinue }: ReceivedRequest,
    isRefused: boolean,
  ): Exchange | undefined => {
    res.on("error", ignore);
    if (this.#ending.has(req.socket)) return undefined;
    const isFull = this.#inFlight >= this.#gateway.live.snapshot.config.server.maxRequestsInFlight;
    if (isFull) this.#gateway.metrics.overloads.inc({ bound: "requests_in_flight" });
    this.#inFlight++;
    this.#inFlightSeries.pending++;
    const exchange = openExchange(req, res, expectsContinue);
    void this.#serve(exchange, isRefused ? "connections" : isFull ? "requests" : undefined);
    return exchange;
  };

  /** Answers a request whose body turned out to be malformed. Its exchange ends with its connection, or before. */
  refuseMalformedBody(exchange: Exchange, refused: Refusal): Promise<ApiAnswer> {
    const { head } = readHead(exchange.req, this.#gateway.live.snapshot.config.server);
    exchange.malformedBodyAnswer = this.#dispatcher
      .refuseHead(exchange, head, refused)
      .then((result) => refusal(result, exchange.shownId));
    return exchange.malformedBodyAnswer;
  }

  /** Resolves once no request is in flight. A disconnect of the client does not end a request. */
  async idle(): Promise<void> {
    while (this.#inFlight > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#becameIdle = resolve;
      await promise;
    }
    this.#polls.write();
  }

  async #serve(exchange: Exchange, overload: Overload | undefined): Promise<void> {
    const gateway = this.#gateway;
    let close = gateway.isDraining || overload === "connections";
    let result: HandlerResult | undefined;
    try {
      const { head, fault: headFault } = readHead(exchange.req, gateway.live.snapshot.config.server);
      takeRequestId(exchange, head.requestId);
      if (head.hasBody && head.contentLength === undefined)
        this.#connections.pauseUntilBodyRead(exchange.req);
      if (head.traceParent !== undefined || gateway.tracing.on) {
        exchange.trace = gateway.tracing.begin(head.traceParent, head.traceState, exchange.startedMs);
      }
      const fault =
        headFault ?? (head.upgrades && isWebSocketUpgrade(exchange.req) ? UPGRADE_REFUSED : undefined);
      // Node loses what came with the end of a request that asks for an upgrade. Decision 0012.
      close ||= headFault !== undefined || head.upgrades;
      if (close) this.#ending.add(exchange.req.socket);
      if (overload) result = OVERLOADED[overload];
      else if (fault) result = await this.#dispatcher.refuseHead(exchange, head, fault);
      else result = await this.#dispatcher.dispatch(exchange, head);
    } catch (error) {
      result = failure(gateway, exchange, error);
    }
    const malformed = exchange.malformedBodyAnswer;
    const answer = malformed ? await malformed : result && answerOf(result, exchange);
    close ||= this.#mustClose(exchange);
    if (close) this.#ending.add(exchange.req.socket);
    this.#atTickEnd({ exchange, answer, close });
  }

  /** True if the connection ends with this response. Never before a pipelined response, which may be that of a charge. */
  #mustClose({ req, res, expectsContinue }: Exchange): boolean {
    // The client was not told to send its body, and may send it or not.
    if (expectsContinue && !req.complete) return true;
    return this.#gateway.isDraining && !this.#connections.hasPipelinedResponse(res);
  }

  /** The responses of one tick are written one right after the other, so that a waiting reader wakes up once. Decision 0020. */
  readonly #atTickEnd = atTickEnd<Decided>((decided) => {
    const { bodyRead } = this.#gateway;
    for (const { exchange, answer, close: isLast } of decided) {
      // A body that has come by now was read with its head. Behind one that has not, there is no further request.
      const close = isLast || (exchange.leavesBody === true && !exchange.req.complete);
      if (close) this.#ending.add(exchange.req.socket);
      if (answer && !exchange.malformedBodyAnswer) {
        if (respond(exchange, answer, close)) this.#connections.responseWritten(exchange, answer.body.length);
        else exchange.clientGone = true;
      }
      if (exchange.req.complete) continue;
      const end = (): void => this.#connections.endAfterResponse(exchange.res);
      if (exchange.leavesBody) end();
      else drainBody(exchange.req, bodyRead, end);
    }
    for (const { exchange, answer } of decided) this.#complete(exchange, answer);
    this.#inFlight -= decided.length;
    this.#inFlightSeries.pending -= decided.length;
    if (this.#inFlight === 0) this.#becameIdle();
  });
}

/** Gathers a tick's items. @param take is called with them at its end, in order @returns adds an item */
export function atTickEnd<T>(take: (items: readonly T[]) => void): (item: T) => void {
  let items: T[] = [];
  const end = (): void => {
    const collected = items;
    items = [];
    take(collected);
  };
  return (item) => {
    if (items.length === 0) setImmediate(end);
    items.push(item);
  };
}

const answerOf = (result: HandlerResult, { shownId }: Exchange): ApiAnswer =>
  "body" in result ? result : refusal(result, shownId);

function failure(gateway: Gateway, exchange: Exchange, error: unknown): Refusal {
  if (error instanceof GatewayError) return error.refusal;
  gateway.log.error({ request_id: exchange.requestId, err: error }, "internal fault");
  return refuse("internal");
}

type Overload = keyof typeof OVERLOADED;
const OVERLOADED = {
  connections: refuse("overloaded", {
    retryAfterSeconds: 1,
    detail: "server.max_connections or server.max_connections_per_address is reached",
  }),
  requests: refuse("overloaded", {
    retryAfterSeconds: 1,
    detail: "server.max_requests_in_flight is reached",
  }),
};
const UPGRADE_REFUSED = refuse("upgrade_refused");
const ignore = (): void => undefined;

type Handled = Promise<HandlerResult | undefined> | HandlerResult;

/** Finds the route, the key and the handler of each request whose head is valid. */
class Dispatcher {
  readonly #gateway: Gateway;
  readonly #taskPolls = new TaskPolls();
  readonly #uploads: Uploads;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#uploads = new Uploads((total) => gateway.metrics.uploads.set(total));
  }

  /** @returns undefined when the client went away */
  dispatch(exchange: Exchange, head: RequestHead): Handled {
    const gateway = this.#gateway;
    const { snapshot } = gateway.live;
    const found = route(exchange.req.method ?? "", exchange.req.url ?? "");
    const target = found.kind === "callback" && !isRelaying(snapshot.config) ? OUTSIDE : found;
    exchange.route = target.template;
    if (target.kind === "callback") return receiveCallback(gateway, exchange, head, target.token);
    if (target.kind === "outside" && head.authorization === undefined) {
      return refuse("path_not_found");
    }
    const identity = gateway.authenticator.known.get(head.authorization ?? "");
    // With `deny`, an unavailable store denies every request; of a key that is not known yet, if it is unavailable to all.
    if (snapshot.config.store.fallbackStrategy === "deny")
      gateway.store.requireUsable(identity?.key.partition);
    if (isPreflight(exchange.req)) return preflightRefusal(target);
    if (!identity) return this.#authenticate(exchange, head, snapshot, target);
    return this.#handle(callOf(gateway, exchange, head, snapshot, identity), target);
  }

  /** Answers a request that must not be served, with its key's rate-limit headers if they can be read. */
  async refuseHead(exchange: Exchange, head: RequestHead, fault: Refusal): Promise<Refusal> {
    const gateway = this.#gateway;
    try {
      const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
      const identity = await gateway.authenticator.authenticate(head.authorization, address);
      if (identity.outcome === "known") {
        const context = callOf(gateway, exchange, head, gateway.live.snapshot, identity);
        const refused = limitUtilityRequests(context) ?? (await inspectKey(context));
        if (refused) return refused;
      }
    } catch {
      // The store is unavailable: the headers stay zero.
    }
    return fault;
  }

  async #authenticate(
    exchange: Exchange,
    head: RequestHead,
    snapshot: Snapshot,
    target: CustomerRoute,
  ): Promise<HandlerResult | undefined> {
    const gateway = this.#gateway;
    const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
    const identity = await gateway.authenticator.authenticate(head.authorization, address);
    if (identity.outcome === "refused") return identity.refusal;
    if (snapshot.config.store.fallbackStrategy === "deny")
      gateway.store.requireUsable(identity.key.partition);
    if (head.forwardedFor !== undefined) noteUntrustedProxy(gateway, exchange, address);
    return this.#handle(callOf(gateway, exchange, head, snapshot, identity), target);
  }

  /** Confirms what this process remembers: the key may not be used so. */
  async #confirmRestrictions(
    context: RequestContext,
    target: CustomerRoute,
  ): Promise<HandlerResult | undefined> {
    const { usage } = context;
    let refused: Refusal | undefined;
    if (isFromAllowedAddress(context)) refused = limitUtilityRequests(context) ?? (await inspectKey(context));
    else if (mayConfirm(context)) refused = await inspectKey(context);
    else refused = refuseRestricted(context, usage.restrictions?.text);
    return refused ?? this.#serve(context, target);
  }

  #handle(context: RequestContext, target: CustomerRoute): Handled {
    if (context.usage.restrictions === undefined || isAllowed(context)) return this.#serve(context, target);
    return this.#confirmRestrictions(context, target);
  }

  #serve(context: RequestContext, target: CustomerRoute): Handled {
    const isSending = target.kind === "generate" || target.kind === "upload";
    if (isSending && this.#gateway.maintenance.current !== undefined) return denyInMaintenance(context);
    if (LIMITED_KINDS.has(target.kind)) {
      const slowDown = limitUtilityRequests(context) ?? limitRequestsInFlight(context);
      if (slowDown) return slowDown;
    }
    switch (target.kind) {
      case "generate":
        return generate(context, target.endpoint);
      case "task":
        return this.#taskPolls.poll(context, target.taskId);
      case "upload":
        return this.#uploads.upload(context);
      case "credits":
        return credits(context);
      case "usage":
        return usage(context);
      case "wrong_method":
        return refuseKnown(context, refuse("method_not_allowed", { allow: target.allow }));
      case "unknown_path":
      case "outside":
        return refuseKnown(context, refuse("path_not_found"));
    }
  }
}

/** A valid key behind an untrusted proxy's X-Forwarded-For. Only when a key was looked up, so that strangers cannot fill the log. */
function noteUntrustedProxy(gateway: Gateway, { req }: Exchange, address: string): void {
  const peer = req.socket.remoteAddress;
  if (address === gateway.clientAddress(peer, undefined)) gateway.noteUntrustedProxy(peer ?? "");
}

function callOf(
  gateway: Gateway,
  exchange: Exchange,
  head: RequestHead,
  { config, upstream }: Snapshot,
  { key, token }: { key: KeyRef; token: string },
): RequestContext {
  exchange.keyId = key.keyId;
  exchange.accountId = key.accountId;
  const usage = gateway.keyUsages.of(key);
  exchange.keyUsage = usage;
  return { gateway, config, upstream, exchange, head, key, token, usage };
}

/** CORS is not granted: a page that holds a key shows it to everybody. */
function preflightRefusal(to: Route): Refusal {
  const text = "API keys belong on servers, never in a browser: CORS is not granted here";
  return to.kind === "wrong_method"
    ? refuse("method_not_allowed", { text: `Method not allowed: ${text}`, allow: to.allow })
    : refuse("path_not_found", { text: `No such endpoint: ${text}` });
}

/** The target of a request. `template` is a label from a closed set, for logs and metrics. */
type Route = { template: string } & (
  | { kind: "generate"; endpoint: GenerationEndpoint }
  | { kind: "task"; taskId: string }
  | { kind: "upload" }
  | { kind: "credits" }
  | { kind: "usage" }
  | { kind: "callback"; token: string }
  | { kind: "wrong_method"; allow: string }
  | { kind: "unknown_path" }
  | { kind: "outside" }
);

const FIXED = new Map<string, { method: "GET" | "POST"; route: Route }>([
  ...GENERATION_ENDPOINTS.map(
    (endpoint) =>
      [
        API_PREFIX + endpoint,
        { method: "POST", route: { kind: "generate", endpoint, template: API_PREFIX + endpoint } },
      ] as const,
  ),
  [`${API_PREFIX}upload`, { method: "POST", route: { kind: "upload", template: `${API_PREFIX}upload` } }],
  [`${API_PREFIX}usage`, { method: "GET", route: { kind: "usage", template: `${API_PREFIX}usage` } }],
  [`${API_PREFIX}credits`, { method: "GET", route: { kind: "credits", template: `${API_PREFIX}credits` } }],
]);

type CustomerRoute = Exclude<Route, { kind: "callback" }>;

/** Requests that count toward the utility rate of a key. */
const LIMITED_KINDS: ReadonlySet<string> = new Set(["task", "upload", "credits", "usage"]);
const TASKS = `${API_PREFIX}tasks/`;
const CALLBACK_TEMPLATE = `${CALLBACKS}{token}`;
const UNKNOWN: Route = { kind: "unknown_path", template: "unknown" };
const OUTSIDE: Route = { kind: "outside", template: "unknown" };

/** All route templates, for documentation and for tests of the closed label set. */
export const ROUTE_TEMPLATES = [...FIXED.keys(), TASK_TEMPLATE, CALLBACK_TEMPLATE, "unknown", "none"];

/** Finds the route. Paths are compared as sent: no decoding but of a task id, no case folding, no trailing slash. The query is no part of it. */
export function route(method: string, target: string): Route {
  const query = target.indexOf("?");
  const path = query < 0 ? target : target.slice(0, query);
  const fixed = FIXED.get(path);
  if (fixed) {
    if (fixed.method === method) return fixed.route;
    return { kind: "wrong_method", allow: fixed.method, template: fixed.route.template };
  }
  if (path.startsWith(TASKS) && path.length > TASKS.length && !path.includes("/", TASKS.length)) {
    // Many clients send `~` as `%7E`. RFC 3986 section 2.3.
    if (method === "GET")
      return { kind: "task", taskId: decoded(path.slice(TASKS.length)), template: TASK_TEMPLATE };
    return { kind: "wrong_method", allow: "GET", template: TASK_TEMPLATE };
  }
  if (path.startsWith(CALLBACKS))
    return { kind: "callback", token: path.slice(CALLBACKS.length), template: CALLBACK_TEMPLATE };
  return path.startsWith(API_PREFIX) || path === API_PREFIX.slice(0, -1) ? UNKNOWN : OUTSIDE;
}
