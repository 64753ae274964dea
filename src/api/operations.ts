import { TASK_ID } from "../domain/answers.ts";
import { API_PREFIX, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { FILE_BYTES_MAX, IDEMPOTENCY_KEY } from "../domain/limits.ts";
import { DAY } from "../domain/moments.ts";
import { jsonContent, reference } from "./builder.ts";
import type { Kind } from "./errors.ts";
import { ANSWERS, REQUESTS, USAGE_ANSWER } from "./examples.ts";
import { bodyName, camelCase } from "./schemas.ts";

export interface Operation {
  path: string;
  method: "get" | "post";
  kind: Kind;
  /** Fields of an OpenAPI operation: operationId, summary, parameters and so on. */
  fields: Record<string, unknown>;
  /** Schema and named examples of the 200. */
  answer: { schema: string; description: string; examples: Readonly<Record<string, object>> };
  /** Headers that a 200 may have beside those of every answer. */
  headers: readonly string[];
  /** Operations that a 200 leads to. */
  links?: object;
}

const IDEMPOTENCY = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description:
    "Makes it safe to send the request again: 1 to 255 visible ASCII characters of your choice, a new one for each video. " +
    "Kept for 24 hours, per account. The same key with the same request gets the first answer again and is charged once; " +
    "with another path or body it is 422; while the first has no outcome it is 409. After a refusal it may be used again.",
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: IDEMPOTENCY_KEY.source },
};

const GENERATIONS: Record<GenerationEndpoint, { summary: string; description: string }> = {
  "gen2/text-to-video": {
    summary: "Make a video from a text",
    description: "Standard tier.",
  },
  "gen2/image-to-video": {
    summary: "Make a video from an image",
    description: "Standard tier. The image is fetched from an https address, such as that of an upload.",
  },
  "gen2-pro/text-to-video": {
    summary: "Make a pro video from a text",
    description: "Pro tier. The price depends on `duration` and `quality`.",
  },
  "gen2-pro/image-to-video": {
    summary: "Make a pro video from an image",
    description: "Pro tier. The price depends on `duration` and `quality`.",
  },
  "gen2/watermark-remove": {
    summary: "Remove the watermark of a video",
    description: "The video must lie on the one supported source host.",
  },
  "gen2-pro/storyboard": {
    summary: "Make a video from a list of shots",
    description: "Pro tier. The price depends on `nFrames`.",
  },
};

function generation(endpoint: GenerationEndpoint): Operation {
  const { summary, description } = GENERATIONS[endpoint];
  return {
    path: API_PREFIX + endpoint,
    method: "post",
    kind: "generation",
    fields: {
      operationId: camelCase(endpoint),
      tags: ["Generation"],
      summary,
      description: `${description} Answers with a task to poll. Charged when the task is made; counts toward all limits.`,
      parameters: [reference("parameters", "IdempotencyKey")],
      requestBody: {
        required: true,
        content: jsonContent(reference("schemas", bodyName(endpoint)), { examples: REQUESTS[endpoint] }),
      },
    },
    answer: {
      schema: "GenerationAnswer",
      description: "The task was made and charged.",
      examples: ANSWERS.generation,
    },
    headers: ["Idempotency-Replayed", "X-Gateway-Degraded"],
    links: {
      poll: {
        operationId: "getTask",
        parameters: { taskId: "$response.body#/data/task_id" },
        description: "Ask how the task is going.",
      },
    },
  };
}

const task: Operation = {
  path: `${API_PREFIX}tasks/{taskId}`,
  method: "get",
  kind: "task",
  fields: {
    operationId: "getTask",
    tags: ["Tasks"],
    summary: "Ask how a task is going",
    description:
      "Poll every 2 to 3 seconds until `status` is `completed` or `failed`. An answer may be up to 5 seconds old. Costs " +
      "nothing and counts toward no limit. Any key of the account that made the task may ask.",
    parameters: [
      {
        name: "taskId",
        in: "path",
        required: true,
        description: "The `task_id` of a generation's answer, as it is.",
        schema: { type: "string", pattern: TASK_ID.source },
        example: "task_7f3a1c52",
      },
    ],
  },
  answer: { schema: "TaskAnswer", description: "The task.", examples: ANSWERS.task },
  headers: ["X-Gateway-Degraded"],
};

const upload: Operation = {
  path: `${API_PREFIX}upload`,
  method: "post",
  kind: "upload",
  fields: {
    operationId: "uploadImage",
    tags: ["Upload"],
    summary: "Upload an image",
    description:
      "Gives the image an address for five minutes, to be used at once as `imageUrl`. Costs nothing and counts toward no " +
      "limit. The form has exactly one part, named `file`, sent as a file with a filename: " +
      "`curl -H 'Authorization: Bearer sk_…' -F file=@cat.png …/api/v1/upload`.",
    requestBody: {
      required: true,
      content: {
        "multipart/form-data": {
          schema: {
            type: "object",
            required: ["file"],
            properties: {
              file: {
                type: "string",
                format: "binary",
                minLength: 1,
                maxLength: FILE_BYTES_MAX,
                description:
                  `A JPEG, PNG, WebP or GIF of 1 to ${FILE_BYTES_MAX} bytes (10 MiB). Its first bytes decide which it is; ` +
                  "a declared type that names another one is refused; none, `image/*`, `*/*` or `application/octet-stream` will do.",
              },
            },
            additionalProperties: false,
          },
          encoding: { file: { contentType: "image/jpeg, image/png, image/webp, image/gif" } },
          examples: REQUESTS.upload,
        },
      },
    },
  },
  answer: {
    schema: "UploadAnswer",
    description: "The image can be fetched at `url`.",
    examples: ANSWERS.upload,
  },
  headers: ["X-Gateway-Degraded"],
};

const credits: Operation = {
  path: `${API_PREFIX}credits`,
  method: "get",
  kind: "credits",
  fields: {
    operationId: "getCredits",
    tags: ["Credits"],
    summary: "Read balance, limits and recent transactions",
    description:
      "Balance and transactions are the account's, the limits those of this key. Costs nothing and counts toward no limit.",
  },
  answer: { schema: "CreditsAnswer", description: "The account.", examples: ANSWERS.credits },
  headers: [],
};

const usage: Operation = {
  path: `${API_PREFIX}usage`,
  method: "get",
  kind: "credits",
  fields: {
    operationId: "getUsage",
    tags: ["Credits"],
    summary: "Read what the account has used",
    description:
      "Of all keys of the account, by UTC day, endpoint or key, about a second behind. Without `from` it is the 31 days up to `to`, " +
      "without `to` up to today; 92 days at most. Costs nothing and counts toward no limit.",
    parameters: [
      ...(["from", "to"] as const).map((name) => ({
        name,
        in: "query",
        required: false,
        description: name === "from" ? "The first day." : "The last day, itself included.",
        schema: { type: "string", pattern: DAY.source },
        example: name === "from" ? "2026-11-01" : "2026-11-21",
      })),
      {
        name: "group_by",
        in: "query",
        required: false,
        description: "What each row is about. Left out, it is `day`.",
        schema: { type: "string", enum: ["day", "endpoint", "key"] },
        example: "day",
      },
    ],
  },
  answer: { schema: "UsageAnswer", description: "What was used.", examples: USAGE_ANSWER },
  headers: [],
};

export const PARAMETERS = { IdempotencyKey: IDEMPOTENCY };

export const OPERATIONS: readonly Operation[] = [
  ...GENERATION_ENDPOINTS.map(generation),
  task,
  upload,
  credits,
  usage,
];
