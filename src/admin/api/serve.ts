import type { IncomingMessage, ServerResponse } from "node:http";
import { IDEMPOTENCY_KEY } from "../../domain/limits.ts";
import { ACCOUNT_ID, withoutSecrets } from "../../domain/operator-texts.ts";
import { shown } from "../../domain/problems.ts";
import { newRequestId } from "../../gateway/http-exchange.ts";
import { findToken } from "../../operations/access/tokens.ts";
import { noAccount } from "../../records/operator-error.ts";
import { UnreadError, unreadInWords } from "../../redis/partition-reads.ts";
import { createAudit, type Logger } from "../../telemetry/log.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import type { Access } from "../access.ts";
import { type RefusalLog, requestLine, shortened } from "../refusal-log.ts";
import { compressed, json, type Reply, send } from "../reply.ts";
import {
  authorize,
  createCallLimit,
  createWriteBudget,
  type Grantee,
  requireOwnAccount,
  requireScope,
} from "./authorize.ts";
import { object } from "./field-schemas.ts";
import { IDEMPOTENCY_HEADER, PROBLEMS, Problem, problemBody, problemOf } from "./problems.ts";
import { etagOf, readJsonBody, readQuery, revisionsOf } from "./request.ts";
import type { Answer, ApiCall, Route } from "./route.ts";
import { ROUTES } from "./routes.ts";
import type { Services } from "./services.ts";

const API_PATH = "/manage/v1";

const HEADERS = {
  "X-Content-Type-Options": "nosniff",
  "Cross-Origin-Resource-Policy": "same-origin",
};
const PROBLEM_HEADERS = { ...HEADERS, "Content-Type": "application/problem+json; charset=utf-8" };
const JSON_HEADERS = { ...HEADERS, "Content-Type": "application/json; charset=utf-8" };
const CSV_HEADERS = { ...HEADERS, "Content-Type": "text/csv; charset=utf-8; header=present" };
const CSV = /(?:^|,)\s*text\/csv\s*(?:;(?!\s*q=0(?:\.0*)?\s*(?:,|$))[^,]*)?(?:,|$)/i;
const NO_BODY = object({});
const CALL = "management call";
/** Of reads, those that were refused because of who asks are on record. */
const REFUSED_READS: ReadonlySet<number> = new Set([401, 403, 421, 429]);

export type AdminApi = ReturnType<typeof createAdminApi>;

interface AdminApiOptions {
  access: Access;
  services: Services;
  metrics: Pick<Metrics, "managementRequests">;
  refusals: Pick<RefusalLog, "write" | "counted">;
  log: Logger;
}

export function createAdminApi(options: AdminApiOptions) {
  const { access, services, metrics, refusals, log } = options;
  const find = createFinder(ROUTES);
  const callLimit = createCallLimit();
  const budget = createWriteBudget(services.bounds);
  /** Writes must be on record whatever the log level. */
  const audit = createAudit(log);

  async function answer(req: IncomingMessage, seen: Seen): Promise<Reply> {
    const { path, query } = targetOf((req.url ?? "").slice(API_PATH.length));
    const whose = () =>
      authorize(req, access, (token) => services.session.run((nodes) => findToken(nodes, token)));
    seen.grantee = await whose();
    const { route, params } = find(req.method ?? "", path);
    seen.route = route;
    const call = await callOf(req, route, params, query, seen);
    const { root, by } = call.grantee;
    const writes = route.method !== "GET" && !route.onlyReads;
    if (writes)
      budget.take(root, route.ends?.(call.body) ? "ends" : "adds", JSON.stringify(call.body).length);
    const run = async () => {
      // The token may have ended while the body arrived, or the call waited.
      if (writes) await whose();
      return route.run(call, services);
    };
    return replyOf(await callLimit.run(root ?? by, run), req);
  }

  function refusal(error: unknown, seen: Seen, method: string | undefined): Reply {
    const problem = problemOf(error, method) ?? new Problem("internal", "internal fault; the log says more");
    seen.problem = problem;
    if (problem.code === "internal")
      log.error({ request_id: seen.requestId, err: error }, "management: internal fault");
    const { status } = PROBLEMS[problem.code];
    return json(status, problemBody(problem, seen.requestId), { ...PROBLEM_HEADERS, ...problem.headers });
  }

  /** Each write that was done; of calls that were refused some. */
  function record(req: IncomingMessage, seen: Seen, reply: Reply): void {
    const { problem, grantee } = seen;
    if (problem?.signIn) refusals.counted(problem.signIn);
    const line = () => callLine(req, seen, reply);
    const isRead = req.method === "GET" || req.method === "HEAD";
    if (problem && (!isRead || REFUSED_READS.has(reply.status))) {
      refusals.write(`${problem.signIn ?? problem.code} ${grantee?.root ?? grantee?.by ?? ""}`, line, CALL);
    } else if (!isRead) audit.info(line(), CALL);
  }

  return {
    owns: (path: string): boolean => path === API_PATH || path.startsWith(`${API_PATH}/`),
    async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
      const seen: Seen = {
        requestId: newRequestId(),
        grantee: undefined,
        route: undefined,
        problem: undefined,
      };
      const reply = await answer(req, seen).catch((error: unknown) => refusal(error, seen, req.method));
      const route = seen.route ? `${seen.route.method} ${seen.route.path}` : "unknown";
      metrics.managementRequests.inc({ route, status: reply.status });
      record(req, seen, reply);
      const { headers, ...sent } = await compressed(req, reply);
      send(res, { ...sent, headers: { "X-Request-Id": seen.requestId, ...headers } });
    },
  };
}

/** In JSON, or in CSV where that is asked for and there is any. */
export function replyOf(
  { status, body, revision, confirmed, csv }: Answer,
  req: Pick<IncomingMessage, "headers">,
): Reply {
  if (csv && CSV.test(headerOf(req, "accept") ?? "")) {
    if (csv.unread) throw new UnreadError(`${unreadInWords(csv.unread)}; as JSON the rest is answered`);
    const next = csv.next === undefined ? {} : { "X-Next-Cursor": csv.next };
    return { status, body: csv.text, headers: { ...CSV_HEADERS, ...next } };
  }
  const etag = revision === undefined ? {} : { ETag: etagOf(revision) };
  const written = confirmed === false ? { ...body, confirmed } : body;
  return json(status, written, { ...JSON_HEADERS, ...etag });
}

interface Seen {
  requestId: string;
  grantee: Grantee | undefined;
  route: Route | undefined;
  problem: Problem | undefined;
}

/** Never has a secret: neither token nor body, nor a key where an id belongs. */
const callLine = (
  req: IncomingMessage,
  { requestId, grantee, route, problem }: Seen,
  { status }: Reply,
): object => ({
  action: route?.name,
  ...requestLine(req),
  by: grantee && shortened(grantee.by),
  request_id: requestId,
  status,
  why: problem && shortened(withoutSecrets(problem.detail)),
});

/** A request target, whose query begins at the first question mark. RFC 3986 section 3.4. */
function targetOf(target: string): { path: string; query: string } {
  const [path = "", ...query] = target.split("?");
  return { path, query: query.join("?") };
}

/** @throws Problem for an account that the token may not use; OperatorError `not_found` for an id that no account has */
function requirePossibleAccount(grantee: Grantee, accountId: string): void {
  requireOwnAccount(grantee, accountId);
  if (!ACCOUNT_ID.test(accountId)) throw noAccount(shown(accountId));
}

async function callOf(
  req: IncomingMessage,
  route: Route,
  params: Readonly<Record<string, string>>,
  query: string,
  seen: Seen,
): Promise<ApiCall> {
  const grantee = seen.grantee!;
  requireScope(grantee, route.scope);
  if (params.account !== undefined) requirePossibleAccount(grantee, params.account);
  const idempotencyKey = headerOf(req, "idempotency-key");
  if (route.needsIdempotencyKey && (idempotencyKey === undefined || !IDEMPOTENCY_KEY.test(idempotencyKey))) {
    const message = "an Idempotency-Key header is required: 1 to 255 visible ASCII characters";
    throw new Problem("invalid", message, { errors: [{ path: IDEMPOTENCY_HEADER, message }] });
  }
  return {
    params,
    query: readQuery(route.query, query),
    body: route.method === "GET" ? {} : await readJsonBody(route.body ?? NO_BODY, req),
    idempotencyKey,
    ifRevisions: route.takesIfMatch ? revisionsOf(headerOf(req, "if-match")) : undefined,
    grantee,
    actor: { by: grantee.by, requestId: seen.requestId },
  };
}

const headerOf = (req: Pick<IncomingMessage, "headers">, name: string): string | undefined => {
  const value = req.headers[name];
  return Array.isArray(value) ? value.join(", ") : value;
};

function createFinder(routes: readonly Route[]) {
  const known = routes.map((route) => ({ route, parts: route.path.split("/").slice(1) }));

  return (method: string, path: string): { route: Route; params: Record<string, string> } => {
    const parts = path.split("/").slice(1).map(decoded);
    const found = known.flatMap(({ route, parts: pattern }) => {
      const params = match(pattern, parts);
      return params ? [{ route, params }] : [];
    });
    const wanted = method === "HEAD" ? "GET" : method;
    const one = found.find(({ route }) => route.method === wanted);
    if (one) return one;
    if (found.length === 0) throw new Problem("not_found", "the management API has no such path");
    const allow = found.map(({ route }) => (route.method === "GET" ? "GET, HEAD" : route.method)).join(", ");
    throw new Problem("method_not_allowed", `use ${allow}`, { headers: { Allow: allow } });
  };
}

function match(pattern: readonly string[], parts: readonly (string | undefined)[]) {
  if (pattern.length !== parts.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, expected] of pattern.entries()) {
    const part = parts[at];
    if (!part) return undefined;
    const name = /^\{(\w+)\}$/.exec(expected)?.[1];
    if (name === undefined && part !== expected) return undefined;
    if (name !== undefined) params[name] = part;
  }
  return params;
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
