import { noLimits } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { allowanceOf, readRestrictions } from "../domain/key-restrictions.ts";
import type { RequestContext } from "./http-exchange.ts";

// Keys that may be used with some endpoints or from some addresses only.

/** Remembers what a script has said of the key. Keys without restrictions, which never had any, cost one comparison. */
export function rememberRestrictions({ usage }: RequestContext, text: string | undefined): void {
  if (usage.restrictions?.text === text) return;
  usage.restrictions = text === undefined ? undefined : { text, ...allowanceOf(text) };
}

/** True if the key may be used for this request, as far as this process knows. */
export const isAllowed = (context: RequestContext): boolean =>
  context.usage.restrictions === undefined ||
  (isFromAllowedAddress(context) && context.usage.restrictions.route(context.exchange.route));

export const isFromAllowedAddress = ({ gateway, exchange, head, usage }: RequestContext): boolean =>
  usage.restrictions?.address(gateway.exactAddress(exchange.req.socket.remoteAddress, head.forwardedFor)) ??
  true;

/** @returns the refusal to answer: from another address that of an unknown key, which also counts as one */
export function refuseRestricted(context: RequestContext, text: string | undefined): Refusal | undefined {
  rememberRestrictions(context, text);
  if (isAllowed(context)) return undefined;
  if (isFromAllowedAddress(context)) return endpointRefusal(text);
  const { exchange, gateway, head } = context;
  exchange.state = noLimits(Date.now());
  const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
  return { ...gateway.authenticator.refuseAsUnknown(address), detail: "not from an allowed address" };
}

function endpointRefusal(restrictions: string | undefined): Refusal {
  const { endpoints = [] } = readRestrictions(restrictions);
  return refuse("endpoint_not_allowed", {
    text: `This API key may not use this endpoint; it may use ${endpoints.join(", ")}`,
  });
}

/** True if a script may be asked about a key from an address that was not allowed a moment ago; limited as unknown keys are. */
export function mayConfirm(context: RequestContext): boolean {
  const { exchange, gateway, head } = context;
  const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
  return gateway.authenticator.mayLookUp(address);
}
