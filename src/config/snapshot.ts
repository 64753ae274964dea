import type { TierLimits, Tiers } from "../domain/limits.ts";
import type { PriceTable } from "../domain/prices.ts";
import type { Authorities } from "./authorities.ts";
import { durationMs, withoutSlash } from "./kinds.ts";
import { type ProcessLimits, processBounds } from "./process-bounds.ts";
import type { Settings } from "./schema.ts";
import { describeCertificate, type TlsFiles, type TlsMaterial } from "./tls.ts";

/** One frozen configuration; a request keeps the one it began with. Times are milliseconds. */
export interface Config {
  readonly server: {
    readonly host: string;
    /** 0 picks a free port. */
    readonly port: number;
    /** Processes that share the port. */
    readonly workers: number;
    /** IP addresses or CIDR ranges; none by default. */
    readonly trustProxy: readonly string[];
    /** Of one request, at most. */
    readonly maxHeaderLines: number;
    readonly headersTimeoutMs: number;
    readonly bodyTimeoutMs: number;
    readonly uploadIdleTimeoutMs: number;
    /** Over each `uploadIdleTimeoutMs`; 0 for no minimum. */
    readonly uploadMinBytesPerSecond: number;
    /** Under way at a time in this process. */
    readonly uploadsPerKey: number;
    readonly keepAliveTimeoutMs: number;
    /** For a client to take its answer. */
    readonly writeTimeoutMs: number;
    /** The limits that follow are those of one process. */
    readonly maxConnections: number;
    readonly maxConnectionsPerAddress: number;
    readonly maxRequestsInFlight: number;
    readonly maxBodyBytesInFlight: number;
    /** Bytes of answers that clients have not taken. */
    readonly maxUnreadBytes: number;
    /** After SIGTERM: readiness is red, but new requests are still taken. */
    readonly drainDelayMs: number;
    /** After that, for requests under way. */
    readonly drainTimeoutMs: number;
    readonly unknownKeysPerMinute: number;
    /** Of one key, in this process: polls, credits, uploads and refused requests. */
    readonly utilityRequestsPerSecond: number;
    /** Undefined for plain HTTP. Holds a secret. */
    readonly tls: TlsMaterial | undefined;
  };
  readonly admin: {
    readonly host: string;
    readonly port: number;
    /** Names that it answers to beside addresses and localhost. */
    readonly hosts: readonly string[];
    /** A secret, from the environment only: opens the admin port; without one the console is read-only. */
    readonly token: string | undefined;
    /** Undefined for plain HTTP. Holds a secret. */
    readonly tls: TlsMaterial | undefined;
  };
  readonly store: {
    /** May hold a password: print it only through `redact`. */
    readonly redisUrl: string;
    /** Certificates, PEM, that a `rediss://` server is checked with; undefined for Node's own. */
    readonly tlsCa: string | undefined;
    readonly commandTimeoutMs: number;
    readonly fallbackStrategy: "deny" | "allow";
    /** Generations and uploads of one key that pass unmetered in one outage; 0 for no limit. */
    readonly allowMaxPerKey: number;
    /** Used at the very first start only; later the store's own number counts. */
    readonly partitions: number;
    /** Folder of the journal; a relative one begins where the process was started. */
    readonly journal: string;
    /** Between two checks of the ledger over all gateways; 0 for none. */
    readonly ledgerCheckIntervalMs: number;
  };
  readonly upstream: {
    /** Origin and optional base path, no trailing slash. */
    readonly url: string;
    /** A secret, from the environment only. */
    readonly apiKey: string | undefined;
    /** Certificates, PEM, that the upstream is checked with; undefined for Node's own. */
    readonly tlsCa: string | undefined;
    /** The upstream before this one, for the tasks that it made. */
    readonly previousUrl: string | undefined;
    /** A secret, from the environment only. */
    readonly previousApiKey: string | undefined;
    /** Former addresses of this upstream. */
    readonly replaces: readonly string[];
    readonly connectTimeoutMs: number;
    readonly headersTimeoutMs: number;
    readonly totalTimeoutMs: number;
    readonly uploadTotalTimeoutMs: number;
    /** Sockets for generations at most. */
    readonly connections: number;
    /** Sockets for polls at most. */
    readonly pollConnections: number;
    readonly keepAliveTimeoutMs: number;
    /** Uploads under way at most; each may need a socket. */
    readonly uploadConnections: number;
    readonly idempotencyKey: boolean;
  };
  /** An origin, no trailing slash. */
  readonly sourceVideoHost: string;
  readonly prices: PriceTable;
  /** Absolute path of the price file. */
  readonly pricesFile: string;
  readonly tiers: Tiers;
  readonly tasks: {
    readonly refundFailed: boolean;
    readonly maxAgeMs: number;
    readonly cacheMs: number;
    readonly sweepIntervalMs: number;
    /** Questions about unpolled tasks that one gateway asks the upstream, at most. */
    readonly sweepPollsPerSecond: number;
    /** How long a bound task may go unpolled before the sweeper asks. */
    readonly pollIntervalMs: number;
    readonly retentionMs: number;
  };
  readonly log: {
    readonly level: Settings["log"]["level"];
    /** Time in the gateway and its store that is worth a warning; 0 for none. */
    readonly slowRequestMs: number;
  };
  readonly tracing: {
    /** Undefined turns tracing off. */
    readonly endpoint: string | undefined;
    /** From 0 to 1, of the requests that come without a parent. */
    readonly sampleRatio: number;
    /** Spans that may wait. */
    readonly queue: number;
    readonly exportTimeoutMs: number;
  };
}

/** What a snapshot holds beside the file's settings. */
export interface Extras {
  readonly apiKey: string | undefined;
  readonly previousApiKey: string | undefined;
  readonly adminToken: string | undefined;
  readonly prices: PriceTable;
  readonly pricesFile: string;
  /** From the files that `tls_ca` names. */
  readonly authorities: Authorities;
  readonly tls: TlsFiles;
  /** For `server.workers: auto`. */
  readonly cores: number;
  /** For the bounds that are `auto`. */
  readonly process: ProcessLimits;
}

/** Puts valid settings into the form that the code reads: units in names, milliseconds, frozen to the bottom. */
export function toConfig(settings: Settings, extra: Extras): Config {
  const { log, tracing, tasks } = settings;
  return deepFreeze({
    server: serverConfig(settings, extra),
    admin: { ...settings.admin, token: extra.adminToken, tls: extra.tls.admin },
    store: storeConfig(settings.store, extra),
    upstream: upstreamConfig(settings.upstream, extra),
    sourceVideoHost: withoutSlash(settings.source_video_host),
    prices: extra.prices,
    pricesFile: extra.pricesFile,
    tiers: limitsByTier(settings.tiers),
    tasks: {
      refundFailed: tasks.refund_failed,
      maxAgeMs: ms(tasks.max_age),
      cacheMs: ms(tasks.cache),
      sweepIntervalMs: ms(tasks.sweep_interval),
      sweepPollsPerSecond: tasks.sweep_polls_per_second,
      pollIntervalMs: ms(tasks.poll_interval),
      retentionMs: ms(tasks.retention),
    },
    log: { level: log.level, slowRequestMs: ms(log.slow_request) },
    tracing: {
      endpoint: tracing.endpoint || undefined,
      sampleRatio: tracing.sample_ratio,
      queue: tracing.queue,
      exportTimeoutMs: ms(tracing.export_timeout),
    },
  });
}

function serverConfig({ server, upstream }: Settings, extra: Extras): Config["server"] {
  const workers = server.workers === "auto" ? extra.cores : server.workers;
  return {
    host: server.host,
    port: server.port,
    workers,
    trustProxy: server.trust_proxy,
    maxHeaderLines: server.max_header_lines,
    headersTimeoutMs: ms(server.headers_timeout),
    bodyTimeoutMs: ms(server.body_timeout),
    uploadIdleTimeoutMs: ms(server.upload_idle_timeout),
    uploadMinBytesPerSecond: server.upload_min_bytes_per_second,
    uploadsPerKey: server.uploads_per_key,
    keepAliveTimeoutMs: ms(server.keep_alive_timeout),
    writeTimeoutMs: ms(server.write_timeout),
    ...processBounds({ ...server, workers, upstream }, extra.process),
    drainDelayMs: ms(server.drain_delay),
    drainTimeoutMs: ms(server.drain_timeout),
    unknownKeysPerMinute: server.unknown_keys_per_minute,
    utilityRequestsPerSecond: server.utility_requests_per_second,
    tls: extra.tls.server,
  };
}

const storeConfig = (store: Settings["store"], { authorities }: Extras): Config["store"] => ({
  redisUrl: store.redis_url,
  tlsCa: authorities.store,
  commandTimeoutMs: ms(store.command_timeout),
  fallbackStrategy: store.fallback_strategy,
  allowMaxPerKey: store.allow_max_per_key,
  partitions: store.partitions,
  journal: store.journal,
  ledgerCheckIntervalMs: ms(store.ledger_check_interval),
});

const upstreamConfig = (upstream: Settings["upstream"], extra: Extras): Config["upstream"] => ({
  url: withoutSlash(upstream.url),
  apiKey: extra.apiKey,
  tlsCa: extra.authorities.upstream,
  previousUrl: upstream.previous_url === "" ? undefined : withoutSlash(upstream.previous_url),
  previousApiKey: extra.previousApiKey,
  replaces: upstream.replaces.map(withoutSlash),
  connectTimeoutMs: ms(upstream.connect_timeout),
  headersTimeoutMs: ms(upstream.headers_timeout),
  totalTimeoutMs: ms(upstream.total_timeout),
  uploadTotalTimeoutMs: ms(upstream.upload_total_timeout),
  connections: upstream.connections,
  pollConnections: upstream.poll_connections,
  keepAliveTimeoutMs: ms(upstream.keep_alive_timeout),
  uploadConnections: upstream.upload_connections,
  idempotencyKey: upstream.idempotency_key,
});

/** A copy for logs and `config check`: no secret in it, and no certificates, which are long. */
export function redact(config: Config): Config {
  const { admin, store, upstream } = config;
  const { url, previousUrl, replaces, apiKey, previousApiKey } = upstream;
  return {
    ...config,
    server: { ...config.server, tls: withoutKey(config.server.tls) },
    admin: { ...admin, token: hidden(admin.token), tls: withoutKey(admin.tls) },
    store: { ...store, redisUrl: withoutPassword(store.redisUrl), tlsCa: undefined },
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

const withoutKey = (tls: TlsMaterial | undefined): TlsMaterial | undefined =>
  tls && { ...tls, cert: describeCertificate(tls), key: "***" };

const hidden = (secret: string | undefined): string | undefined => (secret === undefined ? undefined : "***");

/** An address that may be shown. */
export function withoutPassword(address: string): string {
  const url = new URL(address);
  if (url.password === "") return address;
  url.password = "***";
  return url.href;
}

/** The upstream's address as it may be shown: some generators want their secret in the path. */
export function originOnly(address: string): string {
  const { protocol, host, href } = new URL(address);
  const origin = `${protocol}//${host}`;
  return href === `${origin}/` ? origin : `${origin}/***`;
}

/** A duration that the schema has let pass. */
function ms(duration: string): number {
  const milliseconds = durationMs(duration);
  if (milliseconds === undefined) throw new RangeError(`not a duration: ${duration}`);
  return milliseconds;
}

type TierSettings = Settings["tiers"]["standard"];

/** Without a prototype: a key record that names the tier `constructor` finds nothing. */
function limitsByTier(tiers: Readonly<Record<string, TierSettings>>): Tiers {
  const limits: Record<string, TierLimits> = Object.create(null);
  for (const [name, tier] of Object.entries(tiers)) {
    limits[name] = {
      rateLimit: tier.rate_limit,
      maxConcurrent: tier.max_concurrent,
      dailyLimit: tier.daily_limit,
      ...(tier.shadow?.length ? { shadow: tier.shadow } : {}),
    };
  }
  return limits;
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === "object" && part !== null) deepFreeze(part);
  }
  return Object.freeze(value);
}
