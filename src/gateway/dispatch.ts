import type { Config } from "../config/config.ts";
import { type Answer, refusal } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import type { KeyRef } from "../store/names.ts";
import { credits } from "./credits.ts";
import type { Exchange } from "./exchange.ts";
import { generate } from "./generate.ts";
import {
  type Call,
  type Gateway,
  inspectKey,
  limitUnderWay,
  limitUtility,
  refuseKnown,
} from "./handler-context.ts";
import type { PollTask } from "./poll.ts";
import { isPreflight, type RequestHead } from "./protocol.ts";
import { type Route, route } from "./router.ts";
import { upload } from "./upload.ts";

/** What the requests of one gateway share on their way to a handler. */
export interface Dispatch {
  gateway: Gateway;
  pollTask: PollTask;
}

/** The answer of one request whose head is sound; undefined when the client went away. */
export function decide(
  to: Dispatch,
  exchange: Exchange,
  head: RequestHead,
): Promise<Answer | undefined> | Answer {
  const { gateway } = to;
  const target = route(exchange.req.method ?? "", exchange.req.url ?? "");
  exchange.route = target.template;
  if (target.kind === "outside" && head.authorization === undefined) {
    return refusal(refuse("path_not_found"), exchange.shownId);
  }
  const config = gateway.config();
  // While the store is away all requests are denied, whoever sends them.
  if (config.store.fallbackStrategy === "deny") gateway.store.requireUsable();
  if (isPreflight(exchange.req)) return refusal(preflightRefusal(target), exchange.shownId);
  const identity = gateway.authenticator.recall(head.authorization);
  if (!identity) return identify(to, exchange, head, config, target);
  return handle(to, callOf(gateway, exchange, head, config, identity), target);
}

/** A request that must not be served at all still carries its key's true numbers, if they can be had. */
export async function refuseHead(
  gateway: Gateway,
  exchange: Exchange,
  head: RequestHead,
  fault: Refusal,
): Promise<Answer> {
  try {
    const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
    const identity = await gateway.authenticator.authenticate(head.authorization, address);
    if (identity.outcome === "known") {
      const call = callOf(gateway, exchange, head, gateway.config(), identity);
      const refused = limitUtility(call) ?? (await inspectKey(call));
      if (refused) return refusal(refused, exchange.shownId);
    }
  } catch {
    // The store is away: the zeros stand.
  }
  return refusal(fault, exchange.shownId);
}

/** Finds a key that this process has not seen, or not lately. */
async function identify(
  to: Dispatch,
  exchange: Exchange,
  head: RequestHead,
  config: Config,
  target: Route,
): Promise<Answer | undefined> {
  const { gateway } = to;
  const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
  const identity = await gateway.authenticator.authenticate(head.authorization, address);
  if (identity.outcome === "refused") return refusal(identity.refusal, exchange.shownId);
  if (head.forwardedFor !== undefined) noteUntrustedProxy(gateway, exchange, address);
  return handle(to, callOf(gateway, exchange, head, config, identity), target);
}

/**
 * A good key that came through a proxy whose X-Forwarded-For is not believed: all its customers share one address. Noted only
 * for keys that were just found, so strangers cannot fill the log.
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
  const use = gateway.utilityRate.useOf(key);
  exchange.lastKnown = use;
  return { gateway, config, exchange, head, key, token, use };
}

/** Hands a request whose key was found to the handler of its endpoint. */
function handle({ pollTask }: Dispatch, call: Call, target: Route): Promise<Answer | undefined> | Answer {
  if (target.kind === "task" || target.kind === "upload" || target.kind === "credits") {
    const slowDown = limitUtility(call) ?? limitUnderWay(call);
    if (slowDown) return refusal(slowDown, call.exchange.shownId);
  }
  switch (target.kind) {
    case "generate":
      return generate(call, target.endpoint);
    case "task":
      return pollTask(call, target.taskId);
    case "upload":
      return upload(call);
    case "credits":
      return credits(call);
    case "wrong_method":
      return deny(call, refuse("method_not_allowed", { allow: target.allow }));
    case "unknown_path":
    case "outside":
      return deny(call, refuse("path_not_found"));
  }
}

async function deny(call: Call, refused: Refusal): Promise<Answer> {
  return refusal(await refuseKnown(call, refused), call.exchange.shownId);
}

/** No permission is granted: a page that has a key shows it to everybody. */
function preflightRefusal(to: Route): Refusal {
  const text = "API keys belong on servers, never in a browser: CORS is not granted here";
  return to.kind === "wrong_method"
    ? refuse("method_not_allowed", { text: `Method not allowed: ${text}`, allow: to.allow })
    : refuse("path_not_found", { text: `No such endpoint: ${text}` });
}
