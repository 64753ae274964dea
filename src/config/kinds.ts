import { isIP } from "node:net";
import { type TInteger, type TObject, type TProperties, type TString, Type } from "typebox";

/** A section of the file: unknown keys are refused; left out, it takes its defaults. */
export function section<const P extends TProperties>(description: string, properties: P): TObject<P> {
  return Type.Object(properties, { description, default: {}, additionalProperties: false });
}

/** A whole number within bounds, both inclusive. */
export function integer(initial: number, minimum: number, maximum: number, description: string): TInteger {
  return Type.Integer({ default: initial, minimum, maximum, description });
}

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

/** Milliseconds of a duration such as `500ms`, `15s`, `10m`, `2h` or `7d`; undefined if it is none. */
export function durationMs(text: unknown): number | undefined {
  const match = typeof text === "string" ? DURATION.exec(text) : null;
  return match ? Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS] : undefined;
}

/** Milliseconds of a duration that the schema has accepted. */
export function ms(duration: string): number {
  const milliseconds = durationMs(duration);
  if (milliseconds === undefined) throw new RangeError(`not a duration: ${duration}`);
  return milliseconds;
}

/** A duration with its unit, within bounds, both inclusive. */
export function duration(initial: string, least: string, most: string, description: string): TString {
  const type = Type.String({
    default: initial,
    pattern: DURATION.source,
    description: `${description} From ${least} to ${most}.`,
    "x-expects": "a duration with its unit, such as 500ms, 15s, 10m, 2h or 7d",
  });
  const [leastMs, mostMs] = [durationMs(least) ?? 0, durationMs(most) ?? 0];
  return Type.Refine(
    type,
    (text) => isWithin(durationMs(text) ?? Number.NaN, leastMs, mostMs),
    (text) => `must be from ${least} to ${most}, not ${text}`,
  );
}

function isWithin(value: number, least: number, most: number): boolean {
  return value >= least && value <= most;
}

/** A string with a rule in words. The message never repeats the value, which may hold a secret. */
export function text(
  initial: string,
  rule: (value: string) => string | undefined,
  description: string,
): TString {
  return ruled(Type.String({ default: initial, description }), rule);
}

/** A string without a default, with a rule in words. */
export function ruled(type: TString, rule: (value: string) => string | undefined): TString {
  return Type.Refine(
    type,
    (value) => rule(value) === undefined,
    (value) => rule(value) ?? "",
  );
}

const HOST_NAME =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$/;

/** What is wrong with an address to listen on. */
export function hostRule(value: string): string | undefined {
  if (isIP(value) !== 0 || (HOST_NAME.test(value) && !/^[\d.]+$/.test(value))) return undefined;
  return "must be an IP address or a host name, without port or brackets, such as 0.0.0.0 or ::1";
}

/** What is wrong with the path of a folder. */
export function folderRule(value: string): string | undefined {
  return value.trim() === "" || value.includes("\0") ? "must be the path of a folder" : undefined;
}

/** What is wrong with the path of a file that need not be; empty is none. */
export function optionalFileRule(value: string): string | undefined {
  return value.includes("\0") || (value !== "" && value.trim() === "")
    ? "must be the path of a file"
    : undefined;
}

/** What is wrong with an address or CIDR range of a trusted proxy. */
export function addressRangeRule(value: string): string | undefined {
  const [address = "", bits, ...more] = value.split("/");
  // A zone (fe80::1%eth0) is an IP to Node, but means nothing to the machine on the other side.
  const version = address.includes("%") ? 0 : isIP(address);
  const bitsMax = version === 6 ? 128 : 32;
  const isRange = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax);
  if (version !== 0 && isRange && more.length === 0) return undefined;
  return "must be an IP address or a CIDR range, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8";
}

/** A URL without what `new URL` would quietly repair (spaces, control characters, backslashes). */
function strictUrl(value: string, scheme: RegExp): URL | undefined {
  const isClean = /^[\x21-\x7e]+$/.test(value) && !value.includes("\\");
  return isClean && scheme.test(value) && URL.canParse(value) ? new URL(value) : undefined;
}

const HTTP = /^https?:\/\/[^/]/i;

/** What is wrong with the upstream's base address. */
export function upstreamUrlRule(value: string): string | undefined {
  const url = strictUrl(value, HTTP);
  if (url === undefined) return "must be an http or https address such as https://generator.example.com";
  if (url.username || url.password)
    return "must hold no user or password; set UPSTREAM_API_KEY in the environment";
  if (/[?#]/.test(value)) return "must end with its path: no query and no fragment";
  return undefined;
}

/** What is wrong with the address of the upstream before; empty for none. */
export function previousUrlRule(value: string): string | undefined {
  return value === "" ? undefined : upstreamUrlRule(value);
}

/** What is wrong with the address that spans are sent to; empty for none. */
export function traceEndpointRule(value: string): string | undefined {
  if (value === "") return undefined;
  const url = strictUrl(value, HTTP);
  if (url === undefined)
    return "must be an http or https address such as http://127.0.0.1:4318/v1/traces, or empty";
  if (url.username || url.password)
    return "must hold no user or password; set OTEL_EXPORTER_OTLP_HEADERS in the environment";
  // Shown by GET /config and in the log, where a token must not be.
  if (url.search) return "must have no query; what authenticates goes into OTEL_EXPORTER_OTLP_HEADERS";
  return url.hash ? "must have no fragment" : undefined;
}

/** What is wrong with an origin: scheme, host and port, nothing after them. */
export function originRule(value: string): string | undefined {
  const url = strictUrl(value, HTTP);
  const rule = "must be an origin such as https://videos.example.com: scheme and host, no path";
  if (url === undefined) return rule;
  return withoutSlash(value) === url.origin ? undefined : `${rule}; did you mean ${url.origin}?`;
}

function isDecodable(encoded: string): boolean {
  try {
    decodeURIComponent(encoded);
    return true;
  } catch {
    return false;
  }
}

/** What is wrong with the address of the store. */
export function redisUrlRule(value: string): string | undefined {
  const url = strictUrl(value, /^rediss?:\/\//i);
  if (!url?.hostname) {
    return "must be an address such as redis://127.0.0.1:6379 (rediss:// for TLS), special characters percent-encoded";
  }
  if (!isDecodable(url.username) || !isDecodable(url.password)) {
    return "must have special characters of user and password percent-encoded, a % itself as %25";
  }
  if (!/^(\/\d{0,5})?$/.test(url.pathname)) return "must have no path but a database number, such as /0";
  if (!/^(\?family=[046])?$/.test(url.search) || url.hash)
    return "must have no query (but ?family=) or fragment";
  return undefined;
}

/** The address without one trailing slash: paths are appended with theirs. */
export function withoutSlash(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}
