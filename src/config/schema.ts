import { type Static, Type } from "typebox";
import { accountsSchema } from "./sections/accounts.ts";
import { archiveSchema } from "./sections/archive.ts";
import { adminSchema, serverSchema } from "./sections/listeners.ts";
import { packagesSchema } from "./sections/packages.ts";
import { pricesSchema } from "./sections/prices.ts";
import { confirmedPricesSchema, reloadSchema } from "./sections/reload.ts";
import { storeSchema } from "./sections/store.ts";
import { tasksSchema } from "./sections/tasks.ts";
import { logSchema, tracingSchema } from "./sections/telemetry.ts";
import { tiersSchema } from "./sections/tiers.ts";
import { upstreamSchema } from "./sections/upstream.ts";
import { webhooksSchema } from "./sections/webhooks.ts";
import { originRule } from "./setting-rules.ts";
import { section, text } from "./setting-types.ts";

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
  "store.journal",
  "store.partitions",
  "tracing.endpoint",
  "tracing.sample_ratio",
  "tracing.queue",
  "tracing.export_timeout",
]);

export type Settings = Static<typeof ConfigSchema>;
