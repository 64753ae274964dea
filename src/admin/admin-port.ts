import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { archiveLookUps, lazyArchive } from "../archive/archived-reads.ts";
import { CHECK_STATUSES, type Check, worstOf } from "../checks/check.ts";
import { createHealthWatch, gatewayChecks } from "../checks/gateway-checks.ts";
import type { Config } from "../config/config.ts";
import type { LiveConfig } from "../config/live.ts";
import { createOperatorSession } from "../operations/access/operator-session.ts";
import type { TierCounts } from "../operations/keys/tier-counts.ts";
import { type GatewayReport, removeReports, writeReport } from "../operations/store/gateway-reports.ts";
import { countOpen } from "../operations/store/operator-views.ts";
import { createSurveys } from "../operations/store/survey.ts";
import { META } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createAccess } from "./access.ts";
import { createAdminServer } from "./admin-server.ts";
import { createAdminApi } from "./api/serve.ts";
import { type GatewayState, requireWebhooks } from "./api/services.ts";
import { createConsole } from "./console/console.ts";
import type { MetricsReading } from "./health.ts";
import { createLive } from "./live-figures.ts";
import { createRefusalLog } from "./refusal-log.ts";

interface AdminPortOptions {
  /** For what needs a restart. */
  config: Config;
  live: Pick<LiveConfig, "config" | "describe" | "describeFiles" | "hash" | "hidden">;
  connection: Connection;
  tierCounts(): TierCounts | null;
  metricsPage(): Promise<string>;
  readings(): Promise<readonly MetricsReading[]>;
  setLevel(level: string): void;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  maintenanceSinceMs(): number | undefined;
  metrics: Metrics;
  log: Logger;
}

export function createAdminPort(options: AdminPortOptions) {
  const { config, live, connection, metricsPage, notReady, metrics, log } = options;
  const access = accessOf(options);
  const session = createOperatorSession({
    ...config.store,
    requireMeant: connection.requireMeant,
  });
  const figures = createLive({ readings: options.readings, slots: () => slotsOf(connection) });
  const health = healthOf(options, figures);
  const reporter = createGatewayReporter({
    connection,
    figures: figures.latest,
    configHash: () => live.hash,
    notReady,
    log,
  });
  const refusals = createRefusalLog({ log, counted: (reason) => metrics.signInsRefused.inc({ reason }) });
  const archive = lazyArchive(config.archive.url);
  const api = createAdminApi({
    access,
    services: { ...servicesOf(options), session, archive, live: figures, health: health.report },
    metrics,
    refusals,
    log,
  });
  const server = createAdminServer({
    metricsPage,
    notReady,
    access,
    refusals,
    setLevel: options.setLevel,
    api,
    console: createConsole({ access, refusals }),
    config: () => ({ ...live.describe(), ...tierCountsJson(options.tierCounts()) }),
    tls: config.admin.tls,
    log,
  });
  return {
    server,
    async stopWork(): Promise<void> {
      await Promise.all([reporter.stop(), health.stop()]);
    },
    start(): void {
      figures.start();
      health.start();
      reporter.start();
    },
    stop(): void {
      figures.stop();
      session.close();
      archive?.close();
      server.close();
      server.closeAllConnections();
    },
  };
}

function accessOf({ config, live, log }: AdminPortOptions) {
  const { token, host } = config.admin;
  const access = createAccess({ token, host, hosts: () => live.config().admin.hosts });
  if (access.closed) {
    log.warn(
      { host },
      "the admin port is bound beyond loopback without ADMIN_TOKEN: it serves /livez, /readyz and /metrics only",
    );
  }
  return access;
}

const healthOf = (
  { live, notReady, maintenanceSinceMs, metrics, log }: AdminPortOptions,
  figures: ReturnType<typeof createLive>,
) =>
  createHealthWatch({
    checks: () =>
      gatewayChecks({
        config: live.config(),
        hidden: live.hidden(),
        figures: figures.health(),
        serving: { notReady: notReady() ?? null, maintenanceSinceMs: maintenanceSinceMs() },
      }),
    shown: (checks) => showChecks(metrics, checks),
    log,
  });

/** By name the worst, since several servers have the same check. */
function showChecks({ checks: gauge }: Metrics, checks: readonly Check[]): void {
  gauge.reset();
  for (const [check, own] of Map.groupBy(checks, ({ name }) => name))
    gauge.set({ check }, CHECK_STATUSES.indexOf(worstOf(own)));
}

/** Keys by tier for `/config`, and the partitions that they lack; null before they are known. */
const tierCountsJson = (counts: TierCounts | null) => ({
  keys_by_tier: counts?.keys ?? null,
  unread_partitions: counts?.unread ?? null,
});

const servicesOf = ({
  config,
  live,
  connection,
  tierCounts,
  notReady,
  maintenanceSinceMs,
}: AdminPortOptions) => ({
  lookUps: archiveLookUps(config.archive.url),
  config: live.config,
  bounds: () => live.config().admin.bounds,
  webhooks: () => requireWebhooks(live.config().webhooks),
  tierCounts,
  describeConfig: live.describe,
  describeFiles: live.describeFiles,
  ledgerReport: createSurveys(connection).latestLedger,
  maintenanceSinceMs,
  gateway: () => ({
    host: hostname(),
    pid: process.pid,
    uptime_seconds: Math.round(process.uptime()),
    not_ready: notReady() ?? null,
    primaries: primariesOf(connection),
  }),
});

/** Slots taken over all gateways; null while a part of the store is away. */
async function slotsOf(connection: Connection): Promise<number | null> {
  const facts = connection.known.facts;
  if (!facts || connection.primaries().some(({ breaker }) => breaker.isOpen)) return null;
  return connection.ofName(META).command(() => countOpen(connection.nodes, facts.partitions));
}

/** None where the address names the one server. */
const primariesOf = (connection: Connection): GatewayState["primaries"] =>
  connection
    .primaries()
    .flatMap(({ name, breaker }) => (name === undefined ? [] : [{ name, usable: !breaker.isOpen }]));

const REPORT_EVERY_MS = 5000;
/** Every so many reports, those of gateways that ended without a word are removed. */
const REMOVE_EVERY = 12;

type Figures = Pick<
  GatewayReport,
  "requestsPerSecond" | "refusedPerSecond" | "failedPerSecond" | "inFlight" | "settlementsWaiting"
>;

/** Writes this gateway's report to the store every 5 s, so that each gateway's console shows all. While the store is away nothing is written. */
function createGatewayReporter(options: {
  connection: Connection;
  figures(): Figures;
  configHash(): string;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  log: Logger;
}) {
  const { connection, log } = options;
  const gatewayId = `gtw_${randomBytes(6).toString("hex")}`;
  const startedAtMs = Math.round(Date.now() - process.uptime() * 1000);
  let written = 0;

  async function report(): Promise<void> {
    if (!connection.isUsable()) return;
    await writeReport(connection, {
      gatewayId,
      host: hostname(),
      pid: process.pid,
      startedAtMs,
      seenAtMs: connection.nowMs(),
      configHash: options.configHash(),
      notReady: options.notReady(),
      ...options.figures(),
    });
    if (written++ % REMOVE_EVERY === 0) await removeReports(connection);
  }

  const reports = repeated(report, {
    pauseMs: () => REPORT_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "gateway report not written"),
  });
  return {
    gatewayId,
    report,
    start: (): void => reports.start(0),
    /** Removes the report: a gateway that has ended is not shown for 20 s more. */
    async stop(): Promise<void> {
      await reports.stop();
      if (written > 0 && connection.isUsable())
        await removeReports(connection, gatewayId).catch(() => undefined);
    },
  };
}
