import { type Static, Type } from "typebox";
import { TASK_STATUSES } from "../../domain/answers.ts";
import type { AdapterChoice } from "../../upstream/adapter-choice.ts";
import { type StatusWords, statusWord } from "../../upstream/answer.ts";
import {
  authHeaderRule,
  optionalFileRule,
  optionalUrl,
  previousUrlRule,
  upstreamUrlRule,
  withoutSlash,
} from "../setting-rules.ts";
import { duration, integer, ruled, section, text, toProgram } from "../setting-types.ts";

/** Word before the credential. */
export const AUTH_SCHEME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{0,32}$/;
const AUTO = "auto";
const unlessAuto = (value: string): string | undefined => (value === AUTO ? undefined : value);

export const upstreamSchema = section("The video generation service behind the gateway.", {
  url: text(
    "http://127.0.0.1:4010",
    upstreamUrlRule,
    "Origin and optional base path; the adapter's paths are appended, /api/v1/... by default.",
  ),
  adapter: Type.String({
    default: "envelope",
    minLength: 1,
    description:
      "How the upstream is spoken to: the name of an adapter, or the file of your own (.ts, .js or .mjs), relative to the config file.",
  }),
  options: Type.Object(
    {},
    {
      default: {},
      description: "Options of the adapter, which says what there is.",
      additionalProperties: true,
    },
  ),
  previous_adapter: Type.String({
    default: "",
    description:
      "The adapter before this one, if it was a file of your own: tasks that it made are polled with it.",
  }),
  headers: Type.Object(
    {},
    {
      default: {},
      description: "Headers on every request to url and upload_url. They are no place for secrets.",
      additionalProperties: false,
      maxProperties: 32,
      patternProperties: {
        "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$": Type.String({ description: "The header's value." }),
      },
      "x-keys": "is no name of a header",
    },
  ),
  auth_header: text(
    AUTO,
    authHeaderRule,
    "Header of the credential; auto is what the adapter says, mostly Authorization.",
  ),
  auth_scheme: Type.String({
    default: AUTO,
    pattern: AUTH_SCHEME.source,
    "x-expects": "a word such as Bearer or Key, or empty for the bare credential",
    description: "Word before the credential, empty for none; auto is what the adapter says, mostly Bearer.",
  }),
  upload_url: text("", previousUrlRule, "Where uploads go, if not below url."),
  tls_ca: text(
    "",
    optionalFileRule,
    "PEM file with the authorities that verify an https:// upstream, instead of those that Node trusts.",
  ),
  tls_cert: text(
    "",
    optionalFileRule,
    "PEM file with the gateway's own certificate, for an upstream that asks for one; with tls_key.",
  ),
  tls_key: text("", optionalFileRule, "PEM file with the key of tls_cert."),
  previous_url: text(
    "",
    previousUrlRule,
    "The previous address, if it is another upstream's: tasks made there are polled there.",
  ),
  replaces: Type.Array(ruled(Type.String(), upstreamUrlRule), {
    default: [],
    maxItems: 32,
    description: "Former addresses of this same upstream: tasks made there are polled at url.",
  }),
  connect_timeout: duration("5s", "10ms", "1m", "How long connecting may take."),
  headers_timeout: duration("30s", "10ms", "10m", "How long the answer's headers may take."),
  total_timeout: duration("60s", "10ms", "1h", "How long the whole answer may take."),
  upload_total_timeout: duration("10m", "100ms", "24h", "How long a whole upload may take."),
  connections: integer(
    256,
    1,
    65_535,
    "Generations in flight at most, each on a socket of its own, three quarters of them one account's; as many more wait, the rest are refused.",
  ),
  // Four are the sweeper's.
  poll_connections: integer(
    64,
    8,
    65_535,
    "Polls in flight at most, each on a socket of its own, four of them the sweeper's and three quarters of the others one account's; as many more wait, the rest are refused.",
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
    "Uploads in progress in this process, and their sockets, at most.",
  ),
  idempotency_key: Type.Boolean({
    default: false,
    description:
      "The upstream honours Idempotency-Key, so that a generation may be sent again after a failure.",
  }),
  statuses: Type.Object(
    {},
    {
      description:
        "Words of the upstream for task states, and what each means. They add to the words that are known anyway, and " +
        "override them. Case does not count; spaces and `-` count as `_`.",
      default: {},
      additionalProperties: false,
      maxProperties: 64,
      patternProperties: {
        "^[A-Za-z0-9][A-Za-z0-9_ -]{0,63}$": Type.Enum([...TASK_STATUSES], {
          description: "What the word means.",
        }),
      },
      "x-keys": "is not a word for a state: at most 64 letters, digits, spaces, _ and -",
    },
  ),
});

export function toUpstreamConfig(
  upstream: Static<typeof upstreamSchema>,
  {
    certificate,
    ...spoken
  }: {
    apiKey: string | undefined;
    previousApiKey: string | undefined;
    tlsCa: string | undefined;
    certificate: { cert: string; key: string } | undefined;
    dialect: AdapterChoice;
    previousDialect: AdapterChoice | undefined;
  },
) {
  const { adapter, previousAdapter, options, ...others } = toProgram(upstreamSchema, upstream);
  const statuses = Object.entries(upstream.statuses).map(([word, status]) => [statusWord(word), status]);
  return {
    ...others,
    ...spoken,
    tlsCert: certificate?.cert,
    tlsKey: certificate?.key,
    url: withoutSlash(upstream.url),
    headers: upstream.headers as Readonly<Record<string, string>>,
    authHeader: unlessAuto(upstream.auth_header.toLowerCase()),
    authScheme: unlessAuto(upstream.auth_scheme),
    uploadUrl: optionalUrl(upstream.upload_url),
    previousUrl: optionalUrl(upstream.previous_url),
    replaces: upstream.replaces.map(withoutSlash),
    statuses: Object.fromEntries(statuses) as StatusWords,
  };
}
