import type { IncomingMessage, ServerResponse } from "node:http";
import type { Tiers } from "../../domain/limits.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import type { Logger } from "../../telemetry/log.ts";
import type { Access } from "../access.ts";
import { createApi } from "./api.ts";
import { pageFile, pageHeaders } from "./files.ts";
import { createLive, type LiveSources } from "./live.ts";

export const CONSOLE_PATH = "/console";
const API = `${CONSOLE_PATH}/api/`;

export type Console = ReturnType<typeof createConsole>;

/**
 * The operators' page on the admin port and its data. See docs/console.md.
 * @param options.notReady why the gateway is not ready, in words; undefined when it is
 */
export function createConsole(options: {
  access: Access;
  session: OperatorSession;
  sources: LiveSources;
  tiers(): Tiers;
  notReady(): string | undefined;
  log: Logger;
}) {
  const { access, session, log } = options;
  const live = createLive(options.sources);
  const api = createApi({ access, session, live, tiers: options.tiers, notReady: options.notReady, log });

  async function servePage(req: IncomingMessage, res: ServerResponse, path: string): Promise<void> {
    const entry = access.check(req, "page");
    if (entry.outcome === "denied") {
      res.writeHead(entry.status, { ...pageHeaders, "Content-Type": "text/plain; charset=utf-8" });
      res.end(`${entry.error}\n`);
      return;
    }
    if (req.method !== "GET" && req.method !== "HEAD") {
      res.writeHead(405, { ...pageHeaders, Allow: "GET, HEAD" }).end();
      return;
    }
    if (path === CONSOLE_PATH) {
      // Relative, so that it holds behind a proxy's prefix too.
      res.writeHead(308, { ...pageHeaders, Location: "console/" }).end();
      return;
    }
    const file = await pageFile(path.slice(CONSOLE_PATH.length + 1));
    if (!file) {
      res.writeHead(404, { ...pageHeaders, "Content-Type": "text/plain; charset=utf-8" });
      res.end("no such page; the console is at /console/\n");
      return;
    }
    res.writeHead(200, { ...pageHeaders, "Content-Type": file.type, "Content-Length": file.body.length });
    res.end(req.method === "HEAD" ? undefined : file.body);
  }

  return {
    live,
    /** True for the paths that are the console's. */
    owns: (path: string): boolean => path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`),
    async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
      const [path = "", query] = (req.url ?? "").split("?", 2);
      if (path.startsWith(API)) await api.serve(req, res, path.slice(API.length), new URLSearchParams(query));
      else await servePage(req, res, path);
    },
    start: live.start,
    stop(): void {
      live.stop();
      session.close();
    },
  };
}
