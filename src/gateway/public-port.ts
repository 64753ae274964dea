import type { Config } from "../config/config.ts";
import { derived } from "../config/derived.ts";
import { sameMaterial } from "../config/tls.ts";
import type { Refusal } from "../domain/errors.ts";
import type { Holds } from "../settlement/holds.ts";
import type { Store } from "../store/store.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Tracing } from "../telemetry/trace.ts";
import { clientAddress, trustedProxies } from "./address.ts";
import { createAuthenticator } from "./authenticate.ts";
import { createBodyBudget } from "./body-budget.ts";
import { ClientConnections } from "./client-connections.ts";
import { createRefusedKeys } from "./full-windows.ts";
import { createSeenTasks, type Gateway } from "./handler-context.ts";
import { createListener } from "./listener.ts";
import { Requests } from "./serve.ts";
import { createUntrustedProxyNotice } from "./untrusted-proxy.ts";
import { createUploadCounts } from "./upload-counts.ts";
import type { Upstreams } from "./upstreams.ts";
import { createUtilityRate } from "./utility-rate.ts";

export type PublicPort = ReturnType<typeof createPublicPort>;

/** The customers' port: its connections, the requests on them, and what their handlers work with. */
export function createPublicPort(options: {
  /** As it was at the start, for what needs a restart. */
  started: Config;
  config(): Config;
  store: Store & Holds;
  upstreams: Upstreams;
  countRefusal: Gateway["countRefusal"];
  draining(): boolean;
  metrics: Metrics;
  tracing: Tracing;
  log: Logger;
}) {
  const { started, config, upstreams, metrics } = options;
  const addresses = derived(
    (config) => config.server.trustProxy,
    ({ server: { trustProxy } }) => ({
      client: clientAddress(trustProxy),
      isProxy: trustedProxies(trustProxy),
    }),
  );
  const connections = new ClientConnections({
    limits: () => config().server,
    peer({ remoteAddress }) {
      const { client, isProxy } = addresses(config());
      return { address: client(remoteAddress, undefined), trusted: isProxy(remoteAddress) };
    },
    ended: (bound) => metrics.overloads.inc({ bound }),
  });
  metrics.connections.readFrom(() => connections.counts());
  const requests = new Requests(
    {
      ...handlersNeed(options),
      clientAddress: (peer, forwardedFor) => addresses(config()).client(peer, forwardedFor),
      bodyRead: (socket, bytes) => connections.bodyRead(socket, bytes),
    },
    connections,
  );
  const listener = createListener({
    ...started.server,
    connections,
    serve: (arrival, refused) => requests.begin(arrival, refused),
    refuseBroken: (exchange, refused) => requests.refuseBroken(exchange, refused),
    parseRefused: (refused, requestId) => recordUnparsed(options, refused, requestId),
  });
  return {
    listener,
    /** Answers that are written and whose clients have not taken them yet. */
    unflushedAnswers: () => connections.unflushedAnswers(),
    /** Resolves once no request is under way. */
    idle: () => requests.idle(),
    /** Makes what a new snapshot needs. */
    prepare(next: Config): void {
      upstreams.prepare(next);
      addresses(next);
    },
    /** A new snapshot is in force. */
    applied(next: Config, previous: Config): void {
      listener.setTimeouts(next.server);
      const { tls } = next.server;
      if (tls && !sameMaterial(tls, previous.server.tls)) listener.renewTls(tls);
    },
  };
}

/** All but what the connections know. */
function handlersNeed(
  options: Parameters<typeof createPublicPort>[0],
): Omit<Gateway, "clientAddress" | "bodyRead"> {
  const { config, store, upstreams, metrics, log } = options;
  const { upstream, upstreamOf, uploads } = upstreams;
  return {
    config,
    store,
    upstream,
    upstreamOf,
    uploads,
    uploadCounts: createUploadCounts((total) => metrics.uploads.set(total)),
    authenticator: createAuthenticator({
      lookup: (digest) => store.lookup(digest, config().tiers),
      unknownPerMinute: () => config().server.unknownKeysPerMinute,
    }),
    noteUntrustedProxy: createUntrustedProxyNotice(log, () => metrics.untrustedProxy.inc()),
    bodies: createBodyBudget(
      () => config().server.maxBodyBytesInFlight,
      (bound) => metrics.overloads.inc({ bound }),
    ),
    refusedKeys: createRefusedKeys(),
    utilityRate: createUtilityRate(),
    goodKeys: new WeakSet(),
    seenTasks: createSeenTasks(),
    unmeteredTasks: createSeenTasks(),
    countRefusal: options.countRefusal,
    metrics,
    tracing: options.tracing,
    log,
    draining: options.draining,
  };
}

/** What never became a request is counted and logged all the same. */
function recordUnparsed(
  { metrics, log }: { metrics: Metrics; log: Logger },
  { name, status }: Refusal,
  requestId: string,
): void {
  metrics.requests.inc({ route: "none", status, outcome: name });
  log[status >= 500 ? "warn" : "info"]({ request_id: requestId, status, outcome: name });
}
