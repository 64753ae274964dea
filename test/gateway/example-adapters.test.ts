import { randomUUID } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import fal from "../../examples/adapters/fal.ts";
import openai from "../../examples/adapters/openai-videos.ts";
import replicate from "../../examples/adapters/replicate.ts";
import type { Adapter } from "../../src/upstream/adapter.ts";
import { givenGateway } from "../support/gateway.ts";
import { consumption, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: a whole gateway runs on each example in front of a copy of its generator's public shapes. The pages are named in the
// examples. What a task becomes is in its prompt: ok, fail, crash, refuse, limit or broke.

interface Answer {
  status?: number;
  headers?: Record<string, string>;
  body: object;
}

interface ScriptedRequest {
  method: string;
  path: string;
  wish: string;
  /** How often the task was polled before. */
  pollsBefore: number;
  /** Of its only task. */
  id: string;
}

interface Copy {
  adapter: unknown;
  options: Record<string, unknown>;
  /** The header of the credential. */
  credential: string;
  videoUrl(id: string): string;
  answer(request: ScriptedRequest): Answer;
  /** Where a create says whom to call back, and what is sent there; undefined for a generator without callbacks. */
  callback?: {
    addressIn(path: string, body: Record<string, unknown>): unknown;
    body(id: string): object;
  };
}

const VIDEO = "https://cdn.example.com/v.mp4";
const REASON = "Flagged by moderation";

function answerAsFal({ method, path, wish, pollsBefore, id }: ScriptedRequest): Answer {
  if (method === "POST") {
    if (wish === "limit")
      return { status: 429, headers: { "retry-after": "17" }, body: { detail: "Too many" } };
    if (wish === "broke")
      return { status: 403, body: { detail: "User is locked. Reason: Exhausted balance" } };
    if (wish === "refuse")
      return { status: 422, body: { detail: [{ loc: ["body", "prompt"], msg: REASON, type: "x" }] } };
    return { body: { request_id: id, status: "IN_QUEUE", queue_position: 0 } };
  }
  if (path === `/fal-ai/kling-video/requests/${id}/status`) {
    const isDone = pollsBefore > 0;
    return {
      status: isDone ? 200 : 202,
      body: { request_id: id, status: isDone ? "COMPLETED" : "IN_PROGRESS" },
    };
  }
  if (path !== `/fal-ai/kling-video/requests/${id}`) return { status: 404, body: { detail: "Not found" } };
  if (wish === "crash")
    return { status: 504, body: { detail: "Request timed out", error_type: "request_timeout" } };
  return wish === "fail"
    ? { status: 422, body: { detail: [{ msg: REASON, type: "content_policy_violation" }] } }
    : { body: { video: { url: VIDEO, content_type: "video/mp4" } } };
}

function answerAsReplicate({ method, path, wish, pollsBefore, id }: ScriptedRequest): Answer {
  const prediction = {
    id,
    model: "kwaivgi/kling-v2.1-master",
    created_at: "2026-11-27T08:00:00.1234Z",
  };
  if (method === "POST") {
    if (wish === "limit") return { status: 429, headers: { "retry-after": "17" }, body: { status: 429 } };
    if (wish === "broke") return { status: 402, body: { title: "Insufficient credit", status: 402 } };
    if (wish === "refuse")
      return { status: 422, body: { title: "Invalid input", detail: REASON, status: 422 } };
    return { status: 201, body: { ...prediction, status: "starting", output: null, error: null } };
  }
  if (path !== `/v1/predictions/${id}`) return { status: 404, body: { title: "Not found", status: 404 } };
  if (pollsBefore === 0) return { body: { ...prediction, status: "processing", output: null, error: null } };
  return wish === "fail"
    ? { body: { ...prediction, status: "failed", output: null, error: REASON } }
    : { body: { ...prediction, status: "succeeded", output: VIDEO, error: null } };
}

function answerAsOpenai({ method, path, wish, pollsBefore, id }: ScriptedRequest): Answer {
  const video = { id, object: "video", model: "sora-2", created_at: 1_795_000_000, progress: 0 };
  const error = (status: number, code: string, message: string): Answer => ({
    status,
    headers: { "retry-after": "17" },
    body: { error: { code, message, type: "error", param: null } },
  });
  if (method === "POST") {
    if (wish === "limit") return error(429, "rate_limit_exceeded", "Rate limit reached");
    if (wish === "broke") return error(429, "insufficient_quota", "You exceeded your current quota");
    if (wish === "refuse") return error(400, "moderation_blocked", REASON);
    return { body: { ...video, status: "queued" } };
  }
  if (path !== `/v1/videos/${id}`) return error(404, "not_found", "Video not found");
  if (pollsBefore === 0) return { body: { ...video, status: "in_progress", progress: 40 } };
  return wish === "fail"
    ? { body: { ...video, status: "failed", error: { code: "moderation_blocked", message: REASON } } }
    : { body: { ...video, status: "completed", progress: 100, completed_at: 1_795_000_090 } };
}

const COPIES: [string, Copy][] = [
  [
    "fal",
    {
      adapter: fal,
      options: { app: "fal-ai/kling-video", text_path: "v4/text-to-video", image_path: "v4/image-to-video" },
      credential: "Key upstream-secret",
      videoUrl: () => VIDEO,
      answer: answerAsFal,
      callback: {
        addressIn: (path) => new URL(path, "https://queue.fal.run").searchParams.get("fal_webhook"),
        body: (id) => ({ request_id: id, gateway_request_id: id, status: "OK", payload: {} }),
      },
    },
  ],
  [
    "replicate",
    {
      adapter: replicate,
      options: { model: "kwaivgi/kling-v2.1-master" },
      credential: "Bearer upstream-secret",
      videoUrl: () => VIDEO,
      answer: answerAsReplicate,
      callback: {
        addressIn: (_path, body) => body.webhook,
        body: (id) => ({ id, status: "succeeded", output: VIDEO, error: null }),
      },
    },
  ],
  [
    "openai-videos",
    {
      adapter: openai,
      options: {
        content_url: "https://media.example.com/videos/{id}",
        seconds_for_10: "12",
        seconds_for_15: "16",
      },
      credential: "Bearer upstream-secret",
      videoUrl: (id) => `https://media.example.com/videos/${id}`,
      answer: answerAsOpenai,
    },
  ],
];

/** A gateway in front of the copy. */
async function givenCopy({ adapter, options, answer }: Copy, webhooks: object = {}) {
  const requests: { method: string; path: string; headers: IncomingHttpHeaders; body: string }[] = [];
  const id = `r-${randomUUID()}`;
  let wish = "ok";
  const server = createServer((request, response) => {
    const { method = "", url: path = "", headers } = request;
    const pollsBefore = requests.filter((one) => one.method === "GET" && one.path === path).length;
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      requests.push({ method, path, headers, body });
      wish = /"prompt":"(\w+)"/.exec(body)?.[1] ?? wish;
      const scripted = answer({ method, path, wish, pollsBefore, id });
      response.writeHead(scripted.status ?? 200, { "content-type": "application/json", ...scripted.headers });
      response.end(JSON.stringify(scripted.body));
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const upstreamUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { name } = adapter as Adapter;
  const dialect = { name, id: name, adapter: () => adapter as Adapter, options };
  const gateway = await givenGateway({
    upstreamUrl,
    config: { upstream: { dialect } as object, tasks: { cacheMs: 0 }, webhooks },
  });
  onTestFinished(async () => {
    await gateway.stop();
    server.closeAllConnections();
    server.close();
  });
  const issued = await gateway.givenKey({ credits: 100 });
  const { key } = issued;
  return {
    gateway,
    requests,
    generate: (prompt: string) => gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt } }),
    poll: (id: string) => gateway.request("GET", `/api/v1/tasks/${id}`, { key }),
    credits: () => consumption(gateway, issued),
    creates: () => requests.filter(({ method }) => method === "POST").length,
  };
}

test.each(COPIES)("%s: a video that is charged, from the create to its address", async (_, copy) => {
  const { generate, poll, credits, requests } = await givenCopy(copy);
  const created = await generate("ok");
  expect(created).toMatchObject({ status: 200, body: { code: 200, data: { task_id: expect.any(String) } } });
  const id = created.body.data.task_id;
  expect((await poll(id)).body.data).toMatchObject({ task_id: id, status: "processing" });
  expect((await poll(id)).body.data).toMatchObject({ status: "completed", video_url: copy.videoUrl(id) });
  expect(await credits()).toMatchObject({ balance: 90, totalUsed: 10, active: 0 });
  expect(new Set(requests.map(({ headers }) => headers.authorization))).toEqual(new Set([copy.credential]));
});

test.each(COPIES)("%s: a failure is refunded, and the customer is told why", async (_, copy) => {
  const { generate, poll, credits } = await givenCopy(copy);
  const id = (await generate("fail")).body.data.task_id;
  await poll(id);
  expect((await poll(id)).body.data).toMatchObject({ status: "failed", failure_reason: REASON });
  expect(await credits()).toMatchObject({ balance: 100, totalUsed: 0, held: 0, active: 0 });
});

test("fal: a request that the queue has given up is refunded, and frees its slot", async () => {
  const { generate, poll, credits } = await givenCopy(COPIES.find(([name]) => name === "fal")![1]);
  const id = (await generate("crash")).body.data.task_id;
  await poll(id);
  expect((await poll(id)).body.data).toMatchObject({
    status: "failed",
    failure_reason: "Request timed out",
  });
  expect(await credits()).toMatchObject({ balance: 100, totalUsed: 0, held: 0, active: 0 });
});

test.each(COPIES)(
  "%s: limits, the customer's mistakes and ours are told apart, uncharged",
  async (_, copy) => {
    const { generate, credits, creates } = await givenCopy(copy);
    expect(await generate("limit")).toMatchObject({ status: 429, body: { code: 2004, retryAfter: 17 } });
    expect(await generate("refuse")).toMatchObject({ status: 400, body: { code: 400, error: REASON } });
    expect(await generate("broke")).toMatchObject({ status: 502, body: { code: 502 } });
    expect(await credits()).toMatchObject({ balance: 100, totalUsed: 0, held: 0, active: 0 });
    expect(creates()).toBe(3);
  },
);

const RELAY = {
  publicUrl: "https://gateway.example",
  secretKey: "a secret of the gateways, long enough",
  relay: "all",
};

test.each(COPIES)(
  "%s: the generator is given the relay's address if its callbacks are read",
  async (_, copy) => {
    const { adapter, callback } = copy;
    const { gateway, generate, poll, credits, requests } = await givenCopy(copy, RELAY);
    const id = (await generate("fail")).body.data.task_id;
    const [{ path, body }] = requests as [(typeof requests)[number]];
    const address = callback?.addressIn(path, JSON.parse(body));
    expect(typeof address === "string").toBe((adapter as Adapter).callback !== undefined);
    if (!callback) return;
    expect(address).toMatch(/^https:\/\/gateway\.example\/callbacks\/[\w.-]+$/);
    await poll(id);
    const called = await gateway.request("POST", new URL(String(address)).pathname, {
      body: callback.body(id),
    });
    expect(called.status).toBe(200);
    expect(await credits()).toMatchObject({ balance: 100, active: 0 });
  },
);
