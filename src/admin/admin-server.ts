import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Registry } from "prom-client";
import { LOG_LEVELS } from "../config/sections/telemetry.ts";
import type { TlsMaterial } from "../config/tls.ts";
import { clientAddress } from "../gateway/address.ts";
import { createConnectionLimits, type LimitedConnection } from "../gateway/connections/connection-limits.ts";
import { createHttpServer, followConnections } from "../gateway/connections/http-server.ts";
import { createAudit, type Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";
import type { AdminApi } from "./api/serve.ts";
import type { Console } from "./console/console.ts";
import { type RefusalLog, requestLine } from "./refusal-log.ts";
import { json, type Reply, readBody, send, text } from "./reply.ts";

/** Prometheus, probes and a few browsers need far fewer. */
const CONNECTIONS_MAX = 64;
/** How long a request may take to arrive, and how often Node looks for those that take longer; its default is 30 s. */
const ARRIVAL = { requestTimeout: 10_000, connectionsCheckingInterval: 1000 };
/** A client that takes nothing of its answer for this long loses its connection. */
const SILENCE_MS = 30_000;
const LOG_LEVEL_PATH = "/log-level";
const LEVEL_BYTES_MAX = 256;
const OPENAPI_HEADERS = { "Content-Type": "application/json; charset=utf-8" };

interface AdminServerOptions {
  metricsPage(): Promise<string>;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  config(): object;
  access: Pick<Access, "check">;
  refusals: Pick<RefusalLog, "signIn">;
  console: Pick<Console, "owns" | "serve">;
  /** In all processes. */
  setLevel(level: string): void;
  api: Pick<AdminApi, "owns" | "serve">;
  tls?: TlsMaterial | undefined;
  log: Logger;
}

export function createAdminServer(options: AdminServerOptions): Server {
  const page = createPages(options);

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = req.url?.split("?")[0] ?? "";
    if (options.api.owns(path)) return options.api.serve(req, res);
    if (options.console.owns(path)) return options.console.serve(req, res);
    send(res, await page(req, path));
  }

  const server = createHttpServer(ARRIVAL, options.tls, (req, res) => {
    // The connection was closed for too many pipelined requests.
    if (req.socket.destroyed) return;
    // An unhandled rejection would end the gateway.
    answer(req, res).catch((error: unknown) => {
      options.log.error({ err: error, ...requestLine(req) }, "admin: internal fault");
      if (res.headersSent) res.destroy();
      else send(res, text(500, "internal fault; the log says more"));
    });
  });
  server.timeout = SILENCE_MS;
  limitAdminConnections(server, CONNECTIONS_MAX);
  return server;
}

/** All pages but the console and the management API. */
function createPages(options: AdminServerOptions) {
  let openApi: Promise<string> | undefined;
  const logLevel = createLogLevel(options);

  let metrics: Promise<string> | undefined;

  /** One page for all who ask while it is made. */
  function metricsPage(): Promise<string> {
    metrics ??= options.metricsPage().finally(() => {
      metrics = undefined;
    });
    return metrics;
  }

  /** Probes and Prometheus send no token and name the port as they like. @returns undefined for any other path */
  async function probe(path: string): Promise<Reply | undefined> {
    switch (path) {
      case "/livez":
        return text(200, "ok");
      case "/readyz": {
        const why = options.notReady();
        return text(why === undefined ? 200 : 503, why ?? "ok");
      }
      case "/metrics":
        return text(200, (await metricsPage()).trimEnd(), {
          "Content-Type": Registry.PROMETHEUS_CONTENT_TYPE,
        });
      default:
        return undefined;
    }
  }

  return async (req: IncomingMessage, path: string): Promise<Reply> => {
    const isRead = req.method === "GET" || req.method === "HEAD";
    const probed = isRead ? await probe(path) : undefined;
    if (probed) return probed;
    const entry = options.access.check(req, "data");
    if (entry.outcome === "denied") {
      options.refusals.signIn(entry.reason, req);
      return path === LOG_LEVEL_PATH
        ? json(entry.status, { error: entry.error }, entry.headers)
        : text(entry.status, entry.error, entry.headers);
    }
    if (path === LOG_LEVEL_PATH) return logLevel(req);
    if (!isRead) return text(405, "method not allowed", { Allow: "GET, HEAD" });
    if (path === "/openapi.json") {
      // Few ask for it, and a start would wait for it.
      openApi ??= import("../api/document.ts").then(({ openApiText }) => openApiText());
      return { status: 200, body: await openApi, headers: OPENAPI_HEADERS };
    }
    if (path === "/config") {
      const config = JSON.stringify(options.config(), undefined, 2);
      return text(200, config, { "Content-Type": "application/json" });
    }
    return text(
      404,
      "no such page; there are /livez, /readyz, /metrics, /config, /openapi.json, /log-level, /manage/v1 and /console",
    );
  };
}

/** `PUT` sets the level, as text or as `{"level":"debug"}`, until the next start or change of `log.level`. */
function createLogLevel({ log, setLevel }: Pick<AdminServerOptions, "log" | "setLevel">) {
  const audit = createAudit(log);
  return async (req: IncomingMessage): Promise<Reply> => {
    if (req.method === "GET" || req.method === "HEAD") return json(200, { level: log.level });
    if (req.method !== "PUT") return json(405, { error: "use GET or PUT" }, { Allow: "GET, HEAD, PUT" });
    const body = await readBody(req, LEVEL_BYTES_MAX).catch(() => undefined);
    const level = levelIn(body?.toString());
    if (level === undefined) return json(400, { error: `the body must be one of ${LOG_LEVELS.join(", ")}` });
    const line = { was: log.level, now: level, remote_address: req.socket.remoteAddress };
    setLevel(level);
    audit.info(line, "the log level was set");
    return json(200, { level });
  };
}

function levelIn(text = ""): string | undefined {
  const word = /^\s*(?:\{\s*"level"\s*:\s*"([a-z]+)"\s*\}|([a-z]+))\s*$/.exec(text);
  const level = word?.[1] ?? word?.[2];
  return LOG_LEVELS.find((known) => known === level);
}

/** Unanswered requests on one connection; no client of the admin port pipelines. */
const UNANSWERED_MAX = 8;

const addressOf = clientAddress([]);

/** A new connection replaces the longest idle one of the address with the most, or else the one longest busy with an incomplete request. */
function limitAdminConnections(server: Server, max: number): void {
  interface Open extends LimitedConnection {
    socket: Socket;
    pending: Set<ServerResponse>;
  }
  const limits = createConnectionLimits<Open>(() => ({ total: max, perAddress: max }));
  const open = new Map<Socket, Open>();
  let activity = 0;
  function opened(socket: Socket): void {
    const connection: Open = {
      socket,
      address: addressOf(socket.remoteAddress, undefined),
      trusted: false,
      pending: new Set(),
      lastActive: ++activity,
      isIdle: () => connection.pending.size === 0,
      isSending: () => [...connection.pending].every(({ req }) => !req.complete),
    };
    const entry = limits.enter(connection);
    if (entry.outcome === "refused") {
      socket.destroy();
      return;
    }
    open.set(socket, connection);
    socket.once("close", () => {
      if (open.delete(connection.socket)) limits.leave(connection);
    });
    if (entry.outcome !== "admitted_instead") return;
    open.delete(entry.of.socket);
    entry.of.socket.destroy();
  }
  function secured(accepted: Socket, socket: Socket): void {
    const connection = open.get(accepted);
    if (!connection) {
      socket.destroy();
      return;
    }
    open.delete(accepted);
    connection.socket = socket;
    open.set(socket, connection);
  }
  followConnections(server, { opened, secured });
  server.prependListener("request", ({ socket }: IncomingMessage, res: ServerResponse) => {
    const connection = open.get(socket);
    if (!connection) return;
    connection.pending.add(res);
    if (connection.pending.size > UNANSWERED_MAX) socket.destroy();
    res.once("close", () => {
      connection.pending.delete(res);
      connection.lastActive = ++activity;
    });
  });
}
