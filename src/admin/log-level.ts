import type { IncomingMessage, ServerResponse } from "node:http";
import { LOG_LEVELS } from "../config/sections/telemetry.ts";
import { createAudit, type Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";
import type { RefusalLog } from "./refusal-log.ts";
import { json, type Reply, readBody, send } from "./reply.ts";

export const LOG_LEVEL_PATH = "/log-level";
const BODY_BYTES_MAX = 256;

export type LogLevel = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

/** `PUT` sets the level, as text or as `{"level":"debug"}`, until the next start or change of `log.level`. @param options.set in all processes */
export function createLogLevel(options: {
  access: Access;
  refusals: Pick<RefusalLog, "signIn">;
  log: Logger;
  set(level: string): void;
}): LogLevel {
  const { access, refusals, log } = options;
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

function levelIn(text = ""): string | undefined {
  const word = /^\s*(?:\{\s*"level"\s*:\s*"([a-z]+)"\s*\}|([a-z]+))\s*$/.exec(text);
  const level = word?.[1] ?? word?.[2];
  return LOG_LEVELS.find((known) => known === level);
}
