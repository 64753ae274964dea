import type { IncomingMessage, ServerResponse } from "node:http";
import { hostname } from "node:os";
import { GatewayError } from "../../domain/errors.ts";
import type { Tiers } from "../../domain/limits.ts";
import { newRequestId } from "../../gateway/exchange.ts";
import { OperatorError } from "../../store/accounts.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import { createAudit, type Logger } from "../../telemetry/log.ts";
import type { Access, Denied } from "../access.ts";
import { type Action, createActions } from "./actions.ts";
import type { Live } from "./answers.ts";
import type { createLive } from "./live.ts";
import { createReads } from "./reads.ts";

const BODY_BYTES_MAX = 4096;

interface Reply {
  status: number;
  body: object;
  headers?: Record<string, string>;
}

interface ApiOptions {
  access: Access;
  session: OperatorSession;
  live: ReturnType<typeof createLive>;
  tiers(): Tiers;
  notReady(): string | undefined;
  log: Logger;
}

/** The console's data: JSON under /console/api/, GET to read, POST to act. Every action writes one audit line. */
export const createApi = (options: ApiOptions): Api => new Api(options);

class Api {
  readonly #options: ApiOptions;
  readonly #reads: Record<string, (query: URLSearchParams) => Promise<object>>;
  readonly #actions: Record<string, Action>;
  /** Who moved money must be on record whatever the log level. */
  readonly #audit: Logger;

  constructor(options: ApiOptions) {
    const { session, tiers, log } = options;
    this.#options = options;
    this.#reads = { ...createReads(session, tiers), live: async (query) => this.#live(query) };
    this.#actions = createActions(session);
    this.#audit = createAudit(log);
  }

  async serve(
    req: IncomingMessage,
    res: ServerResponse,
    name: string,
    query: URLSearchParams,
  ): Promise<void> {
    const requestId = newRequestId();
    const reply = await this.#decide(req, name, query, requestId).catch((error: unknown) =>
      this.#failure(error, requestId),
    );
    res.writeHead(reply.status, {
      "Content-Type": "application/json; charset=utf-8",
      "Cache-Control": "no-store",
      "X-Content-Type-Options": "nosniff",
      "X-Request-Id": requestId,
      "Cross-Origin-Resource-Policy": "same-origin",
      ...reply.headers,
    });
    const body = reply.status < 400 ? reply.body : { ...reply.body, request_id: requestId };
    res.end(`${JSON.stringify(body)}\n`);
    // What was not read of a refused request ends with its connection.
    if (!req.complete) req.resume();
  }

  async #decide(
    req: IncomingMessage,
    name: string,
    query: URLSearchParams,
    requestId: string,
  ): Promise<Reply> {
    const read = Object.hasOwn(this.#reads, name) ? this.#reads[name] : undefined;
    const action = Object.hasOwn(this.#actions, name) ? this.#actions[name] : undefined;
    const line = { action: name, remote_address: req.socket.remoteAddress, request_id: requestId };
    const entry = this.#options.access.check(req, action ? "change" : "data");
    if (entry.outcome === "denied") {
      if (action) this.#audit.info({ ...line, outcome: "denied", why: entry.error }, "console action");
      return this.#deny(entry, req);
    }
    if (!read && !action) return { status: 404, body: { error: "the console's API has no such path" } };
    const method = read ? "GET" : "POST";
    if (req.method !== method) {
      return { status: 405, body: { error: `use ${method}` }, headers: { Allow: method } };
    }
    if (read) return { status: 200, body: await read(query) };
    const body = await readBody(req);
    if ("refused" in body) {
      this.#audit.info({ ...line, outcome: "refused", why: body.refused.body.error }, "console action");
      return body.refused;
    }
    return { status: 200, body: await this.#act(action!, body.value, line) };
  }

  #deny({ status, error, wrongToken, headers }: Denied, req: IncomingMessage): Reply {
    const line = { remote_address: req.socket.remoteAddress };
    if (wrongToken) this.#options.log.warn(line, "console: a wrong ADMIN_TOKEN");
    return { status, body: { error }, headers };
  }

  /** @param line what the audit says of every action: which, who and under which request id */
  async #act(action: Action, body: Record<string, unknown>, line: object): Promise<object> {
    let target: string | undefined;
    try {
      target = action.target(body);
      const done = await action.run(body);
      this.#audit.info({ ...line, ...done.audit }, "console action");
      return done.answer;
    } catch (error) {
      const outcome = error instanceof OperatorError ? "refused" : "failed";
      const why = error instanceof Error ? error.message : String(error);
      this.#audit.info({ ...line, target, outcome, why }, "console action");
      throw error;
    }
  }

  #failure(error: unknown, requestId: string): Reply {
    if (error instanceof OperatorError) return { status: 400, body: { error: error.message } };
    if (error instanceof GatewayError) {
      return { status: 503, body: { error: `Redis cannot be used: ${error.message}` } };
    }
    this.#options.log.error({ request_id: requestId, err: error }, "console: internal fault");
    return { status: 500, body: { error: "internal fault; the log says more under this request id" } };
  }

  #live(query: URLSearchParams): Live {
    const { access, live, notReady } = this.#options;
    return {
      gateway: {
        host: hostname(),
        pid: process.pid,
        uptime_seconds: Math.round(process.uptime()),
        not_ready: notReady(),
      },
      writable: access.writable,
      ...live.view(Number(query.get("after_ms") ?? 0)),
    };
  }
}

/** Reads a small JSON object. */
async function readBody(
  req: IncomingMessage,
): Promise<{ value: Record<string, unknown> } | { refused: Reply & { body: { error: string } } }> {
  const refused = (status: number, error: string) => ({ refused: { status, body: { error } } });
  if (!/^application\/json *(;|$)/i.test(req.headers["content-type"] ?? "")) {
    return refused(415, "the body must be application/json");
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    // Read to its end all the same: leaving early would break the connection before the answer.
    bytes += chunk.length;
    if (bytes <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  if (bytes > BODY_BYTES_MAX) return refused(413, `the body must not exceed ${BODY_BYTES_MAX} bytes`);
  try {
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return { value: value as Record<string, unknown> };
    }
  } catch {
    // Said below.
  }
  return refused(400, "the body must be a JSON object");
}
