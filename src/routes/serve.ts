import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Config } from "../config/config.ts";
import { type Answer, refusal } from "../core/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../core/errors.ts";
import { atTurnEnd } from "../core/turn.ts";
import { drainBody } from "../http/body.ts";
import { type Exchange, openExchange, respond, takeRequestId } from "../http/exchange.ts";
import { asksForWebSocket, isPreflight, type RequestHead, readHead } from "../http/protocol.ts";
import { type Route, route } from "../http/router.ts";
import type { KeyRef } from "../store/names.ts";
import { logRequest, logSlow } from "../telemetry/log.ts";
import { credits } from "./credits.ts";
import { type Call, type Gateway, inspectKey, limitUnderWay, limitUtility, refuseKnown } from "./gateway.ts";
import { generate } from "./generate.ts";
import { createTaskPolls } from "./tasks.ts";
import { upload } from "./upload.ts";

/** What the listener is asked and told about the connection of an answer. */
interface Connections {
  /** Whether it is owed another answer behind this one. */
  owesMore(res: ServerResponse): boolean;
  /** An answer of so many bytes was written. */
  answered(exchange: Exchange, bytes: number): void;
  /** The body of this request is chunked: no more of it than is there is read until somebody reads it. */
  holdUntilRead(req: IncomingMessage): void;
  /** No more of the request of this answer is read, and its connection ends behind the answer. */
  endUnread(res: ServerResponse): void;
}

/** A request that is decided; without an answer its client went away. */
interface Finished {
  exchange: Exchange;
  answer: Answer | undefined;
  close: boolean;
}

/** Serves the public port: every request ends in exactly one answer, one log line and one count. */
export function createServe(gateway: Gateway, connections: Connections) {
  const pollTask = createTaskPolls();
  /**
   * Connections that end with an answer already under way: what still comes on one may be smuggled in, and could not
   * be answered any more.
   */
  const ending = new WeakSet<Socket>();
  /** Requests that are being worked on, be their client there or not. */
  let underWay = 0;
  let becameIdle = ignore;

  const dispatch = (call: Call, to: Route): Promise<Answer | undefined> | Answer => {
    const deny = async (refused: Refusal): Promise<Answer> =>
      refusal(await refuseKnown(call, refused), call.exchange.shownId);
    if (to.kind === "task" || to.kind === "upload" || to.kind === "credits") {
      const slowDown = limitUtility(call) ?? limitUnderWay(call);
      if (slowDown) return refusal(slowDown, call.exchange.shownId);
    }
    switch (to.kind) {
      case "generate":
        return generate(call, to.endpoint);
      case "task":
        return pollTask(call, to.taskId);
      case "upload":
        return upload(call);
      case "credits":
        return credits(call);
      case "wrong_method":
        return deny(refuse("method_not_allowed", { allow: to.allow }));
      case "unknown_path":
      case "outside":
        return deny(refuse("path_not_found"));
    }
  };

  /** The answer of one request whose head is sound; undefined when the client went away. */
  function decide(exchange: Exchange, head: RequestHead): Promise<Answer | undefined> | Answer {
    const to = route(exchange.req.method ?? "", exchange.req.url ?? "");
    exchange.route = to.template;
    if (to.kind === "outside" && head.authorization === undefined) {
      return refusal(refuse("path_not_found"), exchange.shownId);
    }
    const config = gateway.config();
    // Spec 8.5: while the store is away all requests are denied, whoever sends them.
    if (config.store.fallbackStrategy === "deny") gateway.store.requireUsable();
    if (isPreflight(exchange.req)) return refusal(preflightRefusal(to), exchange.shownId);
    const identity = gateway.authenticator.recall(head.authorization);
    if (!identity) return identify(exchange, head, config, to);
    return dispatch(callOf(exchange, head, config, identity), to);
  }

  async function identify(
    exchange: Exchange,
    head: RequestHead,
    config: Config,
    to: Route,
  ): Promise<Answer | undefined> {
    const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
    const identity = await gateway.authenticator.authenticate(head.authorization, address);
    if (identity.outcome === "refused") return refusal(identity.refusal, exchange.shownId);
    if (head.forwardedFor !== undefined) noteUntrustedProxy(exchange, address);
    return dispatch(callOf(exchange, head, config, identity), to);
  }

  /**
   * A good key that came through a proxy whose X-Forwarded-For is not believed: all its customers share one address. Noted only
   * for keys that were just found, so strangers cannot fill the log.
   */
  function noteUntrustedProxy({ req }: Exchange, address: string): void {
    const peer = req.socket.remoteAddress;
    if (address === gateway.clientAddress(peer, undefined)) gateway.noteUntrustedProxy(peer ?? "");
  }

  function callOf(
    exchange: Exchange,
    head: RequestHead,
    config: Config,
    { key, token }: { key: KeyRef; token: string },
  ): Call {
    exchange.keyId = key.keyId;
    exchange.accountId = key.accountId;
    const use = gateway.utilityRate.useOf(key);
    exchange.lastKnown = use;
    return { gateway, config, exchange, head, key, token, use };
  }

  /** A request that must not be served at all still carries its key's true numbers, if they can be had. */
  async function refuseHead(exchange: Exchange, head: RequestHead, fault: Refusal): Promise<Answer> {
    try {
      const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
      const identity = await gateway.authenticator.authenticate(head.authorization, address);
      if (identity.outcome === "known") {
        const call = callOf(exchange, head, gateway.config(), identity);
        const refused = limitUtility(call) ?? (await inspectKey(call));
        if (refused) return refusal(refused, exchange.shownId);
      }
    } catch {
      // The store is away: the zeros stand.
    }
    return refusal(fault, exchange.shownId);
  }

  /** @param crowded why there is no room for it; undefined: there is */
  async function serve(exchange: Exchange, crowded: Crowded | undefined): Promise<void> {
    gateway.metrics.inFlight.inc();
    let close = gateway.draining() || crowded === "connections";
    let answer: Answer | undefined;
    try {
      const { head, fault: headFault } = readHead(exchange.req, gateway.config().server);
      takeRequestId(exchange, head.requestId);
      if (head.hasBody && head.contentLength === undefined) connections.holdUntilRead(exchange.req);
      if (head.traceParent !== undefined || gateway.tracing.on) {
        exchange.trace = gateway.tracing.begin(head.traceParent, head.traceState, exchange.startedMs);
      }
      const fault =
        headFault ?? (head.upgrades && asksForWebSocket(exchange.req) ? upgradeRefused : undefined);
      // Node loses what came with the end of a request that asks for an upgrade. Decision 0012.
      close ||= headFault !== undefined || head.upgrades;
      if (close) ending.add(exchange.req.socket);
      if (crowded) answer = refusal(overloaded(crowded), exchange.shownId);
      else answer = await (fault ? refuseHead(exchange, head, fault) : decide(exchange, head));
    } catch (error) {
      answer = failure(exchange, error);
    }
    if (exchange.broken) answer = await exchange.broken;
    close ||= mustEnd(exchange);
    if (close) ending.add(exchange.req.socket);
    finish({ exchange, answer, close });
  }

  /** Whether the connection ends with this answer. Never before one that is owed: it may be that of a charge. */
  function mustEnd({ req, res, expectsContinue }: Exchange): boolean {
    // Whether a body that was not asked for will come, nobody can tell.
    if (expectsContinue && !req.complete) return true;
    return gateway.draining() && !connections.owesMore(res);
  }

  /** The answers of one turn go out one right after the other: a reader that waits is woken once. Decision 0026. */
  const finish = atTurnEnd<Finished>((finished) => {
    for (const { exchange, answer, close } of finished) {
      if (answer && !exchange.broken) {
        if (respond(exchange, answer, close)) connections.answered(exchange, answer.body.length);
        else exchange.clientGone = true;
      }
      drainBody(exchange.req, gateway.bodyRead, () => connections.endUnread(exchange.res));
    }
    for (const { exchange, answer } of finished) record(exchange, answer);
    underWay -= finished.length;
    if (underWay === 0) becameIdle();
  });

  function failure(exchange: Exchange, error: unknown): Answer {
    if (error instanceof GatewayError) return refusal(error.refusal, exchange.shownId);
    gateway.log.error({ request_id: exchange.requestId, err: error }, "internal fault");
    return refusal(refuse("internal"), exchange.shownId);
  }

  function record(exchange: Exchange, answer: Answer | undefined): void {
    const { metrics, log } = gateway;
    const { route: template, startedMs, upstreamMs, req } = exchange;
    const status = answer?.status ?? 499;
    const outcome = answer?.outcome ?? "client_gone";
    const elapsedMs = performance.now() - startedMs;
    // Zeros say that no script has answered.
    if (exchange.lastKnown && exchange.state.rateLimit > 0) exchange.lastKnown.state = exchange.state;
    metrics.inFlight.dec();
    if (exchange.countedIn) exchange.countedIn.underWay--;
    metrics.requests.inc({ route: template, status, outcome });
    metrics.requestSeconds.observe(
      { route: template, class: CLASSES[Math.floor(status / 100)]! },
      elapsedMs / 1000,
    );
    if (answer && status >= 400 && status < 500 && exchange.accountId !== undefined) {
      gateway.countRefusal(exchange.keyId ?? "", exchange.accountId, outcome);
    }
    logRequest(log, status >= 500 ? "warn" : "info", {
      request_id: exchange.requestId,
      client_request_id: exchange.shownId === exchange.requestId ? undefined : exchange.shownId,
      trace_id: exchange.trace?.traceId,
      method: req.method,
      route: template,
      status,
      outcome,
      key_id: exchange.keyId,
      account_id: exchange.accountId,
      task_id: exchange.taskId,
      price: exchange.price,
      duration_ms: elapsedMs,
      upstream_ms: upstreamMs,
      degraded: exchange.degraded,
      shadow: exchange.shadow,
      client_gone: exchange.clientGone,
      detail: answer?.detail,
    });
    const { slowRequestMs } = gateway.config().log;
    if (slowRequestMs > 0) logSlow(log, slowRequestMs, elapsedMs, exchange);
    exchange.trace?.spans?.end({ ...exchange, method: req.method, status, outcome });
  }

  return {
    /**
     * Serves one request.
     * @param refused its connection came above a limit
     * @returns undefined for one that is dropped, since its connection ends
     */
    serve(
      req: IncomingMessage,
      res: ServerResponse,
      expectsContinue: boolean,
      refused: boolean,
    ): Exchange | undefined {
      res.on("error", ignore);
      if (ending.has(req.socket)) return undefined;
      const full = underWay >= gateway.config().server.maxRequestsInFlight;
      if (full) gateway.metrics.overloads.inc({ bound: "requests_in_flight" });
      underWay++;
      const exchange = openExchange(req, res, expectsContinue);
      void serve(exchange, refused ? "connections" : full ? "requests" : undefined);
      return exchange;
    },
    /** Refuses a request in the middle of its body. Its exchange ends when its connection does, or before. */
    refuseBroken(exchange: Exchange, refused: Refusal): Promise<Answer> {
      const { head } = readHead(exchange.req, gateway.config().server);
      exchange.broken = refuseHead(exchange, head, refused);
      return exchange.broken;
    },
    /** Resolves once nothing is under way; a client that went away does not end its exchange. */
    async idle(): Promise<void> {
      while (underWay > 0) {
        const { promise, resolve } = Promise.withResolvers<void>();
        becameIdle = resolve;
        await promise;
      }
    },
  };
}

/** No permission is granted: a page that has a key shows it to everybody. Spec part 5. */
function preflightRefusal(to: Route): Refusal {
  const text = "API keys belong on servers, never in a browser: CORS is not granted here";
  return to.kind === "wrong_method"
    ? refuse("method_not_allowed", { text: `Method not allowed: ${text}`, allow: to.allow })
    : refuse("path_not_found", { text: `No such endpoint: ${text}` });
}

type Crowded = "connections" | "requests";

const overloaded = (crowded: Crowded): Refusal =>
  refuse("overloaded", { retryAfterSeconds: 1, detail: DETAILS[crowded] });
const DETAILS: Record<Crowded, string> = {
  connections: "server.max_connections or server.max_connections_per_address is reached",
  requests: "server.max_requests_in_flight is reached",
};

/** Classes of HTTP status, by their first digit. */
const CLASSES = ["", "1xx", "2xx", "3xx", "4xx", "5xx"];
const upgradeRefused = refuse("upgrade_refused");
const ignore = (): void => undefined;
