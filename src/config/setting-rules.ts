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

const HTTP = /^https?:\/\/[^/]/i;

/** Refuses spaces, control characters and backslashes, which `new URL` repairs. */
function strictUrl(value: string): URL | undefined {
  const isClean = /^[\x21-\x7e]+$/.test(value) && !value.includes("\\");
  return isClean && HTTP.test(value) ? (URL.parse(value) ?? undefined) : undefined;
}

/** @param like an example @param instead where a credential belongs */
function addressRule(value: string, like: string, instead = ""): string | undefined {
  const url = strictUrl(value);
  if (url === undefined) return `must be an http or https address such as ${like}`;
  return url.username || url.password ? `must hold no user or password${instead}` : undefined;
}

const endsWithPathRule = (value: string): string | undefined =>
  /[?#]/.test(value) ? "must end with its path: no query and no fragment" : undefined;

export function upstreamUrlRule(value: string): string | undefined {
  const instead = "; set UPSTREAM_API_KEY in the environment";
  const base = /^(.*)\/api\/v1\/*$/i.exec(value)?.[1];
  return (
    addressRule(value, "https://generator.example.com", instead) ??
    endsWithPathRule(value) ??
    (base && `must not end in /api/v1, which the gateway appends; did you mean ${base}?`)
  );
}

export const previousUrlRule = (value: string): string | undefined =>
  value === "" ? undefined : upstreamUrlRule(value);

/** Secrets have no place in the file, so neither has a password. */
export const optionalUrlRule = (value: string): string | undefined =>
  value === ""
    ? undefined
    : (addressRule(value, "https://api.example.com, or empty") ?? endsWithPathRule(value));

export function authHeaderRule(value: string): string | undefined {
  if (value.toLowerCase() === "authorization") return undefined;
  const problem = headerProblem(value, "");
  return problem === undefined ? undefined : `${problem}; give a name such as Authorization or X-Api-Key`;
}

export function traceEndpointRule(value: string): string | undefined {
  if (value === "") return undefined;
  const instead = "; set OTEL_EXPORTER_OTLP_HEADERS in the environment";
  const problem = addressRule(value, "http://127.0.0.1:4318/v1/traces, or empty", instead);
  if (problem !== undefined) return problem;
  const { search, hash } = new URL(value);
  // The log and GET /config show it.
  if (search) return "must have no query; what authenticates goes into OTEL_EXPORTER_OTLP_HEADERS";
  return hash ? "must have no fragment" : undefined;
}

export function originRule(value: string): string | undefined {
  const url = strictUrl(value);
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

export const optionalUrl = (url: string): string | undefined => (url === "" ? undefined : withoutSlash(url));
