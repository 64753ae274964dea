import type { Config } from "../config/config.ts";
import type { GenerationEndpoint } from "../domain/endpoints.ts";
import type { Problem } from "../domain/errors.ts";
import { type ValidBody, validateGeneration } from "../domain/generation.ts";
import { isObject } from "../domain/json.ts";
import { isWebUrl } from "../domain/urls.ts";
import { CALLBACKS } from "./callbacks.ts";
import type { RequestContext } from "./http-exchange.ts";
import { isStoreUnavailable } from "./unmetered.ts";

/** The one endpoint whose `callBackUrl` is in the API without further settings. */
const STORYBOARD: GenerationEndpoint = "gen2-pro/storyboard";

type Validated = ({ ok: true } & ValidBody) | { ok: false; problems: Problem[] };

/** The bodies and the address of a generation whose callback is relayed. */
export interface Relayed {
  /** The customer's address, which the gateway calls once the task has ended. */
  callBackUrl: string | undefined;
  /** The body sent upstream: the priced body but for `callBackUrl`. */
  sent: ValidBody;
  /** The body sent if the request passes unmetered: no record exists then that a callback could name. */
  sentUnmetered: ValidBody;
  /** Set if the store is away, so that nobody knows whether the account has registered the origin: no ADMIT may follow. */
  storeError: unknown;
}

/** True if `callBackUrl` is relayed: `public_url` is set, and there is a key for tokens. */
export const isRelaying = ({ webhooks }: Config): boolean =>
  webhooks.publicUrl !== undefined && webhooks.secretKey !== undefined;

/** Validates a body; with `webhooks.callbacks: all` each endpoint takes a `callBackUrl`. */
export function validateBody(config: Config, endpoint: GenerationEndpoint, given: unknown): Validated {
  const isAdditive =
    endpoint !== STORYBOARD && config.webhooks.callbacks === "all" && isRelaying(config) && isObject(given);
  if (!isAdditive || !Object.hasOwn(given, "callBackUrl"))
    return validateGeneration(endpoint, given, config.sourceVideoHost);
  const { callBackUrl, ...others } = given;
  const validation = validateGeneration(endpoint, others, config.sourceVideoHost);
  // Many clients write `null` for an absent member.
  if (callBackUrl === null) return validation;
  if (typeof callBackUrl !== "string" || !callBackUrl.isWellFormed() || !isWebUrl(callBackUrl)) {
    const problem = { path: "/callBackUrl", message: "callBackUrl must be a well-formed http or https URL" };
    return { ok: false, problems: validation.ok ? [problem] : [...validation.problems, problem] };
  }
  return validation.ok ? { ok: true, ...withAddress(validation, callBackUrl) } : validation;
}

/** Puts the gateway's address in place of the customer's. @returns undefined if nothing is relayed; or the address's problem */
export async function relay(
  context: RequestContext,
  endpoint: GenerationEndpoint,
  valid: ValidBody,
): Promise<Relayed | { problem: Problem } | undefined> {
  const { gateway, config, exchange, key } = context;
  const { callBackUrl } = valid.body;
  const { callbacks } = gateway;
  if (!callbacks || !isRelaying(config)) return undefined;
  if (callBackUrl === undefined && config.webhooks.relay !== "all") return undefined;
  const checked = callBackUrl === undefined ? undefined : await check(context, endpoint, callBackUrl);
  if (checked?.ok === false)
    return { problem: { path: "/callBackUrl", message: `callBackUrl ${checked.reason}` } };
  const { takesCallbacks } = context.upstream;
  if (callBackUrl === undefined && !takesCallbacks) return undefined;
  const token = callbacks
    .addresses(config)
    .tokenOf({ partition: key.partition, requestId: exchange.requestId });
  return {
    callBackUrl: checked?.url,
    // An upstream that calls nobody back is polled, and the customer is told all the same.
    sent: withAddress(valid, takesCallbacks ? `${config.webhooks.publicUrl}${CALLBACKS}${token}` : undefined),
    sentUnmetered: endpoint === STORYBOARD ? valid : withAddress(valid, undefined),
    storeError: checked?.storeError,
  };
}

async function check(
  { gateway, config, key }: RequestContext,
  endpoint: GenerationEndpoint,
  callBackUrl: string,
): Promise<{ ok: true; url: string; storeError?: unknown } | { ok: false; reason: string }> {
  const { guard } = gateway.callbacks!;
  const checked = guard.check(callBackUrl, config.webhooks);
  if (!checked.ok || endpoint === STORYBOARD || config.webhooks.anyOrigin) return checked;
  try {
    if (await guard.hasOrigin(key, new URL(checked.url).origin)) return checked;
  } catch (error) {
    if (isStoreUnavailable(error)) return { ...checked, storeError: error };
    throw error;
  }
  return { ok: false, reason: "must have the origin of a webhook endpoint of this account" };
}

/** `callBackUrl` stays where the schema has it; a new one comes last. */
function withAddress({ body }: ValidBody, callBackUrl: string | undefined): ValidBody {
  // A member without a value is not in the JSON.
  const relayed = { ...body, callBackUrl } as Record<string, unknown>;
  if (callBackUrl === undefined) delete relayed.callBackUrl;
  return { body: relayed as ValidBody["body"], text: JSON.stringify(relayed) };
}
