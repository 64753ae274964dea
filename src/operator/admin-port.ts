import type { Config } from "../config/config.ts";
import type { LiveConfig } from "../config/live.ts";
import { archivedGrants } from "../ledger/archived-grants.ts";
import type { Connection } from "../store/connection.ts";
import { META } from "../store/names.ts";
import { createOperatorSession } from "../store/operator-session.ts";
import { countOpen } from "../store/operator-views.ts";
import type { TierCounts } from "../store/tier-counts.ts";
import type { Logger } from "../telemetry/log.ts";
import { createAccess } from "./access.ts";
import { createAdminServer } from "./admin-server.ts";
import { createConsole } from "./console/console.ts";
import type { Reading } from "./console/live-figures.ts";
import { createGatewayReporter } from "./gateway-reporter.ts";
import { createLogLevel } from "./log-level.ts";

/** Assembles the admin port: access, console, log level and pages. One process of a gateway serves it. */
export function createAdminPort(options: {
  /** For what needs a restart. */
  config: Config;
  live: Pick<LiveConfig, "config" | "describe">;
  connection: Connection;
  /** Keys by tier as far as they are known. */
  tierCounts(): TierCounts | null;
  /** The metrics of all processes as Prometheus reads them. */
  metricsPage(): Promise<string>;
  /** What the processes say of themselves. */
  readings(): Promise<readonly Reading[]>;
  /** Puts a log level in force, in all processes. */
  setLevel(level: string): void;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  log: Logger;
}) {
  const { config, live, connection, metricsPage, notReady, log } = options;
  const { token, host } = config.admin;
  const access = createAccess({ token, host, hosts: () => live.config().admin.hosts });
  if (access.closed) {
    log.warn(
      { host },
      "the admin port is bound beyond loopback without ADMIN_TOKEN: it serves /livez, /readyz and /metrics only",
    );
  }
  const console = createConsole({
    access,
    session: createOperatorSession({
      ...config.store,
      readArchived: archivedGrants(config.archive.url),
    }),
    sources: {
      readings: options.readings,
      async slots() {
        const facts = connection.facts();
        if (!facts || connection.primaries().some(({ breaker }) => breaker.isOpen())) return null;
        return connection.ofName(META).command(() => countOpen(connection.nodes, facts.partitions));
      },
    },
    tiers: () => live.config().tiers,
    notReady,
    primaries: () =>
      connection
        .primaries()
        .flatMap(({ name, breaker }) => (name === undefined ? [] : [{ name, usable: !breaker.isOpen() }])),
    log,
  });
  const reporter = createGatewayReporter({
    connection,
    figures: console.live.latest,
    configHash: () => live.describe().hash,
    notReady,
    log,
  });
  const logLevel = createLogLevel({ access, log, set: options.setLevel });
  const server = createAdminServer({
    metricsPage,
    notReady,
    access,
    logLevel,
    console,
    config: () => ({ ...live.describe(), keys_by_tier: options.tierCounts()?.keys ?? null }),
    tls: config.admin.tls,
    log,
  });
  return {
    server,
    /** Stopped apart from the rest, while the store can still be reached. */
    reporter,
    start(): void {
      console.start();
      reporter.start();
    },
    stop(): void {
      console.stop();
      server.close();
      server.closeAllConnections();
    },
  };
}
