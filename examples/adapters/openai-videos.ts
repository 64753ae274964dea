import type {
  Adapter,
  AdapterResponse,
  AnswerRow,
  Created,
  Polled,
  Rejection,
} from "../../src/upstream/adapter.ts";

// The videos API of OpenAI. OpenAI itself ended it on 2026-09-24; Azure and compatible servers speak it. Read on 2026-11-27:
//   https://developers.openai.com/api/docs/guides/video-generation
//   https://learn.microsoft.com/en-us/azure/foundry/reference/rest/video-generation-get-video
// upstream.url: the address before /v1, such as https://api.example.com
//
// The file of a video is behind the credential (GET /v1/videos/{id}/content), which a customer must not have. `content_url` is an
// address of yours that adds it; docs/upstreams.md shows one in nginx.

interface Options {
  content_url: string;
  seconds_for_10: string;
  seconds_for_15: string;
}

const seconds = { type: "string", enum: ["4", "8", "12", "16", "20"] };

const adapter: Adapter<Options> = {
  name: "openai-videos",
  options: {
    type: "object",
    properties: {
      content_url: { type: "string", pattern: "^https?://[^{}]*\\{id\\}[^{}]*$" },
      seconds_for_10: { ...seconds, default: "12" },
      seconds_for_15: { ...seconds, default: "16" },
    },
    required: ["content_url"],
  },

  create({ endpoint, body }, { seconds_for_10, seconds_for_15 }) {
    if (endpoint === "gen2-pro/storyboard" || endpoint === "gen2/watermark-remove")
      return { unsupported: [{ path: "", message: `${endpoint} is not offered` }] };
    if (body.negativePrompt) return lacking("negativePrompt", "negativePrompt is not supported");
    if (body.aspectRatio === "1:1") return lacking("aspectRatio", "aspectRatio 1:1 is not supported");
    if (!body.prompt) return lacking("prompt", "prompt is required");
    const json = {
      model: endpoint.startsWith("gen2-pro/") ? "sora-2-pro" : "sora-2",
      prompt: body.prompt,
      seconds: body.duration === 15 ? seconds_for_15 : seconds_for_10,
      size: sizeOf(body.aspectRatio, body.quality),
      ...(body.imageUrl === undefined ? {} : { input_reference: { image_url: body.imageUrl } }),
    };
    return { method: "POST", path: "/v1/videos", json };
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

  poll: ({ taskId }) => ({ method: "GET", path: `/v1/videos/${encodeURIComponent(taskId)}` }),

  polled(response, _task, { content_url }): Polled {
    const { status, json } = response;
    if (status === 200 && typeof json?.id === "string" && typeof json.status === "string") {
      const { id, progress, created_at, completed_at, expires_at } = json;
      const task = { task_id: id, progress, created_at, completed_at: completed_at ?? undefined };
      const more: Record<string, unknown> = {};
      if (json.status === "completed") more.video_url = content_url.replace("{id}", encodeURIComponent(id));
      if (typeof expires_at === "number") more.expires_at = new Date(expires_at * 1000).toISOString();
      const reason = errorOf(json).message;
      if (json.status === "failed" && reason !== undefined) more.failure_reason = reason;
      return { outcome: "task", status: json.status, task: { ...task, ...more } };
    }
    if (status === 404) return json?.error === undefined ? { outcome: "misrouted" } : { outcome: "gone" };
    return rejection(response) ?? { outcome: "failed" };
  },
};
export default adapter;

const lacking = (parameter: string, message: string) => ({
  unsupported: [{ path: `/${parameter}`, message }],
});

function sizeOf(ratio: unknown, quality: unknown): string {
  const [long, short] = quality === "high" ? [1792, 1024] : [1280, 720];
  return ratio === "9:16" ? `${short}x${long}` : `${long}x${short}`;
}

function errorOf(json: AdapterResponse["json"]): { message?: string; code?: unknown } {
  const { message, code } = (json?.error ?? {}) as { message?: unknown; code?: unknown };
  return typeof message === "string" ? { message, code } : { code };
}

function rejection({ status, json }: AdapterResponse): Rejection | undefined {
  const { message, code } = errorOf(json);
  // A 429 is also an account without credit.
  if (code === "insufficient_quota" || code === "billing_hard_limit_reached")
    return { outcome: "refused_gateway" };
  if (status === 429) return { outcome: "rate_limited" };
  if (status === 400 || status === 413 || status === 422) return { outcome: "refused", text: message };
  return status >= 300 && status < 500 ? { outcome: "refused_gateway" } : undefined;
}

const OPTIONS = { content_url: "https://media.example.com/videos/{id}" };
const VIDEO = { id: "task-1", object: "video", created_at: 1_764_230_400, completed_at: null, progress: 0 };

const says = (call: AnswerRow["call"], status: number, body: object, expect: object): AnswerRow => ({
  call,
  response: { status, body },
  options: OPTIONS,
  expect,
});

export const answers: AnswerRow[] = [
  says("created", 200, { ...VIDEO, status: "queued" }, { outcome: "accepted", taskId: "task-1" }),
  says(
    "created",
    400,
    { error: { code: "moderation_blocked", message: "Your request was blocked by our moderation system." } },
    { outcome: "refused", text: "Your request was blocked by our moderation system." },
  ),
  says("created", 401, { error: { message: "Incorrect API key" } }, { outcome: "refused_gateway" }),
  says("created", 429, { error: { message: "Rate limit reached" } }, { outcome: "rate_limited" }),
  says("created", 429, { error: { code: "insufficient_quota" } }, { outcome: "refused_gateway" }),
  says("created", 500, { error: { message: "The server had an error" } }, { outcome: "unclear" }),
  says("created", 200, {}, { outcome: "unclear" }),
  says("polled", 200, { ...VIDEO, status: "queued" }, { outcome: "task", status: "queued" }),
  says(
    "polled",
    200,
    { ...VIDEO, status: "in_progress", progress: 33 },
    { outcome: "task", status: "in_progress", task: { progress: 33 } },
  ),
  says(
    "polled",
    200,
    { ...VIDEO, status: "completed", completed_at: 1_764_230_490 },
    { outcome: "task", status: "completed", task: { video_url: "https://media.example.com/videos/task-1" } },
  ),
  says(
    "polled",
    200,
    { ...VIDEO, status: "failed", error: { code: "moderation_blocked", message: "Blocked" } },
    { outcome: "task", status: "failed", task: { failure_reason: "Blocked" } },
  ),
  says("polled", 404, { error: { message: "Video not found" } }, { outcome: "gone" }),
  says("polled", 404, {}, { outcome: "misrouted" }),
  says("polled", 502, {}, { outcome: "failed" }),
];
