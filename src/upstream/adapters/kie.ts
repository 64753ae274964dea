import { type Static, Type } from "typebox";
import type { GenerationEndpoint } from "../../domain/endpoints.ts";
import { isObject, parseObject } from "../../domain/json.ts";
import type {
  Adapter,
  AdapterResponse,
  Created,
  CreateRequest,
  Generation,
  Polled,
  Rejection,
  Unsupported,
  Uploaded,
} from "../adapter.ts";
import { codeOf } from "../answer.ts";

// The jobs API of kie.ai: https://docs.kie.ai/market/common/get-task-detail and the pages of its Sora 2 models. Every answer has a
// code in its body, mostly with HTTP 200. docs/upstreams.md shows what each of them becomes.

const OPTIONS = Type.Object(
  {
    square: Type.Enum(["refuse", "landscape", "portrait"], {
      default: "refuse",
      description: "What becomes of `1:1` and `square`, which kie.ai does not have.",
    }),
    negative_prompt: Type.Enum(["refuse", "append"], {
      default: "refuse",
      description:
        "What becomes of `negativePrompt`, which kie.ai does not have: `append` adds it to the prompt.",
    }),
    remove_watermark: Type.Optional(
      Type.Boolean({
        description: "Sent with each generation from text or an image. Left out, the choice is kie.ai's.",
      }),
    ),
    upload_path: Type.String({
      default: "tollgate",
      pattern: "^[A-Za-z0-9_-][A-Za-z0-9_/-]{0,99}$",
      description: "The folder at kie.ai in which uploads are kept.",
    }),
  },
  { additionalProperties: false },
);
type Options = Static<typeof OPTIONS>;

const MODELS: Readonly<Record<GenerationEndpoint, string>> = {
  "gen2/text-to-video": "sora-2-text-to-video",
  "gen2/image-to-video": "sora-2-image-to-video",
  "gen2-pro/text-to-video": "sora-2-pro-text-to-video",
  "gen2-pro/image-to-video": "sora-2-pro-image-to-video",
  "gen2/watermark-remove": "sora-watermark-remover",
  "gen2-pro/storyboard": "sora-2-pro-storyboard",
};

const PROMPT_CHARS_MAX = 10_000;
const TEXT_CHARS_MAX = 1000;
/** The shortest time that the pages of kie.ai promise for an uploaded file. */
const UPLOAD_KEPT_MS = 86_400_000;

const KEY_REFUSED = 401;
const ACCOUNT_EMPTY = 402;
const NO_SUCH_TASK = 404;
const INVALID_PARAMETERS = 422;
/** The text beside `INVALID_PARAMETERS` about a task that kie.ai does not know, or does not know yet. */
const NO_RECORD = "recordInfo is null";
const LIMITED = 429;
/** The limit of usage that was set for our key at kie.ai is reached. */
const KEY_LIMITED = 433;
const MAINTENANCE = 455;
const GENERATION_FAILED = 501;
const FEATURE_OFF = 505;

type Problem = Unsupported["unsupported"][number];

function create({ endpoint, body }: Generation, options: Options): CreateRequest | Unsupported {
  const problems: Problem[] = [];
  const input = inputOf(endpoint, body, options, problems);
  if (problems.length > 0) return { unsupported: problems };
  const model = MODELS[endpoint];
  const { callBackUrl } = body;
  const json = callBackUrl === undefined ? { model, input } : { model, callBackUrl, input };
  return { method: "POST", path: "/api/v1/jobs/createTask", json };
}

function inputOf(
  endpoint: GenerationEndpoint,
  body: Generation["body"],
  options: Options,
  problems: Problem[],
): Record<string, unknown> {
  if (endpoint === "gen2/watermark-remove") return { video_url: body.videoUrl };
  const input: Record<string, unknown> = {};
  if (endpoint === "gen2-pro/storyboard") {
    input.n_frames = body.nFrames;
    input.shots = body.shots;
    setImages(input, body.imageUrls, problems);
  } else {
    setPrompt(input, body, options, problems);
    // The standard models have no duration in this API: they make ten seconds, which is what is priced.
    input.n_frames = String(body.duration ?? 10);
    if (body.quality !== undefined) input.size = body.quality;
    if (body.imageUrl !== undefined) input.image_urls = [body.imageUrl];
    if (options.remove_watermark !== undefined) input.remove_watermark = options.remove_watermark;
  }
  setAspectRatio(input, body.aspectRatio, options, problems);
  return input;
}

function setPrompt(
  input: Record<string, unknown>,
  { prompt, negativePrompt }: Generation["body"],
  options: Options,
  problems: Problem[],
): void {
  if (prompt !== undefined) input.prompt = prompt;
  if (typeof negativePrompt !== "string" || negativePrompt === "") return;
  if (options.negative_prompt === "refuse") {
    problems.push(lacking("/negativePrompt", "negativePrompt is not supported"));
    return;
  }
  const positive = typeof prompt === "string" && prompt !== "" ? `${prompt}\n\n` : "";
  const text = `${positive}Avoid: ${negativePrompt}`;
  if ([...text].length > PROMPT_CHARS_MAX) {
    const bound = `prompt and negativePrompt together are longer than ${PROMPT_CHARS_MAX} characters`;
    problems.push(lacking("/negativePrompt", bound));
  }
  input.prompt = text;
}

function setAspectRatio(
  input: Record<string, unknown>,
  aspectRatio: unknown,
  { square }: Options,
  problems: Problem[],
): void {
  if (aspectRatio === undefined) return;
  if (aspectRatio === "16:9" || aspectRatio === "landscape") input.aspect_ratio = "landscape";
  else if (aspectRatio === "9:16" || aspectRatio === "portrait") input.aspect_ratio = "portrait";
  else if (square !== "refuse") input.aspect_ratio = square;
  else problems.push(lacking("/aspectRatio", `aspectRatio ${String(aspectRatio)} is not supported`));
}

function setImages(input: Record<string, unknown>, imageUrls: unknown, problems: Problem[]): void {
  if (!Array.isArray(imageUrls) || imageUrls.length === 0) return;
  if (imageUrls.length > 1) problems.push(lacking("/imageUrls/1", "imageUrls takes one reference image"));
  input.image_urls = imageUrls;
}

const lacking = (path: string, message: string): Problem => ({ path, message });

/** An id in hand counts more than the code beside it: a poll tells what became of the task. */
function created(response: AdapterResponse): Created {
  const taskId = idIn(response);
  if (taskId !== undefined) return { outcome: "accepted", taskId, task: { status: "pending" } };
  if (NAMED_TASK.test(response.body)) return { outcome: "unclear" };
  const code = meaningOf(response);
  switch (code) {
    // The status of HTTP: a server on the way is busy.
    case 503:
    case MAINTENANCE:
    case FEATURE_OFF:
    // The generation has ended without a video, so nothing runs.
    case GENERATION_FAILED:
      return { outcome: "unavailable" };
    default:
      return rejectionOf(code, response, "request") ?? { outcome: "unclear" };
  }
}

/** A task id of any form in a body that cannot be read. */
const NAMED_TASK = /"task_?id"\s*:\s*(?:"[^"]|[\d[{-])/i;

function idIn({ json }: Pick<AdapterResponse, "json">): string | undefined {
  const data = isObject(json?.data) ? json.data : undefined;
  return idText(data?.taskId) ?? idText(json?.taskId);
}

function idText(value: unknown): string | undefined {
  if (typeof value === "string") return value === "" ? undefined : value;
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : undefined;
  // An integer that a double cannot hold.
  return isRawNumber(value) ? value.rawJSON : undefined;
}

const isRawNumber = (value: unknown): value is { rawJSON: string } =>
  isObject(value) && typeof value.rawJSON === "string" && Object.isFrozen(value);

/** The code of the body, which counts whatever the status is; else the status. */
function meaningOf({ status, json }: AdapterResponse): number {
  const code = codeOf(json);
  return code === undefined || isSuccess(code) ? status : code;
}

const isSuccess = (code: number): boolean => code === 0 || (code >= 200 && code < 300);

/** A definite no, by code or status; undefined for anything else. */
function rejectionOf(code: number, response: AdapterResponse, of: "request" | "task"): Rejection | undefined {
  switch (code) {
    case KEY_REFUSED:
    case ACCOUNT_EMPTY:
    case KEY_LIMITED:
    case 403:
    case 405:
    case 407:
      return { outcome: "refused_gateway" };
    // At a create, the model or the address is not there.
    case NO_SUCH_TASK:
      return of === "request" ? { outcome: "refused_gateway" } : undefined;
    case LIMITED:
      return { outcome: "rate_limited" };
    case MAINTENANCE:
    case 408:
    case 425:
      return undefined;
    default:
      if (code >= 300 && code < 400) return { outcome: "refused_gateway" };
      return code >= 400 && code < 500 ? { outcome: "refused", text: textOf(response) } : undefined;
  }
}

/** Pages of kie.ai have `msg` in some places and `message` in others. */
const textOf = ({ json }: AdapterResponse): string | undefined =>
  boundedText(json?.msg) ?? boundedText(json?.message);

const boundedText = (value: unknown): string | undefined =>
  typeof value === "string" && value !== "" ? value.slice(0, TEXT_CHARS_MAX).toWellFormed() : undefined;

function polled(response: AdapterResponse, { taskId: polledId }: { taskId: string }): Polled {
  const { status, json } = response;
  const code = codeOf(json);
  const named = idIn(response);
  const task = named === undefined ? undefined : taskOf(response, named, code ?? status);
  if (task) return task;
  // A bare status is that of a server on the way, not the API's word about the task.
  if (code === undefined) return bareStatus(status);
  if (code === GENERATION_FAILED) return failedTask(named ?? polledId, json?.msg);
  // The gateway compares the ids: what is said of another task is not said of this one.
  if (named !== undefined && named !== polledId)
    return { outcome: "task", status: `code ${code}`, task: { task_id: named } };
  if (code === NO_SUCH_TASK || (code === INVALID_PARAMETERS && textOf(response) === NO_RECORD))
    return { outcome: "gone" };
  const rejection = rejectionOf(meaningOf(response), response, "task");
  if (rejection?.outcome === "refused") return { ...rejection, isFinal: true };
  return rejection ?? { outcome: "failed" };
}

function bareStatus(status: number): Polled {
  if (status === NO_SUCH_TASK || (status >= 300 && status < 400)) return { outcome: "misrouted" };
  if (status === KEY_REFUSED || status === ACCOUNT_EMPTY || status === 403)
    return { outcome: "refused_gateway" };
  return status === LIMITED ? { outcome: "rate_limited" } : { outcome: "failed" };
}

/** The task in a success, or a failed one beside the code of its failure. */
function taskOf({ status, json }: AdapterResponse, taskId: string, code: number): Polled | undefined {
  const data = json?.data;
  if (!isObject(data) || typeof data.state !== "string" || data.state === "") return undefined;
  const { createTime } = data;
  const state = data.state.toLowerCase();
  const isAnswer = isSuccess(status) && isSuccess(code);
  if (state === "fail" && (isAnswer || code === INVALID_PARAMETERS || code === GENERATION_FAILED))
    return failedTask(taskId, data.failMsg, createTime);
  if (!isAnswer) return undefined;
  const task: Record<string, unknown> = { task_id: taskId, created_at: createTime };
  if (data.progress !== undefined) task.progress = data.progress;
  if (state === "success") {
    task.progress = 100;
    task.completed_at = data.completeTime;
    task.video_url = resultUrl(data.resultJson);
  }
  return { outcome: "task", status: state === "queuing" ? "queued" : state, task };
}

function failedTask(taskId: string, reason: unknown, createTime?: unknown): Polled {
  const task: Record<string, unknown> = { task_id: taskId };
  if (createTime !== undefined) task.created_at = createTime;
  const text = boundedText(reason);
  if (text !== undefined) task.failure_reason = text;
  return { outcome: "task", status: "failed", task };
}

/** The first web address in JSON that is a text within JSON; undefined if there is none, and then the task is not completed. */
function resultUrl(resultJson: unknown): string | undefined {
  const result = typeof resultJson === "string" ? parseObject(resultJson) : resultJson;
  const urls = isObject(result) ? [result.resultUrls].flat() : [];
  return urls.find((url): url is string => typeof url === "string" && /^ *https?:/i.test(url));
}

function uploaded(response: AdapterResponse): Uploaded {
  const code = meaningOf(response);
  const data = response.json?.data;
  if (!isSuccess(code)) return rejectionOf(code, response, "request") ?? { outcome: "failed" };
  if (response.json?.success === false || !isObject(data) || typeof data.downloadUrl !== "string")
    return { outcome: "failed" };
  return { outcome: "uploaded", url: data.downloadUrl, expiresAt: expiryAfter(data.uploadedAt) };
}

const ZONED_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

function expiryAfter(uploadedAt: unknown): string | undefined {
  if (typeof uploadedAt !== "string" || !ZONED_TIME.test(uploadedAt)) return undefined;
  const atMs = Date.parse(uploadedAt);
  return Number.isNaN(atMs) ? undefined : new Date(atMs + UPLOAD_KEPT_MS).toISOString();
}

export const KIE: Adapter<Options> = {
  name: "kie",
  options: OPTIONS,
  create,
  created,
  poll: ({ taskId }) => ({
    method: "GET",
    path: `/api/v1/jobs/recordInfo?taskId=${encodeURIComponent(taskId)}`,
  }),
  polled,
  // Without a folder of its own, a file would replace another customer's of the same name.
  upload: ({ upload_path }, uniqueName) => ({
    path: "/api/file-stream-upload",
    fields: { uploadPath: `${upload_path}/${uniqueName}` },
  }),
  uploaded,
  callback: ({ json }) => idIn({ json }),
};
