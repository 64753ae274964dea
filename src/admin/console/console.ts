import type { IncomingMessage, ServerResponse } from "node:http";
import type { Access } from "../access.ts";
import type { RefusalLog } from "../refusal-log.ts";
import { type Reply, send, text } from "../reply.ts";
import { pageFile, pageHeaders } from "./files.ts";

const CONSOLE_PATH = "/console";

export type Console = ReturnType<typeof createConsole>;

/** The console's page on the admin port, which holds no data: it is a client of the management API. See docs/console.md. */
export function createConsole({
  access,
  refusals,
}: {
  access: Pick<Access, "check">;
  refusals: Pick<RefusalLog, "signIn">;
}) {
  async function pageOf(req: IncomingMessage): Promise<Reply> {
    const [path = "", version] = (req.url ?? "").split("?");
    const entry = access.check(req, "page");
    if (entry.outcome === "denied") {
      refusals.signIn(entry.reason, req);
      return text(entry.status, entry.error);
    }
    if (req.method !== "GET" && req.method !== "HEAD")
      return { status: 405, headers: { Allow: "GET, HEAD" } };
    // Relative, so that it holds behind a proxy's prefix too.
    if (path === CONSOLE_PATH) return { status: 308, headers: { Location: "console/" } };
    const accepted = req.headers["accept-encoding"]?.toString();
    const known = req.headers["if-none-match"];
    const file = await pageFile(path.slice(CONSOLE_PATH.length + 1), { version, accepted, known });
    return file ?? text(404, "no such page; the console is at /console/");
  }

  return {
    owns: (path: string): boolean => path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`),
    async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
      const page = await pageOf(req);
      send(res, { ...page, headers: { ...pageHeaders, ...page.headers } });
    },
  };
}
