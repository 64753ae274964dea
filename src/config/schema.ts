import { type Static, Type } from "typebox";
import { GENERATION_ENDPOINTS } from "../domain/endpoints.ts";
import { momentMs, TIME_RULE, timeProblem } from "../domain/moments.ts";
import { adminSchema, serverSchema } from "./sections/listeners.ts";
import { packagesSchema } from "./sections/packages.ts";
import { archiveSchema, storeSchema } from "./sections/store.ts";
import { tasksSchema } from "./sections/tasks.ts";
import { logSchema, tracingSchema } from "./sections/telemetry.ts";
import { accountsSchema, tiersSchema } from "./sections/tiers.ts";
import { upstreamSchema } from "./sections/upstream.ts";
import { webhooksSchema } from "./sections/webhooks.ts";
import { originRule } from "./setting-rules.ts";
import { ruled, section, text } from "./setting-types.ts";

const priceFile = Type.String({
  minLength: 1,
  description: "Price file, relative to the config file.",
});

const ZONED = /T.*(?:Z|[+-]\d\d:?\d\d)$/;

function timeRule(text: string): string | undefined {
  if (ZONED.test(text) && momentMs(text) !== undefined) return undefined;
  const problem = timeProblem(text);
  return `must be ${TIME_RULE}${problem === undefined ? "" : `; ${problem}`}`;
}

const priceList = Type.Object(
  {
    from: Type.Optional(
      ruled(
        Type.String({
          description: "From when on it is in force, itself included; only the first may be left out.",
        }),
        timeRule,
      ),
    ),
    file: priceFile,
  },
  {
    additionalProperties: false,
    "x-keys": "is unknown; known here: from, file. A list is in force until the next one begins",
  },
);

const pricesSchema = Type.Union(
  [
    priceFile,
    Type.Array(priceList, { minItems: 1, maxItems: 100, description: "Price files that begin at a time." }),
  ],
  {
    description:
      "Price file, relative to the config file; or a list of { from, file }, each in force from its time on, by the clock of Redis. " +
      "If it is left out, the reference set that ships with Tollgate.",
  },
);

const reloadSchema = Type.Enum(["auto", "signal"], {
  default: "auto",
  description:
    "When a running gateway reads changed files: auto, as soon as they have changed; signal, at SIGHUP only.",
});

/** Confirmed one by one, so that an old entry confirms nothing else. */
const confirmedPricesSchema = Type.Object(
  {},
  {
    description:
      "Prices that may change more than tenfold at a reload, each with its new value; a storyboard's 10 frames are " +
      "gen2-pro/storyboard.by_n_frames.10.",
    default: {},
    additionalProperties: false,
    patternProperties: {
      [`^(${GENERATION_ENDPOINTS.join("|")})(\\.by_[a-z_]+\\.\\d+(\\.[a-z]+)?)?$`]: Type.Integer({
        minimum: 1,
        maximum: 1_000_000_000,
        description: "The new price, in whole credits.",
        "x-expects": "a whole number of credits",
      }),
    },
    "x-keys":
      "is no price: write an endpoint such as gen2/text-to-video, or one of its prices as `config diff` names it",
  },
);

/** The only source of types, defaults, rules and JSON Schema. */
export const ConfigSchema = section("Tollgate's configuration.", {
  server: serverSchema,
  admin: adminSchema,
  store: storeSchema,
  archive: archiveSchema,
  upstream: upstreamSchema,
  source_video_host: text(
    "https://videos.example.com",
    originRule,
    "The one origin whose videos watermark removal takes.",
  ),
  prices: Type.Optional(pricesSchema),
  confirm_price_changes: confirmedPricesSchema,
  packages: packagesSchema,
  tiers: tiersSchema,
  accounts: accountsSchema,
  tasks: tasksSchema,
  webhooks: webhooksSchema,
  log: logSchema,
  tracing: tracingSchema,
  reload: reloadSchema,
});

/** All other settings take effect with the next request or round of work. */
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
  "store.confirm_replicas",
  "store.confirm_timeout",
  "store.allow_no_persistence",
  "store.journal",
  "store.partitions",
  "tracing.endpoint",
  "tracing.sample_ratio",
  "tracing.queue",
  "tracing.export_timeout",
]);

export type Settings = Static<typeof ConfigSchema>;
