import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { expectStatus, givenGateway } from "../support/gateway.ts";
import { asking, BOAT, consumption, TEXT_TO_VIDEO } from "./spec-stage.ts";

/** A gateway before an upstream whose answers are these texts. Generations are answered with a task id of their own. */
async function givenAnswers(answers: { generation(taskId: string): string; poll(taskId: string): string }) {
  const server = createServer((req, res) => {
    const taskId = req.url!.split("/").at(-1)!;
    req.resume();
    const made = `t-${randomUUID()}`;
    res.end(req.method === "GET" ? answers.poll(taskId) : answers.generation(made));
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const upstreamUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const gateway = await givenGateway({ upstreamUrl, config: { tasks: { cacheMs: 0 } } });
  onTestFinished(async () => {
    await gateway.stop();
    server.closeAllConnections();
    server.close();
  });
  return gateway;
}

const envelope = (data: object): string => JSON.stringify({ code: 200, msg: "success", data });

// Guarantee: the video was made, so it is charged, though a byte order mark stands before the answer.
test("an upstream whose answers begin with a byte order mark is understood, and the mark goes no further", async () => {
  const data = (taskId: string) => ({ task_id: taskId, status: "processing", more: "\ufeff" });
  const marked = (taskId: string): string => `\ufeff${envelope(data(taskId))}`;
  const gateway = await givenAnswers({ generation: marked, poll: marked });
  const ask = asking(gateway);
  const issued = await gateway.givenKey({ credits: 100 });
  const made = await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
  expectStatus(made, 200);
  const taskId = made.body.data.task_id;
  expect(made.body).toEqual({ code: 200, msg: "success", data: data(taskId) });
  expect(await consumption(gateway, issued)).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
  const polled = await fetch(`${gateway.url}/api/v1/tasks/${taskId}`, {
    headers: { authorization: `Bearer ${issued.key}` },
  });
  expect(
    Buffer.from(await polled.arrayBuffer())
      .toString("latin1")
      .slice(0, 8),
  ).toBe('{"code":');
});

// Guarantee: what an upstream adds to a task fills neither the store nor every later answer about it.
test("a task that is described in more than 64 KiB is charged, and passes with the API's fields alone", async () => {
  const task = (taskId: string) => ({
    task_id: taskId,
    status: "completed",
    video_url: "https://a.example/v",
    created_at: "2026-01-01T00:00:00Z",
  });
  const padded = (taskId: string): string => envelope({ ...task(taskId), echo: "x".repeat(70_000) });
  const gateway = await givenAnswers({ generation: padded, poll: padded });
  const issued = await gateway.givenKey({ credits: 100 });
  const headers = { "idempotency-key": "once" };
  const generate = () => gateway.request("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT, headers });
  const made = await generate();
  const taskId = made.body.data.task_id;
  expect(made.body.data).toEqual(task(taskId));
  expect((await generate()).body.data, "a repeat is told the same").toEqual(task(taskId));
  expect(await consumption(gateway, issued)).toMatchObject({ balance: 90, held: 0, totalUsed: 10 });
  const poll = () => gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: issued.key });
  expect((await poll()).body.data).toEqual(task(taskId));
  expect((await poll()).body.data, "as it ended").toEqual(task(taskId));
});
