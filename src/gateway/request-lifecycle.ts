import type { Socket } from "node:net";
import { type ApiAnswer, refusal } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import type { Series } from "../telemetry/metrics/factory.ts";
import { drainBody } from "./body.ts";
import type { ReceivedRequest } from "./client-connection.ts";
import type { ClientConnections } from "./client-connections.ts";
import { Dispatcher } from "./dispatch.ts";
import { type Exchange, openExchange, respond, takeRequestId } from "./http-exchange.ts";
import { asksForWebSocket, readHead } from "./protocol.ts";
import { createCompletion } from "./request-completion.ts";
import type { Gateway } from "./request-context.ts";

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
  readonly #complete: ReturnType<typeof createCompletion>;
  /**
   * Connections that end with a response that is decided or written. Later requests on them may be smuggled in and could not be
   * answered, so they are dropped.
   */
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
    this.#complete = createCompletion(gateway);
  }

  /**
   * Starts a request.
   * @param isRefused its connection exceeds a limit
   * @returns undefined for a request that is dropped because its connection ends
   */
  start({ req, res, expectsContinue }: ReceivedRequest, isRefused: boolean): Exchange | undefined {
    res.on("error", ignore);
    if (this.#ending.has(req.socket)) return undefined;
    const isFull = this.#inFlight >= this.#gateway.config().server.maxRequestsInFlight;
    if (isFull) this.#gateway.metrics.overloads.inc({ bound: "requests_in_flight" });
    this.#inFlight++;
    this.#inFlightSeries.pending++;
    const exchange = openExchange(req, res, expectsContinue);
    void this.#serve(exchange, isRefused ? "connections" : isFull ? "requests" : undefined);
    return exchange;
  }

  /** Answers a request whose body turned out to be malformed. Its exchange ends with its connection, or before. */
  refuseMalformedBody(exchange: Exchange, refused: Refusal): Promise<ApiAnswer> {
    const { head } = readHead(exchange.req, this.#gateway.config().server);
    exchange.malformedBodyAnswer = this.#dispatcher.refuseHead(exchange, head, refused);
    return exchange.malformedBodyAnswer;
  }

  /** Resolves once no request is in flight. A disconnect of the client does not end a request. */
  async idle(): Promise<void> {
    while (this.#inFlight > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#becameIdle = resolve;
      await promise;
    }
  }

  /** @param overload the limit that is reached, if any */
  async #serve(exchange: Exchange, overload: Overload | undefined): Promise<void> {
    const gateway = this.#gateway;
    let close = gateway.isDraining() || overload === "connections";
    let answer: ApiAnswer | undefined;
    try {
      const { head, fault: headFault } = readHead(exchange.req, gateway.config().server);
      takeRequestId(exchange, head.requestId);
      if (head.hasBody && head.contentLength === undefined)
        this.#connections.pauseUntilBodyRead(exchange.req);
      if (head.traceParent !== undefined || gateway.tracing.on) {
        exchange.trace = gateway.tracing.begin(head.traceParent, head.traceState, exchange.startedMs);
      }
      const fault =
        headFault ?? (head.upgrades && asksForWebSocket(exchange.req) ? UPGRADE_REFUSED : undefined);
      // Node loses what came with the end of a request that asks for an upgrade. Decision 0012.
      close ||= headFault !== undefined || head.upgrades;
      if (close) this.#ending.add(exchange.req.socket);
      if (overload) answer = refusal(OVERLOADED[overload], exchange.shownId);
      else if (fault) answer = await this.#dispatcher.refuseHead(exchange, head, fault);
      else answer = await this.#dispatcher.dispatch(exchange, head);
    } catch (error) {
      answer = failure(gateway, exchange, error);
    }
    if (exchange.malformedBodyAnswer) answer = await exchange.malformedBodyAnswer;
    close ||= this.#mustClose(exchange);
    if (close) this.#ending.add(exchange.req.socket);
    this.#atTickEnd({ exchange, answer, close });
  }

  /** Whether the connection ends with this response. Never before a pipelined response, which may be that of a charge. */
  #mustClose({ req, res, expectsContinue }: Exchange): boolean {
    // The client was not told to send its body, and may send it or not.
    if (expectsContinue && !req.complete) return true;
    return this.#gateway.isDraining() && !this.#connections.hasPipelinedResponse(res);
  }

  /** The responses of one tick are written one right after the other, so that a waiting reader wakes up once. Decision 0026. */
  readonly #atTickEnd = atTickEnd<Decided>((decided) => {
    const { bodyRead } = this.#gateway;
    for (const { exchange, answer, close } of decided) {
      if (answer && !exchange.malformedBodyAnswer) {
        if (respond(exchange, answer, close)) this.#connections.responseWritten(exchange, answer.body.length);
        else exchange.clientGone = true;
      }
      drainBody(exchange.req, bodyRead, () => this.#connections.endAfterResponse(exchange.res));
    }
    for (const { exchange, answer } of decided) this.#complete(exchange, answer);
    this.#inFlight -= decided.length;
    this.#inFlightSeries.pending -= decided.length;
    if (this.#inFlight === 0) this.#becameIdle();
  });
}

/**
 * Collects what one tick of the event loop brings, and passes it on at the end of the tick.
 * @param take is called with the items of a tick, in order
 * @returns adds an item to those of this tick
 */
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

function failure(gateway: Gateway, exchange: Exchange, error: unknown): ApiAnswer {
  if (error instanceof GatewayError) return refusal(error.refusal, exchange.shownId);
  gateway.log.error({ request_id: exchange.requestId, err: error }, "internal fault");
  return refusal(refuse("internal"), exchange.shownId);
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
