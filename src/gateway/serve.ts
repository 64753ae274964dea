import type { Socket } from "node:net";
import { type Answer, refusal } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import { atTickEnd } from "../domain/tick.ts";
import { createRecord } from "./access-log.ts";
import { drainBody } from "./body.ts";
import type { Arrival, ClientConnections } from "./client-connections.ts";
import { type Dispatch, decide, refuseHead } from "./dispatch.ts";
import { type Exchange, openExchange, respond, takeRequestId } from "./exchange.ts";
import type { Gateway } from "./handler-context.ts";
import { createTaskPolls } from "./poll.ts";
import { asksForWebSocket, readHead } from "./protocol.ts";

/** A request that is decided; without an answer its client went away. */
interface Finished {
  exchange: Exchange;
  answer: Answer | undefined;
  close: boolean;
}

/** Serves the public port: every request ends in exactly one answer, one log line and one count. */
export class Requests {
  readonly #gateway: Gateway;
  readonly #connections: ClientConnections;
  readonly #dispatch: Dispatch;
  readonly #record: ReturnType<typeof createRecord>;
  /**
   * Connections that end with an answer already under way: what still comes on one may be smuggled in, and could not
   * be answered any more.
   */
  readonly #ending = new WeakSet<Socket>();
  /** Requests that are being worked on, be their client there or not. */
  #underWay = 0;
  #becameIdle = ignore;

  constructor(gateway: Gateway, connections: ClientConnections) {
    this.#gateway = gateway;
    this.#connections = connections;
    this.#dispatch = { gateway, pollTask: createTaskPolls() };
    this.#record = createRecord(gateway);
  }

  /**
   * Serves one request.
   * @param refused its connection came above a limit
   * @returns undefined for one that is dropped, since its connection ends
   */
  begin({ req, res, expectsContinue }: Arrival, refused: boolean): Exchange | undefined {
    res.on("error", ignore);
    if (this.#ending.has(req.socket)) return undefined;
    const full = this.#underWay >= this.#gateway.config().server.maxRequestsInFlight;
    if (full) this.#gateway.metrics.overloads.inc({ bound: "requests_in_flight" });
    this.#underWay++;
    const exchange = openExchange(req, res, expectsContinue);
    void this.#serve(exchange, refused ? "connections" : full ? "requests" : undefined);
    return exchange;
  }

  /** Refuses a request in the middle of its body. Its exchange ends when its connection does, or before. */
  refuseBroken(exchange: Exchange, refused: Refusal): Promise<Answer> {
    const { head } = readHead(exchange.req, this.#gateway.config().server);
    exchange.broken = refuseHead(this.#gateway, exchange, head, refused);
    return exchange.broken;
  }

  /** Resolves once nothing is under way; a client that went away does not end its exchange. */
  async idle(): Promise<void> {
    while (this.#underWay > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#becameIdle = resolve;
      await promise;
    }
  }

  /** @param crowded why there is no room for it; undefined: there is */
  async #serve(exchange: Exchange, crowded: Crowded | undefined): Promise<void> {
    const gateway = this.#gateway;
    gateway.metrics.inFlight.inc();
    let close = gateway.draining() || crowded === "connections";
    let answer: Answer | undefined;
    try {
      const { head, fault: headFault } = readHead(exchange.req, gateway.config().server);
      takeRequestId(exchange, head.requestId);
      if (head.hasBody && head.contentLength === undefined) this.#connections.holdUntilRead(exchange.req);
      if (head.traceParent !== undefined || gateway.tracing.on) {
        exchange.trace = gateway.tracing.begin(head.traceParent, head.traceState, exchange.startedMs);
      }
      const fault =
        headFault ?? (head.upgrades && asksForWebSocket(exchange.req) ? upgradeRefused : undefined);
      // Node loses what came with the end of a request that asks for an upgrade. Decision 0012.
      close ||= headFault !== undefined || head.upgrades;
      if (close) this.#ending.add(exchange.req.socket);
      if (crowded) answer = refusal(overloaded(crowded), exchange.shownId);
      else if (fault) answer = await refuseHead(gateway, exchange, head, fault);
      else answer = await decide(this.#dispatch, exchange, head);
    } catch (error) {
      answer = failure(gateway, exchange, error);
    }
    if (exchange.broken) answer = await exchange.broken;
    close ||= this.#mustEnd(exchange);
    if (close) this.#ending.add(exchange.req.socket);
    this.#finish({ exchange, answer, close });
  }

  /** Whether the connection ends with this answer. Never before one that is to come: it may be that of a charge. */
  #mustEnd({ req, res, expectsContinue }: Exchange): boolean {
    // Whether a body that was not asked for will come, nobody can tell.
    if (expectsContinue && !req.complete) return true;
    return this.#gateway.draining() && !this.#connections.hasPipelinedResponse(res);
  }

  /** The answers of one tick go out one right after the other: a reader that waits is woken once. Decision 0026. */
  readonly #finish = atTickEnd<Finished>((finished) => {
    const { bodyRead } = this.#gateway;
    for (const { exchange, answer, close } of finished) {
      if (answer && !exchange.broken) {
        if (respond(exchange, answer, close)) this.#connections.answered(exchange, answer.body.length);
        else exchange.clientGone = true;
      }
      drainBody(exchange.req, bodyRead, () => this.#connections.stopReading(exchange.res));
    }
    for (const { exchange, answer } of finished) this.#record(exchange, answer);
    this.#underWay -= finished.length;
    if (this.#underWay === 0) this.#becameIdle();
  });
}

function failure(gateway: Gateway, exchange: Exchange, error: unknown): Answer {
  if (error instanceof GatewayError) return refusal(error.refusal, exchange.shownId);
  gateway.log.error({ request_id: exchange.requestId, err: error }, "internal fault");
  return refusal(refuse("internal"), exchange.shownId);
}

type Crowded = "connections" | "requests";

const overloaded = (crowded: Crowded): Refusal =>
  refuse("overloaded", { retryAfterSeconds: 1, detail: DETAILS[crowded] });
const DETAILS: Record<Crowded, string> = {
  connections: "server.max_connections or server.max_connections_per_address is reached",
  requests: "server.max_requests_in_flight is reached",
};

const upgradeRefused = refuse("upgrade_refused");
const ignore = (): void => undefined;
