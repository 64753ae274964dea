import type {
  Adapter,
  AdapterResponse,
  AnswerRow,
  Created,
  Polled,
  Rejection,
} from "../../src/upstream/adapter.ts";

// The predictions of Replicate with its model kwaivgi/kling-v2.1-master. Read on 2026-11-27:
//   https://replicate.com/docs/topics/predictions/lifecycle
//   https://replicate.com/docs/topics/webhooks/receive-webhook
//   https://replicate.com/kwaivgi/kling-v2.1-master/api
// upstream.url: https://api.replicate.com

interface Options {
  model: string;
}

const adapter: Adapter<Options> = {
  name: "replicate",
  options: {
    type: "object",
    properties: {
      model: { type: "string", pattern: "^[\\w.-]+/[\\w.-]+$", default: "kwaivgi/kling-v2.1-master" },
    },
  },

  create({ endpoint, body }, { model }) {
    if (endpoint === "gen2-pro/storyboard" || endpoint === "gen2/watermark-remove")
      return { unsupported: [{ path: "", message: `${endpoint} is not offered` }] };
    if (body.duration === 15) return lacking("duration", "duration 15");
    if (body.quality === "high") return lacking("quality", "quality high");
    // The ratio of a video from an image is that of the image.
    if (body.imageUrl !== undefined && body.aspectRatio !== undefined) return lacking("aspectRatio");
    const input = {
      prompt: body.prompt,
      negative_prompt: body.negativePrompt,
      aspect_ratio: body.aspectRatio,
      start_image: body.imageUrl,
      duration: 10,
    };
    const { callBackUrl } = body;
    const callback =
      callBackUrl === undefined ? {} : { webhook: callBackUrl, webhook_events_filter: ["completed"] };
    return { method: "POST", path: `/v1/models/${model}/predictions`, json: { input, ...callback } };
  },

  created(response): Created {
    const { status, json } = response;
    const id = json?.id;
    if (typeof id === "string" && id !== "")
      return {
        outcome: "accepted",
        taskId: id,
        task: { status: json?.status, created_at: json?.created_at },
      };
    if (status === 503) return { outcome: "unavailable" };
    return rejection(response) ?? { outcome: "unclear" };
  },

  poll: ({ taskId }) => ({ method: "GET", path: `/v1/predictions/${encodeURIComponent(taskId)}` }),

  polled(response): Polled {
    const { status, json } = response;
    if (status === 200 && typeof json?.id === "string" && typeof json.status === "string") {
      const { id, output, error, created_at, completed_at } = json;
      const [video] = Array.isArray(output) ? output : [output];
      const task = { task_id: id, created_at, completed_at: completed_at ?? undefined, video_url: video };
      const failure = typeof error === "string" ? { failure_reason: error } : {};
      return { outcome: "task", status: json.status, task: { ...task, ...failure } };
    }
    if (status === 404) return json?.status === 404 ? { outcome: "gone" } : { outcome: "misrouted" };
    return rejection(response) ?? { outcome: "failed" };
  },

  // The body is the prediction.
  callback: ({ json }) => (typeof json?.id === "string" ? json.id : undefined),
};
export default adapter;

const lacking = (parameter: string, what = parameter) => ({
  unsupported: [{ path: `/${parameter}`, message: `${what} is not supported` }],
});

/** Errors are `{title, detail, status}`, and 422 has the reason in `detail`. */
function rejection({ status, json }: AdapterResponse): Rejection | undefined {
  if (status === 429) return { outcome: "rate_limited" };
  if (status === 400 || status === 413 || status === 422)
    return { outcome: "refused", text: typeof json?.detail === "string" ? json.detail : undefined };
  // 402 is an account without credit, 404 a model that does not exist.
  return status >= 300 && status < 500 ? { outcome: "refused_gateway" } : undefined;
}

const PREDICTION = { id: "task-1", created_at: "2026-11-27T08:00:00.224088Z", completed_at: null };
const VIDEO = "https://replicate.delivery/a/output.mp4";

export const answers: AnswerRow[] = [
  {
    call: "created",
    response: { status: 201, body: { ...PREDICTION, status: "starting", output: null, error: null } },
    expect: { outcome: "accepted", taskId: "task-1" },
  },
  {
    call: "created",
    response: {
      status: 422,
      body: { title: "Input validation failed", detail: "- input: prompt is required" },
    },
    expect: { outcome: "refused", text: "- input: prompt is required" },
  },
  {
    call: "created",
    response: { status: 401, body: { title: "Unauthenticated" } },
    expect: { outcome: "refused_gateway" },
  },
  {
    call: "created",
    response: { status: 402, body: { title: "Insufficient credit" } },
    expect: { outcome: "refused_gateway" },
  },
  { call: "created", response: { status: 429, body: { status: 429 } }, expect: { outcome: "rate_limited" } },
  { call: "created", response: { status: 500 }, expect: { outcome: "unclear" } },
  { call: "created", response: { status: 201, body: {} }, expect: { outcome: "unclear" } },
  ...["starting", "processing", "canceled", "aborted"].map(
    (status): AnswerRow => ({
      call: "polled",
      response: { body: { ...PREDICTION, status } },
      expect: { outcome: "task", status },
    }),
  ),
  {
    call: "polled",
    response: { body: { ...PREDICTION, status: "succeeded", output: VIDEO } },
    expect: { outcome: "task", status: "succeeded", task: { task_id: "task-1", video_url: VIDEO } },
  },
  {
    call: "polled",
    response: { body: { ...PREDICTION, status: "succeeded", output: [VIDEO] } },
    expect: { outcome: "task", task: { video_url: VIDEO } },
  },
  {
    call: "polled",
    response: { body: { ...PREDICTION, status: "failed", error: "The input or output was flagged" } },
    expect: {
      outcome: "task",
      status: "failed",
      task: { failure_reason: "The input or output was flagged" },
    },
  },
  {
    call: "polled",
    response: { status: 404, body: { title: "Not found", status: 404 } },
    expect: { outcome: "gone" },
  },
  { call: "polled", response: { status: 404, body: "<html>" }, expect: { outcome: "misrouted" } },
  { call: "polled", response: { status: 502 }, expect: { outcome: "failed" } },
  { call: "callback", response: { body: { ...PREDICTION, status: "succeeded" } }, expect: "task-1" },
];
