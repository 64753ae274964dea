import { API_PREFIX, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";

/** The target of a request. `template` is a label from a closed set, for logs and metrics. */
export type Route = { template: string } & (
  | { kind: "generate"; endpoint: GenerationEndpoint }
  | { kind: "task"; taskId: string }
  | { kind: "upload" }
  | { kind: "credits" }
  | { kind: "wrong_method"; allow: string }
  | { kind: "unknown_path" }
  | { kind: "outside" }
);

const FIXED = new Map<string, { method: "GET" | "POST"; route: Route }>([
  ...GENERATION_ENDPOINTS.map(
    (endpoint) =>
      [
        API_PREFIX + endpoint,
        { method: "POST", route: { kind: "generate", endpoint, template: API_PREFIX + endpoint } },
      ] as const,
  ),
  [`${API_PREFIX}upload`, { method: "POST", route: { kind: "upload", template: `${API_PREFIX}upload` } }],
  [`${API_PREFIX}credits`, { method: "GET", route: { kind: "credits", template: `${API_PREFIX}credits` } }],
]);

const TASKS = `${API_PREFIX}tasks/`;
const TASK_TEMPLATE = `${TASKS}{taskId}`;
const UNKNOWN: Route = { kind: "unknown_path", template: "unknown" };
const OUTSIDE: Route = { kind: "outside", template: "unknown" };

/** All route templates, for documentation and for tests of the closed label set. */
export const ROUTE_TEMPLATES = [...FIXED.keys(), TASK_TEMPLATE, "unknown", "none"];

/** Finds the route. Paths are compared as sent: no decoding, no case folding, no trailing slash. A query is ignored. */
export function route(method: string, target: string): Route {
  const query = target.indexOf("?");
  const path = query < 0 ? target : target.slice(0, query);
  const fixed = FIXED.get(path);
  if (fixed) {
    if (fixed.method === method) return fixed.route;
    return { kind: "wrong_method", allow: fixed.method, template: fixed.route.template };
  }
  if (path.startsWith(TASKS) && path.length > TASKS.length && !path.includes("/", TASKS.length)) {
    if (method === "GET") return { kind: "task", taskId: path.slice(TASKS.length), template: TASK_TEMPLATE };
    return { kind: "wrong_method", allow: "GET", template: TASK_TEMPLATE };
  }
  return path.startsWith(API_PREFIX) || path === API_PREFIX.slice(0, -1) ? UNKNOWN : OUTSIDE;
}
