import { API_PREFIX, GENERATION_ENDPOINTS } from "../../domain/endpoints.ts";
import { type Failure, failure, type SandboxAnswer, success } from "./generator-answer.ts";
import type { TaskView } from "./generator-tasks.ts";
import { kie } from "./kie-dialect.ts";

/** The requests and answers of one API in front of the sandbox's tasks. */
export interface Dialect {
  /** Same Idempotency-Key, same task. */
  isIdempotent: boolean;
  /** How long an upload can be fetched. */
  uploadKeptMs: number;
  routeOf(method: string, url: URL): Route | undefined;
  /** A mistake in the request of a generation or an upload, in words. */
  problemIn?(body: Readonly<Record<string, unknown>>): string | undefined;
  failure(what: Failure): SandboxAnswer;
  /** @param taskId undefined for an answer that lacks it */
  created(taskId: string | undefined, status: number): SandboxAnswer;
  task(view: TaskView, status: number): SandboxAnswer;
  uploaded(upload: Upload, status: number): SandboxAnswer;
}

type Route = { kind: "generation" } | { kind: "poll"; taskId: string } | { kind: "upload" };

interface Upload {
  url: string;
  type: string;
  size: number;
  uploadedAtMs: number;
  expiresAtMs: number;
}

/** The interface of this project: docs/openapi.json. */
const envelope: Dialect = {
  isIdempotent: true,
  uploadKeptMs: 300_000,
  routeOf(method, { pathname }) {
    const route = `${method} ${pathname.slice(API_PREFIX.length)}`;
    if (!pathname.startsWith(API_PREFIX)) return undefined;
    if (route === "POST upload") return { kind: "upload" };
    if (route.startsWith("GET tasks/")) return { kind: "poll", taskId: route.slice("GET tasks/".length) };
    const isGeneration = GENERATION_ENDPOINTS.some((endpoint) => route === `POST ${endpoint}`);
    return isGeneration ? { kind: "generation" } : undefined;
  },
  failure,
  created: (taskId, status) =>
    success(taskId === undefined ? { status: "pending" } : { task_id: taskId, status: "pending" }, status),
  task: success,
  uploaded: ({ url, expiresAtMs }, status) =>
    success({ url, expires_at: new Date(expiresAtMs).toISOString() }, status),
};

export const DIALECTS = { envelope, kie } as const satisfies Record<string, Dialect>;

export type DialectName = keyof typeof DIALECTS;

export const isDialectName = (name: string): name is DialectName => Object.hasOwn(DIALECTS, name);
