import type { Config } from "../config/config.ts";
import { memoizeByConfigPart } from "../config/memoize.ts";
import { sameMaterial } from "../config/tls.ts";
import type { Refusal } from "../domain/errors.ts";
import type { Holds } from "../settlement/holds.ts";
import type { Store } from "../settlement/store.ts";
import type { UnmeteredElsewhere } from "../settlement/unmetered-elsewhere.ts";
import type { Logger } from "../telemetry/log.ts";
import { madeOnce } from "../telemetry/metrics/factory.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Tracing } from "../telemetry/trace.ts";
import { clientAddress, createUntrustedProxyNotice, trustedProxies } from "./address.ts";
import { createAuthenticator } from "./authenticate.ts";
import { ClientConnections } from "./client-connections.ts";
import { createBodyBudget } from "./json-body-budget.ts";
import { createKeyUsages } from "./key-usage.ts";
import { createListener } from "./listener.ts";
import { createOverLimitCache } from "./over-limit-cache.ts";
import type { Gateway } from "./request-context.ts";
import { RequestLifecycle } from "./request-lifecycle.ts";
import { createFallbackMemory } from "./unmetered-fallback.ts";
import type { Upstreams } from "./upstreams.ts";

export type PublicPort = ReturnType<typeof createPublicPort>;

/** The customers' port: its connections, their requests, and what the handlers work with. */
export function createPublicPort(options: {
  /** The snapshot at the start, for settings that need a restart. */
  started: Config;
  config(): Config;
  store: Store & Holds;
  upstreams: Upstreams;
  unmeteredElsewhere: UnmeteredElsewhere;
  countRefusal: Gateway["countRefusal"];
  metrics: Metrics;
  tracing: Tracing;
  log: Logger;
}) {
  const { started, config, upstreams, metrics } = options;
  const addresses = memoizeByConfigPart(
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
  let isDraining = false;
  const requests = new RequestLifecycle(
    {
      ...gatewayOf(options),
      isDraining: () => isDraining,
      clientAddress: (peer, forwardedFor) => addresses(config()).client(peer, forwardedFor),
      bodyRead: (socket, bytes) => connections.bodyRead(socket, bytes),
      uploadStarted: (req, accountId) => connections.uploadStarted(req, accountId),
    },
    connections,
  );
  const listener = createListener({
    ...started.server,
    connections,
    serve: (request, isRefused) => requests.start(request, isRefused),
    refuseMalformedBody: (exchange, refused) => requests.refuseMalformedBody(exchange, refused),
    onMalformedRequest: (refused, requestId) => recordMalformed(options, refused, requestId),
  });
  return {
    listener,
    isDraining: () => isDraining,
    /** From now on each response closes its connection. */
    startDraining(): void {
      isDraining = true;
    },
    /** Responses that are written and that their clients have not read. */
    unflushedResponses: () => connections.unflushedResponses(),
    /** Resolves once no request is in flight. */
    idle: () => requests.idle(),
    /** Creates what a new snapshot needs. */
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

/** All of `Gateway` that does not depend on the connections. */
function gatewayOf(
  options: Parameters<typeof createPublicPort>[0],
): Omit<Gateway, "bodyRead" | "uploadStarted" | "clientAddress" | "isDraining"> {
  const { config, store, upstreams, metrics, log } = options;
  const { upstream, upstreamOf, uploads } = upstreams;
  return {
    config,
    store,
    upstream,
    upstreamOf,
    uploads,
    authenticator: createAuthenticator({
      lookup: (digest) => store.lookup(digest, config().tiers),
      unknownPerMinute: () => config().server.unknownKeysPerMinute,
    }),
    noteUntrustedProxy: createUntrustedProxyNotice(log, () => metrics.untrustedProxy.inc()),
    bodies: createBodyBudget(
      () => config().server.maxBodyBytesInFlight,
      (bound) => metrics.overloads.inc({ bound }),
    ),
    overLimit: createOverLimitCache(),
    keyUsages: createKeyUsages(),
    fallback: createFallbackMemory(options.unmeteredElsewhere),
    countRefusal: options.countRefusal,
    metrics,
    holds: metrics.holds.series(),
    upstreamSeconds: madeOnce((kind, outcome) => metrics.upstreamSeconds.of({ kind, outcome })),
    tracing: options.tracing,
    log,
  };
}

/** Counts and logs what Node could not parse as a request. */
function recordMalformed(
  { metrics, log }: { metrics: Metrics; log: Logger },
  { name, status }: Refusal,
  requestId: string,
): void {
  metrics.requests.inc({ route: "none", status, outcome: name });
  log[status >= 500 ? "warn" : "info"]({ request_id: requestId, status, outcome: name });
}
