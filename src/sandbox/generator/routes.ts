import type { IncomingMessage, ServerResponse } from "node:http";
import { failure, json, type SandboxAnswer, send, steeredFailure, success } from "./answer.ts";
import { answering, type Behaviour, readBehaviour, readDirectives } from "./behaviour.ts";
import { TINY_MP4, TINY_PNG } from "./media.ts";
import { type RequestLog, readText } from "./requests.ts";
import { type State, steer } from "./state.ts";
import { digest, readForm } from "./uploads.ts";

export async function generate(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  log: RequestLog,
): Promise<void> {
  const plainly = answering(state.behaviour, "generation");
  const text = await readText(request);
  if (text === undefined) return send(response, failure(413), plainly);
  state.recorder.setBody(log, text);
  let directives: Partial<Behaviour>;
  let callBackUrl: unknown;
  try {
    callBackUrl = readCallBackUrl(text);
    directives = readDirectives(text);
  } catch (error) {
    return send(response, failure(400, (error as Error).message), plainly);
  }
  const behaviour = { ...state.behaviour, ...directives };
  const how = answering(behaviour, "generation");
  const refused = steeredFailure(how);
  if (refused) return send(response, refused, how);
  const task = takeTask(state, request, behaviour, directives, callBackUrl);
  if (task === undefined) return send(response, success({ status: "pending" }, how.status), how);
  log.taskId = task;
  return send(response, success({ task_id: task, status: "pending" }, how.status), how);
}

function takeTask(
  state: State,
  request: IncomingMessage,
  behaviour: Behaviour,
  directives: Partial<Behaviour>,
  callBackUrl: unknown,
): string | undefined {
  const { authorization = "", "idempotency-key": key } = request.headers;
  const scopedKey = key === undefined ? undefined : `${authorization}\n${String(key)}`;
  const known = scopedKey === undefined ? undefined : state.tasks.findByIdempotencyKey(scopedKey);
  if (known) return known.id;
  if (behaviour.taskId === "none") return undefined;
  const task = state.tasks.create(behaviour, directives, scopedKey);
  if (typeof callBackUrl === "string") {
    const envelope = String(success(state.tasks.finalView(task)).body);
    state.callbacks.schedule(callBackUrl, task.durationMs, envelope);
  }
  return task.id;
}

function readCallBackUrl(text: string): unknown {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error("The body is not JSON");
  }
  if (typeof body !== "object" || body === null) throw new Error("The body is not a JSON object");
  return "callBackUrl" in body ? body.callBackUrl : undefined;
}

/** The directives of the task's request apply. */
export async function poll(
  state: State,
  response: ServerResponse,
  log: RequestLog,
  rawId: string,
): Promise<void> {
  const id = decode(rawId);
  const task = state.tasks.find(id);
  const how = answering({ ...state.behaviour, ...task?.directives }, "poll");
  const refused = steeredFailure(how);
  if (refused) return send(response, refused, how);
  if (!task) return send(response, failure(404, "Task not found"), how);
  log.taskId = id;
  return send(response, success(state.tasks.view(task), how.status), how);
}

export async function upload(
  state: State,
  request: IncomingMessage,
  response: ServerResponse,
  log: RequestLog,
): Promise<void> {
  const how = answering(state.behaviour, "upload");
  const file = await readForm(request).catch(() => undefined);
  if (!file)
    return send(response, failure(400, "A form with one part named file, at most 10 MB, is wanted"), how);
  log.file = digest(file);
  const refused = steeredFailure(how);
  if (refused) return send(response, refused, how);
  const { path, expiresAtMs } = state.uploads.add(file);
  const data = { url: `${state.uploadBase}${path}`, expires_at: new Date(expiresAtMs).toISOString() };
  return send(response, success(data, how.status), how);
}

export async function serve(state: State, request: IncomingMessage, path: string): Promise<SandboxAnswer> {
  if (path === "/sandbox/behaviour") return control(state, request);
  const file = state.uploads.find(path);
  if (file) return { status: 200, headers: { "content-type": file.type }, body: file.bytes };
  const [, id, extension] = /^\/media\/([^/]+)\.(mp4|png)$/.exec(path) ?? [];
  const task = id === undefined ? undefined : state.tasks.find(decode(id));
  if (!task || state.tasks.view(task).status !== "completed") return failure(404);
  if (extension === "mp4") return { status: 200, headers: { "content-type": "video/mp4" }, body: TINY_MP4 };
  return { status: 200, headers: { "content-type": "image/png" }, body: TINY_PNG };
}

async function control(state: State, request: IncomingMessage): Promise<SandboxAnswer> {
  if (request.method === "PUT") {
    try {
      steer(state, readBehaviour(JSON.parse((await readText(request)) ?? "")));
    } catch (error) {
      return failure(400, (error as Error).message);
    }
  } else if (request.method !== "GET") return failure(405);
  return json(200, state.behaviour);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
