import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { openApiText } from "../core/openapi/document.ts";
import { limitConnections } from "../http/connection-limits.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Console } from "./console/console.ts";
import { LOG_LEVEL_PATH, type LogLevel } from "./log-level.ts";

/** Prometheus, probes and a few browsers need far fewer. */
const CONNECTIONS_MAX = 64;

/** The admin port: liveness, readiness, metrics, the API description and the operators' console; never public. */
export function createAdmin(options: {
  /** The metrics as Prometheus reads them. */
  metricsPage(): Promise<string>;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  /** The configuration in force, without secrets. */
  config(): object;
  console: Pick<Console, "owns" | "serve">;
  logLevel: LogLevel;
  log: Logger;
}): Server {
  const plain = (
    res: ServerResponse,
    status: number,
    body: string,
    type = "text/plain; charset=utf-8",
  ): void => {
    res.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" });
    res.end(`${body}\n`);
  };

  // Now, since the first request for it would else hold up all others.
  const openApi = openApiText().trimEnd();

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (options.console.owns(req.url?.split("?")[0] ?? "")) return options.console.serve(req, res);
    if (req.url?.split("?")[0] === LOG_LEVEL_PATH) return options.logLevel(req, res);
    if (req.method !== "GET" && req.method !== "HEAD") {
      res.setHeader("Allow", "GET, HEAD");
      return plain(res, 405, "method not allowed");
    }
    switch (req.url?.split("?")[0]) {
      case "/livez":
        return plain(res, 200, "ok");
      case "/readyz": {
        const why = options.notReady();
        return plain(res, why === undefined ? 200 : 503, why ?? "ok");
      }
      case "/metrics":
        return plain(res, 200, (await options.metricsPage()).trimEnd(), Registry.PROMETHEUS_CONTENT_TYPE);
      case "/openapi.json":
        return plain(res, 200, openApi, "application/json; charset=utf-8");
      case "/config":
        return plain(res, 200, JSON.stringify(options.config(), undefined, 2), "application/json");
      default:
        return plain(
          res,
          404,
          "no such page; there are /livez, /readyz, /metrics, /config, /openapi.json, /log-level and /console",
        );
    }
  }

  const server = createServer({ requestTimeout: 10_000 }, (req, res) => {
    // A rejection that nobody takes would end the gateway.
    answer(req, res).catch((error: unknown) => {
      options.log.error({ err: error, path: req.url?.split("?")[0] }, "admin: internal fault");
      if (res.headersSent) res.destroy();
      else plain(res, 500, "internal fault; the log says more");
    });
  });
  limitConnections(server, CONNECTIONS_MAX);
  return server;
}
