import { API_PREFIX, GENERATION_ENDPOINTS } from "../../domain/endpoints.ts";
import { type Failure, failure, json, type SandboxAnswer, success } from "./generator-answer.ts";
import type { TaskView } from "./generator-tasks.ts";

const MODELS = new Set([
  "sora-2-text-to-video",
  "sora-2-image-to-video",
  "sora-2-pro-text-to-video",
  "sora-2-pro-image-to-video",
  "sora-watermark-remover",
  "sora-2-pro-storyboard",
]);
const STATES = {
  pending: "waiting",
  processing: "generating",
  completed: "success",
  failed: "fail",
} as const;
const PROMPT_CHARS_MAX = 10_000;
const DAY_MS = 86_400_000;

/** The jobs API of kie.ai: docs/upstreams.md. Errors have HTTP 200 and a code in the body, unless another status is asked for. */
const kie: Dialect = {
  isIdempotent: false,
  uploadKeptMs: DAY_MS,
  routeOf(method, { pathname, searchParams }) {
    switch (`${method} ${pathname}`) {
      case "POST /api/v1/jobs/createTask":
        return { kind: "generation" };
      case "GET /api/v1/jobs/recordInfo":
        return { kind: "poll", taskId: searchParams.get("taskId") ?? "" };
      case "POST /api/file-stream-upload":
        return { kind: "upload" };
      default:
        return undefined;
    }
  },
  problemIn(body) {
    if ("file" in body) return body.uploadPath ? undefined : "uploadPath is required";
    const { model, input } = body;
    if (typeof model !== "string" || !MODELS.has(model)) return "The model name is not supported";
    if (typeof input !== "object" || input === null) return "input is required";
    return inputProblem(model, input);
  },
  failure({ status, message, code = status, retryAfterSeconds, isSteered }: Failure): SandboxAnswer {
    const meaning = code === 400 ? 422 : code;
    const answer = json(isSteered ? status : 200, { code: meaning, msg: message, data: null });
    if (retryAfterSeconds) answer.headers["retry-after"] = String(retryAfterSeconds);
    return answer;
  },
  created: (taskId, status) => success(taskId === undefined ? {} : { taskId }, status),
  task: (view, status) => success(record(view), status),
  uploaded: ({ url, type, size, uploadedAtMs }, status) =>
    json(status, {
      success: true,
      code: 200,
      msg: "File uploaded successfully",
      data: {
        fileName: url.slice(url.lastIndexOf("/") + 1),
        filePath: new URL(url).pathname.slice(1),
        downloadUrl: url,
        fileSize: size,
        mimeType: type,
        uploadedAt: new Date(uploadedAtMs).toISOString(),
      },
    }),
};

function inputProblem(model: string, input: object): string | undefined {
  const values: Readonly<Record<string, unknown>> = { ...input };
  if (model === "sora-watermark-remover") {
    return typeof values.video_url === "string" ? undefined : "input.video_url is required";
  }
  const { prompt, aspect_ratio: ratio, n_frames: frames, image_urls: images = [], size, shots } = values;
  const isStoryboard = model === "sora-2-pro-storyboard";
  if (ratio !== undefined && ratio !== "landscape" && ratio !== "portrait")
    return "input.aspect_ratio is not within the range of allowed options";
  const allowed = isStoryboard ? ["10", "15", "25"] : ["10", "15"];
  if (frames !== undefined && !allowed.some((one) => one === frames))
    return "input.n_frames is not within the range of allowed options";
  if (size !== undefined && size !== "standard" && size !== "high")
    return "input.size is not within the range of allowed options";
  if (!Array.isArray(images) || images.length > 1) return "input.image_urls takes one file";
  if (isStoryboard) return Array.isArray(shots) ? undefined : "input.shots is required";
  if (model.endsWith("-image-to-video") && images.length === 0) return "input.image_urls is required";
  const isLong = typeof prompt === "string" && [...prompt].length > PROMPT_CHARS_MAX;
  return isLong ? `input.prompt is longer than ${PROMPT_CHARS_MAX} characters` : undefined;
}

function record(view: TaskView): object {
  const completedMs = view.completed_at === undefined ? undefined : Date.parse(view.completed_at);
  const hasFailed = view.status === "failed";
  return {
    taskId: view.task_id,
    model: "sandbox",
    state: STATES[view.status],
    param: "{}",
    resultJson: view.video_url === undefined ? "" : JSON.stringify({ resultUrls: [view.video_url] }),
    failCode: hasFailed ? "500" : "",
    failMsg: view.failure_reason ?? "",
    costTime: completedMs === undefined ? 0 : completedMs - Date.parse(view.created_at),
    completeTime: completedMs ?? 0,
    createTime: Date.parse(view.created_at),
    updateTime: completedMs ?? Date.parse(view.created_at),
  };
}

/** The requests and answers of one API in front of the sandbox's tasks. */
export interface Dialect {
  /** Same Idempotency-Key, same task. */
  isIdempotent: boolean;
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
