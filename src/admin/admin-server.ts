import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { openApiText } from "../api/document.ts";
import type { TlsMaterial } from "../config/tls.ts";
import { createHttpServer } from "../gateway/http-server.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";
import { limitAdminConnections } from "./admin-connections.ts";
import type { AdminApi } from "./api/serve.ts";
import type { Console } from "./console/console.ts";
import { LOG_LEVEL_PATH, type LogLevel } from "./log-level.ts";
import { type RefusalLog, requestLine } from "./refusal-log.ts";
import { type Reply, send, text } from "./reply.ts";

/** Prometheus, probes and a few browsers need far fewer. */
const CONNECTIONS_MAX = 64;
/** How long a request may take to arrive, and how often Node looks for those that take longer; its default is 30 s. */
const ARRIVAL = { requestTimeout: 10_000, connectionsCheckingInterval: 1000 };
/** A client that takes nothing of its answer for this long loses its connection. */
const SILENCE_MS = 30_000;
const OPENAPI_HEADERS = { "Content-Type": "application/json; charset=utf-8" };

interface AdminServerOptions {
  metricsPage(): Promise<string>;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  config(): object;
  access: Pick<Access, "check">;
  refusals: Pick<RefusalLog, "signIn">;
  console: Pick<Console, "owns" | "serve">;
  logLevel: LogLevel;
  api: Pick<AdminApi, "owns" | "serve">;
  /** Undefined for plain HTTP. */
  tls?: TlsMaterial | undefined;
  log: Logger;
}

export function createAdminServer(options: AdminServerOptions): Server {
  const page = createPages(options);

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = req.url?.split("?")[0] ?? "";
    if (options.console.owns(path)) return options.console.serve(req, res);
    if (options.api.owns(path)) return options.api.serve(req, res);
    if (path === LOG_LEVEL_PATH) return options.logLevel(req, res);
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

/** All pages but the console and the log level. */
function createPages(options: AdminServerOptions) {
  // Now, since the first request for it would else hold up all others.
  const openApi = openApiText();

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
      return text(entry.status, entry.error, entry.headers);
    }
    if (!isRead) return text(405, "method not allowed", { Allow: "GET, HEAD" });
    if (path === "/openapi.json") return { status: 200, body: openApi, headers: OPENAPI_HEADERS };
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
