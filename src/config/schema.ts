import { type Static, Type } from "typebox";
import { SHADOW_LIMITS } from "../domain/limits.ts";
import {
  addressRangeRule,
  duration,
  folderRule,
  hostRule,
  integer,
  optionalFileRule,
  originRule,
  previousUrlRule,
  redisUrlRule,
  ruled,
  section,
  text,
  traceEndpointRule,
  upstreamUrlRule,
} from "./kinds.ts";

const port = (initial: number, description: string) => integer(initial, 0, 65_535, description);

/** A bound that the process finds itself, from its memory and its limit of open files, unless it is given. */
const bound = (least: number, most: number, description: string) =>
  Type.Union(
    [
      Type.Integer({
        minimum: least,
        maximum: most,
        "x-expects": `a whole number from ${least} to ${most}, or auto`,
      }),
      Type.Literal("auto"),
    ],
    { default: "auto", description },
  );

const tlsFile = (description: string) => Type.String({ minLength: 1, description });

/** Left out, the listener speaks plain HTTP. */
const tls = Type.Optional(
  Type.Object(
    {
      cert: tlsFile("Certificate and those between it and its root, PEM; relative to the config file."),
      key: tlsFile("Its private key, PEM, without a passphrase."),
      client_ca: Type.Optional(
        tlsFile(
          "Certificates, PEM, of which one must have signed each client's; left out, clients need none.",
        ),
      ),
    },
    {
      additionalProperties: false,
      description:
        "TLS at this listener, 1.2 and up; files that change are read again. Left out: plain HTTP.",
    },
  ),
);

const server = section("The public listener.", {
  host: text("0.0.0.0", hostRule, "Address to listen on."),
  port: port(8080, "Port to listen on; 0 picks a free one."),
  workers: Type.Union(
    [
      Type.Integer({ minimum: 1, maximum: 64, "x-expects": "a whole number from 1 to 64, or auto" }),
      Type.Literal("auto"),
    ],
    { default: 1, description: "Processes that share the port; auto: one for each core." },
  ),
  trust_proxy: Type.Array(ruled(Type.String(), addressRangeRule), {
    default: [],
    maxItems: 256,
    description: "Addresses or CIDR ranges of proxies whose X-Forwarded-For is believed.",
  }),
  max_header_lines: integer(100, 10, 2000, "Header lines of one request at most; more are answered 431."),
  headers_timeout: duration("15s", "100ms", "10m", "How long a client may take to send its headers."),
  body_timeout: duration("15s", "100ms", "10m", "How long a client may take to send a JSON body."),
  upload_idle_timeout: duration("15s", "100ms", "10m", "How long an upload may stand still."),
  upload_min_bytes_per_second: integer(
    4096,
    0,
    1_000_000,
    "What an upload must bring at least, on average over each upload_idle_timeout; 0 for no minimum.",
  ),
  uploads_per_key: integer(16, 1, 10_000, "Uploads that one key may have under way in this process."),
  keep_alive_timeout: duration("65s", "100ms", "1h", "How long an idle client connection is kept."),
  write_timeout: duration("30s", "100ms", "10m", "How long a client may leave its answer unread."),
  max_connections: bound(1, 1_000_000, "Client connections at a time."),
  max_connections_per_address: bound(
    1,
    1_000_000,
    "Client connections of one address, or IPv6 /64, at a time; those in trust_proxy are exempt.",
  ),
  max_requests_in_flight: bound(1, 1_000_000, "Requests that are worked on at a time."),
  max_body_bytes_in_flight: bound(
    1_048_576,
    1_000_000_000_000,
    "Bytes of unfinished JSON bodies that are held at a time; one key gets a quarter.",
  ),
  drain_delay: duration(
    "1s",
    "0s",
    "10m",
    "How long new requests are still taken after SIGTERM, while readiness is red already.",
  ),
  drain_timeout: duration("30s", "1ms", "1h", "How long requests may take to end after SIGTERM."),
  unknown_keys_per_minute: integer(
    100,
    1,
    1_000_000,
    "Requests with unknown keys that one client address may make in a minute.",
  ),
  utility_requests_per_second: integer(
    100,
    1,
    1_000_000,
    "Polls, credits, uploads and refused requests that one key may make in a second; twice as many at once.",
  ),
  tls,
});

const admin = section("The admin listener: livez, readyz, metrics. Keep it off the public network.", {
  host: text("127.0.0.1", hostRule, "Address to listen on."),
  port: port(9090, "Port to listen on; 0 picks a free one."),
  hosts: Type.Array(ruled(Type.String(), hostRule), {
    default: [],
    maxItems: 64,
    description: "Names beside localhost and IP addresses that browsers and scripts may use for it.",
  }),
  tls,
});

const store = section("Redis, which holds limits, credits and tasks.", {
  redis_url: text(
    "redis://127.0.0.1:6379",
    redisUrlRule,
    "Address of Redis, without password: REDIS_URL in the environment may hold one.",
  ),
  tls_ca: text(
    "",
    optionalFileRule,
    "PEM file with the authorities that a rediss:// server is checked with, instead of those that Node trusts.",
  ),
  command_timeout: duration("500ms", "10ms", "30s", "How long one command may take."),
  fallback_strategy: Type.Enum(["deny", "allow"], {
    default: "deny",
    description: "While Redis is away: deny answers 503; allow lets known keys pass unmetered and uncharged.",
  }),
  allow_max_per_key: integer(
    0,
    0,
    1_000_000_000,
    "With allow: generations and uploads of one key that one process lets pass in one outage; 0 for no limit.",
  ),
  journal: text(
    ".tollgate/journal",
    folderRule,
    "Folder, on a disk that survives a restart, for settlements that wait while Redis is away.",
  ),
  ledger_check_interval: duration(
    "1h",
    "0s",
    "30d",
    "How often one of all gateways verifies the ledger; 0s turns it off.",
  ),
  partitions: integer(
    64,
    1,
    1024,
    "Partitions that accounts are spread over; used at the very first start only.",
  ),
});

const upstream = section("The video generation service behind the gateway.", {
  url: text(
    "http://127.0.0.1:4010",
    upstreamUrlRule,
    "Origin and optional base path; /api/v1/... is appended.",
  ),
  tls_ca: text(
    "",
    optionalFileRule,
    "PEM file with the authorities that an https:// upstream is checked with, instead of those that Node trusts.",
  ),
  previous_url: text(
    "",
    previousUrlRule,
    "The address before this one, if it is another upstream's: tasks made there are asked for there.",
  ),
  replaces: Type.Array(ruled(Type.String(), upstreamUrlRule), {
    default: [],
    maxItems: 32,
    description: "Former addresses of this same upstream: tasks made there are asked for at url.",
  }),
  connect_timeout: duration("5s", "10ms", "1m", "How long connecting may take."),
  headers_timeout: duration("30s", "10ms", "10m", "How long the answer's headers may take."),
  total_timeout: duration("60s", "10ms", "1h", "How long the whole answer may take."),
  upload_total_timeout: duration("10m", "100ms", "24h", "How long a whole upload may take."),
  connections: integer(
    256,
    1,
    65_535,
    "Generations in flight at most, each on a socket of its own; as many more wait, the rest are refused.",
  ),
  // Four are the sweeper's: at least half is left to customers.
  poll_connections: integer(
    64,
    8,
    65_535,
    "Polls in flight at most, each on a socket of its own, four of them the sweeper's; as many more wait, the rest are refused.",
  ),
  keep_alive_timeout: duration(
    "4s",
    "10ms",
    "10m",
    "How long an idle connection to the upstream is kept. Must be shorter than the upstream's own idle timeout.",
  ),
  upload_connections: integer(
    128,
    1,
    65_535,
    "Uploads under way in this process, and their sockets, at most.",
  ),
  idempotency_key: Type.Boolean({
    default: false,
    description:
      "The upstream honours Idempotency-Key, so that a generation may be sent again after a failure.",
  }),
});

const tier = Type.Object(
  {
    rate_limit: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      description: "Requests per rolling 60 seconds.",
    }),
    max_concurrent: Type.Integer({ minimum: 1, maximum: 10_000, description: "Tasks at the same time." }),
    daily_limit: Type.Integer({ minimum: 1, maximum: 1_000_000_000, description: "Requests per UTC day." }),
    shadow: Type.Optional(
      Type.Array(Type.Enum([...SHADOW_LIMITS]), {
        uniqueItems: true,
        description: "Limits that are counted and reported, but refuse nothing: to try them out.",
      }),
    ),
  },
  { additionalProperties: false, description: "Limits of the keys of one tier." },
);

const tiers = Type.Object(
  { standard: tier },
  {
    description: "Tier names and their limits. Given at all, the list is complete; standard is required.",
    additionalProperties: false,
    maxProperties: 64,
    patternProperties: { "^(?!standard$)[a-z][a-z0-9_-]{0,31}$": tier },
    default: {
      standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
      enterprise: { rate_limit: 100, max_concurrent: 10, daily_limit: 10_000 },
    },
    "x-keys": "is not a tier name: at most 32 of a-z, 0-9, _ and -, beginning with a letter",
  },
);

const tasks = section("How tasks are followed to their end.", {
  refund_failed: Type.Boolean({ default: true, description: "Give the credits of a failed task back." }),
  max_age: duration(
    "2h",
    "1s",
    "30d",
    "A task without an end is failed after this, with the next answer about it, else after twice this; fixed for each " +
      "task when it begins.",
  ),
  cache: duration("5s", "0s", "5s", "How long a task's state may be answered from the cache."),
  sweep_interval: duration("1s", "10ms", "1m", "How often due holds and tasks are looked for."),
  poll_interval: duration(
    "10s",
    "100ms",
    "1h",
    "How long a task may go unpolled before the gateway asks itself.",
  ),
  sweep_polls_per_second: integer(
    50,
    1,
    10_000,
    "Most questions a second that one gateway asks an upstream about tasks that no client polls.",
  ),
  retention: duration(
    "7d",
    "1h",
    "366d",
    "How long finished tasks are kept; fixed for each request when it is admitted.",
  ),
});

/** From the least severe on. */
export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

const log = section("The log on standard output.", {
  level: Type.Enum([...LOG_LEVELS], {
    default: "info",
    description: "Least severe level that is written.",
  }),
  slow_request: duration(
    "0s",
    "0s",
    "1h",
    "A request that spends as long in the gateway and its store, without the upstream's time and the client's, gets a " +
      "warning that says where; 0s turns it off.",
  ),
});

const tracing = section("Traces for OpenTelemetry; without an endpoint nothing of it is loaded.", {
  endpoint: text(
    "",
    traceEndpointRule,
    "Where spans are sent, OTLP over HTTP as JSON, with its whole path; empty turns tracing off.",
  ),
  sample_ratio: Type.Number({
    default: 1,
    minimum: 0,
    maximum: 1,
    description:
      "Share of the requests recorded that come without a traceparent; with one its caller decides.",
    "x-expects": "a number from 0 to 1",
  }),
  queue: integer(2048, 1, 1_000_000, "Spans that may wait to be sent; more are dropped and counted."),
  export_timeout: duration("10s", "10ms", "1m", "How long sending one batch of spans may take."),
});

/** The config file. Types, defaults, rules and the JSON Schema of it come from here alone. */
export const ConfigSchema = section("Tollgate's configuration.", {
  server,
  admin,
  store,
  upstream,
  source_video_host: text(
    "https://videos.example.com",
    originRule,
    "The one origin whose videos watermark removal takes.",
  ),
  prices: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        "Price file, relative to the config file; left out, the reference set that ships with Tollgate.",
    }),
  ),
  tiers,
  tasks,
  log,
  tracing,
});

/**
 * Settings that a running gateway keeps until it is started anew: its listeners and its connection to Redis are made
 * once. All others take effect with the next request, or the next round of the work that they are about.
 */
export const NEEDS_RESTART: ReadonlySet<string> = new Set([
  "server.host",
  "server.port",
  "server.workers",
  "server.tls",
  "admin.host",
  "admin.port",
  "admin.tls",
  "store.redis_url",
  "store.tls_ca",
  "store.command_timeout",
  "store.journal",
  "store.partitions",
  "tracing.endpoint",
  "tracing.sample_ratio",
  "tracing.queue",
  "tracing.export_timeout",
]);

/** The config file's content once it is valid and its defaults are filled in. */
export type Settings = Static<typeof ConfigSchema>;
