import { API_PREFIX, GENERATION_ENDPOINTS } from "../domain/endpoints.ts";
import { type HandlerResult, success } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import type { BarredStatus } from "../records/records.ts";
import type { CreditAccount } from "../scripts/accounts.ts";
import type { Inspection } from "../scripts/tasks.ts";
import { type RequestContext, storeStep } from "./http-exchange.ts";
import { limitUtilityRequests, rememberGoodKey } from "./key-memory.ts";
import { refuseRestricted } from "./restricted-keys.ts";
import { passUnmetered } from "./unmetered.ts";

/** Runs INSPECT for the rate-limit headers. @returns the 401 of a key that is no longer valid or not allowed from here, or the
 * 403 of its account or endpoint */
export async function inspectKey(context: RequestContext): Promise<Refusal | undefined> {
  const { gateway, config, exchange, key } = context;
  const inspection = await storeStep(context, "INSPECT", gateway.store.inspect(key, config.tiers));
  const refused = refuseKey(context, inspection);
  const isSuspended = inspection.outcome !== "unknown_key" && inspection.status === "suspended";
  return refused ?? (isSuspended && ACTIVE_ONLY.has(exchange.route) ? refuseBarred("suspended") : undefined);
}

/** Keeps what a script says of the key. @returns the 401 of one that is invalid or not allowed from here, or the 403 of a closed account */
export function refuseKey(context: RequestContext, found: Inspection | CreditAccount): Refusal | undefined {
  context.exchange.state = found.state;
  if (found.outcome === "unknown_key") return evictInvalidKey(context);
  rememberGoodKey(context, found, found.status);
  const closed = found.status === "closed" ? refuseBarred(found.status) : undefined;
  return refuseRestricted(context, found.restrictions) ?? closed;
}

/** Routes that an account must be active for; a suspended one may use all others. */
const ACTIVE_ONLY: ReadonlySet<string> = new Set(
  [...GENERATION_ENDPOINTS, "upload"].map((endpoint) => API_PREFIX + endpoint),
);

export const refuseBarred = (status: BarredStatus): Refusal =>
  refuse("account_suspended", { detail: `the account is ${status}` });

/** Forgets a key that a script called invalid. @returns its 401 */
export function evictInvalidKey({ gateway, exchange, head, token, usage }: RequestContext): Refusal {
  // Requests that have found the key before know it by the same usage.
  usage.isInvalid = true;
  const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
  gateway.authenticator.evictCachedKey(token, address);
  return refuse("invalid_api_key");
}

/** Refuses a request of a known key. One INSPECT, so that a revoked key gets 401 and the headers are correct. @returns the refusal to answer */
export async function refuseKnown(context: RequestContext, refusal: Refusal): Promise<Refusal> {
  return limitUtilityRequests(context) ?? refuseCounted(context, refusal);
}

/** Refuses a request that the limit of utility requests has counted already; a key that is no good is refused as that. */
export async function refuseCounted(context: RequestContext, refusal: Refusal): Promise<Refusal> {
  try {
    return (await inspectKey(context)) ?? refusal;
  } catch (error) {
    if (await passUnmetered(context, error)) return refusal;
    throw error;
  }
}

/** Also while the store is away: it may be what is maintained. */
export async function denyInMaintenance(context: RequestContext): Promise<Refusal> {
  const { gateway } = context;
  const { retryAfterSeconds = 1, message } = gateway.maintenance.current ?? {};
  const refused = refuse("maintenance", {
    retryAfterSeconds,
    ...(message !== undefined && { text: message }),
  });
  return limitUtilityRequests(context) ?? (await inspectKey(context).catch(() => undefined)) ?? refused;
}

/** GET /credits: the account, and the limits that are enforced for this key. */
export async function credits(context: RequestContext): Promise<HandlerResult> {
  const { gateway, config, key } = context;
  const account = await storeStep(context, "CREDITS", gateway.store.credits(key, config.tiers));
  const refused = refuseKey(context, account);
  if (refused || account.outcome !== "known") return refused!;
  return success(
    JSON.stringify({
      balance: account.balance,
      total_used: account.totalUsed,
      total_requests: account.totalRequests,
      tier: account.tier,
      limits: account.limits,
      recent_transactions: account.recent,
    }),
  );
}
