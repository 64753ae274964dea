import type { GenerationEndpoint } from "../domain/endpoints.ts";
import type { Problem } from "../domain/errors.ts";
import { type ValidBody, validateGeneration } from "../domain/generation.ts";
import { isObject } from "../domain/json.ts";
import { isWebUrl } from "../domain/urls.ts";
import type { Config } from "./runtime-config.ts";

/** The one endpoint whose `callBackUrl` is in the API without further settings. */
export const STORYBOARD: GenerationEndpoint = "gen2-pro/storyboard";

/** True if `callBackUrl` is relayed: `public_url` is set, and there is a key for tokens. */
export const isRelaying = ({ webhooks }: Pick<Config, "webhooks">): boolean =>
  webhooks.publicUrl !== undefined && webhooks.secretKey !== undefined;

/** Validates a body; with `webhooks.callbacks: all` each endpoint takes a `callBackUrl`. */
export function validateBody(
  config: Pick<Config, "webhooks" | "sourceVideoHost">,
  endpoint: GenerationEndpoint,
  given: unknown,
): ({ ok: true } & ValidBody) | { ok: false; problems: Problem[] } {
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

/** `callBackUrl` stays where the schema has it; a new one comes last. Undefined removes it. */
export function withAddress({ body }: ValidBody, callBackUrl: string | undefined): ValidBody {
  // A member without a value is not in the JSON.
  const relayed = { ...body, callBackUrl } as Record<string, unknown>;
  if (callBackUrl === undefined) delete relayed.callBackUrl;
  return { body: relayed as ValidBody["body"], text: JSON.stringify(relayed) };
}
