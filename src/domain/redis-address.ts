import { nearest } from "./problems.ts";

export interface RedisAddress {
  readonly kind: "server" | "sentinel" | "cluster";
  readonly hosts: readonly RedisHost[];
  readonly tls: boolean;
  readonly username?: string;
  readonly password?: string;
  readonly db: number;
  readonly family?: number;
  readonly name?: string;
  readonly sentinelUsername?: string;
  readonly sentinelPassword?: string;
}

/** @property host IPv6 addresses without brackets */
export interface RedisHost {
  readonly host: string;
  readonly port: number;
}

/** The message repeats no part of the address, which may contain a secret. */
export class RedisAddressError extends Error {}

type Kind = RedisAddress["kind"];

const SCHEMES: ReadonlyMap<string, { readonly kind: Kind; readonly tls: boolean }> = new Map([
  ["redis", { kind: "server", tls: false }],
  ["rediss", { kind: "server", tls: true }],
  ["redis+sentinel", { kind: "sentinel", tls: false }],
  ["rediss+sentinel", { kind: "sentinel", tls: true }],
  ["redis+cluster", { kind: "cluster", tls: false }],
  ["rediss+cluster", { kind: "cluster", tls: true }],
]);
const PORTS: Readonly<Record<Kind, number>> = { server: 6379, sentinel: 26_379, cluster: 6379 };
const PARAMETERS: Readonly<Record<Kind, readonly string[]>> = {
  server: ["family"],
  sentinel: ["db", "sentinel_user", "sentinel_password", "family"],
  cluster: ["family"],
};
const HOST_NAME = /^(?=.{1,254}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$/;

const ADDRESS =
  "must be an address such as redis://127.0.0.1:6379 (rediss:// for TLS), special characters percent-encoded";
const DECODABLE = "must have special characters of user and password percent-encoded, a % itself as %25";
const DATABASE = "must have no path but a database number, such as /0";

export function parseServerAddress(text: string): RedisAddress {
  const address = parseRedisAddress(text);
  if (address.kind !== "server")
    throw new RedisAddressError(
      "must begin with redis:// or rediss:// here: the address of one server is needed, such as that of the primary",
    );
  return address;
}

export const hostText = ({ host, port }: RedisHost): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

/** `redis://`, `redis+sentinel://` or `redis+cluster://`, with `rediss` for TLS. @throws RedisAddressError */
export function parseRedisAddress(text: string): RedisAddress {
  const parts = split(text);
  const scheme = parts?.scheme.toLowerCase() ?? "";
  const form = SCHEMES.get(scheme);
  if (parts === undefined || form === undefined) {
    const meant = nearest(scheme, [...SCHEMES.keys()]);
    throw new RedisAddressError(meant === undefined ? ADDRESS : `${ADDRESS}; did you mean ${meant}://?`);
  }
  const { kind } = form;
  must(parts.fragment === "", "must have no fragment; a # in user or password is %23");
  const { db, ...parameters } = parametersOf(parts.query, kind);
  return {
    ...form,
    hosts: hostsOf(parts.hosts, kind),
    ...credentialsOf(parts.userInfo, kind),
    ...pathOf(parts.path, kind),
    ...(db === undefined ? {} : { db }),
    ...parameters,
  };
}

export const hostsIn = (text: string): string => split(text)?.hosts || "the address in REDIS_URL";

/** Empty for an invalid address. */
export function redactRedisUrl(text: string): string {
  const parts = split(text);
  if (parts === undefined || !isValid(text)) return "***";
  const { scheme, userInfo, hosts, path, query } = parts;
  // Without a colon it may be a password: redis-cli takes it for one.
  const shown = userInfo?.includes(":") ? userInfo.replace(/:.+$/, ":***") : "***";
  const credentials = userInfo === undefined ? "" : `${shown}@`;
  return `${scheme}://${credentials}${hosts}${path}${query.replace(/(sentinel_password=)[^&]*/g, "$1***")}`;
}

/** Also for an invalid address. */
export function holdsPassword(text: string): boolean {
  const afterScheme = text.replace(/^[a-z+-]*:\/+/i, "");
  return /:[^@]+@/.test(afterScheme) || /[?&][^=&]*passw[^=&]*=[^&]/i.test(afterScheme);
}

interface Parts {
  scheme: string;
  userInfo: string | undefined;
  hosts: string;
  path: string;
  query: string;
  fragment: string;
}

function split(text: string): Parts | undefined {
  if (!/^[\x21-\x7e]+$/.test(text) || text.includes("\\")) return undefined;
  const found = /^([a-z+-]*):\/\/([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?$/i.exec(text);
  if (found === null) return undefined;
  const [, scheme = "", authority = "", path = "", query = "", fragment = ""] = found;
  const at = authority.lastIndexOf("@");
  const userInfo = at === -1 ? undefined : authority.slice(0, at);
  return { scheme, userInfo, hosts: authority.slice(at + 1), path, query, fragment };
}

function hostsOf(text: string, kind: Kind): RedisHost[] {
  must(text !== "", "must name a host, such as redis://127.0.0.1:6379");
  const hosts = text.split(",");
  must(
    kind !== "server" || hosts.length === 1,
    "must have one host; a list of hosts is for redis+sentinel:// and redis+cluster://",
  );
  must(!hosts.includes(""), "must have no empty host between its commas");
  return hosts.map((host) => hostOf(host, PORTS[kind]));
}

function hostOf(text: string, defaultPort: number): RedisHost {
  const found = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::([^:[\]]*))?$/.exec(text);
  must(found !== null, "must have IPv6 addresses in brackets, such as [::1]:6379");
  const [, inBrackets, name, port = ""] = found;
  const host = inBrackets === undefined ? (name ?? "") : ipv6Of(inBrackets);
  must(host !== "", "must name a host before each port, such as redis://127.0.0.1:6379");
  must(
    inBrackets !== undefined || HOST_NAME.test(host),
    "must have host names or IP addresses before its ports",
  );
  const number = port === "" ? defaultPort : Number(port);
  must(
    /^\d{0,5}$/.test(port) && number >= 1 && number <= 65_535,
    "must have ports from 1 to 65535, digits only",
  );
  return { host, port: number };
}

function ipv6Of(text: string): string {
  const url = URL.parse(`redis://[${text}]`);
  if (url === null || !/^[\d:.a-f]+$/i.test(text))
    throw new RedisAddressError("must have valid IPv6 addresses in its brackets, without a zone");
  return url.hostname.slice(1, -1);
}

function credentialsOf(
  userInfo: string | undefined,
  kind: Kind,
): Pick<RedisAddress, "username" | "password"> {
  if (userInfo === undefined || userInfo === "" || userInfo === ":") return {};
  must(
    kind === "server" || !/[@,]/.test(userInfo),
    "must have user and password once, before the first host, an @ in them as %40 and a comma as %2C",
  );
  const [, username = "", password = ""] = /^([^:]*):?(.*)$/.exec(userInfo) ?? [];
  return { ...(username === "" ? {} : { username: decoded(username) }), password: decoded(password) };
}

function pathOf(path: string, kind: Kind): Pick<RedisAddress, "db" | "name"> {
  if (kind === "server") {
    must(/^(\/\d{0,5})?$/.test(path), DATABASE);
    return { db: Number(path.slice(1)) };
  }
  if (kind === "cluster") {
    must(path === "" || path === "/", "must have no path: Redis Cluster has one database only");
    return { db: 0 };
  }
  const [, name = "", ...more] = path.split("/");
  must(
    name !== "",
    "must end with what the Sentinels call the primary, such as redis+sentinel://10.0.0.1:26379/mymaster",
  );
  must(more.length === 0, "must have nothing behind the name of the primary; a database is ?db=1");
  must(/^[\w.-]+$/.test(decoded(name)), "must name the primary in letters, digits, points, - and _");
  return { db: 0, name: decoded(name) };
}

function parametersOf(query: string, kind: Kind) {
  const values = new Map<string, string>();
  for (const part of query.slice(1).split("&").filter(Boolean)) {
    const [, name = "", value = ""] = /^([^=]*)=?(.*)$/.exec(part) ?? [];
    if (!PARAMETERS[kind].includes(name)) throw new RedisAddressError(unknownParameter(name, kind));
    must(!values.has(name), "must have each parameter once");
    must(value !== "", `must have a value for ${name}`);
    values.set(name, decoded(value));
  }
  const [db, family] = [values.get("db"), values.get("family")];
  const [sentinelUsername, sentinelPassword] = [values.get("sentinel_user"), values.get("sentinel_password")];
  must(db === undefined || /^\d{1,5}$/.test(db), "must have a number as db, such as ?db=1");
  must(family === undefined || /^[046]$/.test(family), "must have 4, 6 or 0 (both) as family");
  must(
    sentinelUsername === undefined || sentinelPassword !== undefined,
    "must have sentinel_password where it has sentinel_user",
  );
  return {
    ...(db === undefined ? {} : { db: Number(db) }),
    ...(family === undefined ? {} : { family: Number(family) }),
    ...(sentinelUsername === undefined ? {} : { sentinelUsername }),
    ...(sentinelPassword === undefined ? {} : { sentinelPassword }),
  };
}

function unknownParameter(name: string, kind: Kind): string {
  if (name === "db")
    return kind === "server"
      ? "must have its database as path, such as /1, not as parameter"
      : "must have no db: Redis Cluster has one database only";
  const known = PARAMETERS[kind];
  const meant = nearest(name, known);
  const problem = `must have no parameter but ${known.join(", ")}`;
  return meant === undefined ? problem : `${problem}; did you mean ${meant}?`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new RedisAddressError(DECODABLE);
  }
}

function isValid(text: string): boolean {
  try {
    parseRedisAddress(text);
    return true;
  } catch {
    return false;
  }
}

function must(condition: boolean, problem: string): asserts condition {
  if (!condition) throw new RedisAddressError(problem);
}
