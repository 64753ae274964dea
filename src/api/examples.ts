import { API_PREFIX, type GenerationEndpoint } from "../domain/endpoints.ts";
import { byLimit, TIER_LIMITS } from "../domain/limits.ts";
import type { Kind } from "./errors.ts";

/** Examples of requests and of successes. A test sends each to a running gateway and holds its answers against these. */

type Examples = Readonly<Record<string, { summary: string; value: object }>>;

const PROMPT = "A paper boat on a rain puddle, slow camera";
const IMAGE = "https://images.example.com/boat.png";

const example = (summary: string, value: object) => ({ summary, value });
const least = (value: object) => example("All that is required", value);
const leastPro = (value: object) => example("All that is required: 10 seconds in standard quality", value);
const most = (value: object) => example("Every parameter", value);

export const REQUESTS: Readonly<Record<GenerationEndpoint | "upload", Examples>> = {
  "gen2/text-to-video": {
    least: least({ prompt: PROMPT }),
    most: most({ prompt: PROMPT, negativePrompt: "people, text", aspectRatio: "9:16" }),
  },
  "gen2/image-to-video": {
    least: least({ imageUrl: IMAGE }),
    most: most({
      imageUrl: IMAGE,
      prompt: "The boat drifts to the left",
      negativePrompt: "people",
      aspectRatio: "1:1",
    }),
  },
  "gen2-pro/text-to-video": {
    least: leastPro({ prompt: PROMPT }),
    most: most({
      prompt: PROMPT,
      negativePrompt: "people, text",
      aspectRatio: "16:9",
      duration: 15,
      quality: "high",
    }),
  },
  "gen2-pro/image-to-video": {
    least: leastPro({ imageUrl: IMAGE }),
    most: most({
      imageUrl: IMAGE,
      prompt: "The boat drifts to the left",
      negativePrompt: "people",
      aspectRatio: "9:16",
      duration: 15,
      quality: "high",
    }),
  },
  "gen2/watermark-remove": {
    least: example("Where the supported source host is https://videos.example.com", {
      videoUrl: "https://videos.example.com/v/boat.mp4",
    }),
  },
  "gen2-pro/storyboard": {
    least: example("All that is required: one shot of 10 seconds", {
      nFrames: "10",
      shots: [{ Scene: PROMPT, duration: 10 }],
    }),
    most: most({
      nFrames: "15",
      shots: [
        { Scene: "A child folds a paper boat", duration: 6.5 },
        { Scene: "The boat sails over a puddle", duration: 8.5 },
      ],
      aspectRatio: "portrait",
      imageUrls: [IMAGE],
      callBackUrl: "https://shop.example.com/videos/done",
    }),
  },
  upload: {
    gif: example("The smallest GIF, fourteen bytes, written as text", {
      file: "GIF89a\u0001\u0000\u0001\u0000\u0000\u0000\u0000;",
    }),
  },
};

const success = (summary: string, data: object) => example(summary, { code: 200, msg: "success", data });

const TASK_ID = "task_7f3a1c52";
const CREATED = { task_id: TASK_ID, created_at: "2026-11-21T15:00:00.000Z" };

export const USAGE_ANSWER: Examples = {
  usage: success("Two days", {
    from: "2026-11-01",
    to: "2026-11-21",
    group_by: "day",
    since: null,
    rows: [
      { day: "2026-11-20", requests: 12, credits: 120, refunds: 10, completed: 11, failed: 1, seconds: 1012 },
      { day: "2026-11-21", requests: 3, credits: 30, refunds: 0, completed: 3, failed: 0, seconds: 270 },
    ],
  }),
};

export const ANSWERS: Readonly<Record<Kind, Examples>> = {
  generation: { accepted: success("A new task", { task_id: TASK_ID, status: "pending" }) },
  task: {
    pending: success("Queued", { ...CREATED, status: "pending", progress: 0 }),
    processing: success("At work", { ...CREATED, status: "processing", progress: 40 }),
    completed: success("Finished: here is the video", {
      ...CREATED,
      status: "completed",
      progress: 100,
      video_url: "https://media.example.com/task_7f3a1c52.mp4",
      thumbnail_url: "https://media.example.com/task_7f3a1c52.png",
      completed_at: "2026-11-21T15:01:30.000Z",
    }),
    failed: success("Ended without a video; by default its credits are refunded", {
      ...CREATED,
      status: "failed",
      failure_reason: "The prompt was refused by the content filter",
    }),
  },
  upload: {
    uploaded: success("For five minutes", {
      url: "https://media.example.com/files/5b1f0c.gif",
      expires_at: "2026-11-21T15:05:00.000Z",
    }),
  },
  credits: {
    account: success("A recharge, two videos, and the refund of the one that failed", {
      balance: 490,
      total_used: 10,
      total_requests: 2,
      tier: "standard",
      limits: byLimit(TIER_LIMITS, ({ tiers }) => tiers.standard),
      recent_transactions: [
        {
          id: "txn_7_1795275660000-0",
          type: "recharge",
          amount: 10,
          balance_after: 490,
          reason: "refund",
          task_id: TASK_ID,
          created_at: "2026-11-21T15:01:30.000Z",
        },
        ...[480, 490].map((balance, at) => ({
          id: `txn_7_${1_795_275_600_000 - at * 60_000}-0`,
          type: "consume",
          amount: -10,
          balance_after: balance,
          endpoint: `${API_PREFIX}gen2/text-to-video`,
          created_at: `2026-11-21T15:0${1 - at}:00.000Z`,
        })),
        {
          id: "txn_7_1795275000000-0",
          type: "recharge",
          amount: 500,
          balance_after: 500,
          created_at: "2026-11-21T14:50:00.000Z",
        },
      ],
    }),
  },
};
