import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { decoded } from "../../domain/endpoints.ts";
import { answering, type Behaviour, DEFAULT_BEHAVIOUR, readBehaviour, readDirectives } from "./behaviour.ts";
import { failure, json, type SandboxAnswer, send, steeredFailure, textOf } from "./generator-answer.ts";
import type { Dialect, DialectName } from "./generator-dialect.ts";
import type { TaskStore } from "./generator-tasks.ts";
import { TINY_MP4, TINY_PNG } from "./media.ts";
import { readForm, type UploadedFile, type UploadStore } from "./uploads.ts";

export interface GeneratorOptions {
  /** `envelope` by default. */
  as?: DialectName | undefined;
  host?: string;
  port?: number;
  tlsPort?: number;
  apiKey?: string | undefined;
  behaviour?: Partial<Behaviour>;
  now?: () => number;
  publicUrl?: string | undefined;
  tasksMax?: number;
  callbackRetryMs?: number;
  /** Called for each request under `/api/`; for tests. */
  record?: (request: IncomingMessage, timeMs: number) => RequestNotes;
}

/** Gets what is found in one request. */
export interface RequestNotes {
  body(text: string): void;
  task(id: string): void;
  upload(file: UploadedFile, fields: Record<string, string>): void;
}

export interface State {
  options: GeneratorOptions;
  dialect: Dialect;
  behaviour: Behaviour;
  tasks: TaskStore;
  uploads: UploadStore;
  callbacks: Callbacks;
  now: () => number;
  uploadBase: string;
}

export function steer(state: State, changes: Partial<Behaviour>): void {
  state.behaviour = { ...DEFAULT_BEHAVIOUR, ...state.options.behaviour, ...changes };
}

export async function generate(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  notes: RequestNotes | undefined,
): Promise<void> {
  const { dialect } = state;
  const plainly = answering(state.behaviour, "generation");
  const text = await readText(request);
  if (text === undefined) return send(response, refused(state, 413), plainly);
  notes?.body(text);
  let directives: Partial<Behaviour>;
  let body: Readonly<Record<string, unknown>>;
  try {
    body = readBody(text);
    directives = readDirectives(text);
  } catch (error) {
    return send(response, refused(state, 400, (error as Error).message), plainly);
  }
  const behaviour = { ...state.behaviour, ...directives };
  const how = answering(behaviour, "generation");
  const steered = steeredFailure(how);
  if (steered) return send(response, dialect.failure(steered), how);
  const problem = dialect.problemIn?.(body);
  if (problem !== undefined) return send(response, refused(state, 400, problem), how);
  const task = takeTask(state, request, behaviour, directives, body.callBackUrl);
  if (task !== undefined) notes?.task(task);
  return send(response, dialect.created(task, how.status), how);
}

function refused({ dialect }: State, status: number, message = textOf(status)): SandboxAnswer {
  return dialect.failure({ status, message });
}

function takeTask(
  state: State,
  request: IncomingMessage,
  behaviour: Behaviour,
  directives: Partial<Behaviour>,
  callBackUrl: unknown,
): string | undefined {
  const { authorization = "", "idempotency-key": key } = request.headers;
  const isKeyed = key !== undefined && state.dialect.isIdempotent;
  const scopedKey = isKeyed ? `${authorization}\n${String(key)}` : undefined;
  const known = scopedKey === undefined ? undefined : state.tasks.findByIdempotencyKey(scopedKey);
  if (known) return known.id;
  if (behaviour.taskId === "none") return undefined;
  const task = state.tasks.create(behaviour, directives, scopedKey);
  if (typeof callBackUrl === "string") {
    const body = String(state.dialect.task(state.tasks.finalView(task), 200).body);
    state.callbacks.schedule(callBackUrl, task.durationMs, body);
  }
  return task.id;
}

function readBody(text: string): Record<string, unknown> {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error("The body is not JSON");
  }
  if (typeof body !== "object" || body === null) throw new Error("The body is not a JSON object");
  return { ...body };
}

/** The directives of the task's request apply. */
export async function poll(
  state: State,
  response: ServerResponse,
  notes: RequestNotes | undefined,
  rawId: string,
): Promise<void> {
  const id = decoded(rawId);
  const task = state.tasks.find(id);
  const how = answering({ ...state.behaviour, ...task?.directives }, "poll");
  const steered = steeredFailure(how);
  if (steered) return send(response, state.dialect.failure(steered), how);
  if (!task) return send(response, refused(state, 404, "Task not found"), how);
  notes?.task(id);
  return send(response, state.dialect.task(state.tasks.view(task), how.status), how);
}

export async function upload(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  notes: RequestNotes | undefined,
): Promise<void> {
  const how = answering(state.behaviour, "upload");
  const form = await readForm(request).catch(() => undefined);
  const file = form?.file;
  if (!file) {
    const wanted = "A form with one part named file, at most 10 MB, is wanted";
    return send(response, refused(state, 400, wanted), how);
  }
  notes?.upload(file, form.fields);
  const steered = steeredFailure(how);
  if (steered) return send(response, state.dialect.failure(steered), how);
  const problem = state.dialect.problemIn?.({ ...form.fields, file });
  if (problem !== undefined) return send(response, refused(state, 400, problem), how);
  const { path, expiresAtMs } = state.uploads.add(file);
  const url = `${state.uploadBase}${path}`;
  const upload = { url, type: file.type, size: file.bytes.length, uploadedAtMs: state.now(), expiresAtMs };
  return send(response, state.dialect.uploaded(upload, how.status), how);
}

export async function serve(state: State, request: IncomingMessage, path: string): Promise<SandboxAnswer> {
  if (path === "/sandbox/behaviour") return control(state, request);
  const file = state.uploads.find(path);
  if (file) return { status: 200, headers: { "content-type": file.type }, body: file.bytes };
  const [, id, extension] = /^\/media\/([^/]+)\.(mp4|png)$/.exec(path) ?? [];
  const task = id === undefined ? undefined : state.tasks.find(decoded(id));
  if (!task || state.tasks.view(task).status !== "completed")
    return failure({ status: 404, message: textOf(404) });
  if (extension === "mp4") return { status: 200, headers: { "content-type": "video/mp4" }, body: TINY_MP4 };
  return { status: 200, headers: { "content-type": "image/png" }, body: TINY_PNG };
}

async function control(state: State, request: IncomingMessage): Promise<SandboxAnswer> {
  if (request.method === "PUT") {
    try {
      steer(state, readBehaviour(JSON.parse((await readText(request)) ?? "")));
    } catch (error) {
      return failure({ status: 400, message: (error as Error).message });
    }
  } else if (request.method !== "GET") return failure({ status: 405, message: textOf(405) });
  return json(200, state.behaviour);
}

const BODY_BYTES_MAX = 1024 * 1024;

/** @returns undefined when it is larger than 1 MiB */
async function readText(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  return size <= BODY_BYTES_MAX ? Buffer.concat(chunks).toString("utf8") : undefined;
}

const TRIES_MAX = 4;
const TIMEOUT_MS = 5_000;
const WAITING_MAX = 10_000;
/** A longer timer would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

type Callbacks = ReturnType<typeof createCallbacks>;

export function createCallbacks(retryMs: number) {
  const stopped = new AbortController();
  let waiting = 0;

  async function deliver(url: string, waitMs: number, body: string): Promise<void> {
    await delay(Math.min(waitMs, TIMER_MS_MAX), undefined, { signal: stopped.signal });
    for (let attempt = 1; attempt <= TRIES_MAX; attempt++) {
      if (await posted(url, body, stopped.signal)) return;
      await delay(retryMs * 2 ** (attempt - 1), undefined, { signal: stopped.signal });
    }
  }

  return {
    schedule(url: string, waitMs: number, body: string): void {
      if (waiting >= WAITING_MAX || !/^https?:$/.test(URL.parse(url)?.protocol ?? "")) return;
      waiting++;
      deliver(url, waitMs, body)
        .catch(() => {})
        .finally(() => waiting--);
    },
    stop: () => stopped.abort(),
  };
}

async function posted(url: string, body: string, stopped: AbortSignal): Promise<boolean> {
  try {
    const answer = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
      redirect: "manual",
      signal: AbortSignal.any([stopped, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    await answer.body?.cancel();
    return answer.ok;
  } catch {
    return false;
  }
}
