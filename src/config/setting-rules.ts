import { BlockList, isIP } from "node:net";
import { parseRedisAddress, RedisAddressError } from "../domain/redis-address.ts";
import { headerProblem } from "../upstream/gateway-headers.ts";

// Each rule returns a message, or undefined for a valid value.

const HOST_NAME =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$/;

export function hostRule(value: string): string | undefined {
  if (isIP(value) !== 0 || (HOST_NAME.test(value) && !/^[\d.]+$/.test(value))) return undefined;
  return "must be an IP address or a host name, without port or brackets, such as 0.0.0.0 or ::1";
}

export function folderRule(value: string): string | undefined {
  return value.trim() === "" || value.includes("\0") ? "must be the path of a folder" : undefined;
}

export function optionalFileRule(value: string): string | undefined {
  return value.includes("\0") || (value !== "" && value.trim() === "")
    ? "must be the path of a file"
    : undefined;
}

/** A range with clients in it would let them choose their address. */
export function proxyRangeRule(value: string): string | undefined {
  return rangeRule(value, "any client in it could claim another's address; name the proxies' own");
}

/** A range of the whole Internet would turn the check of addresses off. */
export function networkRule(value: string): string | undefined {
  return rangeRule(value, "name the networks that the endpoints are in");
}

function rangeRule(value: string, whyNotWider: string): string | undefined {
  const [address = "", bits, ...more] = value.split("/");
  // An address with a zone (fe80::1%eth0) is valid on one machine only.
  const version = address.includes("%") ? 0 : isIP(address);
  const bitsMax = version === 6 ? 128 : 32;
  const isRange = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax);
  const isValid = version !== 0 && isRange && more.length === 0;
  if (!isValid) return "must be an IP address or a CIDR range, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8";
  return bits !== undefined && isTooWide(address, Number(bits)) ? `is too wide: ${whyNotWider}` : undefined;
}

/** The widest private ranges are 10.0.0.0/8 and fc00::/7. An IPv6 range may include IPv4 addresses. */
function isTooWide(address: string, bits: number): boolean {
  const isIpv6 = isIP(address) === 6;
  const range = new BlockList();
  range.addSubnet(address, bits, isIpv6 ? "ipv6" : "ipv4");
  const firstOctets = Array.from({ length: 256 }, (_, octet) => `${octet}.0.0.0`);
  return (isIpv6 && bits < 7) || firstOctets.filter((each) => range.check(each)).length > 1;
}

/** Refuses spaces, control characters and backslashes, which `new URL` repairs. */
function strictUrl(value: string, scheme: RegExp): URL | undefined {
  const isClean = /^[\x21-\x7e]+$/.test(value) && !value.includes("\\");
  return isClean && scheme.test(value) && URL.canParse(value) ? new URL(value) : undefined;
}

const HTTP = /^https?:\/\/[^/]/i;

export function upstreamUrlRule(value: string): string | undefined {
  const url = strictUrl(value, HTTP);
  if (url === undefined) return "must be an http or https address such as https://generator.example.com";
  if (url.username || url.password)
    return "must hold no user or password; set UPSTREAM_API_KEY in the environment";
  if (/[?#]/.test(value)) return "must end with its path: no query and no fragment";
  const base = /^(.*)\/api\/v1\/*$/i.exec(value)?.[1];
  if (base !== undefined) return `must not end in /api/v1, which the gateway appends; did you mean ${base}?`;
  return undefined;
}

export function previousUrlRule(value: string): string | undefined {
  return value === "" ? undefined : upstreamUrlRule(value);
}

/** Secrets have no place in the file, so neither has a password. */
export function optionalUrlRule(value: string): string | undefined {
  if (value === "") return undefined;
  const url = strictUrl(value, HTTP);
  if (url === undefined) return "must be an http or https address such as https://api.example.com, or empty";
  if (url.username || url.password) return "must hold no user or password";
  return /[?#]/.test(value) ? "must end with its path: no query and no fragment" : undefined;
}

export function authHeaderRule(value: string): string | undefined {
  if (value.toLowerCase() === "authorization") return undefined;
  const problem = headerProblem(value, "");
  return problem === undefined ? undefined : `${problem}; give a name such as Authorization or X-Api-Key`;
}

export function traceEndpointRule(value: string): string | undefined {
  if (value === "") return undefined;
  const url = strictUrl(value, HTTP);
  if (url === undefined)
    return "must be an http or https address such as http://127.0.0.1:4318/v1/traces, or empty";
  if (url.username || url.password)
    return "must hold no user or password; set OTEL_EXPORTER_OTLP_HEADERS in the environment";
  // The log and GET /config show it.
  if (url.search) return "must have no query; what authenticates goes into OTEL_EXPORTER_OTLP_HEADERS";
  return url.hash ? "must have no fragment" : undefined;
}

export function originRule(value: string): string | undefined {
  const url = strictUrl(value, HTTP);
  const rule = "must be an origin such as https://videos.example.com: scheme and host, no path";
  if (url === undefined) return rule;
  return withoutSlash(value) === url.origin ? undefined : `${rule}; did you mean ${url.origin}?`;
}

export function redisUrlRule(value: string): string | undefined {
  try {
    parseRedisAddress(value);
    return undefined;
  } catch (error) {
    if (error instanceof RedisAddressError) return error.message;
    throw error;
  }
}

export function withoutSlash(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}

/** Undefined for an address that is left out. */
export const optionalUrl = (url: string): string | undefined => (url === "" ? undefined : withoutSlash(url));
