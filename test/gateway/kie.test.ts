import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isObject, parseObject } from "../../src/domain/json.ts";
import type { Behaviour } from "../../src/sandbox/generator/behaviour.ts";
import { builtInChoices } from "../../src/upstream/adapter-choice.ts";
import { givenGateway, type Reply, type TestGateway } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { tinyImage } from "../support/images.ts";
import { BOAT, consumption } from "./spec-stage.ts";

// Guarantee: the whole interface runs on an upstream that speaks as kie.ai does, and the tables in docs/upstreams.md say what happens.

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/upstreams.md"), "utf8");
const dialect = builtInChoices().find(({ name }) => name === "kie");
const IMAGE = "https://files.example.com/cat.png";

let generator: Generator;
let gateway: TestGateway;
beforeAll(async () => {
  generator = await startGenerator({ as: "kie", apiKey: "upstream-secret", behaviour: { durationMs: 0 } });
  const config = {
    upstream: { dialect } as object,
    tasks: { cacheMs: 0 },
    sourceVideoHost: "https://sora.chatgpt.com",
  };
  gateway = await givenGateway({ generator, config });
});
beforeEach(() => generator.reset());
afterAll(async () => {
  await gateway?.stop();
  await generator?.stop();
});

const post = (key: string, endpoint: string, body: object) =>
  gateway.request("POST", `/api/v1/${endpoint}`, { key, body });
const poll = (key: string, id: string) => gateway.request("GET", `/api/v1/tasks/${id}`, { key });
const creates = () => generator.requests.filter(({ path }) => path.endsWith("/createTask")).length;

/** Holds the page to a row of one of its tables, in which what differs at each run is replaced. */
function expectRow(...cells: string[]): void {
  const stable = (cell: string): string =>
    cell
      .replaceAll(/task_[0-9a-f-]{36}/g, "ID")
      .replaceAll(/https?:\/\/127\.0\.0\.1:\d+\/[^"]*/g, (url) => (url.endsWith(".mp4") ? "VIDEO" : "IMAGE"))
      .replaceAll(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, "TIME")
      .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "UNIQUE");
  const shown = cells.map((cell) => (/[{/]/.test(cell) ? `\`${stable(cell)}\`` : cell));
  const line = `| ${shown.join(" | ")} |`;
  expect(PAGE.includes(`${line}\n`), `docs/upstreams.md lacks: ${line}`).toBe(true);
}

/** The customer's view: the data of a success, else code and text. */
function got({ status, body }: Reply): string {
  if (status === 200) return `200 ${JSON.stringify(body.data)}`;
  return `${status}, code ${body.code}: ${body.msg}`;
}

function sentLast(): string {
  const { method, path, body, fields } = generator.requests.at(-1)!;
  const sent = fields ? JSON.stringify(fields) : body;
  return sent === "" ? `${method} ${path}` : `${method} ${path} ${sent}`;
}

async function givenKey() {
  const issued = await gateway.givenKey({ credits: 1000 });
  return { key: issued.key, balance: () => consumption(gateway, issued) };
}

describe("all endpoints of the interface", () => {
  const shots = [{ Scene: "A cat", duration: 10 }];
  test.each<[string, object]>([
    ["gen2/text-to-video", { prompt: "A cat", aspectRatio: "9:16" }],
    ["gen2/image-to-video", { imageUrl: IMAGE, prompt: "It runs" }],
    ["gen2-pro/text-to-video", { prompt: "A cat", duration: 15, quality: "high" }],
    ["gen2-pro/image-to-video", { imageUrl: IMAGE }],
    ["gen2-pro/storyboard", { nFrames: "10", shots, imageUrls: [IMAGE] }],
    ["gen2/watermark-remove", { videoUrl: "https://sora.chatgpt.com/p/s_1" }],
  ])("%s", async (endpoint, body) => {
    const { key } = await givenKey();
    const reply = await post(key, endpoint, body);
    const taskId = reply.body.data.task_id;
    const back = JSON.stringify({ taskId });
    expectRow(`POST ${endpoint} ${JSON.stringify(body)}`, sentLast(), back, got(reply));
    expect(await poll(key, taskId)).toMatchObject({ status: 200, body: { data: { status: "completed" } } });
  });

  test("a task that completes, and one that fails and is refunded", async () => {
    const { key, balance } = await givenKey();
    const done = (await post(key, "gen2/text-to-video", BOAT)).body.data.task_id;
    const completed = await poll(key, done);
    const success = '{"taskId":"ID","state":"success","resultJson":"{\\"resultUrls\\":[\\"VIDEO\\"]}",...}';
    expectRow("GET tasks/ID", sentLast(), success, got(completed));
    expect(await balance()).toMatchObject({ balance: 990, totalUsed: 10, held: 0 });

    generator.behave({ failRatio: 1 });
    const broken = (await post(key, "gen2/text-to-video", BOAT)).body.data.task_id;
    const failed = await poll(key, broken);
    const fail = '{"taskId":"ID","state":"fail","failMsg":"The sandbox was told to fail",...}';
    expectRow("GET tasks/ID", sentLast(), fail, got(failed));
    expect(await balance()).toMatchObject({ balance: 990, totalUsed: 10, held: 0 });
  });

  test("an upload, whose address lives as long as kie.ai promises; and credits, which are the gateway's own", async () => {
    const { key } = await givenKey();
    const form = new FormData();
    form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
    const headers = { authorization: `Bearer ${key}` };
    const fromMs = Date.now();
    const answer = await fetch(`${gateway.url}/api/v1/upload`, { method: "POST", headers, body: form });
    const reply = { status: answer.status, headers: answer.headers, body: await answer.json() } as Reply;
    const back = '{"downloadUrl":"IMAGE","uploadedAt":TIME,...}';
    expectRow("POST upload", sentLast(), back, got(reply));
    const leftMs = Date.parse(reply.body.data.expires_at) - fromMs;
    expect(leftMs).toBeGreaterThan(86_390_000);
    expect(leftMs).toBeLessThan(86_460_000);

    const before = generator.requests.length;
    expect((await gateway.request("GET", "/api/v1/credits", { key })).status).toBe(200);
    expect(generator.requests.length).toBe(before);
  });
});

describe("the codes of kie.ai at a generation: charged only with an id in hand", () => {
  test.each([401, 402, 404, 422, 429, 433, 455, 500, 501, 505])("%i", async (code) => {
    const { key, balance } = await givenKey();
    generator.behave({ code, message: "Words of kie" });
    const reply = await post(key, "gen2/text-to-video", BOAT);
    const { balance: left, held, totalUsed } = await balance();
    const credits = held === 0 ? "free" : "held until the due time, then free";
    expectRow(String(code), got(reply), credits);
    expect({ credits: left + held, totalUsed }).toEqual({ credits: 1000, totalUsed: 0 });
  });

  test("what kie.ai does not have is refused before anything is held or sent", async () => {
    const { key, balance } = await givenKey();
    const before = creates();
    const body = { ...BOAT, aspectRatio: "1:1", negativePrompt: "rain" };
    const reply = await post(key, "gen2/text-to-video", body);
    expect(reply).toMatchObject({
      status: 400,
      body: { code: 400, details: [{ path: "/negativePrompt" }, { path: "/aspectRatio" }] },
    });
    expect(creates()).toBe(before);
    expect(await balance()).toMatchObject({ balance: 1000, totalUsed: 0, held: 0 });
  });
});

describe("the codes of kie.ai at a poll: no create follows, and only 501 ends the task", () => {
  test.each([401, 402, 404, 422, 429, 433, 455, 500, 501, 505])("%i", async (code) => {
    const { key, balance } = await givenKey();
    const taskId = (await post(key, "gen2/text-to-video", BOAT)).body.data.task_id;
    const before = creates();
    generator.behave({ pollCode: code, pollMessage: "Words of kie" } as Partial<Behaviour>);
    const reply = await poll(key, taskId);
    const ends = code === 501;
    expectRow(String(code), got(reply), ends ? "ended, refunded" : "runs on");
    expect(await balance()).toMatchObject({ totalUsed: ends ? 0 : 10 });
    await poll(key, taskId);
    expect(creates()).toBe(before);
  });
});

// Guarantee: a customer who has paid goes on polling while kie.ai does not show the new task yet.
test("a task of which kie.ai has no record yet is polled again, and completes", async () => {
  const { key } = await givenKey();
  const taskId = (await post(key, "gen2/text-to-video", BOAT)).body.data.task_id;
  generator.behave({ pollCode: 422, pollMessage: "recordInfo is null" } as Partial<Behaviour>);
  expect(await poll(key, taskId)).toMatchObject({ status: 502, body: { code: 502, retryAfter: 5 } });
  generator.reset();
  expect(await poll(key, taskId)).toMatchObject({ status: 200, body: { data: { status: "completed" } } });
});

test("a storyboard's callBackUrl goes to kie.ai", async () => {
  const { key } = await givenKey();
  const body = {
    nFrames: "10",
    shots: [{ Scene: "A cat", duration: 10 }],
    callBackUrl: "http://127.0.0.1:9/x",
  };
  expect((await post(key, "gen2-pro/storyboard", body)).status).toBe(200);
  const sent = parseObject(generator.requests.at(-1)!.body);
  expect(sent?.callBackUrl).toBe(body.callBackUrl);
  expect(isObject(sent?.input) && "callBackUrl" in sent.input).toBe(false);
});
