import type { IncomingMessage, ServerResponse } from "node:http";
import { LOG_LEVELS } from "../config/sections/telemetry.ts";
import { createAudit, type Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";
import type { RefusalLog } from "./refusal-log.ts";
import { json, type Reply, readBody, send } from "./reply.ts";

export const LOG_LEVEL_PATH = "/log-level";
const BODY_BYTES_MAX = 256;

export type LogLevel = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

/**
 * `GET /log-level` tells the level, `PUT` with the level as text or as `{"level":"debug"}` sets it until the next start
 * or the next change of `log.level`. With an ADMIN_TOKEN, both need the token.
 * @param options.set puts a level in force, in all processes of this gateway
 */
export function createLogLevel(options: {
  access: Access;
  refusals: Pick<RefusalLog, "signIn">;
  log: Logger;
  set(level: string): void;
}): LogLevel {
  const { access, refusals, log } = options;
  // The log must say why it fell silent.
  const audit = createAudit(log);

  async function decide(req: IncomingMessage): Promise<Reply> {
    const reads = req.method === "GET" || req.method === "HEAD";
    const entry = access.check(req, "data");
    if (entry.outcome === "denied") {
      refusals.signIn(entry.reason, req);
      return json(entry.status, { error: entry.error }, entry.headers);
    }
    if (reads) return json(200, { level: log.level });
    if (req.method !== "PUT") return json(405, { error: "use GET or PUT" }, { Allow: "GET, HEAD, PUT" });
    const body = await readBody(req, BODY_BYTES_MAX).catch(() => undefined);
    const level = levelIn(body?.toString());
    if (level === undefined) {
      return json(400, { error: `the body must be one of ${LOG_LEVELS.join(", ")}` });
    }
    const line = { was: log.level, now: level, remote_address: req.socket.remoteAddress };
    options.set(level);
    audit.info(line, "the log level was set");
    return json(200, { level });
  }

  return async (req, res) => send(res, await decide(req));
}

/** @param text undefined when it was too long, or the client went away */
function levelIn(text = ""): string | undefined {
  const word = /^\s*(?:\{\s*"level"\s*:\s*"([a-z]+)"\s*\}|([a-z]+))\s*$/.exec(text);
  const level = word?.[1] ?? word?.[2];
  return LOG_LEVELS.find((known) => known === level);
}
