import { randomUUID } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { builtInChoices } from "../../src/upstream/adapter-choice.ts";
import { expectStatus, givenGateway } from "../support/gateway.ts";
import { asking, BOAT, consumption, TEXT_TO_VIDEO } from "./spec-stage.ts";

type Answer = (taskId: string, response: ServerResponse) => string | undefined;

/** A gateway before an upstream that gives these answers; what is undefined is answered by `Answer` itself. */
async function givenAnswers(answers: { generation: Answer; poll: Answer }, adapter = "envelope") {
  const server = createServer((request, response) => {
    request.resume();
    const isPoll = request.method === "GET";
    const taskId = isPoll ? request.url!.split(/[/=]/).at(-1)! : `t-${randomUUID()}`;
    const text = (isPoll ? answers.poll : answers.generation)(taskId, response);
    if (text !== undefined) response.end(text);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const upstreamUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const dialect = builtInChoices().find(({ name }) => name === adapter);
  const config = { upstream: { dialect } as object, tasks: { cacheMs: 0 } };
  const gateway = await givenGateway({ upstreamUrl, config });
  onTestFinished(async () => {
    await gateway.stop();
    server.closeAllConnections();
    server.close();
  });
  const issued = await gateway.givenKey({ credits: 100 });
  const { key } = issued;
  return {
    gateway,
    key,
    generate: () => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT }),
    poll: (taskId: string) => gateway.request("GET", `/api/v1/tasks/${taskId}`, { key }),
    balance: () => consumption(gateway, issued),
  };
}

const task = (taskId: string, more = ""): string => `{"code":200,"data":{"task_id":"${taskId}"${more}}}`;
const NANOSECONDS = ',"created_at":1764180000000000000,"completed_at":1764180000000000000';
const DONE = ',"status":"completed","video_url":"https://v.example/1"';

// Guarantee: no video for nothing, and none paid that cannot be had, whatever an upstream calls a time.
test("a task whose times are numbers that no double holds is charged, and completes", async () => {
  const given = await givenAnswers({
    generation: (taskId) => task(taskId, NANOSECONDS),
    poll: (taskId) => task(taskId, NANOSECONDS + DONE),
  });
  const made = await given.generate();
  expectStatus(made, 200);
  expect(await given.balance()).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
  const polled = await given.poll(made.body.data.task_id);
  expectStatus(polled, 200);
  expect(polled.body.data).toMatchObject({ status: "completed", video_url: "https://v.example/1" });
});

test.each(["2026-02-31T06:00:00Z", "2026-11-30T24:00:00Z"])(
  "a time that is none, %s, is not handed on as it is",
  async (time) => {
    const given = await givenAnswers({
      generation: (taskId) => task(taskId),
      poll: (taskId) => task(taskId, `,"created_at":"${time}","completed_at":"${time}"${DONE}`),
    });
    const made = await given.generate();
    // The reply is held to the times of docs/openapi.json.
    const path = `/api/v1/tasks/${made.body.data.task_id}`;
    const polled = await asking(given.gateway)("GET", path, { key: given.key });
    expect(polled.body.data).toMatchObject({ status: "completed" });
  },
);

test("a task that failed is refunded, and shows no video", async () => {
  const given = await givenAnswers({
    generation: (taskId) => task(taskId),
    poll: (taskId) => task(taskId, DONE.replace("completed", "failed")),
  });
  const made = await given.generate();
  for (const when of ["as it ends", "afterwards"]) {
    const polled = await given.poll(made.body.data.task_id);
    expect(polled.body.data, when).toMatchObject({ status: "failed" });
    expect(polled.body.data, when).not.toHaveProperty("video_url");
  }
  expect(await given.balance()).toMatchObject({ balance: 100, held: 0, totalUsed: 0 });
});

test("an id in an answer that breaks off keeps the hold and is in the log", async () => {
  let made = "";
  const given = await givenAnswers({
    generation(taskId, response) {
      made = taskId;
      response.writeHead(200, { "content-length": "999" });
      response.write(task(taskId), () => setTimeout(() => response.socket?.resetAndDestroy(), 50));
      return undefined;
    },
    poll: () => "",
  });
  expectStatus(await given.generate(), 502);
  expect(await given.balance()).toMatchObject({ balance: 90, held: 10 });
  expect(given.gateway.logs.filter((line) => line.includes(made))).toHaveLength(1);
});

// Guarantee: nothing that a customer wrote is in the log, however the upstream repeats it when it is polled.
test.each<[string, (prompt: string) => string]>([
  ["a member of any name", (prompt) => JSON.stringify({ code: 500, msg: "away", request: { prompt } })],
  ["beside the reason", (prompt) => JSON.stringify({ detail: [{ msg: "away", input: { prompt } }] })],
  ["a list", (prompt) => JSON.stringify([{ msg: "away", prompt }])],
  ["JSON that was cut", (prompt) => `{"code":200,"msg":"away","data":{"prompt":"${prompt}","sta`],
  ["JSON nested too deep", (prompt) => `{"prompt":"${prompt}","x":${"[".repeat(500)}${"]".repeat(500)}}`],
])("a poll that is answered with the prompt in %s is logged without it", async (_, answerOf) => {
  const given = await givenAnswers({
    generation: (taskId) => task(taskId),
    poll: () => answerOf(BOAT.prompt),
  });
  const made = await given.generate();
  expectStatus(await given.poll(made.body.data.task_id), 502);
  expect(given.gateway.logs.filter((line) => line.includes('"detail":"HTTP 200'))).not.toHaveLength(0);
  expect(given.gateway.logs.filter((line) => line.includes(BOAT.prompt))).toEqual([]);
});

// Guarantee: a video that kie.ai has made and billed is delivered and paid, and not refunded at its maximum age.
test.each([
  ["a state in capitals", "SUCCESS", ["https://v.example/1"]],
  ["an empty address before the video's", "success", ["", "https://v.example/1"]],
  ["one address that is in no list", "success", "https://v.example/1"],
  ["a space before the address", "success", [" https://v.example/1"]],
])("kie: a success with %s completes", async (_, state, resultUrls) => {
  const resultJson = JSON.stringify({ resultUrls });
  const given = await givenAnswers(
    {
      generation: (taskId) => JSON.stringify({ code: 200, data: { taskId } }),
      poll: (taskId) => JSON.stringify({ code: 200, data: { taskId, state, resultJson } }),
    },
    "kie",
  );
  const made = await given.generate();
  const polled = await given.poll(made.body.data.task_id);
  const video = { status: "completed", video_url: expect.stringMatching(/^ ?https:\/\/v\.example\/1$/) };
  expect(polled.body.data).toMatchObject(video);
  expect(await given.balance()).toMatchObject({ balance: 90, active: 0 });
});
