import { redactRedisUrl } from "../domain/redis-address.ts";
import type { Config } from "./runtime-config.ts";
import type { Settings } from "./schema.ts";
import { describeCertificate, type TlsMaterial } from "./tls.ts";

/** A copy for logs and `config check`, without secrets, and without certificates, which are long. */
export function redact(config: Config): Config {
  const { server, admin, archive, store, upstream } = config;
  const { url, previousUrl, replaces, apiKey, previousApiKey } = upstream;
  return {
    ...config,
    server: { ...server, tls: withoutKey(server.tls) },
    admin: { ...admin, token: hidden(admin.token), tls: withoutKey(admin.tls) },
    archive: { ...archive, url: archive.url && redactArchiveUrl(archive.url) },
    store: { ...store, redisUrl: redactRedisUrl(store.redisUrl), tlsCa: undefined },
    upstream: {
      ...upstream,
      url: originOnly(url),
      apiKey: hidden(apiKey),
      previousUrl: previousUrl === undefined ? undefined : originOnly(previousUrl),
      previousApiKey: hidden(previousApiKey),
      replaces: replaces.map(originOnly),
      tlsCa: undefined,
    },
  };
}

/** A copy without the password of REDIS_URL and the paths of upstreams. */
export function redactSettings(settings: Settings): Settings {
  const { store, upstream } = withoutRedisPassword(settings);
  const addresses = Object.entries(upstream).map(([name, value]) => [
    name,
    redactSetting(`upstream.${name}`, value),
  ]);
  return { ...settings, store, upstream: Object.fromEntries(addresses) };
}

export function withoutRedisPassword(settings: Settings): Settings {
  return { ...settings, store: { ...settings.store, redis_url: redactRedisUrl(settings.store.redis_url) } };
}

/** Settings that are addresses of upstreams. */
const UPSTREAM_ADDRESSES = new Set(["upstream.url", "upstream.previous_url", "upstream.replaces"]);

/** The value of one setting as it may be shown: an upstream's address without its path. */
export function redactSetting(setting: string, value: unknown): unknown {
  if (!UPSTREAM_ADDRESSES.has(setting)) return value;
  const address = (one: unknown): unknown => (typeof one === "string" && one !== "" ? originOnly(one) : one);
  return Array.isArray(value) ? value.map(address) : address(value);
}

const withoutKey = (tls: TlsMaterial | undefined): TlsMaterial | undefined =>
  tls && { ...tls, cert: describeCertificate(tls), key: "***" };

const hidden = (secret: string | undefined): string | undefined => (secret === undefined ? undefined : "***");

/** Where the archive is: host and database. */
export function redactArchiveUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/** Some upstreams have a secret in the path. */
function originOnly(address: string): string {
  const { protocol, host, href } = new URL(address);
  const origin = `${protocol}//${host}`;
  return href === `${origin}/` ? origin : `${origin}/***`;
}
