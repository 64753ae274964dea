import type { IncomingMessage, ServerResponse } from "node:http";
import type { Tiers } from "../../domain/limits.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import type { Logger } from "../../telemetry/log.ts";
import type { Access } from "../access.ts";
import { type Reply, send, text } from "../reply.ts";
import type { PrimaryState } from "./answers.ts";
import { createApi } from "./api.ts";
import { pageFile, pageHeaders } from "./files.ts";
import { createLive, type LiveSources } from "./live-figures.ts";

const CONSOLE_PATH = "/console";
const API = `${CONSOLE_PATH}/api/`;

export type Console = ReturnType<typeof createConsole>;

/**
 * The console on the admin port and its data. See docs/console.md.
 * @param options.notReady why the gateway is not ready, in words; undefined when it is
 * @param options.primaries none where the address names the one server
 */
export function createConsole(options: {
  access: Access;
  session: OperatorSession;
  sources: LiveSources;
  tiers(): Tiers;
  notReady(): string | undefined;
  primaries(): PrimaryState[];
  log: Logger;
}) {
  const { access, session, tiers, notReady, primaries, log } = options;
  const live = createLive(options.sources);
  const api = createApi({ access, session, live, tiers, notReady, primaries, log });

  async function pageOf(req: IncomingMessage, path: string): Promise<Reply> {
    const entry = access.check(req, "page");
    if (entry.outcome === "denied") return text(entry.status, entry.error);
    if (req.method !== "GET" && req.method !== "HEAD")
      return { status: 405, headers: { Allow: "GET, HEAD" } };
    // Relative, so that it holds behind a proxy's prefix too.
    if (path === CONSOLE_PATH) return { status: 308, headers: { Location: "console/" } };
    const file = await pageFile(path.slice(CONSOLE_PATH.length + 1));
    if (!file) return text(404, "no such page; the console is at /console/");
    const headers = { "Content-Type": file.type, "Content-Length": String(file.body.length) };
    return { status: 200, body: file.body, headers };
  }

  return {
    live,
    /** True for the paths that are the console's. */
    owns: (path: string): boolean => path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`),
    async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
      const [path = "", query] = (req.url ?? "").split("?", 2);
      if (path.startsWith(API)) return api(req, res, path.slice(API.length), new URLSearchParams(query));
      const page = await pageOf(req, path);
      send(res, { ...page, headers: { ...pageHeaders, ...page.headers } });
    },
    start: live.start,
    stop(): void {
      live.stop();
      session.close();
    },
  };
}
