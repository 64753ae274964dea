import { type GenerationEndpoint, generationEndpoint, noEndpoint } from "../../domain/endpoints.ts";
import { checkAddresses, checkEndpoints, type KeyRestrictions } from "../../domain/key-restrictions.ts";
import { LIMITS, type LimitChanges, TIER_LIMITS } from "../../domain/limits.ts";
import { isMomentMs, momentMs, TIME_RULE, timeProblem } from "../../domain/moments.ts";
import { CREDITS_MAX } from "../../domain/money.ts";
import { ACCOUNT_ID, labelProblem, NEW_ACCOUNT_ID } from "../../domain/operator-texts.ts";
import { OperatorError } from "../../records/operator-error.ts";

export const given = <Value>(fields: Readonly<Record<string, Value | undefined>>): Record<string, Value> =>
  Object.fromEntries(
    Object.entries(fields).filter((entry): entry is [string, Value] => entry[1] !== undefined),
  );

/** Also valid for a prefix. */
export function requireAccountId(accountId: string, name = "account_id"): void {
  if (!ACCOUNT_ID.test(accountId)) {
    throw new OperatorError(
      "an account id has 1 to 64 characters of A-Z, a-z, 0-9, _, . and -",
      "invalid",
      name,
    );
  }
}

export function requireNewAccountId(accountId: string): void {
  requireAccountId(accountId);
  if (NEW_ACCOUNT_ID.test(accountId)) return;
  throw new OperatorError("no account can be called . or ..", "invalid", "account_id");
}

export function requireLabel(label: string | undefined): void {
  const problem = label === undefined ? undefined : labelProblem(label);
  if (problem !== undefined) throw new OperatorError(problem, "invalid", "label");
}

export function requireLimits(limits: LimitChanges): void {
  for (const limit of LIMITS) {
    const { name, storedMax: most } = limit;
    const value = limits[name] ?? 0;
    if (Number.isSafeInteger(value) && value >= 0 && value <= most) continue;
    const place = TIER_LIMITS.includes(limit as never) ? `limits/${name}` : name;
    throw new OperatorError(`${name} must be a whole number from 0 to ${most}`, "invalid", place);
  }
}

/** Restrictions in the form in which they are stored. @throws OperatorError */
export function checkedRestrictions(given: {
  allowedEndpoints?: readonly string[] | null | undefined;
  allowedAddresses?: readonly string[] | null | undefined;
}): KeyRestrictions {
  const { allowedEndpoints, allowedAddresses } = given;
  const endpoints = allowedEndpoints ? checkEndpoints(allowedEndpoints) : { value: undefined };
  if ("problem" in endpoints)
    throw new OperatorError(endpoints.problem, "unknown_endpoint", "allowed_endpoints");
  const addresses = allowedAddresses ? checkAddresses(allowedAddresses) : { value: undefined };
  if ("problem" in addresses) throw new OperatorError(addresses.problem, "invalid", "allowed_addresses");
  return { endpoints: endpoints.value, addresses: addresses.value };
}

export function requireCredits(credits: number): void {
  if (!Number.isSafeInteger(credits) || credits < 1 || credits > CREDITS_MAX) {
    throw new OperatorError(`credits must be a whole number from 1 to ${CREDITS_MAX}`, "invalid", "credits");
  }
}

/** @param name of the parameter @throws OperatorError `unknown_endpoint` */
export function requireEndpoint(text: string, name: string): GenerationEndpoint {
  const endpoint = generationEndpoint(text);
  if (endpoint !== undefined) return endpoint;
  throw new OperatorError(noEndpoint(text), "unknown_endpoint", name);
}

/** Unix ms. @param name of the parameter @throws OperatorError for a day, and for a time without a zone */
export function requireTime(text: string, name: string): number {
  const atMs = /T/.test(text) ? momentMs(text) : undefined;
  if (atMs !== undefined) return atMs;
  const problem = timeProblem(text);
  const lack = problem === undefined ? "" : `; ${problem}`;
  throw new OperatorError(`${name} must be ${TIME_RULE}${lack}`, "invalid", name);
}

export function requireExpiry(expiresAtMs: number | undefined): void {
  if (expiresAtMs === undefined || isMomentMs(expiresAtMs)) return;
  throw new OperatorError("expires_at must be a time such as 2030-01-31T00:00:00Z", "invalid", "expires_at");
}

export function requireFutureExpiry(expiresAtMs: number, nowMs: number): void {
  if (expiresAtMs > nowMs) return;
  throw new OperatorError("expires_at must be in the future", "invalid", "expires_at");
}

/** Of times in Unix ms, or of UTC days. @throws OperatorError */
export function requireOrder<Time extends number | string>(
  from: Time | undefined,
  to: Time | undefined,
): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new OperatorError("from must not come after to", "invalid", "from");
}
