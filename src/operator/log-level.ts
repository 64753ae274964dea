import type { IncomingMessage, ServerResponse } from "node:http";
import { LOG_LEVELS } from "../config/sections/telemetry.ts";
import { createAudit, type Logger } from "../telemetry/log.ts";
import type { Access } from "./access.ts";

export const LOG_LEVEL_PATH = "/log-level";
const BODY_BYTES_MAX = 256;

export type LogLevel = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

interface Reply {
  status: number;
  body: object;
  headers?: Record<string, string>;
}

/**
 * `GET /log-level` tells the level, `PUT` with the level as text or as `{"level":"debug"}` sets it until the next start
 * or the next change of `log.level`. With an ADMIN_TOKEN, both need the token.
 * @param options.set puts a level in force, in all processes of this gateway
 */
export function createLogLevel(options: { access: Access; log: Logger; set(level: string): void }): LogLevel {
  const { access, log } = options;
  // Whoever reads the log must know why it fell silent.
  const audit = createAudit(log);

  async function decide(req: IncomingMessage): Promise<Reply> {
    const reads = req.method === "GET" || req.method === "HEAD";
    // Without a token, on loopback, the level may be set.
    const entry = access.check(req, reads || !access.writable ? "data" : "change");
    if (entry.outcome === "denied") {
      const { status, error, wrongToken, headers } = entry;
      if (wrongToken)
        log.warn({ remote_address: req.socket.remoteAddress }, "log level: a wrong ADMIN_TOKEN");
      return { status, body: { error }, headers };
    }
    if (reads) return { status: 200, body: { level: log.level } };
    if (req.method !== "PUT") {
      return { status: 405, body: { error: "use GET or PUT" }, headers: { Allow: "GET, HEAD, PUT" } };
    }
    const level = levelIn(await readText(req));
    if (level === undefined) {
      return { status: 400, body: { error: `the body must be one of ${LOG_LEVELS.join(", ")}` } };
    }
    const line = { was: log.level, now: level, remote_address: req.socket.remoteAddress };
    options.set(level);
    audit.info(line, "the log level was set");
    return { status: 200, body: { level } };
  }

  return async (req, res) => {
    const { status, body, headers } = await decide(req);
    req.resume();
    res.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers });
    res.end(req.method === "HEAD" ? undefined : `${JSON.stringify(body)}\n`);
  };
}

/** @returns the body as text, cut off where it is too long to be a level; empty when the client went away */
async function readText(req: IncomingMessage): Promise<string> {
  let text = "";
  try {
    for await (const chunk of req.setEncoding("utf8")) {
      text += chunk;
      if (text.length > BODY_BYTES_MAX) return text;
    }
  } catch {
    return "";
  }
  return text;
}

function levelIn(text: string): string | undefined {
  const word = /^\s*(?:\{\s*"level"\s*:\s*"([a-z]+)"\s*\}|([a-z]+))\s*$/.exec(text);
  const level = word?.[1] ?? word?.[2];
  return LOG_LEVELS.find((known) => known === level);
}
