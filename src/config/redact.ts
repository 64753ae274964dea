import { isObject } from "../domain/json.ts";
import { redactRedisUrl } from "../domain/redis-address.ts";
import type { Config } from "./runtime-config.ts";
import type { Settings } from "./schema.ts";
import { describeCertificate, type TlsMaterial } from "./tls.ts";

export function redact(config: Config): Config {
  const { server, admin, archive, store, upstream, webhooks } = config;
  const { url, previousUrl, uploadUrl, replaces, apiKey, previousApiKey, headers, tlsKey } = upstream;
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
      previousUrl: previousUrl && originOnly(previousUrl),
      previousApiKey: hidden(previousApiKey),
      uploadUrl: uploadUrl && originOnly(uploadUrl),
      replaces: replaces.map(originOnly),
      headers: hiddenValues(headers),
      tlsCa: undefined,
      tlsCert: undefined,
      tlsKey: hidden(tlsKey),
    },
    webhooks: {
      ...webhooks,
      secretKey: hidden(webhooks.secretKey),
      previousSecretKey: hidden(webhooks.previousSecretKey),
    },
  };
}

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

const UPSTREAM_ADDRESSES = new Set([
  "upstream.url",
  "upstream.previous_url",
  "upstream.replaces",
  "upstream.upload_url",
]);
const HEADERS = "upstream.headers";

export function redactSetting(setting: string, value: unknown): unknown {
  if (setting === HEADERS && isObject(value)) return hiddenValues(value);
  if (setting.startsWith(`${HEADERS}.`)) return value === undefined ? undefined : "***";
  if (!UPSTREAM_ADDRESSES.has(setting)) return value;
  const address = (one: unknown): unknown => (typeof one === "string" && one !== "" ? originOnly(one) : one);
  return Array.isArray(value) ? value.map(address) : address(value);
}

const withoutKey = (tls: TlsMaterial | undefined): TlsMaterial | undefined =>
  tls && { ...tls, cert: describeCertificate(tls), key: "***" };

const hiddenValues = (values: Readonly<Record<string, unknown>>): Record<string, string> =>
  Object.fromEntries(Object.keys(values).map((name) => [name, "***"]));

const hidden = (secret: string | undefined): string | undefined => (secret === undefined ? undefined : "***");

export function redactArchiveUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

function originOnly(address: string): string {
  const { protocol, host, href } = new URL(address);
  const origin = `${protocol}//${host}`;
  return href === `${origin}/` ? origin : `${origin}/***`;
}
