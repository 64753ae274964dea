import type { TObject } from "typebox";
import { Value } from "typebox/value";
import { describe, expect, test } from "vitest";
import type { GenerationEndpoint } from "../../../../src/domain/endpoints.ts";
import { validateGeneration } from "../../../../src/domain/generation.ts";
import { parseObject } from "../../../../src/domain/json.ts";
import type { AdapterResponse, Created, Polled, Uploaded } from "../../../../src/upstream/adapter.ts";
import { KIE } from "../../../../src/upstream/adapters/kie.ts";

// Guarantee: what each answer of kie.ai means. The shapes are those of its pages: docs.kie.ai/market/common/get-task-detail,
// docs.kie.ai/market/sora2/sora-2-pro-text-to-video and docs.kie.ai/file-upload-api/upload-file-stream.

type Options = Parameters<typeof KIE.create>[1];

const options = (given: object = {}): Options => Value.Default(KIE.options as TObject, given) as Options;
const DEFAULTS = options();
const HOST = "https://sora.chatgpt.com";

function answered(status: number, body: unknown): AdapterResponse {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { status, body: text, json: parseObject(text), retryAfter: undefined };
}
const ok = (data: unknown) => answered(200, { code: 200, msg: "success", data });
const coded = (code: unknown, msg?: unknown, data: unknown = null) => answered(200, { code, msg, data });

/** The request for a body as a customer sends it. */
function requestFor(endpoint: GenerationEndpoint, given: object, with_: Options = DEFAULTS) {
  const valid = validateGeneration(endpoint, given, HOST);
  if (!valid.ok) throw new Error(JSON.stringify(valid.problems));
  return KIE.create({ endpoint, body: { ...valid.body }, text: valid.text }, with_);
}
const sends = (json: object) => ({ method: "POST", path: "/api/v1/jobs/createTask", json });
const lacks = (path: string) => ({ unsupported: [{ path, message: expect.any(String) }] });

describe("what goes out", () => {
  const image = "https://files.example.com/cat.png";
  const shots = [
    { Scene: "A cat", duration: 7.5 },
    { Scene: "A dog", duration: 7.5 },
  ];
  test.each<[string, GenerationEndpoint, object, object]>([
    [
      "standard, text",
      "gen2/text-to-video",
      { prompt: "A cat" },
      {
        model: "sora-2-text-to-video",
        input: { prompt: "A cat", n_frames: "10", aspect_ratio: "landscape" },
      },
    ],
    [
      "standard, image",
      "gen2/image-to-video",
      { imageUrl: image, prompt: "It runs", aspectRatio: "9:16" },
      {
        model: "sora-2-image-to-video",
        input: { prompt: "It runs", n_frames: "10", image_urls: [image], aspect_ratio: "portrait" },
      },
    ],
    [
      "standard, image alone",
      "gen2/image-to-video",
      { imageUrl: image },
      { model: "sora-2-image-to-video", input: { n_frames: "10", image_urls: [image] } },
    ],
    [
      "pro, text",
      "gen2-pro/text-to-video",
      { prompt: "A cat", aspectRatio: "16:9", duration: 15, quality: "high" },
      {
        model: "sora-2-pro-text-to-video",
        input: { prompt: "A cat", n_frames: "15", size: "high", aspect_ratio: "landscape" },
      },
    ],
    [
      "pro, image: the defaults that are priced are written out",
      "gen2-pro/image-to-video",
      { imageUrl: image },
      {
        model: "sora-2-pro-image-to-video",
        input: { n_frames: "10", size: "standard", image_urls: [image] },
      },
    ],
    [
      "storyboard",
      "gen2-pro/storyboard",
      { nFrames: "15", shots, imageUrls: [image], callBackUrl: "https://shop.example.com/done" },
      {
        model: "sora-2-pro-storyboard",
        callBackUrl: "https://shop.example.com/done",
        input: { n_frames: "15", shots, image_urls: [image], aspect_ratio: "landscape" },
      },
    ],
    [
      "storyboard without images",
      "gen2-pro/storyboard",
      { nFrames: "15", shots, imageUrls: [], aspectRatio: "portrait" },
      { model: "sora-2-pro-storyboard", input: { n_frames: "15", shots, aspect_ratio: "portrait" } },
    ],
    [
      "watermark",
      "gen2/watermark-remove",
      { videoUrl: `${HOST}/p/s_1` },
      { model: "sora-watermark-remover", input: { video_url: `${HOST}/p/s_1` } },
    ],
  ])("%s", (_, endpoint, body, json) => {
    expect(requestFor(endpoint, body)).toEqual(sends(json));
  });

  test("a poll and an upload", () => {
    expect(KIE.poll({ taskId: "a/b?c&d", endpoint: undefined }, DEFAULTS)).toEqual({
      method: "GET",
      path: "/api/v1/jobs/recordInfo?taskId=a%2Fb%3Fc%26d",
    });
    // kie.ai replaces a file of the same path and name.
    expect(KIE.upload!(options({ upload_path: "shop" }), "n1")).toEqual({
      path: "/api/file-stream-upload",
      fields: { uploadPath: "shop/n1" },
    });
  });

  test("remove_watermark goes with generations, and with nothing else", () => {
    const chosen = options({ remove_watermark: false });
    const text = requestFor("gen2/text-to-video", { prompt: "A cat" }, chosen);
    expect(text).toMatchObject(sends({ input: { remove_watermark: false } }));
    const removal = requestFor("gen2/watermark-remove", { videoUrl: `${HOST}/p/s_1` }, chosen);
    expect(removal).toMatchObject(sends({ input: { video_url: `${HOST}/p/s_1` } }));
    expect(JSON.stringify(removal)).not.toContain("remove_watermark");
  });
});

describe("what kie.ai does not have is refused, or mapped where an option says so", () => {
  const shots = [{ Scene: "A cat", duration: 10 }];
  const square: [GenerationEndpoint, object][] = [
    ["gen2/text-to-video", { prompt: "A cat", aspectRatio: "1:1" }],
    ["gen2/image-to-video", { imageUrl: "https://a.example/b.png", aspectRatio: "1:1" }],
    ["gen2-pro/text-to-video", { prompt: "A cat", aspectRatio: "1:1" }],
    ["gen2-pro/image-to-video", { imageUrl: "https://a.example/b.png", aspectRatio: "1:1" }],
    ["gen2-pro/storyboard", { nFrames: "10", shots, aspectRatio: "square" }],
  ];
  test.each(square)("a square at %s", (endpoint, body) => {
    expect(requestFor(endpoint, body)).toEqual(lacks("/aspectRatio"));
    for (const wish of ["landscape", "portrait"]) {
      const request = requestFor(endpoint, body, options({ square: wish }));
      expect(request).toMatchObject(sends({ input: { aspect_ratio: wish } }));
    }
  });

  test("a negative prompt, with a prompt and without", () => {
    const body = { imageUrl: "https://a.example/b.png", negativePrompt: "rain" };
    expect(requestFor("gen2/image-to-video", body)).toEqual(lacks("/negativePrompt"));
    const appending = options({ negative_prompt: "append" });
    const alone = requestFor("gen2/image-to-video", body, appending);
    expect(alone).toMatchObject(sends({ input: { prompt: "Avoid: rain" } }));
    const both = requestFor("gen2/image-to-video", { ...body, prompt: "It runs" }, appending);
    expect(both).toMatchObject(sends({ input: { prompt: "It runs\n\nAvoid: rain" } }));
  });

  test("an empty negative prompt has nothing to lose", () => {
    const request = requestFor("gen2/text-to-video", { prompt: "A cat", negativePrompt: "" });
    expect(request).toMatchObject(sends({ input: { prompt: "A cat" } }));
  });

  test("a prompt that is too long with the negative prompt; both bounds count code points", () => {
    const appending = options({ negative_prompt: "append" });
    const added = "\n\nAvoid: ".length;
    const fits = { prompt: "🐈".repeat(10_000 - added - 1), negativePrompt: "x" };
    expect(requestFor("gen2-pro/text-to-video", fits, appending)).toMatchObject(sends({}));
    const tooLong = { ...fits, negativePrompt: "xy" };
    expect(requestFor("gen2-pro/text-to-video", tooLong, appending)).toEqual(lacks("/negativePrompt"));
  });

  test("a second reference image", () => {
    const imageUrls = ["https://a.example/1.png", "https://a.example/2.png"];
    const request = requestFor("gen2-pro/storyboard", { nFrames: "10", shots, imageUrls });
    expect(request).toEqual(lacks("/imageUrls/1"));
  });

  test("all of them at once", () => {
    const body = { prompt: "A cat", negativePrompt: "rain", aspectRatio: "1:1" };
    const request = requestFor("gen2/text-to-video", body);
    expect(request).toMatchObject({ unsupported: [{ path: "/negativePrompt" }, { path: "/aspectRatio" }] });
  });
});

const accepted = (taskId: string) => ({ outcome: "accepted", taskId, task: { status: "pending" } }) as const;
const refused = (text?: string) => ({ outcome: "refused", text }) as const;
const refusedForGood = (text?: string) => ({ ...refused(text), isFinal: true }) as const;
const GATEWAY = { outcome: "refused_gateway" } as const;
const LIMITED = { outcome: "rate_limited" } as const;
const UNAVAILABLE = { outcome: "unavailable" } as const;
const UNCLEAR = { outcome: "unclear" } as const;
const FAILED = { outcome: "failed" } as const;
const MISROUTED = { outcome: "misrouted" } as const;
const NESTED = "[".repeat(500_000) + "]".repeat(500_000);
const HTML = "<!doctype html><title>502 Bad Gateway</title>";

describe("an answer to a create", () => {
  test.each<[string, AdapterResponse, Created]>([
    ["success", ok({ taskId: "task_sora_1" }), accepted("task_sora_1")],
    ["a number as id", ok({ taskId: 12345 }), accepted("12345")],
    [
      "a number that a double cannot hold",
      answered(200, '{"code":200,"data":{"taskId":12345678901234567890}}'),
      accepted("12345678901234567890"),
    ],
    ["an id of 10,000 characters", ok({ taskId: "x".repeat(10_000) }), accepted("x".repeat(10_000))],
    ["an id that is no path", ok({ taskId: "../a b" }), accepted("../a b")],
    ["a code that is a text", coded("200", "success", { taskId: "t1" }), accepted("t1")],
    ["no code", answered(200, { data: { taskId: "t1" } }), accepted("t1")],
    ["an id beside the data", answered(200, { code: 200, taskId: "t1" }), accepted("t1")],
    ["an id beside code 500", coded(500, "error", { taskId: "t1" }), accepted("t1")],
    ["an id beside code 422", coded(422, "error", { taskId: "t1" }), accepted("t1")],
    ["an id with HTTP 500", answered(500, { code: 500, data: { taskId: "t1" } }), accepted("t1")],
    ["success without data", ok(null), UNCLEAR],
    ["success with an empty id", ok({ taskId: "" }), UNCLEAR],
    ["success with an object as id", ok({ taskId: { id: 1 } }), UNCLEAR],
    ["success with an object like a number as id", ok({ taskId: { rawJSON: "1" } }), UNCLEAR],
    ["success with a fraction as id", ok({ taskId: 1.5 }), UNCLEAR],
    ["a refusal with an object as id", coded(422, "no", { taskId: { id: 1 } }), UNCLEAR],
    ["success with data that are a list", ok([{ taskId: "t1" }]), UNCLEAR],
    ["an id in JSON that breaks off", answered(200, '{"code":422,"data":{"taskId":"t1"'), UNCLEAR],
    ["an id in JSON that breaks off, HTTP 422", answered(422, '{"data":{"taskId":"t1"'), UNCLEAR],
    ["code 401", coded(401, "You do not have access permissions"), GATEWAY],
    ["code 402", coded(402, "Credits insufficient"), GATEWAY],
    ["code 403", coded(403, "no"), GATEWAY],
    ["code 404", coded(404, "no"), GATEWAY],
    ["code 422", coded(422, "prompt: too long"), refused("prompt: too long")],
    ["code 422 as a text", coded("422", "prompt: too long"), refused("prompt: too long")],
    ["code 422 and `message`", answered(200, { code: 422, message: "too long" }), refused("too long")],
    ["code 422 and an empty `msg`", answered(200, { code: 422, msg: "", message: "long" }), refused("long")],
    ["code 422 without a text", coded(422, null), refused()],
    ["code 422 with a long text", coded(422, "x".repeat(9999)), refused("x".repeat(1000))],
    ["code 422 with a list as text", coded(422, ["no"]), refused()],
    ["code 400", coded(400, "bad"), refused("bad")],
    ["code 429", coded(429, "slow down"), LIMITED],
    ["code 455", coded(455, "maintenance"), UNAVAILABLE],
    ["code 500", coded(500, "internal"), UNCLEAR],
    ["code 501", coded(501, "generation failed"), UNAVAILABLE],
    ["code 505", coded(505, "feature off"), UNAVAILABLE],
    ["code 408", coded(408, "timeout"), UNCLEAR],
    ["code 425", coded(425, "too early"), UNCLEAR],
    ["code 300", coded(300, "moved"), GATEWAY],
    ["another code", coded(999, "?"), UNCLEAR],
    ["a code that is a word", coded("FAILED", "?"), UNCLEAR],
    ["a negative code", coded(-1, "?"), UNCLEAR],
    ["HTTP 401", answered(401, ""), GATEWAY],
    ["HTTP 402", answered(402, HTML), GATEWAY],
    ["HTTP 404", answered(404, HTML), GATEWAY],
    ["HTTP 405", answered(405, HTML), GATEWAY],
    ["HTTP 302", answered(302, ""), GATEWAY],
    ["HTTP 422 and its code", answered(422, { code: 422, msg: "too long" }), refused("too long")],
    ["HTTP 422 beside code 0", answered(422, { code: 0, msg: "too long" }), refused("too long")],
    ["HTTP 422 beside code 100", answered(422, { code: 100, msg: "too long" }), UNCLEAR],
    ["HTTP 422 beside a word", answered(422, { code: "FAILED", msg: "too long" }), refused("too long")],
    ["HTTP 422 beside null", answered(422, { code: null, msg: "too long" }), refused("too long")],
    ["HTTP 413", answered(413, HTML), refused()],
    ["HTTP 429", answered(429, HTML), LIMITED],
    ["HTTP 500", answered(500, HTML), UNCLEAR],
    ["HTTP 500 with the code of a limit", answered(500, { code: 429 }), LIMITED],
    ["HTTP 502", answered(502, HTML), UNCLEAR],
    ["HTTP 503", answered(503, HTML), UNAVAILABLE],
    ["HTTP 503 beside code 200", answered(503, { code: 200 }), UNAVAILABLE],
    ["HTTP 504", answered(504, HTML), UNCLEAR],
    ["HTML with 200", answered(200, HTML), UNCLEAR],
    ["nothing with 200", answered(200, ""), UNCLEAR],
    ["a list with 200", answered(200, "[]"), UNCLEAR],
    ["brackets with 200", answered(200, NESTED), UNCLEAR],
    ["brackets with 422", answered(422, NESTED), refused()],
  ])("%s", (_, response, meaning) => {
    expect(KIE.created(response, DEFAULTS)).toEqual(meaning);
  });
});

const TASK = { taskId: "t1", endpoint: "gen2/text-to-video" } as const;
const TIMES = { createTime: 1_790_000_000_000, completeTime: 1_790_000_090_000 };
const record = (state: unknown, more: object = {}) => ({ taskId: "t1", state, ...TIMES, ...more });
const RESULT = '{"resultUrls":["https://cdn.example.com/v.mp4"]}';
const running = (status: string, more: object = {}) =>
  ({
    outcome: "task",
    status,
    task: { task_id: "t1", created_at: TIMES.createTime, ...more },
  }) as const;
const success = (video_url?: string) =>
  running("success", { progress: 100, completed_at: TIMES.completeTime, video_url });
const failedTask = (more: object = {}) =>
  ({ outcome: "task", status: "failed", task: { task_id: "t1", ...more } }) as const;

describe("an answer to a poll", () => {
  test.each<[string, AdapterResponse, Polled]>([
    ["waiting", ok(record("waiting")), running("waiting")],
    ["queuing", ok(record("queuing")), running("queued")],
    ["generating", ok(record("generating", { progress: 40 })), running("generating", { progress: 40 })],
    ["a state of a later time", ok(record("upscaling")), running("upscaling")],
    [
      "success",
      ok(record("success", { resultJson: RESULT, param: '{"model":"x"}' })),
      success("https://cdn.example.com/v.mp4"),
    ],
    [
      "success in capitals",
      ok(record("SUCCESS", { resultJson: RESULT })),
      success("https://cdn.example.com/v.mp4"),
    ],
    [
      "fail in capitals",
      ok(record("Fail", { failMsg: "content policy" })),
      failedTask({ created_at: TIMES.createTime, failure_reason: "content policy" }),
    ],
    ["success without code", answered(200, { message: "success", data: record("success") }), success()],
    [
      "a result that is an object",
      ok(record("success", { resultJson: { resultUrls: ["https://cdn.example.com/v.mp4"] } })),
      success("https://cdn.example.com/v.mp4"),
    ],
    ["a result that breaks off", ok(record("success", { resultJson: RESULT.slice(0, -3) })), success()],
    ["a result that is empty", ok(record("success", { resultJson: "" })), success()],
    ["a result without addresses", ok(record("success", { resultJson: '{"resultUrls":[]}' })), success()],
    ["a result with numbers", ok(record("success", { resultJson: '{"resultUrls":[1,null]}' })), success()],
    ["a result that is a list", ok(record("success", { resultJson: "[]" })), success()],
    ["a result of brackets", ok(record("success", { resultJson: NESTED })), success()],
    [
      "fail",
      ok(record("fail", { failCode: "500", failMsg: "content policy" })),
      failedTask({ created_at: TIMES.createTime, failure_reason: "content policy" }),
    ],
    ["fail without a reason", ok(record("fail")), failedTask({ created_at: TIMES.createTime })],
    [
      "fail with a long reason",
      ok(record("fail", { failMsg: "x".repeat(9999) })),
      failedTask({ created_at: TIMES.createTime, failure_reason: "x".repeat(1000) }),
    ],
    [
      "fail beside code 422",
      coded(422, "invalid", record("fail", { failMsg: "too long" })),
      failedTask({ created_at: TIMES.createTime, failure_reason: "too long" }),
    ],
    [
      "fail beside code 501",
      coded(501, "failed", record("fail", { failMsg: "policy" })),
      failedTask({ created_at: TIMES.createTime, failure_reason: "policy" }),
    ],
    ["fail beside code 500", coded(500, "internal", record("fail", { failMsg: "away" })), FAILED],
    [
      "code 501",
      coded(501, "Generation failed: policy"),
      failedTask({ failure_reason: "Generation failed: policy" }),
    ],
    ["code 501 of HTTP 501", answered(501, { code: 501 }), failedTask()],
    ["code 501 beside a state", coded(501, "no", record("generating")), failedTask({ failure_reason: "no" })],
    [
      "code 501 about another task",
      coded(501, "no", { taskId: "t2" }),
      failedTask({ task_id: "t2", failure_reason: "no" }),
    ],
    [
      "code 404 about another task",
      coded(404, "no", { taskId: "t2" }),
      running("code 404", { task_id: "t2", created_at: undefined }),
    ],
    [
      "code 422 about another task",
      coded(422, "no", { taskId: "t2" }),
      running("code 422", { task_id: "t2", created_at: undefined }),
    ],
    ["HTTP 501 of a server on the way", answered(501, HTML), FAILED],
    ["another task", ok({ ...record("waiting"), taskId: "t2" }), running("waiting", { task_id: "t2" })],
    ["no id", ok({ state: "success", resultJson: RESULT }), FAILED],
    ["no state", ok({ taskId: "t1" }), FAILED],
    ["a number as state", ok(record(3)), FAILED],
    ["an empty state", ok(record("")), FAILED],
    ["success without data", ok(null), FAILED],
    ["code 404", coded(404, "no such task"), { outcome: "gone" }],
    ["code 404 of HTTP 404", answered(404, { code: 404 }), { outcome: "gone" }],
    ["HTTP 404 of a server on the way", answered(404, HTML), MISROUTED],
    ["HTTP 404 beside code 200", answered(404, { code: 200 }), FAILED],
    ["HTTP 300", answered(300, ""), MISROUTED],
    ["HTTP 302", answered(302, ""), MISROUTED],
    ["HTTP 400 of a server on the way", answered(400, HTML), FAILED],
    ["code 401", coded(401, "key"), GATEWAY],
    ["code 402", coded(402, "credits"), GATEWAY],
    ["code 422", coded(422, "taskId is invalid"), refusedForGood("taskId is invalid")],
    ["code 422 of an unknown task", coded(422, "recordInfo is null"), { outcome: "gone" }],
    ["code 433", coded(433, "Sub-key Usage Exceeds Limit"), GATEWAY],
    ["code 429", coded(429, "slow down"), LIMITED],
    ["code 455", coded(455, "maintenance"), FAILED],
    ["code 500", coded(500, "internal"), FAILED],
    ["code 505", coded(505, "feature off"), FAILED],
    ["code 500 beside a task", coded(500, "internal", record("success", { resultJson: RESULT })), FAILED],
    ["HTTP 500 with a success", answered(500, { code: 200, data: record("success") }), FAILED],
    ["HTTP 401", answered(401, ""), GATEWAY],
    ["HTTP 402", answered(402, ""), GATEWAY],
    ["HTTP 403", answered(403, ""), GATEWAY],
    ["HTTP 429", answered(429, ""), LIMITED],
    ["HTTP 422 without a code", answered(422, HTML), FAILED],
    ["HTML with 200", answered(200, HTML), FAILED],
    ["brackets with 200", answered(200, NESTED), FAILED],
  ])("%s", (_, response, meaning) => {
    expect(KIE.polled(response, TASK, DEFAULTS)).toEqual(meaning);
  });

  test("a task whose id came as a number", () => {
    const answer = answered(200, '{"code":200,"data":{"taskId":12345678901234567890,"state":"waiting"}}');
    const task = { taskId: "12345678901234567890", endpoint: undefined };
    expect(KIE.polled(answer, task, DEFAULTS)).toMatchObject({ outcome: "task", status: "waiting" });
  });
});

describe("an answer to an upload", () => {
  const file = {
    fileName: "a.png",
    filePath: "tollgate/a.png",
    downloadUrl: "https://tempfile.example.com/tollgate/a.png",
    uploadedAt: "2026-11-27T12:00:00.000Z",
  };
  const uploaded = (expiresAt?: string) =>
    ({ outcome: "uploaded", url: file.downloadUrl, expiresAt }) as const;
  const uploadAnswer = (data: unknown, more: object = {}) =>
    answered(200, { success: true, code: 200, msg: "File uploaded successfully", data, ...more });
  test.each<[string, AdapterResponse, Uploaded]>([
    ["success", uploadAnswer(file), uploaded("2026-11-28T12:00:00.000Z")],
    [
      "a time of another zone",
      uploadAnswer({ ...file, uploadedAt: "2026-11-27T20:00:00+08:00" }),
      uploaded("2026-11-28T12:00:00.000Z"),
    ],
    ["a time without a zone", uploadAnswer({ ...file, uploadedAt: "2026-11-27 12:00:00" }), uploaded()],
    ["a time that is none", uploadAnswer({ ...file, uploadedAt: "2026-99-99T12:00:00Z" }), uploaded()],
    ["no time", uploadAnswer({ ...file, uploadedAt: undefined }), uploaded()],
    ["no address", uploadAnswer({ ...file, downloadUrl: null }), FAILED],
    ["no data", uploadAnswer(null), FAILED],
    ["no success", uploadAnswer(file, { success: false }), FAILED],
    ["code 400", uploadAnswer(null, { code: 400, msg: "no file" }), refused("no file")],
    ["code 401", uploadAnswer(null, { code: 401 }), GATEWAY],
    ["HTTP 401", answered(401, { success: false, msg: "no" }), GATEWAY],
    ["code 429", uploadAnswer(null, { code: 429 }), LIMITED],
    ["code 500", uploadAnswer(null, { code: 500 }), FAILED],
    ["HTTP 502", answered(502, HTML), FAILED],
    ["HTML with 200", answered(200, HTML), FAILED],
  ])("%s", (_, response, meaning) => {
    expect(KIE.uploaded!(response, DEFAULTS)).toEqual(meaning);
  });
});

test("a callback names its task", () => {
  const named = (body: string) => KIE.callback!({ headers: {}, body, json: parseObject(body) }, DEFAULTS);
  expect(named(JSON.stringify({ code: 200, data: record("success") }))).toBe("t1");
  expect(named(JSON.stringify({ code: 501, msg: "failed", data: { taskId: "t1" } }))).toBe("t1");
  expect(named("{}")).toBeUndefined();
  expect(named(HTML)).toBeUndefined();
});
