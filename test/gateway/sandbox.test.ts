import { createHash, randomUUID } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import type { Behaviour } from "../../src/sandbox/generator/behaviour.ts";
import type { GeneratorOptions } from "../../src/sandbox/generator/generator-routes.ts";
import { expectStatus } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { until } from "../support/until.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const STORYBOARD = "/api/v1/gen2-pro/storyboard";

const cleanups: Array<() => Promise<void>> = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

interface Envelope {
  code: number;
  msg: string;
  error?: string;
  retryAfter?: number;
  data?: Record<string, unknown>;
}

async function givenGenerator(options: GeneratorOptions = {}): Promise<Generator> {
  const generator = await startGenerator(options);
  cleanups.push(() => generator.stop());
  return generator;
}

/** A clock that stands still until it is told. */
function givenClock() {
  let nowMs = Date.UTC(2026, 0, 1);
  const advance = (ms: number) => {
    nowMs += ms;
  };
  return { now: () => nowMs, advance };
}

function post(
  generator: Generator,
  body: object | string,
  headers: Record<string, string> = {},
  path = TEXT_TO_VIDEO,
) {
  return fetch(generator.url + path, {
    method: "POST",
    headers: { authorization: "Bearer any", "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

function prompt(text: string): { prompt: string } {
  return { prompt: text };
}

async function envelope(response: Response): Promise<Envelope> {
  return (await response.json()) as Envelope;
}

async function taskId(response: Response): Promise<string> {
  const { data } = await envelope(response);
  return String(data?.task_id);
}

function poll(generator: Generator, id: string): Promise<Response> {
  return fetch(`${generator.url}/api/v1/tasks/${id}`, { headers: { authorization: "Bearer any" } });
}

async function polled(generator: Generator, id: string) {
  return (await envelope(await poll(generator, id))).data;
}

function form(bytes: string): FormData {
  const parts = new FormData();
  parts.set("file", new Blob([bytes], { type: "image/png" }), "pixel.png");
  return parts;
}

function upload(generator: Generator, body: FormData): Promise<Response> {
  return fetch(`${generator.url}/api/v1/upload`, {
    method: "POST",
    headers: { authorization: "Bearer any" },
    body,
  });
}

test("a task is pending, then processing with rising progress, then completed with media that answer", async () => {
  const clock = givenClock();
  const generator = await givenGenerator({
    now: clock.now,
    behaviour: { startDelayMs: 100, durationMs: 1_100 },
  });
  const id = await taskId(await post(generator, prompt("a boat")));
  expect(id).toMatch(/^[A-Za-z0-9_.~-]{1,200}$/);
  const created_at = "2026-01-01T00:00:00.000Z";
  expect(await polled(generator, id)).toEqual({ task_id: id, status: "pending", progress: 0, created_at });
  clock.advance(350);
  expect(await polled(generator, id)).toMatchObject({ status: "processing", progress: 25 });
  clock.advance(500);
  expect(await polled(generator, id)).toMatchObject({ status: "processing", progress: 75 });
  clock.advance(500);
  const done = await polled(generator, id);
  expect(done).toMatchObject({
    status: "completed",
    progress: 100,
    completed_at: "2026-01-01T00:00:01.100Z",
  });
  const video = await fetch(String(done?.video_url));
  expect(video.headers.get("content-type")).toBe("video/mp4");
  expect(Buffer.from(await video.arrayBuffer()).toString("latin1", 4, 8)).toBe("ftyp");
  const thumbnail = await fetch(String(done?.thumbnail_url));
  expect(Buffer.from(await thumbnail.arrayBuffer()).toString("latin1", 1, 4)).toBe("PNG");
});

test("all six generation endpoints make tasks, and other paths do not", async () => {
  const generator = await givenGenerator();
  const names = ["gen2/text-to-video", "gen2/image-to-video", "gen2/watermark-remove"];
  const pro = ["gen2-pro/text-to-video", "gen2-pro/image-to-video", "gen2-pro/storyboard"];
  const answers = await Promise.all(
    [...names, ...pro].map((name) => post(generator, {}, {}, `/api/v1/${name}`)),
  );
  expect(new Set(await Promise.all(answers.map(taskId))).size).toBe(6);
  expectStatus(await post(generator, {}, {}, "/api/v1/gen3/text-to-video"), 404);
});

test("a task is collected after an hour, and the oldest above the maximum", async () => {
  const clock = givenClock();
  const generator = await givenGenerator({ now: clock.now, tasksMax: 2 });
  const ids: string[] = [];
  for (const text of ["one", "two", "three"]) ids.push(await taskId(await post(generator, prompt(text))));
  const statuses = async () => Promise.all(ids.map(async (id) => (await poll(generator, id)).status));
  expect(await statuses()).toEqual([404, 200, 200]);
  clock.advance(3_600_000);
  expect(await statuses()).toEqual([404, 404, 404]);
});

test("failures: by directive for one task, and by ratio spread evenly", async () => {
  const generator = await givenGenerator({ behaviour: { durationMs: 0 } });
  const failed = await taskId(await post(generator, prompt("a boat [sandbox: fail]")));
  expect(await polled(generator, failed)).toMatchObject({ task_id: failed, status: "failed" });
  generator.behave({ failRatio: 0.5 });
  const states = [];
  for (let n = 0; n < 4; n++) {
    states.push((await polled(generator, await taskId(await post(generator, prompt("x")))))?.status);
  }
  expect(states.filter((state) => state === "failed")).toHaveLength(2);
});

test("the same Idempotency-Key gives the same task, even if its first answer was lost", async () => {
  const generator = await givenGenerator();
  const headers = { "idempotency-key": randomUUID() };
  generator.behave({ fault: "reset" });
  await expect(post(generator, prompt("x"), headers)).rejects.toThrow();
  generator.reset();
  const answers = [await post(generator, prompt("x"), headers), await post(generator, prompt("x"), headers)];
  const [first, second] = await Promise.all(answers.map((answer) => answer.text()));
  expect(first).toBe(second);
  expect(generator.requests.map((entry) => entry.taskId)).toEqual(
    Array(3).fill(JSON.parse(first!).data.task_id),
  );
  expect(await taskId(await post(generator, prompt("x"), { "idempotency-key": randomUUID() }))).not.toBe(
    generator.requests[0]?.taskId,
  );
});

test("any bearer token will do, unless one is given: then only that", async () => {
  const open = await givenGenerator();
  expectStatus(await post(open, prompt("x")), 200);
  expectStatus(await post(open, prompt("x"), { authorization: "Basic x" }), 401);
  const closed = await givenGenerator({ apiKey: "secret" });
  const refused = await post(closed, prompt("x"));
  expectStatus(refused, 401);
  expect(await envelope(refused)).toEqual({ code: 401, msg: "Invalid API key", error: "Invalid API key" });
  expectStatus(await post(closed, prompt("x"), { authorization: "Bearer secret" }), 200);
});

test("an uploaded image is served for five minutes, over HTTPS as the API promises, then 404", async () => {
  const clock = givenClock();
  const generator = await givenGenerator({ now: clock.now });
  const { data } = await envelope(await upload(generator, form("pretend")));
  expect(data).toMatchObject({ expires_at: "2026-01-01T00:05:00.000Z" });
  const url = String(data?.url);
  expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/files\/[\w-]+\.png$/);
  const plainUrl = url.replace(generator.tlsUrl, generator.url);
  clock.advance(299_999);
  expect(await getInsecurely(url)).toEqual({ status: 200, body: "pretend" });
  expect(await (await fetch(plainUrl)).text()).toBe("pretend");
  clock.advance(1);
  expect((await fetch(plainUrl)).status).toBe(404);
  const sha256 = createHash("sha256").update("pretend").digest("hex");
  expect(generator.requests[0]).toMatchObject({
    complete: true,
    file: { name: "pixel.png", type: "image/png", size: 7, sha256 },
  });
  expectStatus(await upload(generator, new FormData()), 400);
});

test("uploaded images have a public address only if it is HTTPS, else the gateway would refuse it", async () => {
  const urlWith = async (publicUrl: string) => {
    const generator = await givenGenerator({ publicUrl });
    const { data } = await envelope(await upload(generator, form("pretend")));
    return String(data?.url).replace(generator.tlsUrl, "own");
  };
  expect(await urlWith("https://sandbox.example")).toMatch(/^https:\/\/sandbox\.example\/files\//);
  expect(await urlWith("http://sandbox.example")).toMatch(/^own\/files\//);
});

function getInsecurely(url: string): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const request = httpsRequest(url, { rejectUnauthorized: false, agent: false }, (answer) => {
      readAll(answer).then((body) => resolve({ status: answer.statusCode, body }), reject);
    });
    request.on("error", reject).end();
  });
}

async function readAll(message: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of message) text += String(chunk);
  return text;
}

test("a storyboard's callBackUrl receives the task's envelope when it ends, and again after a refusal", async () => {
  const received: string[] = [];
  const twice = Promise.withResolvers<void>();
  const server = createServer(async (request, response) => {
    received.push(await readAll(request));
    response.writeHead(received.length === 1 ? 503 : 204).end();
    if (received.length === 2) twice.resolve();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  cleanups.push(async () => {
    server.close();
    server.closeAllConnections();
  });
  const callBackUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const generator = await givenGenerator({ callbackRetryMs: 0, behaviour: { durationMs: 0 } });
  const id = await taskId(await post(generator, { callBackUrl }, {}, STORYBOARD));
  await twice.promise;
  expect(received[0]).toBe(received[1]);
  expect(JSON.parse(received[1]!)).toEqual({ code: 200, msg: "success", data: await polled(generator, id) });
});

test("what is not JSON, or holds an unknown directive, is a 400 envelope", async () => {
  const generator = await givenGenerator();
  const garbage = await post(generator, "{");
  expectStatus(garbage, 400);
  expect(await envelope(garbage)).toMatchObject({ code: 400, error: "The body is not JSON" });
  const unknown = await post(generator, prompt("[sandbox: explode]"));
  expect(await envelope(unknown)).toMatchObject({ code: 400, msg: 'unknown sandbox directive "explode"' });
});

const REFUSALS: Array<
  [steering: Partial<Behaviour>, directive: string, status: number, body: Partial<Envelope>]
> = [
  [{ status: 429, retryAfterSeconds: 7 }, "status=429 retry-after=7s", 429, { code: 429, retryAfter: 7 }],
  [{ status: 503 }, "status=503", 503, { code: 503, error: "Service Unavailable" }],
  [{ status: 422, message: "No" }, "status=422, message=No", 422, { code: 422, msg: "No" }],
  [{ code: 402 }, "code=402", 200, { code: 402 }],
];

test.each(REFUSALS)("steered refusal %j makes no task", async (steering, directive, status, body) => {
  const generator = await givenGenerator();
  const byDirective = await post(generator, prompt(`[sandbox: ${directive}]`));
  generator.behave(steering);
  for (const answer of [byDirective, await post(generator, prompt("x"))]) {
    expectStatus(answer, status);
    expect(answer.headers.get("retry-after")).toBe(body.retryAfter ? String(body.retryAfter) : null);
    expect(await envelope(answer)).toMatchObject(body);
  }
  expect(generator.requests.filter((entry) => entry.taskId !== undefined)).toEqual([]);
});

test("broken answers: the task is made all the same", async () => {
  const generator = await givenGenerator();
  await expect(post(generator, prompt("[sandbox: reset]"))).rejects.toThrow();
  const truncated = await post(generator, prompt("[sandbox: truncate]"));
  await expect(truncated.text()).rejects.toThrow();
  const garbage = await post(generator, prompt("[sandbox: garbage]"));
  expectStatus(garbage, 200);
  await expect(garbage.json()).rejects.toThrow();
  const ids = generator.requests.map((entry) => entry.taskId!);
  expect(ids).toHaveLength(3);
  for (const id of ids) expect((await poll(generator, id)).status).toBe(200);
});

test("a hanging answer never comes, and stop() ends it", async () => {
  const generator = await givenGenerator();
  generator.behave({ pollFault: "hang" });
  const id = await taskId(await post(generator, prompt("x")));
  const hanging = poll(generator, id);
  const outcome = expect(hanging).rejects.toThrow();
  await until(() => generator.requests.length === 2, "the poll to arrive");
  await generator.stop();
  await outcome;
});

test("a slow answer waits, and a dripping one comes byte by byte", async () => {
  const generator = await givenGenerator();
  const startMs = performance.now();
  await taskId(await post(generator, prompt("[sandbox: delay=60ms]")));
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(55);
  const response = await post(generator, prompt("[sandbox: drip drip-ms=1]"));
  let chunks = 0;
  for await (const _ of response.body!) chunks++;
  expect(chunks).toBeGreaterThan(5);
});

test("task ids: none, the previous one again, or a fixed one", async () => {
  const generator = await givenGenerator();
  expect((await envelope(await post(generator, prompt("[sandbox: no-task-id]")))).data).toEqual({
    status: "pending",
  });
  const first = await taskId(await post(generator, prompt("x")));
  expect(await taskId(await post(generator, prompt("[sandbox: duplicate-task-id]")))).toBe(first);
  generator.behave({ taskId: "bad id" });
  expect(await taskId(await post(generator, prompt("x")))).toBe("bad id");
});

test("polls and uploads are steered apart from generations, and per task", async () => {
  const generator = await givenGenerator();
  const lost = await taskId(await post(generator, prompt("[sandbox: poll-status=404]")));
  const kept = await taskId(await post(generator, prompt("x")));
  expectStatus(await poll(generator, lost), 404);
  expectStatus(await poll(generator, kept), 200);
  generator.behave({ pollStatus: 500, uploadStatus: 413 });
  expectStatus(await poll(generator, kept), 500);
  expectStatus(await upload(generator, form("x")), 413);
  expectStatus(await post(generator, prompt("x")), 200);
});

test("PUT /sandbox/behaviour replaces what was steered, and refuses what it does not know", async () => {
  const generator = await givenGenerator({ behaviour: { durationMs: 7 } });
  const put = (body: object) =>
    fetch(`${generator.url}/sandbox/behaviour`, { method: "PUT", body: JSON.stringify(body) });
  expect(await (await put({ status: 503 })).json()).toMatchObject({ status: 503, durationMs: 7 });
  expectStatus(await post(generator, prompt("x")), 503);
  expectStatus(await put({ stauts: 503 }), 400);
  expectStatus(await put({ fault: "explode" }), 400);
  await put({});
  expectStatus(await post(generator, prompt("x")), 200);
  const now = await (await fetch(`${generator.url}/sandbox/behaviour`)).json();
  expect(now).toMatchObject({ status: 200, durationMs: 7 });
});

test("the log holds what arrived", async () => {
  const clock = givenClock();
  const generator = await givenGenerator({ now: clock.now });
  const id = await taskId(await post(generator, prompt("ünï"), { "x-request-id": "r1" }));
  expect(generator.requests).toEqual([
    {
      method: "POST",
      path: TEXT_TO_VIDEO,
      headers: expect.objectContaining({ "x-request-id": "r1" }),
      body: '{"prompt":"ünï"}',
      timeMs: clock.now(),
      complete: true,
      taskId: id,
    },
  ]);
});

test("as kie.ai: errors have HTTP 200 and a code, unless another status is asked for", async () => {
  const generator = await givenGenerator({ as: "kie", apiKey: "secret", behaviour: { durationMs: 0 } });
  const ask = async (method: string, path: string, body?: string | FormData, token = "secret") => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(generator.url + path, { method, headers, body: body ?? null });
    return { status: response.status, body: (await response.json()) as Envelope };
  };
  const create = (model: string, input: object) =>
    ask("POST", "/api/v1/jobs/createTask", JSON.stringify({ model, input }));
  const text = "sora-2-text-to-video";

  expect(await ask("GET", "/api/v1/jobs/recordInfo?taskId=x", undefined, "wrong")).toMatchObject({
    status: 200,
    body: { code: 401 },
  });
  expect(await ask("GET", "/api/v1/jobs/recordInfo?taskId=x")).toMatchObject({
    status: 200,
    body: { code: 404 },
  });
  expect(await create("sora-9", {})).toMatchObject({ status: 200, body: { code: 422 } });
  expect(await create(text, { aspect_ratio: "1:1" })).toMatchObject({ status: 200, body: { code: 422 } });
  expect(await create(text, { prompt: "[sandbox: code=455]" })).toMatchObject({
    status: 200,
    body: { code: 455 },
  });
  expect(await create(text, { prompt: "[sandbox: status=429]" })).toMatchObject({
    status: 429,
    body: { code: 429 },
  });
  const created = await create(text, {
    prompt: "A boat [sandbox: fail]",
    n_frames: "10",
    aspect_ratio: "portrait",
  });
  const id = String(created.body.data?.taskId);
  const { body } = await ask("GET", `/api/v1/jobs/recordInfo?taskId=${id}`);
  expect(body).toMatchObject({ code: 200, data: { taskId: id, state: "fail", failMsg: expect.any(String) } });
  expect(await ask("POST", "/api/file-stream-upload", form("x"))).toMatchObject({ body: { code: 422 } });
});
