import type { PriceList } from "../domain/generation.ts";
import type { AdapterChoices } from "./adapters.ts";
import type { Secrets } from "./environment.ts";
import type { ProcessLimits } from "./process-bounds.ts";
import type { Settings } from "./schema.ts";
import { toAdminConfig, toServerConfig } from "./sections/listeners.ts";
import { toPackages } from "./sections/packages.ts";
import { toArchiveConfig, toStoreConfig } from "./sections/store.ts";
import { tasksSchema } from "./sections/tasks.ts";
import { logSchema, toTracingConfig } from "./sections/telemetry.ts";
import { accountsSchema, toTiers } from "./sections/tiers.ts";
import { toUpstreamConfig } from "./sections/upstream.ts";
import { toWebhooksConfig } from "./sections/webhooks.ts";
import { withoutSlash } from "./setting-rules.ts";
import { toProgram } from "./setting-types.ts";
import type { Authorities, TlsFiles } from "./tls.ts";

export interface Extras extends Secrets {
  readonly priceLists: readonly PriceList[];
  readonly authorities: Authorities;
  readonly tls: TlsFiles;
  readonly upstreamCertificate: { cert: string; key: string } | undefined;
  readonly adapters: AdapterChoices;
  readonly cores: number;
  readonly process: ProcessLimits;
}

/** Frozen; units in names, times in milliseconds. */
export type Config = {
  readonly [Section in keyof ReturnType<typeof toConfig>]: Frozen<ReturnType<typeof toConfig>[Section]>;
};

type Frozen<Section> = Section extends object
  ? {
      readonly [Name in keyof Section]: Section[Name] extends (infer Item)[]
        ? readonly Item[]
        : Section[Name];
    }
  : Section;

export function toConfig(settings: Settings, extras: Extras) {
  const { apiKey, previousApiKey, adminToken, archiveUrl, priceLists, authorities, tls } = extras;
  return deepFreeze({
    server: toServerConfig(settings.server, settings.upstream, { ...extras, tls: tls.server }),
    admin: toAdminConfig(settings.admin, { token: adminToken, tls: tls.admin }),
    store: toStoreConfig(settings.store, authorities.store),
    archive: toArchiveConfig(settings.archive, archiveUrl),
    upstream: toUpstreamConfig(settings.upstream, {
      apiKey,
      previousApiKey,
      tlsCa: authorities.upstream,
      certificate: extras.upstreamCertificate,
      dialect: extras.adapters.present,
      previousDialect: extras.adapters.previous,
    }),
    sourceVideoHost: withoutSlash(settings.source_video_host),
    priceLists,
    confirmedPrices: settings.confirm_price_changes as Readonly<Record<string, number>>,
    packages: toPackages(settings.packages),
    tiers: toTiers(settings.tiers),
    accounts: toProgram(accountsSchema, settings.accounts),
    tasks: toProgram(tasksSchema, settings.tasks),
    webhooks: toWebhooksConfig(settings.webhooks, {
      key: extras.webhookSecretKey,
      previousKey: extras.previousWebhookSecretKey,
    }),
    log: toProgram(logSchema, settings.log),
    tracing: toTracingConfig(settings.tracing),
    reload: settings.reload,
  });
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === "object" && part !== null) deepFreeze(part);
  }
  return Object.freeze(value);
}
