import { setMaintenance } from "../../src/operations/store/maintenance.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { givenRedis } from "../support/store-stage.ts";
import { type ApiStage, rawHead, sayRaw, sendForm } from "./openapi-stage.ts";
import { BOAT, setStatus, TEXT_TO_VIDEO } from "./spec-stage.ts";

/** How to bring a gateway to one documented error. */
export interface Recipe {
  /** The documented answer, by its name. */
  answer: string;
  /** The example of it that this is. */
  example: string;
  operationId: string;
  provoke(stage: ApiStage): Promise<Reply>;
}

const GIF = "GIF89a";
const generate = (gateway: TestGateway, key: string, body: unknown = BOAT, headers = {}) =>
  gateway.request("POST", TEXT_TO_VIDEO, { key, body, headers });

async function givenKey(
  { main }: ApiStage,
  limits: { rate_limit?: number; max_concurrent?: number; daily_limit?: number } = {},
  credits = 1000,
): Promise<string> {
  const { key } = await main.givenKey({
    credits,
    limits: { rate_limit: 1000, max_concurrent: 1000, ...limits },
  });
  return key;
}

/** A request of an account that is not active any more. */
const whileBarred =
  (status: "suspended" | "closed", ask: (stage: ApiStage, key: string) => Promise<Reply>) =>
  async (stage: ApiStage): Promise<Reply> => {
    const issued = await stage.main.givenKey();
    await setStatus(stage.main, issued, status);
    return ask(stage, issued.key);
  };

/** Makes a task and polls it. */
async function poll(stage: ApiStage, gateway = stage.main): Promise<Reply> {
  const key = await givenKey(stage);
  const { body } = await generate(stage.main, key);
  return gateway.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key });
}

/** A generation, with the generator steered. */
const whileGenerating = (behaviour: Parameters<ApiStage["during"]>[0]) => (stage: ApiStage) =>
  stage.during(behaviour, async () => generate(stage.main, await givenKey(stage)));
const whilePolling = (behaviour: Parameters<ApiStage["during"]>[0]) => (stage: ApiStage) =>
  stage.during(behaviour, () => poll(stage));
const whileUploading = (behaviour: Parameters<ApiStage["during"]>[0]) => (stage: ApiStage) =>
  stage.during(behaviour, async () => sendForm(stage.main, await givenKey(stage), GIF));

/** A generation of an account with as many unknown outcomes as it may have. */
const manyUnknown = (stage: ApiStage): Promise<Reply> =>
  stage.during({ fault: "reset" }, async () => {
    const key = await givenKey(stage, { max_concurrent: 100, rate_limit: 100 });
    const { unknownOutcomesPerAccount } = stage.main.config.tasks;
    for (let made = 0; made < unknownOutcomesPerAccount; made++) await generate(stage.main, key);
    return generate(stage.main, key);
  });

/** The second of two generations with a key that has room for one. */
async function second(stage: ApiStage, limits: Parameters<typeof givenKey>[1]): Promise<Reply> {
  const key = await givenKey(stage, limits);
  await generate(stage.main, key);
  return generate(stage.main, key);
}

/** Unknown keys until the gateway has had enough of them. */
async function tooMany({ strict }: ApiStage, method: string, path: string): Promise<Reply> {
  await strict.request(method, path, { key: "sk_unknown" });
  return strict.request(method, path, { key: "sk_unknown" });
}

/** One key's requests until it has none left in this second. */
async function tooFast(stage: ApiStage, method: string, path: string, body?: unknown): Promise<Reply> {
  const key = await givenKey(stage);
  const request = { key, ...(body === undefined ? {} : { body }) };
  const sent = Array.from({ length: 10 }, () => stage.impatient.request(method, path, request));
  const replies = await Promise.all(sent);
  return replies.find(({ status }) => status === 429)!;
}

async function inProgress(stage: ApiStage): Promise<Reply> {
  const { main } = stage;
  const [key, headers] = [await givenKey(stage), { "idempotency-key": "order-1" }];
  return stage.during({ delayMs: 3000 }, async () => {
    const sentBefore = main.generator.requests.length;
    const first = generate(main, key, BOAT, headers);
    await until(() => main.generator.requests.length > sentBefore, "the first to reach the generator");
    const reply = await generate(main, key, BOAT, headers);
    await first;
    return reply;
  });
}

/** The second of two generations at a time, where there is one connection and no time to wait for it. */
async function overloaded(
  stage: ApiStage,
  send: typeof generate = generate,
  narrow = stage.narrow,
): Promise<Reply> {
  const { generator } = stage.main;
  const key = await givenKey(stage);
  return stage.during({ delayMs: 3000 }, async () => {
    const sentBefore = generator.requests.length;
    const first = generate(narrow, key);
    await until(() => generator.requests.length > sentBefore, "the first to reach the generator");
    const reply = await send(narrow, key);
    await first;
    return reply;
  });
}

/** Maintenance is of a whole store, and other tests use that of the stage. */
async function inMaintenance(ask: (gateway: TestGateway, key: string) => Promise<Reply>): Promise<Reply> {
  const redis = await givenRedis();
  const gateway = await givenGateway({ redisUrl: redis.url });
  try {
    await until(async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200, "the gateway");
    const { key } = await gateway.givenKey();
    await setMaintenance(oneNode(redis.client), { on: true, retryAfterSeconds: 120 }, cliActor("test"));
    await until(async () => (await ask(gateway, key)).status === 503, "maintenance");
    return await ask(gateway, key);
  } finally {
    await gateway.stop();
    await redis.stop();
  }
}

async function mismatch(stage: ApiStage): Promise<Reply> {
  const [key, headers] = [await givenKey(stage), { "idempotency-key": "order-1" }];
  await generate(stage.main, key, BOAT, headers);
  return generate(stage.main, key, { prompt: "another boat" }, headers);
}

const raw =
  (method: string, path: string, ...lines: string[]) =>
  async (stage: ApiStage): Promise<Reply> =>
    sayRaw(stage.main, rawHead(method, path, await givenKey(stage), ...lines));

const CREDITS = "/api/v1/credits";
const UPLOAD = "/api/v1/upload";
const WEBSOCKET = ["Connection: Upgrade", "Upgrade: websocket"];
const REJECTED = { code: 1001, message: "The prompt was rejected" };

type Row = [answer: string, example: string, provoke: Recipe["provoke"]];

const GENERATION: Row[] = [
  ["Unauthorized", "missing_api_key", ({ main }) => main.request("POST", TEXT_TO_VIDEO, { body: BOAT })],
  ["Unauthorized", "invalid_api_key", ({ main }) => generate(main, "sk_unknown")],
  ["GenerationTooManyRequests", "too_many_unknown_keys", (stage) => tooMany(stage, "POST", TEXT_TO_VIDEO)],
  ["GenerationTooManyRequests", "slow_down", (stage) => tooFast(stage, "POST", TEXT_TO_VIDEO, {})],
  [
    "GenerationBadRequest",
    "invalid_request",
    async (stage) => generate(stage.main, await givenKey(stage), { promt: "a paper boat" }),
  ],
  ["PaymentRequired", "insufficient_credits", async (s) => generate(s.main, await givenKey(s, {}, 3))],
  [
    "PaymentRequired",
    "spend_capped",
    async ({ main }) => {
      const { key } = await main.givenKey({ limits: { monthly_credits: 15 } });
      await generate(main, key);
      return generate(main, key);
    },
  ],
  [
    "GenerationForbidden",
    "account_suspended",
    whileBarred("suspended", ({ main }, key) => generate(main, key)),
  ],
  [
    "GenerationForbidden",
    "endpoint_not_allowed",
    async ({ main }) => {
      const restrictions = { endpoints: ["gen2/text-to-video" as const], addresses: undefined };
      const { key } = await main.givenKey({ restrictions });
      return main.request("POST", "/api/v1/gen2-pro/text-to-video", { key, body: BOAT });
    },
  ],
  ["NotFound", "path_not_found", raw("POST", "/api/v1/gen3/text-to-video")],
  ["MethodNotAllowed", "method_not_allowed", raw("DELETE", TEXT_TO_VIDEO)],
  [
    "RequestTimeout",
    "request_timeout",
    async (stage) => {
      const lines = ["Content-Type: application/json", "Content-Length: 20"];
      const text = rawHead("POST", TEXT_TO_VIDEO, await givenKey(stage), ...lines);
      return sayRaw(stage.impatient, `${text}{"prompt":`);
    },
  ],
  ["Conflict", "idempotency_in_progress", inProgress],
  [
    "GenerationContentTooLarge",
    "payload_too_large",
    async (stage) => generate(stage.main, await givenKey(stage), { prompt: "a".repeat(256 * 1024) }),
  ],
  [
    "GenerationUnsupportedMediaType",
    "unsupported_media_type",
    async (s) => generate(s.main, await givenKey(s), BOAT, { "content-type": "text/plain" }),
  ],
  ["ExpectationFailed", "expectation_failed", raw("POST", TEXT_TO_VIDEO, "Expect: patience")],
  ["UnprocessableContent", "idempotency_mismatch", mismatch],
  ["UpgradeRequired", "upgrade_refused", raw("GET", CREDITS, ...WEBSOCKET)],
  ["RequestHeaderFieldsTooLarge", "headers_too_large", raw("GET", CREDITS, `X: ${"x".repeat(16 * 1024)}`)],
  ["GenerationTooManyRequests", "rate_limited", (stage) => second(stage, { rate_limit: 1 })],
  ["GenerationTooManyRequests", "concurrency_limited", (stage) => second(stage, { max_concurrent: 1 })],
  ["GenerationTooManyRequests", "daily_limited", (stage) => second(stage, { daily_limit: 1 })],
  [
    "GenerationTooManyRequests",
    "upstream_rate_limited",
    whileGenerating({ status: 429, retryAfterSeconds: 15 }),
  ],
  ["InternalError", "internal", async (stage) => generate(stage.broken, await givenKey(stage))],
  ["RefusedByTheGenerator", "upstream_refused", whileGenerating({ ...REJECTED, status: 451 })],
  ["GenerationBadGateway", "upstream_refused", whileGenerating(REJECTED)],
  ["GenerationBadGateway", "upstream_refused_gateway", whileGenerating({ status: 401 })],
  ["GenerationBadGateway", "upstream_failed", whileGenerating({ status: 503 })],
  ["GenerationBadGateway", "upstream_unclear", whileGenerating({ fault: "reset" })],
  [
    "GenerationGatewayTimeout",
    "upstream_timeout",
    (stage) => stage.during({ fault: "hang" }, async () => generate(stage.impatient, await givenKey(stage))),
  ],
  ["GenerationServiceUnavailable", "overloaded", (stage) => overloaded(stage)],
  ["GenerationServiceUnavailable", "outcomes_unknown", manyUnknown],
  ["GenerationServiceUnavailable", "maintenance", () => inMaintenance(generate)],
  ["GenerationServiceUnavailable", "store_unavailable", async (stage) => generate(stage.away, "sk_any")],
  [
    "HTTPVersionNotSupported",
    "version_unsupported",
    (stage) => sayRaw(stage.main, "GET /api/v1/credits HTTP/1.2\r\nHost: a\r\n\r\n"),
  ],
];

const TASK: Row[] = [
  ["TooManyRequests", "too_many_unknown_keys", (stage) => tooMany(stage, "GET", "/api/v1/tasks/a")],
  ["TooManyRequests", "slow_down", (stage) => tooFast(stage, "GET", "/api/v1/tasks/a")],
  ["TaskBadRequest", "invalid_request", raw("GET", "/api/v1/tasks/a", "Content-Length: 1")],
  [
    "Forbidden",
    "account_suspended",
    whileBarred("closed", ({ main }, key) => main.request("GET", "/api/v1/tasks/task_1", { key })),
  ],
  ["TaskNotFound", "task_not_found", raw("GET", "/api/v1/tasks/task_7f3a1c52")],
  ["TaskNotFound", "path_not_found", raw("GET", "/api/v1/task/task_7f3a1c52")],
  ["ServiceUnavailable", "store_unavailable", (stage) => poll(stage, stage.away)],
  ["TooManyRequests", "upstream_rate_limited", whilePolling({ pollStatus: 429, pollRetryAfterSeconds: 15 })],
  ["TaskBadGateway", "upstream_refused", whilePolling({ pollCode: 1001, pollMessage: REJECTED.message })],
  ["TaskBadGateway", "upstream_refused_gateway", whilePolling({ pollStatus: 401 })],
  ["TaskBadGateway", "upstream_failed", whilePolling({ pollStatus: 503 })],
  [
    "TaskGatewayTimeout",
    "upstream_timeout",
    (stage) => stage.during({ pollFault: "hang" }, () => poll(stage, stage.impatient)),
  ],
];

const UPLOADS: Row[] = [
  [
    "UploadServiceUnavailable",
    "maintenance",
    () => inMaintenance((gateway, key) => sendForm(gateway, key, GIF)),
  ],
  ["UploadServiceUnavailable", "store_unavailable", (stage) => sendForm(stage.away, "sk_any", GIF)],
  [
    "UploadServiceUnavailable",
    "overloaded",
    (stage) => overloaded(stage, (gateway, key) => sendForm(gateway, key, GIF), stage.single),
  ],
  ["TooManyRequests", "too_many_unknown_keys", (stage) => tooMany(stage, "POST", UPLOAD)],
  [
    "UploadBadRequest",
    "invalid_request",
    async (stage) => sendForm(stage.main, await givenKey(stage), GIF, "image"),
  ],
  [
    "UploadContentTooLarge",
    "payload_too_large",
    raw("POST", UPLOAD, "Content-Type: multipart/form-data; boundary=x", "Content-Length: 10600000"),
  ],
  [
    "UploadUnsupportedMediaType",
    "unsupported_media_type",
    async (stage) => sendForm(stage.main, await givenKey(stage), "%PDF-1.7"),
  ],
  [
    "TooManyRequests",
    "upstream_rate_limited",
    whileUploading({ uploadStatus: 429, uploadRetryAfterSeconds: 15 }),
  ],
  [
    "UploadBadGateway",
    "upstream_refused",
    whileUploading({ uploadCode: 1001, uploadMessage: REJECTED.message }),
  ],
  ["UploadBadGateway", "upstream_refused_gateway", whileUploading({ uploadStatus: 401 })],
  ["UploadBadGateway", "upstream_failed", whileUploading({ uploadStatus: 503 })],
  [
    "UploadGatewayTimeout",
    "upstream_timeout",
    (stage) =>
      stage.during({ uploadFault: "hang" }, async () =>
        sendForm(stage.impatient, await givenKey(stage), GIF),
      ),
  ],
];

const ACCOUNT: Row[] = [
  ["CreditsTooManyRequests", "too_many_unknown_keys", (stage) => tooMany(stage, "GET", CREDITS)],
  ["CreditsTooManyRequests", "slow_down", (stage) => tooFast(stage, "GET", CREDITS)],
  ["CreditsBadRequest", "invalid_request", raw("GET", CREDITS, "Content-Length: 1")],
  [
    "ServiceUnavailable",
    "overloaded",
    (stage) => overloaded(stage, (gateway, key) => gateway.request("GET", CREDITS, { key }), stage.single),
  ],
];

const recipes = (operationId: string, rows: Row[]): Recipe[] =>
  rows.map(([answer, example, provoke]) => ({ answer, example, operationId, provoke }));

/** One for each error example of the description. */
export const RECIPES: readonly Recipe[] = [
  ...recipes("gen2TextToVideo", GENERATION),
  ...recipes("getTask", TASK),
  ...recipes("uploadImage", UPLOADS),
  ...recipes("getCredits", ACCOUNT),
];
