import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import { createAdminPort } from "../admin/admin-port.ts";
import { readMetrics } from "../admin/health.ts";
import { SAMPLE_EVERY_MS } from "../admin/live-figures.ts";
import type { Config, Loaded } from "../config/config.ts";
import { LiveConfig } from "../config/live.ts";
import { sameMaterial } from "../config/tls.ts";
import { createSettlements } from "../durability/deferred-settlements.ts";
import { diskReason, openJournal } from "../durability/outbox/journal.ts";
import type { Callbacks } from "../gateway/callbacks.ts";
import { renewTls } from "../gateway/connections/http-server.ts";
import { createPublicPort, type PublicPort } from "../gateway/listener.ts";
import { createUpstreams, type Upstreams } from "../gateway/upstreams.ts";
import { createWork } from "../jobs/background-work.ts";
import { createRefusalCounts } from "../jobs/refusal-counts.ts";
import { createTierUse, type TierUse } from "../jobs/tier-use.ts";
import { addToRefusalLogs } from "../operations/accounts/refusal-log.ts";
import { addRefusals } from "../operations/accounts/refusals.ts";
import { createTierCounter } from "../operations/keys/tier-counts.ts";
import { createMaintenanceWatch } from "../operations/store/maintenance.ts";
import { type Connection, type ConnectionOptions, createConnection } from "../redis/connection.ts";
import { createHolds, type Holds, settleWithinMs } from "../settlement/holds.ts";
import { createStore, type Store } from "../settlement/store.ts";
import { createUnmeteredElsewhere } from "../settlement/unmetered-elsewhere.ts";
import type { Logger } from "../telemetry/log.ts";
import { createMetrics, type Metrics } from "../telemetry/metrics.ts";
import { passingOn, type Tracing } from "../telemetry/trace.ts";
import type { RelayOptions } from "./callback-relay.ts";
import { createCustomerUsage } from "./customer-usage.ts";
import { type Drained, drainGateway } from "./drain.ts";
import { ALONE, type Role } from "./supervisor.ts";

interface Running {
  url: string;
  adminUrl: string;
  live: LiveConfig;
  drain(): Promise<Drained>;
}

/** @param place primaries, if not all on the configured server; for tests */
export async function startGateway(
  loaded: Loaded,
  log: Logger,
  role: Role = ALONE,
  place?: ConnectionOptions["place"],
): Promise<Running> {
  const metrics = createMetrics();
  const metricsPage = role.share(metrics.registry);
  const live = new LiveConfig({ loaded, log, metrics });
  /** For settings that need a restart; others come from `live`. */
  const { config } = loaded;
  const { connection, settlements } = await openStore({ config, live, place, log, metrics });
  const store = { ...createStore(connection), ...createHolds(connection, settlements) };
  const upstreams = createUpstreams({ metrics, log });
  const tracing = await openTracing(live.config, log, metrics);
  const counts = createCounts({ connection, live, metrics, log });
  const parts = { config, live, connection, store, upstreams, counts, metrics, log };
  const publicPort = await openPublicPort(parts, tracing);
  const firstWorker = role.isFirstWorker
    ? createFirstWorkerJobs({ ...parts, metricsPage, role, isDraining: publicPort.isDraining })
    : undefined;
  followChanges({ role, live, tierUse: counts.tierUse, publicPort, firstWorker, log });

  const adminUrl = firstWorker ? await listen(firstWorker.adminPort.server, config.admin, true) : "";
  const url = await listen(publicPort.listener, config.server, false);
  role.listening();
  counts.start();
  firstWorker?.start();
  const readings = firstWorker ? undefined : sendReadings(role, metrics);

  const drain = async (): Promise<Drained> => {
    publicPort.startDraining();
    live.stop();
    const work = firstWorker?.work;
    const drained = await drainGateway(
      { publicPort, work, counts, tracing, upstreams, connection, settlements },
      live.config,
      { metrics, log },
    );
    clearInterval(readings);
    firstWorker?.adminPort.stop();
    return drained;
  };
  let drained: Promise<Drained> | undefined;
  return { url, adminUrl, live, drain: () => (drained ??= drain()) };
}

interface Parts {
  config: Config;
  live: LiveConfig;
  connection: Connection;
  store: Store & Holds;
  upstreams: Upstreams;
  counts: ReturnType<typeof createCounts>;
  metrics: Metrics;
  log: Logger;
}

async function openPublicPort(parts: Parts, tracing: Tracing): Promise<PublicPort> {
  const { config, connection, store, upstreams, counts, metrics, log } = parts;
  return createPublicPort({
    started: config,
    store,
    upstreams,
    unmeteredElsewhere: createUnmeteredElsewhere(
      resolve(config.store.journal),
      () => connection.known.facts?.id,
    ),
    callbacks: await openRelay(parts),
    countRefusal: counts.refusals.count,
    maintenance: counts.maintenance.state,
    usageOf: counts.usage.usageOf,
    metrics,
    tracing,
    log,
  });
}

/** Without the key nothing of webhooks is loaded. */
async function openRelay(options: RelayOptions): Promise<Callbacks | undefined> {
  if (options.live.config().webhooks.secretKey === undefined) return undefined;
  const { createCallbackRelay } = await import("./callback-relay.ts");
  return createCallbackRelay(options);
}

const sendReadings = (role: Role, metrics: Metrics): NodeJS.Timeout =>
  setInterval(async () => role.sendReading(await readMetrics(metrics)), SAMPLE_EVERY_MS);

function followChanges(options: {
  role: Role;
  live: LiveConfig;
  tierUse: TierUse;
  publicPort: PublicPort;
  firstWorker: ReturnType<typeof createFirstWorkerJobs> | undefined;
  log: Logger;
}): void {
  const { role, live, tierUse, publicPort, firstWorker, log } = options;
  role.onLogLevel((level) => {
    log.level = level;
  });
  live.onChange({
    refuses: tierUse.refuses,
    prepare: publicPort.prepare,
    applied(next, previous) {
      publicPort.applied(next, previous);
      firstWorker?.applied(next, previous);
      if (next.log.level !== previous.log.level) log.level = next.log.level;
    },
  });
}

function createCounts(options: { connection: Connection; live: LiveConfig; metrics: Metrics; log: Logger }) {
  const { connection, live, metrics, log } = options;
  const refusals = createRefusalCounts({
    add: (counts) => addRefusals(connection, counts),
    addSingle: (refusals) => addToRefusalLogs(connection, refusals),
    usable: connection.isUsable,
    nowMs: connection.nowMs,
    log,
  });
  const tierUse = createTierUse({
    counter: createTierCounter(connection),
    config: live.config,
    file: live.file,
    metrics,
    log,
  });
  const maintenance = createMaintenanceWatch({ connection, log });
  const usage = createCustomerUsage(live.config());
  return {
    refusals,
    tierUse,
    usage,
    maintenance,
    start(): void {
      maintenance.start();
      refusals.start();
      tierUse.start();
    },
    async stop(): Promise<void> {
      usage.close();
      await Promise.all([refusals.stop(), tierUse.stop(), maintenance.stop()]);
    },
  };
}

async function openStore(options: {
  config: Config;
  live: LiveConfig;
  place: ConnectionOptions["place"];
  log: Logger;
  metrics: Metrics;
}) {
  const { config, live, place, log, metrics } = options;
  // Absolute: mkdirSync never returns for a folder in a removed working directory (Node 26).
  const folder = resolve(config.store.journal);
  const journal = await openJournal(folder, log, {
    changed: (usable) => metrics.journalUsable.set(usable ? 1 : 0),
  }).catch((error: unknown) => {
    const why = `the journal folder ${folder} cannot be used: ${diskReason(error)}`;
    throw new Error(`${why}; mend it, or name another with store.journal or JOURNAL`, { cause: error });
  });
  const connection = createConnection({ ...config.store, place, log, metrics });
  const settlements = createSettlements(connection, {
    journal,
    confirmedFolder: folder,
    settleWithinMs: () => settleWithinMs(live.config().tasks.retentionMs),
    log,
  });
  return { connection, settlements };
}

function createFirstWorkerJobs(
  options: Parts & { metricsPage(): Promise<string>; role: Role; isDraining(): boolean },
) {
  const { config, live, connection, store, upstreams, metrics, role, log } = options;
  const adminPort = createAdminPort({
    config,
    live,
    tierCounts: options.counts.tierUse.known,
    connection,
    metricsPage: options.metricsPage,
    readings: async () => [await readMetrics(metrics), ...role.otherReadings()],
    setLevel(level) {
      log.level = level;
      role.sendLogLevel(level);
    },
    notReady() {
      if (options.isDraining()) return "draining";
      return connection.isUsable() ? undefined : "the store is unusable";
    },
    maintenanceSinceMs: () => options.counts.maintenance.state.current?.sinceMs,
    metrics,
    log,
  });
  const work = createWork({
    connection,
    store,
    upstreamOf: (tag) => upstreams.upstreamOf(tag, live.config()),
    settings: live.config,
    metrics,
    log,
  });
  return {
    adminPort,
    work: {
      ...work,
      async stop(): Promise<void> {
        await Promise.all([work.stop(), adminPort.stopWork()]);
      },
    },
    start(): void {
      work.start();
      adminPort.start();
      for (const [setting, variable] of live.hidden())
        log.warn({ setting, variable }, "a setting of the file is not in force: a variable replaces it");
    },
    applied(next: Config, previous: Config): void {
      const { tls } = next.admin;
      if (tls && !sameMaterial(tls, previous.admin.tls)) renewTls(adminPort.server, tls);
      work.changed();
    },
  };
}

async function openTracing(config: () => Config, log: Logger, { spansDropped }: Metrics): Promise<Tracing> {
  const { tracing } = config();
  const { endpoint } = tracing;
  if (endpoint === undefined) return passingOn;
  const { createTracing } = await import("../telemetry/trace-export.ts").catch((error) => {
    if (error?.code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new Error(
      "`tracing.endpoint` is set, but OpenTelemetry is not installed: run `npm run add-tracing`, or remove the setting",
    );
  });
  const dropped = (reason: string, spans: number): void => spansDropped.inc({ reason }, spans);
  return createTracing({ ...tracing, endpoint, upstreamUrl: () => config().upstream.url, log, dropped });
}

/** The kernel may allow fewer. */
const LISTEN_BACKLOG = 4096;

async function listen(
  server: Server,
  { host, port, tls }: { host: string; port: number; tls: object | undefined },
  exclusive: boolean,
): Promise<string> {
  // Several processes would get different ports from the system.
  server.listen({ port, host, exclusive, backlog: LISTEN_BACKLOG });
  await once(server, "listening");
  const bound = server.address() as AddressInfo;
  return `${tls ? "https" : "http"}://${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`;
}
