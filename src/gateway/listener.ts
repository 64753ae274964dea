import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { type Config, memoizeByConfigPart } from "../config/config.ts";
import { sameMaterial, type TlsMaterial } from "../config/tls.ts";
import { type ApiAnswer, commonHeaders, noLimits, refusal } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { HEADERS_BYTES_MAX } from "../domain/limits.ts";
import type { Holds } from "../settlement/holds.ts";
import type { Store } from "../settlement/store.ts";
import type { UnmeteredElsewhere } from "../settlement/unmetered-elsewhere.ts";
import type { Logger } from "../telemetry/log.ts";
import { madeOnce } from "../telemetry/metrics/series.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Tracing } from "../telemetry/trace.ts";
import { clientAddress, createUntrustedProxyNotice, exactAddress, trustedProxies } from "./address.ts";
import { createAuthenticator } from "./authenticate.ts";
import { createBodyBudget } from "./body.ts";
import type { ClientConnection, ReceivedRequest } from "./connections/client-connection.ts";
import { ClientConnections } from "./connections/client-connections.ts";
import { createHttpServer, followConnections, renewTls } from "./connections/http-server.ts";
import {
  type Exchange,
  type Gateway,
  headersOf,
  type Live,
  newRequestId,
  type Snapshot,
} from "./http-exchange.ts";
import { createKeyUsages, createOverLimitCache } from "./key-memory.ts";
import { RequestLifecycle } from "./request-lifecycle.ts";
import { createFallbackMemory } from "./unmetered.ts";
import type { Upstreams } from "./upstreams.ts";

/** Not imported: decision 0040. */
const { STATUS_CODES } = process.getBuiltinModule("node:http");

interface Timeouts {
  headersTimeoutMs: number;
  keepAliveTimeoutMs: number;
  writeTimeoutMs: number;
}

export interface ListenerOptions extends Timeouts {
  /** Only the listener opens connections in it. */
  connections: ClientConnections;
  /** Must not throw. @param isRefused its connection exceeds a limit @returns undefined for a request that is dropped */
  serve(request: ReceivedRequest, isRefused: boolean): Exchange | undefined;
  /** Answers a request that is being served and whose body the parser refused; must not throw. */
  refuseMalformedBody(exchange: Exchange, refused: Refusal): Promise<ApiAnswer>;
  tls?: TlsMaterial | undefined;
  /** Node's parser refused a request, and it was answered on the bare socket. */
  onMalformedRequest(refused: Refusal, requestId: string): void;
}

/** A node:http server whose automatic responses are in our envelope. Readers of bodies enforce their own deadlines. */
export function createListener(options: ListenerOptions) {
  const { connections } = options;
  const server = createHttpServer(
    {
      headersTimeout: options.headersTimeoutMs,
      requestTimeout: 0,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      connectionsCheckingInterval: 1000,
      maxHeaderSize: HEADERS_BYTES_MAX,
      requireHostHeader: false,
      insecureHTTPParser: false,
      noDelay: true,
      shouldUpgradeCallback: () => false,
    },
    options.tls,
  );
  // Node drops the header lines beyond its default of 2,000, maybe Authorization. maxHeaderSize bounds them.
  server.maxHeadersCount = 0;
  // A client may close its sending side after its last request. Node's types lack the property.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.timeout = options.writeTimeoutMs;
  connections.attach(server, options.serve);
  receiveRequests(server, connections);
  answerMalformedRequests(server, options);
  return Object.assign(server, {
    // Replaces Node's own, which `close` calls too and which ends connections before their responses are flushed.
    closeIdleConnections(): void {
      for (const connection of connections.all()) {
        // A connection without a request so far may be sending its first one.
        const { isUsed, socket } = connection;
        if (connection.isIdle() && isUsed && socket.writableLength === 0) socket.destroy();
      }
    },
    /** `close` ends idle connections only, and stops the headers timeout: it would wait for ever for the rest of a head. */
    closeConnectionsWithoutResponses(): void {
      for (const connection of connections.all()) if (connection.isIdle()) connection.socket.destroy();
    },
    /** New connections get this certificate. The listener must have been created with TLS. */
    renewTls: (tls: TlsMaterial): void => renewTls(server, tls),
    setTimeouts({ headersTimeoutMs, keepAliveTimeoutMs, writeTimeoutMs }: Timeouts): void {
      server.headersTimeout = headersTimeoutMs;
      server.keepAliveTimeout = keepAliveTimeoutMs;
      server.timeout = writeTimeoutMs;
    },
  });
}

function receiveRequests(server: Server, connections: ClientConnections): void {
  followConnections(server, {
    opened: (socket) => connections.open(socket),
    secured: (accepted, socket) => connections.secured(accepted, socket),
  });
  server.on("timeout", (socket) => connections.timedOut(socket));
  server.on("request", connections.receive);
  server.on("checkContinue", (req, res) => connections.receive(req, res, true));
  // An Expect other than 100-continue; refused once its head is read.
  server.on("checkExpectation", connections.receive);
}

function answerMalformedRequests(server: Server, options: ListenerOptions): void {
  const { connections } = options;
  server.on("connect", (_req: IncomingMessage, socket: Duplex) =>
    endMalformed(
      socket,
      connections.get(socket),
      refuse("invalid_request", { text: "Invalid request: CONNECT is not served here" }),
      options,
    ),
  );
  // The parser reports an error again for each further chunk of the same connection.
  const reported = new WeakSet<Duplex>();
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Duplex) => {
    if (reported.has(socket)) return;
    reported.add(socket);
    const connection = connections.get(socket);
    // An unknown connection has failed its TLS handshake.
    if (error.code === "ECONNRESET" || !socket.writable || !connection) socket.destroy();
    else endMalformed(socket, connection, parseFault(error), options);
  });
}

/** After the responses to all complete requests before it: else it would be taken for that of an earlier one, which may be charged. */
function endMalformed(
  socket: Duplex,
  connection: ClientConnection | undefined,
  refused: Refusal,
  options: ListenerOptions,
): void {
  const pending = connection?.pendingRequests ?? [];
  const before = pending.findLast(({ req, res }) => req.complete && !res.writableFinished);
  const incomplete = pending.find(({ req }) => !req.complete);
  const end = (): void => {
    // A request that waited has been started by now.
    const exchange = incomplete?.exchange;
    // A request that was refused before its body was complete has its response already.
    if (!socket.writable || incomplete?.res.headersSent) socket.destroy();
    else if (exchange) void endExchange(socket, exchange, refused, options);
    else endUnknown(socket, refused, options);
  };
  if (before) before.res.once("close", end);
  else end();
}

const MALFORMED = "Invalid request: it is not well-formed HTTP/1.1";

function parseFault(error: NodeJS.ErrnoException): Refusal {
  switch (error.code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return refuse("request_timeout");
    case "HPE_HEADER_OVERFLOW":
      return refuse("headers_too_large");
    case "HPE_PAUSED_H2_UPGRADE":
      return refuse("version_unsupported");
    case "HPE_INVALID_VERSION":
      // The parser reports the same code for a line that does not end in CRLF.
      if (!/CRLF/.test(error.message)) return refuse("version_unsupported");
      return refuse("invalid_request", { text: MALFORMED });
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return refuse("payload_too_large");
    default:
      return refuse("invalid_request", { text: MALFORMED });
  }
}

/** Answers a request that is being served: with its request id and its key's rate-limit headers. */
async function endExchange(
  socket: Duplex,
  exchange: Exchange,
  refused: Refusal,
  options: ListenerOptions,
): Promise<void> {
  const answer = await options.refuseMalformedBody(exchange, refused);
  endRaw(socket, answer, headersOf(exchange, answer, true));
}

function endUnknown(socket: Duplex, refused: Refusal, options: ListenerOptions): void {
  const requestId = newRequestId();
  const answer = refusal(refused, requestId);
  const lines = commonHeaders(noLimits(Date.now()), requestId, Buffer.byteLength(answer.body));
  lines.push("Connection", "close", ...(answer.headers ?? []));
  endRaw(socket, answer, lines);
  options.onMalformedRequest(refused, requestId);
}

/** Answers on the bare socket, and closes it a moment later. Node's response would close it at once. */
function endRaw(socket: Duplex, { status, body }: ApiAnswer, lines: readonly string[]): void {
  socket.on("error", () => socket.destroy());
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nDate: ${new Date().toUTCString()}\r\n`;
  for (let at = 0; at < lines.length; at += 2) head += `${lines[at]}: ${lines[at + 1]}\r\n`;
  socket.end(`${head}\r\n${body}`);
  // Read and discard the rest of the request: otherwise a reset would overtake the response.
  socket.resume();
  setTimeout(() => socket.destroy(), 1000).unref();
}

export type PublicPort = ReturnType<typeof createPublicPort>;

export function createPublicPort(options: {
  /** The snapshot at the start, for settings that need a restart. */
  started: Config;
  store: Store & Holds;
  upstreams: Upstreams;
  unmeteredElsewhere: UnmeteredElsewhere;
  callbacks: Gateway["callbacks"];
  countRefusal: Gateway["countRefusal"];
  maintenance: Gateway["maintenance"];
  usageOf: Gateway["usageOf"];
  metrics: Metrics;
  tracing: Tracing;
  log: Logger;
}) {
  const { started, upstreams, metrics } = options;
  const snapshotOf = (config: Config): Snapshot => ({ config, upstream: upstreams.upstream(config) });
  const live: Live = { snapshot: snapshotOf(started) };
  const addresses = memoizeByConfigPart(
    (config) => config.server.trustProxy,
    ({ server: { trustProxy } }) => ({
      client: clientAddress(trustProxy),
      exact: exactAddress(trustProxy),
      isProxy: trustedProxies(trustProxy),
    }),
  );
  const connections = new ClientConnections({
    live,
    peer({ remoteAddress }) {
      const { client, isProxy } = addresses(live.snapshot.config);
      return { address: client(remoteAddress, undefined), trusted: isProxy(remoteAddress) };
    },
    ended: (bound) => metrics.overloads.inc({ bound }),
  });
  metrics.connections.readFrom(() => connections.counts());
  const gateway: Gateway = {
    ...gatewayOf(options, live),
    isDraining: false,
    clientAddress: (peer, forwardedFor) => addresses(live.snapshot.config).client(peer, forwardedFor),
    exactAddress: (peer, forwardedFor) => addresses(live.snapshot.config).exact(peer, forwardedFor),
    bodyRead: (socket, bytes) => connections.bodyRead(socket, bytes),
    uploadStarted: (req, accountId) => connections.uploadStarted(req, accountId),
  };
  const requests = new RequestLifecycle(gateway, connections);
  const listener = createListener({
    ...started.server,
    connections,
    serve: requests.start,
    refuseMalformedBody: (exchange, refused) => requests.refuseMalformedBody(exchange, refused),
    onMalformedRequest: (refused, requestId) => recordMalformed(options, refused, requestId),
  });
  return {
    listener,
    isDraining: () => gateway.isDraining,
    /** From now on each response closes its connection. */
    startDraining(): void {
      gateway.isDraining = true;
    },
    /** Responses that are written and that their clients have not read. */
    unflushedResponses: () => connections.unflushedResponses(),
    idle: () => requests.idle(),
    prepare(next: Config): void {
      upstreams.prepare(next);
      addresses(next);
    },
    applied(next: Config, previous: Config): void {
      live.snapshot = snapshotOf(next);
      listener.setTimeouts(next.server);
      const { tls } = next.server;
      if (tls && !sameMaterial(tls, previous.server.tls)) listener.renewTls(tls);
    },
  };
}

function gatewayOf(
  options: Parameters<typeof createPublicPort>[0],
  live: Live,
): Omit<Gateway, "bodyRead" | "uploadStarted" | "clientAddress" | "exactAddress" | "isDraining"> {
  const { store, upstreams, metrics, log } = options;
  const { upstreamOf, uploads } = upstreams;
  return {
    live,
    store,
    upstreamOf,
    uploads,
    authenticator: createAuthenticator({
      lookup: (digest) => store.lookup(digest, live.snapshot.config.tiers),
      unknownPerMinute: () => live.snapshot.config.server.unknownKeysPerMinute,
    }),
    noteUntrustedProxy: createUntrustedProxyNotice(log, () => metrics.untrustedProxy.inc()),
    bodies: createBodyBudget(
      () => live.snapshot.config.server.maxBodyBytesInFlight,
      (bound) => metrics.overloads.inc({ bound }),
    ),
    overLimit: createOverLimitCache(),
    keyUsages: createKeyUsages(),
    fallback: createFallbackMemory(options.unmeteredElsewhere),
    countRefusal: options.countRefusal,
    maintenance: options.maintenance,
    usageOf: options.usageOf,
    callbacks: options.callbacks,
    metrics,
    holds: metrics.holds.series(),
    upstreamSeconds: madeOnce((kind, outcome) => metrics.upstreamSeconds.of({ kind, outcome })),
    tracing: options.tracing,
    log,
  };
}

function recordMalformed(
  { metrics, log }: { metrics: Metrics; log: Logger },
  { name, status }: Refusal,
  requestId: string,
): void {
  metrics.requests.inc({ route: "none", status, outcome: name });
  log[status >= 500 ? "warn" : "info"]({ request_id: requestId, status, outcome: name });
}
