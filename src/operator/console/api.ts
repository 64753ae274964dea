import type { IncomingMessage, ServerResponse } from "node:http";
import { hostname } from "node:os";
import { GatewayError } from "../../domain/errors.ts";
import { isObject } from "../../domain/json.ts";
import type { Tiers } from "../../domain/limits.ts";
import { newRequestId } from "../../gateway/http-exchange.ts";
import { OperatorError } from "../../store/accounts.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import { createAudit, type Logger } from "../../telemetry/log.ts";
import { type Access, reportWrongToken } from "../access.ts";
import { json, readBody, send } from "../reply.ts";
import { type Action, createActions } from "./actions.ts";
import type { Live, PrimaryState } from "./answers.ts";
import type { createLive } from "./live-figures.ts";
import { createReads } from "./reads.ts";

const BODY_BYTES_MAX = 4096;
const HEADERS = {
  "Content-Type": "application/json; charset=utf-8",
  "X-Content-Type-Options": "nosniff",
  "Cross-Origin-Resource-Policy": "same-origin",
};

/** An answer before its request id is added. */
interface ConsoleReply {
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
  primaries(): PrimaryState[];
  log: Logger;
}

/** The console's data: JSON under /console/api/, GET to read, POST to act. Every action writes one audit line. */
export function createApi(options: ApiOptions) {
  const { access, session, tiers, log } = options;
  const reads: Record<string, (query: URLSearchParams) => Promise<object>> = {
    ...createReads(session, tiers),
    live: async (query) => readLive(options, query),
  };
  const actions: Record<string, Action> = createActions(session);
  /** Who moved money must be on record whatever the log level. */
  const audit = createAudit(log);

  async function decide(
    req: IncomingMessage,
    name: string,
    query: URLSearchParams,
    requestId: string,
  ): Promise<ConsoleReply> {
    const read = Object.hasOwn(reads, name) ? reads[name] : undefined;
    const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
    const line = { action: name, remote_address: req.socket.remoteAddress, request_id: requestId };
    const entry = access.check(req, action ? "change" : "data");
    if (entry.outcome === "denied") {
      const { status, error, headers } = entry;
      if (action) audit.info({ ...line, outcome: "denied", why: error }, "console action");
      reportWrongToken(entry, req, log, "console");
      return { status, body: { error }, headers };
    }
    if (!read && !action) return { status: 404, body: { error: "the console's API has no such path" } };
    const method = read ? "GET" : "POST";
    if (req.method !== method) {
      return { status: 405, body: { error: `use ${method}` }, headers: { Allow: method } };
    }
    if (read) return { status: 200, body: await read(query) };
    const body = await readObject(req);
    if ("value" in body) return { status: 200, body: await act(action!, body.value, line, audit) };
    const { status, error } = body;
    audit.info({ ...line, outcome: "refused", why: error }, "console action");
    return { status, body: { error } };
  }

  return async (
    req: IncomingMessage,
    res: ServerResponse,
    name: string,
    query: URLSearchParams,
  ): Promise<void> => {
    const requestId = newRequestId();
    const { status, body, headers } = await decide(req, name, query, requestId).catch((error: unknown) =>
      failure(error, requestId, log),
    );
    const named = status < 400 ? body : { ...body, request_id: requestId };
    send(res, json(status, named, { ...HEADERS, "X-Request-Id": requestId, ...headers }));
  };
}

/** @param line what the audit says of every action: which, who and under which request id */
async function act(
  action: Action,
  body: Record<string, unknown>,
  line: { request_id: string },
  audit: Logger,
): Promise<object> {
  let target: string | undefined;
  try {
    target = action.target(body);
    const done = await action.run(body, { by: "console", requestId: line.request_id });
    audit.info({ ...line, ...done.audit }, "console action");
    return done.answer;
  } catch (error) {
    const outcome = error instanceof OperatorError ? "refused" : "failed";
    const why = error instanceof Error ? error.message : String(error);
    audit.info({ ...line, target, outcome, why }, "console action");
    throw error;
  }
}

function failure(error: unknown, requestId: string, log: Logger): ConsoleReply {
  if (error instanceof OperatorError) return { status: 400, body: { error: error.message } };
  if (error instanceof GatewayError) {
    return { status: 503, body: { error: `Redis cannot be used: ${error.message}` } };
  }
  log.error({ request_id: requestId, err: error }, "console: internal fault");
  return { status: 500, body: { error: "internal fault; the log says more under this request id" } };
}

const readLive = ({ access, live, notReady, primaries }: ApiOptions, query: URLSearchParams): Live => ({
  gateway: {
    host: hostname(),
    pid: process.pid,
    uptime_seconds: Math.round(process.uptime()),
    not_ready: notReady(),
    primaries: primaries(),
  },
  writable: access.writable,
  ...live.view(Number(query.get("after_ms") ?? 0)),
});

async function readObject(
  req: IncomingMessage,
): Promise<{ value: Record<string, unknown> } | { status: number; error: string }> {
  if (!/^application\/json *(;|$)/i.test(req.headers["content-type"] ?? "")) {
    return { status: 415, error: "the body must be application/json" };
  }
  const body = await readBody(req, BODY_BYTES_MAX);
  if (body === undefined) return { status: 413, error: `the body must not exceed ${BODY_BYTES_MAX} bytes` };
  try {
    const value: unknown = JSON.parse(body.toString());
    if (isObject(value)) return { value };
  } catch {
    // Answered below.
  }
  return { status: 400, error: "the body must be a JSON object" };
}
