import { randomUUID } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { expectStatus, givenGateway, until } from "../support/gateway.ts";
import { tinyImage } from "../support/images.ts";
import { BOAT, consumption, TEXT_TO_VIDEO } from "./spec-stage.ts";

type Answer = (response: ServerResponse, taskId: string) => void;
interface Answers {
  generation?: Answer;
  poll?: Answer;
  upload?: Answer;
}

const json =
  (status: number, body: object): Answer =>
  (response) =>
    void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
const task = (taskId: string, more: object = {}) => ({ task_id: taskId, status: "processing", ...more });
const telling =
  (status: number, code: unknown, more: object = {}): Answer =>
  (response, taskId) =>
    json(status, { code, msg: "success", data: task(taskId, more) })(response, taskId);
const uploaded = { url: "https://files.example/a.png", expires_at: "2026-01-01T00:05:00Z" };
const UPLOADED = { code: 200, msg: "success", data: uploaded };

/** A gateway before an upstream that gives these answers, and else those of the API. They may change. */
async function givenAnswers(answers: Answers, tasks: { maxAgeMs?: number } = {}) {
  const server = createServer((request, response) => {
    const taskId = request.method === "GET" ? request.url!.split("/").at(-1)! : `t-${randomUUID()}`;
    const {
      generation = telling(200, 200),
      poll = telling(200, 200),
      upload = json(200, UPLOADED),
    } = answers;
    const answer = request.method === "GET" ? poll : request.url!.endsWith("/upload") ? upload : generation;
    request.resume().on("end", () => answer(response, taskId));
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const upstreamUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const gateway = await givenGateway({ upstreamUrl, config: { tasks: { cacheMs: 0, ...tasks } } });
  onTestFinished(async () => {
    await gateway.stop();
    server.closeAllConnections();
    server.close();
  });
  const issued = await gateway.givenKey({ credits: 100 });
  const { key } = issued;
  return {
    gateway,
    generate: () => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT }),
    poll: (taskId: string) => gateway.request("GET", `/api/v1/tasks/${taskId}`, { key }),
    async upload() {
      const form = new FormData();
      form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
      const headers = { authorization: `Bearer ${key}` };
      return (await fetch(`${gateway.url}/api/v1/upload`, { method: "POST", headers, body: form })).status;
    },
    balance: () => consumption(gateway, issued),
  };
}

// Guarantee: no video for nothing. What the upstream has made, by whichever sign of success, is charged and can be polled.
describe.each<[string, number, unknown]>([
  ["201", 201, 200],
  ["202", 202, 200],
  ["203", 203, 200],
  ["code 0", 200, 0],
  ["no code", 200, undefined],
])("a success with %s", (_, status, code) => {
  test("is charged, polled and uploaded to", async () => {
    const upload = json(status, { ...UPLOADED, code: code ?? 200 });
    const given = await givenAnswers({
      generation: telling(status, code),
      poll: telling(status, code),
      upload,
    });
    const made = await given.generate();
    expectStatus(made, 200);
    expect(await given.balance()).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
    const polled = await given.poll(made.body.data.task_id);
    expectStatus(polled, 200);
    expect(polled.body.data).toMatchObject({ status: "processing" });
    expect(await given.upload()).toBe(200);
  });
});

// Guarantee: no video for nothing, also where the task stands beside the code.
test("a task outside of data is charged, and polled to its end", async () => {
  const beside =
    (status: string, more: object = {}): Answer =>
    (response, taskId) =>
      json(200, { code: 200, msg: "success", ...task(taskId, { status, ...more }) })(response, taskId);
  const video_url = "https://videos.example/v.mp4";
  const given = await givenAnswers({
    generation: beside("pending"),
    poll: beside("completed", { video_url }),
  });
  const made = await given.generate();
  expectStatus(made, 200);
  expect(made.body.data).toMatchObject({ status: "pending" });
  expect(await given.balance()).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
  const polled = await given.poll(made.body.data.task_id);
  expect(polled.body.data).toMatchObject({ status: "completed", video_url });
  expect(Object.keys(polled.body.data)).not.toContain("code");
});

// Guarantee: the upstream's bill can be matched by the log, and the customer is told nothing of it.
test.each<[string, Answer, number, RegExp]>([
  ["unclear", telling(500, 500), 502, /HTTP 500, code 500, task id t-[\w-]+: \{"code":500/],
  ["refused", json(400, { message: "Bad aspect", id: "req-7" }), 400, /HTTP 400, no code: .*"id":"req-7"/],
  ["busy", json(503, { id: "req-7" }), 502, /HTTP 503, no code: .*req-7/],
  ["redirected", (response) => void response.writeHead(302, { location: "/login" }).end(), 502, /HTTP 302/],
])(
  "an answer that is %s is in the log with its status, its code and its beginning",
  async (_, generation, status, detail) => {
    const given = await givenAnswers({ generation });
    const reply = await given.generate();
    expectStatus(reply, status);
    const line = given.gateway.logs.find(
      (text) => text.includes(TEXT_TO_VIDEO) && text.includes('"outcome"'),
    );
    expect(JSON.parse(line!).detail).toMatch(detail);
    expect(JSON.stringify(reply.body)).not.toMatch(/HTTP \d|req-7|t-/);
  },
);

test("an id beside a refusal keeps the hold: a task may run", async () => {
  const given = await givenAnswers({ generation: telling(409, 409) });
  expectStatus(await given.generate(), 502);
  expect(await given.balance()).toMatchObject({ balance: 90, held: 10, totalUsed: 0 });
});

test("a redirect of a generation gives the credits back at once", async () => {
  const given = await givenAnswers({ generation: (response) => void response.writeHead(301).end() });
  expectStatus(await given.generate(), 502);
  expect(await given.balance()).toMatchObject({ balance: 100, held: 0, totalUsed: 0 });
});

// Guarantee: RFC 9110 15.2. Any number of interim answers may come unasked, on all three ways.
test.each<[string, (response: ServerResponse) => void]>([
  ["100", (response) => response.writeContinue()],
  [
    "100, 102, 103 and 100",
    (response) => {
      response.writeContinue();
      response.writeProcessing();
      response.writeEarlyHints({ link: "</x>; rel=preload" });
      response.writeContinue();
    },
  ],
])("an upstream that sends %s unasked is understood", async (_, interim) => {
  const behind =
    (answer: Answer): Answer =>
    (response, taskId) => {
      interim(response);
      answer(response, taskId);
    };
  const given = await givenAnswers({
    generation: behind(telling(200, 200)),
    poll: behind(telling(200, 200)),
    upload: behind(json(200, UPLOADED)),
  });
  const made = await given.generate();
  expectStatus(made, 200);
  expectStatus(await given.poll(made.body.data.task_id), 200);
  expect(await given.upload()).toBe(200);
  expect(await given.balance()).toMatchObject({ balance: 90, held: 0 });
});

const COUNT = "tollgate_upstream_unusable_states_total";
const lineOf = (given: Awaited<ReturnType<typeof givenAnswers>>, text: string) =>
  given.gateway.logs.filter((line) => line.includes(text));

test("a state of another name is answered as the last known one, named, and fails at its maximum age", async () => {
  const answers: Answers = { poll: telling(200, 200, { progress: "40%", created_at: 1_700_000_000 }) };
  const given = await givenAnswers(answers, { maxAgeMs: 2000 });
  const made = await given.generate();
  const taskId = made.body.data.task_id;
  const before = (await given.poll(taskId)).body.data;
  expect(before).toMatchObject({
    status: "processing",
    progress: 40,
    created_at: expect.stringMatching(/Z$/),
  });
  answers.poll = telling(200, 200, { status: "upscaling" });
  const reply = await given.poll(taskId);
  expectStatus(reply, 200);
  expect(reply.body.data).toEqual(before);
  const fresh = await given.generate();
  const unpolled = await given.poll(fresh.body.data.task_id);
  expect(unpolled.body.data, "without a last state").toMatchObject({ status: "pending" });
  const lines = lineOf(given, "a state that is not known");
  expect(lines.map((line) => JSON.parse(line).upstream_status)).toEqual(["upscaling"]);
  expect(await given.gateway.metric(COUNT)).toContain(`${COUNT}{kind="unknown_status"} 2`);
  await until(async () => (await given.poll(taskId)).body.data.status === "failed");
  expect(await given.balance()).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
  expect(lineOf(given, "gave no usable answer"), "it did answer").toEqual([]);
});

// Guarantee: a result without what was paid for is not a result, and nobody pays for it.
test("completed without a usable video_url counts as processing, and is refunded at its maximum age", async () => {
  const given = await givenAnswers(
    { poll: telling(200, 200, { status: "completed", video_url: "" }) },
    { maxAgeMs: 1000 },
  );
  const made = await given.generate();
  const taskId = made.body.data.task_id;
  const reply = await given.poll(taskId);
  expect(reply.body.data).toMatchObject({ task_id: taskId, status: "processing" });
  expect(lineOf(given, "without a usable video_url")).toHaveLength(1);
  expect(await given.gateway.metric(COUNT)).toContain(`${COUNT}{kind="completed_without_video"} 1`);
  await until(async () => (await given.poll(taskId)).body.data.status === "failed");
  expect(await given.balance()).toMatchObject({ balance: 100, held: 0, totalUsed: 0 });
});

test("the refusal of a poll is in the log as what it is", async () => {
  const given = await givenAnswers({ poll: json(200, { code: 501, msg: "task generation failed" }) });
  const made = await given.generate();
  expectStatus(await given.poll(made.body.data.task_id), 502);
  const [line] = lineOf(given, "the upstream refused a poll");
  expect(JSON.parse(line!)).toMatchObject({
    task_id: made.body.data.task_id,
    detail: 'HTTP 200, code 501: {"code":501,"msg":"task generation failed"}',
  });
});

// Guarantee: what a customer can mend is said to the customer, in the upstream's words.
test.each<[string, number, object, string]>([
  ["error.message", 400, { error: { message: "No such size" } }, "No such size"],
  ["message", 422, { message: "No such size" }, "No such size"],
  ["detail", 400, { detail: "No such size" }, "No such size"],
  ["a moderated prompt", 403, { error: { message: "Your prompt was rejected" } }, "Your prompt was rejected"],
])("a refusal by %s reaches the customer and the log", async (_, status, body, text) => {
  const given = await givenAnswers({ generation: json(status, body) });
  const reply = await given.generate();
  expectStatus(reply, status);
  expect(reply.body).toMatchObject({ error: text, msg: text });
  expect(lineOf(given, text).some((line) => JSON.parse(line).route === TEXT_TO_VIDEO)).toBe(true);
  expect(await given.balance()).toMatchObject({ balance: 100, held: 0 });
});
