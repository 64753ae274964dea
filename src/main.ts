import cluster from "node:cluster";
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { type Config, ConfigError, type Loaded, readConfig, redact, requireLoaded } from "./config/config.ts";
import { derived } from "./config/derived.ts";
import { createLiveConfig, type LiveConfig } from "./config/live.ts";
import { sameMaterial } from "./config/tls.ts";
import { clientAddress, trustedProxies } from "./http/address.ts";
import { createAuthenticator } from "./http/authenticate.ts";
import { createBodyBudget } from "./http/body-budget.ts";
import { ClientConnections } from "./http/client-connections.ts";
import { createListener } from "./http/listener.ts";
import { renewTls } from "./http/tls.ts";
import { createUntrustedProxyNotice } from "./http/untrusted-proxy.ts";
import { readLive, SAMPLE_EVERY_MS } from "./routes/console/live.ts";
import { createSeenTasks, type Gateway } from "./routes/gateway.ts";
import { createOperators } from "./routes/operators.ts";
import { createRefusedKeys } from "./routes/refused.ts";
import { Requests } from "./routes/serve.ts";
import { createUploadCounts } from "./routes/upload-counts.ts";
import { createUtilityRate } from "./routes/utility-rate.ts";
import { createConnection } from "./store/connection.ts";
import { openJournal } from "./store/journal.ts";
import { addRefusals } from "./store/refusals.ts";
import { createStore } from "./store/store.ts";
import { ALONE, type Role, roleOf, supervise } from "./supervisor.ts";
import { createLogger, type Logger, standardOutput } from "./telemetry/log.ts";
import { createMetrics } from "./telemetry/metrics.ts";
import { passingOn, type Tracing } from "./telemetry/trace.ts";
import { observeGate } from "./upstream/gate.ts";
import { createTaskUpstreams } from "./upstream/task-upstreams.ts";
import { createUploadTunnel } from "./upstream/upload.ts";
import { createUpstream } from "./upstream/upstream.ts";
import { createRefusalCounts } from "./workers/refusal-counts.ts";
import { createWork } from "./workers/work.ts";

/** After the listener has closed: how long a client may still take to finish a head that it has begun. */
const QUIET_MS = 1000;

/** How a drain ended. */
interface Drained {
  /** Everything that was under way has ended. */
  clean: boolean;
  /** Requests that had not when the drain timeout was over. */
  cutRequests: number;
  /** Answers that their clients had not taken by then. */
  cutAnswers: number;
}

/** A running gateway. */
export interface Running {
  url: string;
  adminUrl: string;
  /** The configuration in force; `watch` begins to look for changes. */
  live: LiveConfig;
  /** Stops taking requests, lets those under way finish for at most the drain timeout, closes everything. */
  drain(): Promise<Drained>;
}

/**
 * Builds and starts a gateway: everything that it consists of, in the order in which it depends on itself.
 * @param role which of several processes on one port this is
 */
export async function startGateway(loaded: Loaded, log: Logger, role: Role = ALONE): Promise<Running> {
  const metrics = createMetrics();
  const metricsPage = role.share(metrics.registry);
  const live = createLiveConfig({ loaded, log, metrics });
  /** For what needs a restart; all else asks `live`. */
  const { config } = loaded;
  const journal = await openJournal(config.store.journal, log, {
    changed: (usable) => metrics.journalUsable.set(usable ? 1 : 0),
  });
  // Half of what the store remembers: a request that it has forgotten would be charged once more.
  const settleWithinMs = (): number => live.config().tasks.retentionMs / 2;
  const connection = createConnection({
    ...config.store,
    journal,
    marksFolder: config.store.journal,
    settleWithinMs,
    log,
    metrics,
  });
  const store = createStore(connection);
  const observer = { generate: observeGate(metrics, "generate"), poll: observeGate(metrics, "poll") };
  // Connections of one that was replaced close by themselves, soon after its last request.
  const taskUpstreams = createTaskUpstreams({ observer, log });
  const upstream = derived(
    (config) => config.upstream,
    ({ upstream }) => {
      taskUpstreams.using(upstream.url);
      return createUpstream({ ...upstream, idempotent: upstream.idempotencyKey, observer });
    },
  );
  const upstreamOf: Gateway["upstreamOf"] = (tag, config) =>
    taskUpstreams.of(tag, upstream(config), config.upstream);
  const uploads = derived(
    ({ upstream, server }) => [upstream, server.uploadIdleTimeoutMs, server.uploadMinBytesPerSecond],
    ({ upstream, server }) =>
      createUploadTunnel({
        ...upstream,
        totalTimeoutMs: upstream.uploadTotalTimeoutMs,
        idleTimeoutMs: server.uploadIdleTimeoutMs,
        minBytesPerSecond: server.uploadMinBytesPerSecond,
        connections: upstream.uploadConnections,
      }),
  );
  const addresses = derived(
    (config) => config.server.trustProxy,
    ({ server: { trustProxy } }) => ({
      client: clientAddress(trustProxy),
      isProxy: trustedProxies(trustProxy),
    }),
  );
  const tracing = await openTracing(live.config, log, (reason, spans) =>
    metrics.spansDropped.inc({ reason }, spans),
  );
  let draining = false;
  const notReady = () =>
    draining ? "draining" : connection.breaker.isOpen() ? "the store is unusable" : undefined;
  const refusals = createRefusalCounts({
    add: (counts) => addRefusals(connection, counts),
    usable: () => !connection.breaker.isOpen(),
    log,
  });

  const connections = new ClientConnections({
    limits: () => live.config().server,
    peer({ remoteAddress }) {
      const { client, isProxy } = addresses(live.config());
      return { address: client(remoteAddress, undefined), trusted: isProxy(remoteAddress) };
    },
    ended: (bound) => metrics.overloads.inc({ bound }),
  });
  metrics.connections.from(() => connections.counts());

  const gateway: Gateway = {
    config: live.config,
    store,
    upstream,
    upstreamOf,
    uploads,
    uploadCounts: createUploadCounts((total) => metrics.uploads.set(total)),
    authenticator: createAuthenticator({
      lookup: (digest) => store.lookup(digest, live.config().tiers),
      unknownPerMinute: () => live.config().server.unknownKeysPerMinute,
    }),
    clientAddress: (peer, forwardedFor) => addresses(live.config()).client(peer, forwardedFor),
    noteUntrustedProxy: createUntrustedProxyNotice(log, () => metrics.untrustedProxy.inc()),
    bodies: createBodyBudget(
      () => live.config().server.maxBodyBytesInFlight,
      (bound) => metrics.overloads.inc({ bound }),
    ),
    bodyRead: (socket, bytes) => connections.bodyRead(socket, bytes),
    refusedKeys: createRefusedKeys(),
    utilityRate: createUtilityRate(),
    goodKeys: new WeakSet(),
    seenTasks: createSeenTasks(),
    unmeteredTasks: createSeenTasks(),
    countRefusal: refusals.count,
    metrics,
    tracing,
    log,
    draining: () => draining,
  };
  const requests = new Requests(gateway, connections);
  const listener = createListener({
    ...config.server,
    connections,
    serve: (arrival, refused) => requests.begin(arrival, refused),
    refuseBroken: (exchange, refused) => requests.refuseBroken(exchange, refused),
    parseRefused(refused, requestId) {
      metrics.requests.inc({ route: "none", status: refused.status, outcome: refused.name });
      const level = refused.status >= 500 ? "warn" : "info";
      log[level]({ request_id: requestId, status: refused.status, outcome: refused.name });
    },
  });
  const setLevel = (level: string): void => {
    log.level = level;
  };
  role.onLevel(setLevel);

  // What one of all processes does.
  const operators = role.first
    ? createOperators({
        config,
        live,
        connection,
        metricsPage,
        readings: async () => [await readLive(metrics), ...role.heard()],
        setLevel(level) {
          setLevel(level);
          role.tellLevel(level);
        },
        notReady,
        log,
      })
    : undefined;
  const work = role.first
    ? createWork({
        connection,
        store,
        redisUrl: config.store.redisUrl,
        upstreamOf: (tag) => upstreamOf(tag, live.config()),
        settings: live.config,
        metrics,
        log,
      })
    : undefined;

  const adminUrl = operators ? await listen(operators.server, config.admin, true) : "";
  const url = await listen(listener, config.server, false);
  role.listening();
  refusals.start();
  work?.start();
  operators?.start();
  // The console is the first one's; the others say every so often what they have counted.
  const telling = role.first
    ? undefined
    : setInterval(async () => role.tell(await readLive(metrics)), SAMPLE_EVERY_MS);
  live.onChange({
    prepare(next) {
      for (const make of [upstream, uploads, addresses]) make(next);
    },
    applied(next, previous) {
      listener.setTimeouts(next.server);
      if (next.server.tls && !sameMaterial(next.server.tls, previous.server.tls)) {
        listener.renewTls(next.server.tls);
      }
      if (operators && next.admin.tls && !sameMaterial(next.admin.tls, previous.admin.tls)) {
        renewTls(operators.server, next.admin.tls);
      }
      if (next.log.level !== previous.log.level) setLevel(next.log.level);
      work?.changed();
    },
  });

  let ending: Promise<Drained> | undefined;
  const drain = async (): Promise<Drained> => {
    draining = true;
    live.stop();
    const { drainDelayMs, drainTimeoutMs } = live.config().server;
    log.info("draining: readiness is red, answers close their connections");
    await delay(drainDelayMs);
    log.info("draining: no new requests, those under way finish");
    const closed = once(listener, "close").then(() => requests.idle());
    listener.close();
    listener.closeIdleConnections();
    const quiet = setTimeout(() => listener.closeQuietConnections(), QUIET_MS);
    const deadline = performance.now() + drainTimeoutMs;
    const clean = await inTime(closed, deadline);
    clearTimeout(quiet);
    const cutRequests = clean ? 0 : ((await metrics.inFlight.get()).values[0]?.value ?? 0);
    const cutAnswers = clean ? 0 : connections.unflushedAnswers();
    if (!clean) listener.closeAllConnections();
    if (work) await inTime(work.stop(), deadline + 1000);
    await inTime(Promise.all([refusals.stop(), tracing.stop()]), deadline + 1000);
    clearInterval(telling);
    // Before the store and its journal: an answer that came after them would never be charged. What it cuts is settled.
    uploads(live.config()).close();
    await inTime(Promise.all([upstream(live.config()).close(), taskUpstreams.close()]), deadline + 1000);
    if (!clean) await inTime(closed, deadline + 1500);
    // A store that hangs never answers its last command.
    await inTime(connection.close(), deadline + 2000);
    operators?.stop();
    return { clean, cutRequests, cutAnswers };
  };
  return { url, adminUrl, live, drain: () => (ending ??= drain()) };
}

/** Loads OpenTelemetry only where there is somebody to send spans to. */
async function openTracing(
  config: () => Config,
  log: Logger,
  dropped: (reason: string, spans: number) => void,
): Promise<Tracing> {
  const { tracing } = config();
  const { endpoint } = tracing;
  if (endpoint === undefined) return passingOn;
  const { createTracing } = await import("./telemetry/trace-export.ts");
  return createTracing({ ...tracing, endpoint, upstreamUrl: () => config().upstream.url, log, dropped });
}

/** Connections that wait to be accepted. Beyond it the kernel lets newcomers wait for seconds; it may allow fewer. */
const LISTEN_BACKLOG = 4096;

async function listen(
  server: Server,
  { host, port, tls }: { host: string; port: number; tls: object | undefined },
  exclusive: boolean,
): Promise<string> {
  // Among several processes, ports that the system chooses would else be mixed up.
  server.listen({ port, host, exclusive, backlog: LISTEN_BACKLOG });
  await once(server, "listening");
  const bound = server.address() as AddressInfo;
  return `${tls ? "https" : "http"}://${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`;
}

/** True when the work ended before the deadline (as `performance.now()`). */
async function inTime(work: Promise<unknown>, deadline: number): Promise<boolean> {
  const patience = new AbortController();
  const late = delay(Math.max(0, deadline - performance.now()), false, { signal: patience.signal }).catch(
    () => false,
  );
  const done = await Promise.race([work.then(() => true), late]);
  patience.abort();
  return done;
}

async function main(): Promise<void> {
  const loaded = loadOrExit();
  const { workers } = loaded.config.server;
  const log = createLogger(loaded.config.log.level, standardOutput({ shared: workers > 1 }));
  if (workers > 1 && cluster.isPrimary) {
    log.info({ workers }, "several processes share the port");
    process.exit(await supervise(workers, log));
  }
  let live: LiveConfig | undefined;
  // Registered first: without a listener it would end the process.
  process.on("SIGHUP", () => void live?.reload("SIGHUP"));
  const role = roleOf(process.env);
  const gateway = await startGateway(loaded, log, role);
  ({ live } = gateway);
  live.watch();
  const { url, adminUrl } = gateway;
  if (adminUrl === "") log.info({ url }, "one more process listens");
  else log.info({ url, admin_url: adminUrl, config: redact(loaded.config) }, "tollgate is listening");

  // Nothing that gets here is understood: say so in the log, and let the supervisor start anew.
  for (const event of ["uncaughtException", "unhandledRejection"] as const) {
    process.on(event, (error: unknown) => {
      log.fatal({ err: error }, event);
      process.exit(1);
    });
  }
  // A second signal is tolerated: npm and a terminal both send one.
  const end = async (signal: string): Promise<void> => {
    log.info({ signal }, "asked to stop");
    const { clean, cutRequests, cutAnswers } = await gateway.drain();
    log[clean ? "info" : "warn"]({ clean, cut_requests: cutRequests, cut_answers: cutAnswers }, "stopped");
    process.exit(clean ? 0 : 1);
  };
  process.on("SIGTERM", () => void end("SIGTERM"));
  process.on("SIGINT", () => void end("SIGINT"));
  role.onSupervisorGone(() => void end("none: the supervisor has gone"));
}

function loadOrExit(): Loaded {
  try {
    return requireLoaded(readConfig({ env: process.env }));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}

if (import.meta.main) {
  main().catch((error: NodeJS.ErrnoException) => {
    const hint = error.code === "EADDRINUSE" ? "; choose another with PORT or ADMIN_PORT" : "";
    process.stderr.write(`tollgate cannot start: ${error.message}${hint}\n`);
    process.exit(1);
  });
}
