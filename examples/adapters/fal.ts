import type {
  Adapter,
  AdapterResponse,
  AnswerRow,
  Created,
  Polled,
  Rejection,
  ResultElsewhere,
} from "../../src/upstream/adapter.ts";

// The queue of fal.ai with its Kling 4.0 models. Read on 2026-11-27:
//   https://fal.ai/docs/api-reference/inference-api
//   https://fal.ai/docs/documentation/model-apis/inference/queue
//   https://fal.ai/docs/documentation/model-apis/request-errors
//   https://fal.ai/docs/model-endpoints/webhooks
//   https://fal.ai/models/fal-ai/kling-video/v4/text-to-video/llms.txt, .../v4/image-to-video/llms.txt
// upstream.url: https://queue.fal.run

interface Options {
  app: string;
  text_path: string;
  image_path: string;
}

const name = { type: "string", pattern: "^[\\w.-]+(/[\\w.-]+)*$" };

const adapter: Adapter<Options> = {
  name: "fal",
  auth: { scheme: "Key" },
  options: {
    type: "object",
    properties: {
      app: { ...name, default: "fal-ai/kling-video" },
      text_path: { ...name, default: "v4/text-to-video" },
      image_path: { ...name, default: "v4/image-to-video" },
    },
  },

  create({ endpoint, body }, { app, text_path, image_path }) {
    if (endpoint === "gen2-pro/storyboard" || endpoint === "gen2/watermark-remove")
      return { unsupported: [{ path: "", message: `${endpoint} is not offered` }] };
    if (body.negativePrompt) return lacking("negativePrompt");
    const isImage = body.imageUrl !== undefined;
    // The ratio of a video from an image is that of the image.
    if (isImage && body.aspectRatio !== undefined) return lacking("aspectRatio");
    const input = {
      prompt: body.prompt,
      ...(isImage ? { start_image_url: body.imageUrl } : { aspect_ratio: body.aspectRatio }),
      duration: body.duration ?? 10,
      resolution: body.quality === "high" ? "1080p" : "720p",
    };
    const { callBackUrl } = body;
    const query = typeof callBackUrl === "string" ? `?fal_webhook=${encodeURIComponent(callBackUrl)}` : "";
    return { method: "POST", path: `/${app}/${isImage ? image_path : text_path}${query}`, json: input };
  },

  created(response): Created {
    const id = response.json?.request_id;
    if (typeof id === "string" && id !== "") return { outcome: "accepted", taskId: id };
    if (response.status === 503) return { outcome: "unavailable" };
    return rejection(response) ?? { outcome: "unclear" };
  },

  // Status and result have the owner and the app in their paths, and not the rest of the model's name.
  poll: ({ taskId }, { app }) => ({
    method: "GET",
    path: `/${app}/requests/${encodeURIComponent(taskId)}/status`,
  }),

  polled(response, { taskId }, { app }): Polled | ResultElsewhere {
    const { status, json } = response;
    const word = json?.status;
    if (status >= 300 || typeof word !== "string") return pollRejection(response);
    if (word === "COMPLETED") {
      return {
        outcome: "result_elsewhere",
        request: { method: "GET", path: `/${app}/requests/${encodeURIComponent(taskId)}` },
      };
    }
    return { outcome: "task", status: word, task: { task_id: json?.request_id ?? taskId } };
  },

  // A request that has failed is COMPLETED, and its result is an error.
  result(response, { taskId }): Polled {
    const { status, json } = response;
    const video = json?.video as { url?: unknown } | undefined;
    if (status === 200 && typeof video?.url === "string")
      return { outcome: "task", status: "completed", task: { task_id: taskId, video_url: video.url } };
    const reason = textOf(response);
    if (isOfRequest(status, json) && reason !== undefined)
      return { outcome: "task", status: "failed", task: { task_id: taskId, failure_reason: reason } };
    return pollRejection(response);
  },

  callback: ({ json }) => (typeof json?.request_id === "string" ? json.request_id : undefined),
};
export default adapter;

const lacking = (parameter: string) => ({
  unsupported: [{ path: `/${parameter}`, message: `${parameter} is not supported` }],
});

function rejection(response: AdapterResponse): Rejection | undefined {
  const { status } = response;
  if (status === 429) return { outcome: "rate_limited" };
  if (status === 400 || status === 413 || status === 422)
    return { outcome: "refused", text: textOf(response) };
  // 403 is also an account without credit.
  return status >= 300 && status < 500 ? { outcome: "refused_gateway" } : undefined;
}

/** An error that ended the request, and not one of asking for its result: of the model it is a list, of the queue it has a type. */
function isOfRequest(status: number, json: AdapterResponse["json"]): boolean {
  if (status === 400 || status === 422 || status === 499) return true;
  return status >= 500 && (Array.isArray(json?.detail) || typeof json?.error_type === "string");
}

function pollRejection(response: AdapterResponse): Polled {
  if (response.status === 404)
    return response.json === undefined ? { outcome: "misrouted" } : { outcome: "gone" };
  return rejection(response) ?? { outcome: "failed" };
}

/** `detail` is a text or a list of problems. */
function textOf({ json }: AdapterResponse): string | undefined {
  const [first] = Array.isArray(json?.detail) ? json.detail : [json?.detail];
  const text = first?.msg ?? first;
  return typeof text === "string" ? text : undefined;
}

export const answers: AnswerRow[] = [
  {
    call: "created",
    response: { body: { request_id: "r-1", status: "IN_QUEUE", queue_position: 0 } },
    expect: { outcome: "accepted", taskId: "r-1" },
  },
  {
    call: "created",
    response: {
      status: 422,
      body: { detail: [{ loc: ["body", "prompt"], msg: "field required", type: "missing" }] },
    },
    expect: { outcome: "refused", text: "field required" },
  },
  {
    call: "created",
    response: { status: 401, body: { detail: "Cannot access" } },
    expect: { outcome: "refused_gateway" },
  },
  { call: "created", response: { status: 429, retryAfter: "7" }, expect: { outcome: "rate_limited" } },
  { call: "created", response: { status: 503 }, expect: { outcome: "unavailable" } },
  { call: "created", response: { status: 500, body: "oops" }, expect: { outcome: "unclear" } },
  { call: "created", response: { body: "<html>" }, expect: { outcome: "unclear" } },
  {
    call: "polled",
    response: { status: 202, body: { status: "IN_QUEUE", queue_position: 3 } },
    expect: { outcome: "task", status: "IN_QUEUE" },
  },
  {
    call: "polled",
    response: { status: 202, body: { status: "IN_PROGRESS" } },
    expect: { outcome: "task", status: "IN_PROGRESS" },
  },
  {
    call: "polled",
    response: { body: { status: "COMPLETED" } },
    expect: {
      outcome: "result_elsewhere",
      request: { method: "GET", path: "/fal-ai/kling-video/requests/task-1" },
    },
  },
  {
    call: "polled",
    response: { status: 404, body: { detail: "Request not found" } },
    expect: { outcome: "gone" },
  },
  { call: "polled", response: { status: 404, body: "<html>" }, expect: { outcome: "misrouted" } },
  { call: "polled", response: { status: 502 }, expect: { outcome: "failed" } },
  {
    call: "result",
    response: { body: { video: { url: "https://v3.fal.media/files/a.mp4" } } },
    expect: { outcome: "task", status: "completed", task: { video_url: "https://v3.fal.media/files/a.mp4" } },
  },
  {
    call: "result",
    response: {
      status: 422,
      body: { detail: [{ msg: "content policy", type: "content_policy_violation" }] },
    },
    expect: { outcome: "task", status: "failed", task: { failure_reason: "content policy" } },
  },
  {
    call: "result",
    response: { status: 504, body: { detail: "Request timed out", error_type: "request_timeout" } },
    expect: { outcome: "task", status: "failed", task: { failure_reason: "Request timed out" } },
  },
  {
    call: "result",
    response: { status: 500, body: { detail: [{ msg: "No GPU", type: "internal_server_error" }] } },
    expect: { outcome: "task", status: "failed", task: { failure_reason: "No GPU" } },
  },
  { call: "result", response: { status: 500 }, expect: { outcome: "failed" } },
  {
    call: "result",
    response: { status: 503, body: { detail: "Unavailable" } },
    expect: { outcome: "failed" },
  },
  { call: "callback", response: { body: { request_id: "r-1", status: "OK", payload: {} } }, expect: "r-1" },
];
