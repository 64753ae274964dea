import type { Config } from "../config/config.ts";
import { type ApiAnswer, refusal } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import type { KeyRef } from "../records/names.ts";
import { credits } from "./credits.ts";
import { generate } from "./generate.ts";
import type { Exchange } from "./http-exchange.ts";
import { inspectKey, refuseKnown } from "./inspect-key.ts";
import { limitRequestsInFlight, limitUtilityRequests } from "./key-usage.ts";
import { TaskPolls } from "./poll.ts";
import { isPreflight, type RequestHead } from "./protocol.ts";
import type { Call, Gateway } from "./request-context.ts";
import { type Route, route } from "./router.ts";
import { Uploads } from "./upload.ts";

type Answered = Promise<ApiAnswer | undefined> | ApiAnswer;

/** Finds the route, the key and the handler of each request whose head is valid. */
export class Dispatcher {
  readonly #gateway: Gateway;
  readonly #taskPolls = new TaskPolls();
  readonly #uploads: Uploads;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#uploads = new Uploads((total) => gateway.metrics.uploads.set(total));
  }

  /** @returns the answer; undefined when the client went away */
  dispatch(exchange: Exchange, head: RequestHead): Answered {
    const gateway = this.#gateway;
    const target = route(exchange.req.method ?? "", exchange.req.url ?? "");
    exchange.route = target.template;
    if (target.kind === "outside" && head.authorization === undefined) {
      return refusal(refuse("path_not_found"), exchange.shownId);
    }
    const config = gateway.config();
    const identity = gateway.authenticator.cached(head.authorization);
    // With `deny`, an unavailable store denies every request; of a key that is not known yet, if it is unavailable to all.
    if (config.store.fallbackStrategy === "deny") gateway.store.requireUsable(identity?.key.partition);
    if (isPreflight(exchange.req)) return refusal(preflightRefusal(target), exchange.shownId);
    if (!identity) return this.#authenticate(exchange, head, config, target);
    return this.#handle(callOf(gateway, exchange, head, config, identity), target);
  }

  /** Answers a request that must not be served, with its key's rate-limit headers if they can be read. */
  async refuseHead(exchange: Exchange, head: RequestHead, fault: Refusal): Promise<ApiAnswer> {
    const gateway = this.#gateway;
    try {
      const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
      const identity = await gateway.authenticator.authenticate(head.authorization, address);
      if (identity.outcome === "known") {
        const call = callOf(gateway, exchange, head, gateway.config(), identity);
        const refused = limitUtilityRequests(call) ?? (await inspectKey(call));
        if (refused) return refusal(refused, exchange.shownId);
      }
    } catch {
      // The store is unavailable: the headers stay zero.
    }
    return refusal(fault, exchange.shownId);
  }

  /** Looks up a key that is not in the authenticator's cache. */
  async #authenticate(
    exchange: Exchange,
    head: RequestHead,
    config: Config,
    target: Route,
  ): Promise<ApiAnswer | undefined> {
    const gateway = this.#gateway;
    const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
    const identity = await gateway.authenticator.authenticate(head.authorization, address);
    if (identity.outcome === "refused") return refusal(identity.refusal, exchange.shownId);
    if (config.store.fallbackStrategy === "deny") gateway.store.requireUsable(identity.key.partition);
    if (head.forwardedFor !== undefined) noteUntrustedProxy(gateway, exchange, address);
    return this.#handle(callOf(gateway, exchange, head, config, identity), target);
  }

  /** Calls the handler of a request whose key was found. */
  #handle(call: Call, target: Route): Answered {
    if (target.kind === "task" || target.kind === "upload" || target.kind === "credits") {
      const slowDown = limitUtilityRequests(call) ?? limitRequestsInFlight(call);
      if (slowDown) return refusal(slowDown, call.exchange.shownId);
    }
    switch (target.kind) {
      case "generate":
        return generate(call, target.endpoint);
      case "task":
        return this.#taskPolls.poll(call, target.taskId);
      case "upload":
        return this.#uploads.upload(call);
      case "credits":
        return credits(call);
      case "wrong_method":
        return deny(call, refuse("method_not_allowed", { allow: target.allow }));
      case "unknown_path":
      case "outside":
        return deny(call, refuse("path_not_found"));
    }
  }
}

/**
 * A valid key came through a proxy whose X-Forwarded-For is not trusted, so all customers behind it share one address. Noted only
 * when a key was looked up, so that strangers cannot fill the log.
 */
function noteUntrustedProxy(gateway: Gateway, { req }: Exchange, address: string): void {
  const peer = req.socket.remoteAddress;
  if (address === gateway.clientAddress(peer, undefined)) gateway.noteUntrustedProxy(peer ?? "");
}

function callOf(
  gateway: Gateway,
  exchange: Exchange,
  head: RequestHead,
  config: Config,
  { key, token }: { key: KeyRef; token: string },
): Call {
  exchange.keyId = key.keyId;
  exchange.accountId = key.accountId;
  const usage = gateway.keyUsages.of(key);
  exchange.keyUsage = usage;
  return { gateway, config, exchange, head, key, token, usage };
}

async function deny(call: Call, refused: Refusal): Promise<ApiAnswer> {
  return refusal(await refuseKnown(call, refused), call.exchange.shownId);
}

/** CORS is not granted: a page that holds a key shows it to everybody. */
function preflightRefusal(to: Route): Refusal {
  const text = "API keys belong on servers, never in a browser: CORS is not granted here";
  return to.kind === "wrong_method"
    ? refuse("method_not_allowed", { text: `Method not allowed: ${text}`, allow: to.allow })
    : refuse("path_not_found", { text: `No such endpoint: ${text}` });
}
