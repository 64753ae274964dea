import { VERSION } from "../telemetry/version.ts";
import type { Adapter } from "./adapter.ts";

export interface GatewayIdentity {
  apiKey: string | undefined;
  /** The header and the scheme of the credential; undefined for what the adapter says. An empty scheme sends the bare key. */
  authHeader?: string | undefined;
  authScheme?: string | undefined;
  headers?: Readonly<Record<string, string>>;
}

const USER_AGENT = `tollgate/${VERSION}`;

export function gatewayHeaders(
  { apiKey, authHeader, authScheme, headers = {} }: GatewayIdentity,
  auth: Adapter["auth"] = {},
): string[] {
  const header = authHeader ?? auth.header ?? "authorization";
  const scheme = authScheme ?? auth.scheme ?? "Bearer";
  const credential = apiKey === undefined ? [] : [header, scheme === "" ? apiKey : `${scheme} ${apiKey}`];
  return [...credential, "user-agent", USER_AGENT, ...Object.entries(headers).flat()];
}

const RESERVED = new Set(
  (
    "accept accept-encoding authorization connection content-encoding content-length content-type cookie date expect " +
    "host http2-settings idempotency-key keep-alive proxy-authorization proxy-connection te trailer transfer-encoding " +
    "traceparent tracestate upgrade user-agent via x-request-id"
  ).split(" "),
);

const HEADER_CHARS_MAX = 4096;

/** Why a header cannot be added to requests; undefined if it can. */
export function headerProblem(name: string, value: unknown): string | undefined {
  const problem = headerNameProblem(name);
  if (problem !== undefined) return problem;
  if (RESERVED.has(name.toLowerCase())) return "is a header that the gateway sets itself";
  if (typeof value !== "string" || value.length > HEADER_CHARS_MAX || !/^[\x20-\x7e]*$/.test(value))
    return `must be at most ${HEADER_CHARS_MAX} visible ASCII characters`;
  return undefined;
}

function headerNameProblem(name: string): string | undefined {
  return /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/.test(name) ? undefined : "is no name of a header";
}
