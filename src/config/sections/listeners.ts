import { type Static, Type } from "typebox";
import { type ProcessLimits, processBounds } from "../process-bounds.ts";
import { hostRule, proxyRangeRule } from "../setting-rules.ts";
import { duration, integer, ruled, section, text, toProgram } from "../setting-types.ts";
import type { TlsMaterial } from "../tls.ts";

const port = (initial: number) => integer(initial, 0, 65_535, "Port to listen on; 0 picks a free one.");

/** `auto` is derived from memory and open files (process-bounds.ts). */
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

const tls = Type.Optional(
  Type.Object(
    {
      cert: tlsFile("Certificate and its intermediate certificates, PEM; relative to the config file."),
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
        "TLS 1.2 and up for this listener; files that change are read again. Left out: plain HTTP.",
    },
  ),
);

export const serverSchema = section("The public listener.", {
  host: text("0.0.0.0", hostRule, "Address to listen on."),
  port: port(8080),
  workers: Type.Union(
    [
      Type.Integer({ minimum: 1, maximum: 64, "x-expects": "a whole number from 1 to 64, or auto" }),
      Type.Literal("auto"),
    ],
    { default: 1, description: "Processes that share the port; auto: one for each core." },
  ),
  trust_proxy: Type.Array(ruled(Type.String(), proxyRangeRule), {
    default: [],
    maxItems: 256,
    description: "Addresses or CIDR ranges of proxies whose X-Forwarded-For is believed.",
  }),
  max_header_lines: integer(100, 10, 2000, "Header lines of one request at most; more are answered 431."),
  headers_timeout: duration("15s", "100ms", "10m", "How long a client may take to send its headers."),
  body_timeout: duration("15s", "100ms", "10m", "How long a client may take to send a JSON body."),
  upload_idle_timeout: duration("15s", "100ms", "10m", "How long an upload may send nothing."),
  upload_min_bytes_per_second: integer(
    4096,
    0,
    1_000_000,
    "The rate that an upload must reach, on average over each upload_idle_timeout; 0 for no minimum.",
  ),
  uploads_per_key: integer(16, 1, 10_000, "Uploads that one key may have in progress in this process."),
  keep_alive_timeout: duration("65s", "100ms", "1h", "How long an idle client connection is kept."),
  write_timeout: duration("30s", "100ms", "10m", "How long a client may leave its answer unread."),
  max_connections: bound(1, 1_000_000, "Client connections at a time."),
  max_connections_per_address: bound(
    1,
    1_000_000,
    "Client connections of one address, or IPv6 /64, at a time; those in trust_proxy are exempt.",
  ),
  max_requests_in_flight: bound(1, 1_000_000, "Requests in progress at a time."),
  max_body_bytes_in_flight: bound(
    1_048_576,
    1_000_000_000_000,
    "Bytes of unfinished JSON bodies that are held at a time; one key gets a quarter.",
  ),
  drain_delay: duration(
    "1s",
    "0s",
    "10m",
    "How long new requests are still accepted after SIGTERM, while readiness is already red.",
  ),
  drain_timeout: duration(
    "30s",
    "1ms",
    "1h",
    "How long requests in progress may take to finish after SIGTERM.",
  ),
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
    "Polls, credits, usage, uploads and refused requests that one key may make in a second; twice as many at once.",
  ),
  tls,
});

export function toServerConfig(
  server: Static<typeof serverSchema>,
  upstream: Parameters<typeof processBounds>[0]["upstream"],
  material: { tls: TlsMaterial | undefined; cores: number; process: ProcessLimits },
) {
  const workers = server.workers === "auto" ? material.cores : server.workers;
  return {
    ...toProgram(serverSchema, server),
    workers,
    ...processBounds({ ...server, workers, upstream }, material.process),
    tls: material.tls,
  };
}

export const adminSchema = section(
  "The admin listener: livez, readyz, metrics. Keep it off the public network.",
  {
    host: text("127.0.0.1", hostRule, "Address to listen on."),
    port: port(9090),
    hosts: Type.Array(ruled(Type.String(), hostRule), {
      default: [],
      maxItems: 64,
      description: "Names beside localhost and IP addresses that browsers and scripts may use for it.",
    }),
    token_writes_per_minute: integer(
      600,
      1,
      1_000_000,
      "Writes of the management API that one token may make in a minute, with all tokens that were made with it; at each gateway.",
    ),
    token_bytes_per_day: integer(
      8_388_608,
      65_536,
      1_000_000_000_000,
      "Bytes that these tokens may write in a day: of each write its body, and 512 for the audit; at each gateway.",
    ),
    tokens_per_token: integer(
      100,
      0,
      500,
      "Tokens that may be made with one token, directly or with those that it made, and have not ended.",
    ),
    keys_per_account: integer(
      10_000,
      1,
      1_000_000,
      "API keys that one account may get by the management API; revoked ones count.",
    ),
    tls,
  },
);

/** The token is a secret with all rights. Without it, only tokens of the management API are accepted. */
export function toAdminConfig(
  admin: Static<typeof adminSchema>,
  material: { token: string | undefined; tls: TlsMaterial | undefined },
) {
  const { tokenWritesPerMinute, tokenBytesPerDay, tokensPerToken, keysPerAccount, ...others } = toProgram(
    adminSchema,
    admin,
  );
  const bounds = { writesPerMinute: tokenWritesPerMinute, bytesPerDay: tokenBytesPerDay };
  return { ...others, ...material, bounds: { ...bounds, tokensPerToken, keysPerAccount } };
}
