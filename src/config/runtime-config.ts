import type { PriceTable } from "../domain/prices.ts";
import type { Authorities } from "./ca-files.ts";
import type { Secrets } from "./environment.ts";
import type { ProcessLimits } from "./process-bounds.ts";
import type { Settings } from "./schema.ts";
import { toArchiveConfig } from "./sections/archive.ts";
import { toAdminConfig, toServerConfig } from "./sections/listeners.ts";
import { toPackages } from "./sections/packages.ts";
import { toStoreConfig } from "./sections/store.ts";
import { toTasksConfig } from "./sections/tasks.ts";
import { toLogConfig, toTracingConfig } from "./sections/telemetry.ts";
import { toTiers } from "./sections/tiers.ts";
import { toUpstreamConfig } from "./sections/upstream.ts";
import { withoutSlash } from "./setting-rules.ts";
import type { TlsFiles } from "./tls.ts";

/** What the configuration has beside the file's settings. */
export interface Extras extends Secrets {
  readonly prices: PriceTable;
  readonly pricesFile: string;
  /** The content of the files that `tls_ca` names. */
  readonly authorities: Authorities;
  readonly tls: TlsFiles;
  /** For `server.workers: auto`. */
  readonly cores: number;
  /** For the bounds that are `auto`. */
  readonly process: ProcessLimits;
}

/**
 * One frozen configuration in the form that the code reads: units in names, times in milliseconds. A request keeps the one
 * that it began with.
 */
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

/** Converts valid settings. */
export function toConfig(settings: Settings, extras: Extras) {
  const { apiKey, previousApiKey, adminToken, archiveUrl, prices, pricesFile, authorities, tls } = extras;
  return deepFreeze({
    server: toServerConfig(settings.server, settings.upstream, { ...extras, tls: tls.server }),
    admin: toAdminConfig(settings.admin, { token: adminToken, tls: tls.admin }),
    store: toStoreConfig(settings.store, authorities.store),
    archive: toArchiveConfig(settings.archive, archiveUrl),
    upstream: toUpstreamConfig(settings.upstream, { apiKey, previousApiKey, tlsCa: authorities.upstream }),
    /** An origin, no trailing slash. */
    sourceVideoHost: withoutSlash(settings.source_video_host),
    prices,
    /** Prices that may change more than tenfold at a reload, and to what. */
    confirmedPrices: settings.confirm_price_changes as Readonly<Record<string, number>>,
    /** Absolute path of the price file. */
    pricesFile,
    /** Credits of each package. */
    packages: toPackages(settings.packages),
    tiers: toTiers(settings.tiers),
    tasks: toTasksConfig(settings.tasks),
    log: toLogConfig(settings.log),
    tracing: toTracingConfig(settings.tracing),
    /** When a running gateway reads changed files. */
    reload: settings.reload,
  });
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === "object" && part !== null) deepFreeze(part);
  }
  return Object.freeze(value);
}
