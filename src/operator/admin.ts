import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { openApiText } from "../domain/openapi/document.ts";
import { limitConnections } from "../gateway/connection-limits.ts";
import { createHttpServer, type TlsMaterial } from "../gateway/tls.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";
import type { Console } from "./console/console.ts";
import { LOG_LEVEL_PATH, type LogLevel } from "./log-level.ts";

/** Prometheus, probes and a few browsers need far fewer. */
const CONNECTIONS_MAX = 64;
/** A client that takes nothing of its answer for this long loses its connection. */
const SILENCE_MS = 30_000;

/** The admin port: liveness, readiness, metrics, the API description and the operators' console; never public. */
export function createAdmin(options: {
  /** The metrics as Prometheus reads them. */
  metricsPage(): Promise<string>;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  /** The configuration in force, without secrets. */
  config(): object;
  access: Pick<Access, "check">;
  console: Pick<Console, "owns" | "serve">;
  logLevel: LogLevel;
  /** Undefined for plain HTTP. */
  tls?: TlsMaterial | undefined;
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

  let page: Promise<string> | undefined;

  /** One page for all who ask while it is made. */
  function metricsPage(): Promise<string> {
    page ??= options.metricsPage().finally(() => {
      page = undefined;
    });
    return page;
  }

  /** Probes and Prometheus send no token and name the port as they like. @returns whether it was one of theirs */
  async function answerProbe(path: string, res: ServerResponse): Promise<boolean> {
    if (path === "/livez") plain(res, 200, "ok");
    else if (path === "/readyz") {
      const why = options.notReady();
      plain(res, why === undefined ? 200 : 503, why ?? "ok");
    } else if (path === "/metrics") {
      plain(res, 200, (await metricsPage()).trimEnd(), Registry.PROMETHEUS_CONTENT_TYPE);
    } else return false;
    return true;
  }

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = req.url?.split("?")[0] ?? "";
    if (options.console.owns(path)) return options.console.serve(req, res);
    if (path === LOG_LEVEL_PATH) return options.logLevel(req, res);
    const reads = req.method === "GET" || req.method === "HEAD";
    if (reads && (await answerProbe(path, res))) return;
    const entry = options.access.check(req, "data");
    if (entry.outcome === "denied") {
      const { remoteAddress } = req.socket;
      if (entry.wrongToken) options.log.warn({ remote_address: remoteAddress }, "admin: a wrong ADMIN_TOKEN");
      for (const [name, value] of Object.entries(entry.headers)) res.setHeader(name, value);
      return plain(res, entry.status, entry.error);
    }
    if (!reads) {
      res.setHeader("Allow", "GET, HEAD");
      return plain(res, 405, "method not allowed");
    }
    if (path === "/openapi.json") return plain(res, 200, openApi, "application/json; charset=utf-8");
    if (path === "/config") {
      return plain(res, 200, JSON.stringify(options.config(), undefined, 2), "application/json");
    }
    plain(
      res,
      404,
      "no such page; there are /livez, /readyz, /metrics, /config, /openapi.json, /log-level and /console",
    );
  }

  const server = createHttpServer({ requestTimeout: 10_000 }, options.tls, (req, res) => {
    // It sent too many requests ahead: nobody waits for this one.
    if (req.socket.destroyed) return;
    // A rejection that nobody takes would end the gateway.
    answer(req, res).catch((error: unknown) => {
      options.log.error({ err: error, path: req.url?.split("?")[0] }, "admin: internal fault");
      if (res.headersSent) res.destroy();
      else plain(res, 500, "internal fault; the log says more");
    });
  });
  server.timeout = SILENCE_MS;
  limitConnections(server, CONNECTIONS_MAX);
  return server;
}
