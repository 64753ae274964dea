import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import fal, { answers as falAnswers } from "../../../../examples/adapters/fal.ts";
import openai, { answers as openaiAnswers } from "../../../../examples/adapters/openai-videos.ts";
import replicate, { answers as replicateAnswers } from "../../../../examples/adapters/replicate.ts";
import { loadAdapterModule } from "../../../../src/config/adapter-module.ts";
import type { GenerationEndpoint } from "../../../../src/domain/endpoints.ts";
import { validateGeneration } from "../../../../src/domain/generation.ts";
import { parseObject } from "../../../../src/domain/json.ts";
import type { Adapter, AdapterResponse, AnswerRow } from "../../../../src/upstream/adapter.ts";

// Guarantee: what the adapters in examples/ send, and what their tables of answers say they read.

interface Example {
  name: string;
  adapter: Adapter;
  answers: readonly AnswerRow[];
  options?: object;
  /** The request for each of `BODIES`. */
  sends: readonly string[];
}

const IMAGE = "https://files.example.com/cat.png";
const BODIES: readonly [GenerationEndpoint, object][] = [
  ["gen2/text-to-video", { prompt: "A cat" }],
  ["gen2/image-to-video", { imageUrl: IMAGE, prompt: "It runs" }],
  ["gen2-pro/text-to-video", { prompt: "A cat", duration: 15, quality: "high", aspectRatio: "9:16" }],
  ["gen2-pro/text-to-video", { prompt: "A cat", negativePrompt: "rain", aspectRatio: "1:1" }],
  ["gen2-pro/image-to-video", { imageUrl: IMAGE, prompt: "It runs", aspectRatio: "16:9" }],
  ["gen2-pro/storyboard", { nFrames: "10", shots: [{ Scene: "A cat", duration: 10 }] }],
  ["gen2/watermark-remove", { videoUrl: "https://videos.example.com/1" }],
];
const NOT_OFFERED = [
  "400 gen2-pro/storyboard is not offered",
  "400 gen2/watermark-remove is not offered",
] as const;

const untyped = (adapter: unknown): Adapter => adapter as Adapter;

const EXAMPLES: Example[] = [
  {
    name: "fal",
    adapter: untyped(fal),
    answers: falAnswers,
    sends: [
      'POST /fal-ai/kling-video/v4/text-to-video {"prompt":"A cat","aspect_ratio":"16:9","duration":10,"resolution":"720p"}',
      `POST /fal-ai/kling-video/v4/image-to-video {"prompt":"It runs","start_image_url":"${IMAGE}","duration":10,"resolution":"720p"}`,
      'POST /fal-ai/kling-video/v4/text-to-video {"prompt":"A cat","aspect_ratio":"9:16","duration":15,"resolution":"1080p"}',
      "400 negativePrompt is not supported",
      "400 aspectRatio is not supported",
      ...NOT_OFFERED,
    ],
  },
  {
    name: "replicate",
    adapter: untyped(replicate),
    answers: replicateAnswers,
    sends: [
      'POST /v1/models/kwaivgi/kling-v2.1-master/predictions {"input":{"prompt":"A cat","aspect_ratio":"16:9","duration":10}}',
      `POST /v1/models/kwaivgi/kling-v2.1-master/predictions {"input":{"prompt":"It runs","start_image":"${IMAGE}","duration":10}}`,
      "400 duration 15 is not supported",
      'POST /v1/models/kwaivgi/kling-v2.1-master/predictions {"input":{"prompt":"A cat","negative_prompt":"rain","aspect_ratio":"1:1","duration":10}}',
      "400 aspectRatio is not supported",
      ...NOT_OFFERED,
    ],
  },
  {
    name: "openai-videos",
    adapter: untyped(openai),
    answers: openaiAnswers,
    options: { content_url: "https://media.example.com/videos/{id}" },
    sends: [
      'POST /v1/videos {"model":"sora-2","prompt":"A cat","seconds":"12","size":"1280x720"}',
      `POST /v1/videos {"model":"sora-2","prompt":"It runs","seconds":"12","size":"1280x720","input_reference":{"image_url":"${IMAGE}"}}`,
      'POST /v1/videos {"model":"sora-2-pro","prompt":"A cat","seconds":"16","size":"1024x1792"}',
      "400 negativePrompt is not supported",
      `POST /v1/videos {"model":"sora-2-pro","prompt":"It runs","seconds":"12","size":"1280x720","input_reference":{"image_url":"${IMAGE}"}}`,
      ...NOT_OFFERED,
    ],
  },
];

/** Schemas that are written by hand have their defaults in `default`. */
function withDefaults({ options }: Adapter, given: object): Record<string, unknown> {
  const properties: [string, { default?: unknown }][] = Object.entries(options?.properties ?? {});
  return { ...Object.fromEntries(properties.map(([name, property]) => [name, property.default])), ...given };
}

function responseOf({ status = 200, body = "", retryAfter }: AnswerRow["response"]): AdapterResponse {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { status, body: text, json: parseObject(text), retryAfter };
}

function read(adapter: Adapter, row: AnswerRow): unknown {
  const response = responseOf(row.response);
  const options = withDefaults(adapter, row.options ?? {});
  const task = row.task ?? { taskId: "task-1", endpoint: "gen2/text-to-video" };
  switch (row.call) {
    case "created":
      return adapter.created(response, options);
    case "polled":
      return adapter.polled(response, task, options);
    case "result":
      return adapter.result?.(response, task, options);
    case "uploaded":
      return adapter.uploaded?.(response, options);
    case "callback":
      return adapter.callback?.({ headers: {}, body: response.body, json: response.json }, options);
  }
}

test("the adapter in docs/upstreams.md can be loaded, and its table is right", () => {
  const folder = join(import.meta.dirname, "../../../../docs");
  const [, source = ""] =
    /^```ts\n([\s\S]*?)^```$/m.exec(readFileSync(join(folder, "upstreams.md"), "utf8")) ?? [];
  const { adapter, answers } = loadAdapterModule(join(folder, "minimal.ts"), Buffer.from(source));
  expect(adapter.name).toBe("minimal");
  expect(answers).toHaveLength(4);
  for (const row of answers as AnswerRow[]) expect(read(adapter, row)).toMatchObject(row.expect as object);
});

describe.each(EXAMPLES)("the table of $name", ({ adapter, answers }) => {
  test.each(answers.map((row) => [`${row.call}: ${JSON.stringify(row.response)}`, row] as const))(
    "%s",
    (_, row) => {
      const result = read(adapter, row);
      if (typeof row.expect === "string") expect(result).toBe(row.expect);
      else expect(result).toMatchObject(row.expect as object);
    },
  );
});

test.each(EXAMPLES)("$name sends what was asked for, or refuses it", ({ adapter, options = {}, sends }) => {
  const sent = BODIES.map(([endpoint, given]) => {
    const valid = validateGeneration(endpoint, given, "https://videos.example.com");
    if (!valid.ok) throw new Error(JSON.stringify(valid.problems));
    const generation = { endpoint, body: { ...valid.body }, text: valid.text };
    const request = adapter.create(generation, withDefaults(adapter, options));
    if ("unsupported" in request) return `400 ${request.unsupported[0]?.message}`;
    return `${request.method} ${request.path} ${JSON.stringify(request.json)}`;
  });
  expect(sent).toEqual(sends);
});
